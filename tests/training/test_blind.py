"""The public code's policy acts on a prediction of the present frame, blind to it (D10)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_trainers import born, symbolic

from mirrormark.training.rollout import Actor


def blind():
    """The public code's policy (D10) in a symbolic life."""
    ours = symbolic()
    policy = replace(ours.agent.policy, acts_on="prior")
    world_model = replace(ours.agent.world_model, chained=False, memory_trace=0.0)
    losses = replace(ours.agent.losses, policy_on_policy_share=0.0)
    imagination = replace(ours.agent.imagination, acting_context=0)
    agent = replace(
        ours.agent, policy=policy, world_model=world_model, losses=losses, imagination=imagination
    )
    return replace(ours, agent=agent)


@pytest.mark.parametrize("mode", ["sample", "mean"])
def test_a_blind_actors_first_action_is_random_and_its_own(mode):
    """D10: from the actor's generator, not from the first tokens, the policy or torch's own numbers."""
    trainer = born(blind())
    actor, acts = Actor(trainer.agent, 200, mode), []
    for seed, fill in ((1, 0), (1, 3), (2, 0)):
        torch.manual_seed(fill)
        actor.begin(seed)
        acts.append(actor.act_on(torch.full((200, trainer.agent.spec.K), fill)))
    assert np.array_equal(acts[0], acts[1]) and not np.array_equal(acts[0], acts[2])
    share = np.histogram(acts[0], bins=4, range=(-1, 1))[0] / acts[0].size
    assert np.abs(share - 0.25).max() < 0.05
    with torch.no_grad():
        trainer.agent.policy.head.weight.zero_()
        trainer.agent.policy.head.bias.copy_(torch.tensor([3.0] * 12 + [-30.0] * 12))
    assert (actor.act_on(torch.zeros(200, trainer.agent.spec.K, dtype=torch.int64)) > 0.7).all()  # the second


def test_a_blind_actor_does_not_see_the_present_frame():
    trainer, later = born(blind()), []
    actor = Actor(trainer.agent, 6, "mean")
    for fill in (0, 3):
        actor.begin(1)
        actor.act_on(torch.zeros(6, trainer.agent.spec.K, dtype=torch.int64))
        torch.manual_seed(1)
        now = torch.full((6, trainer.agent.spec.K), fill)
        later.append([actor.act_on(now), actor.act_on(now)])
    assert np.array_equal(later[0][0], later[1][0]) and not np.array_equal(later[0][1], later[1][1])
