"""Behavior sources: what policy and value learn from."""

import pytest
import torch
from tiny_trainers import joint, newborn, symbolic, with_episodes

from mirrormark.agent.losses import LAMBDA
from mirrormark.training.behavior import Imagination


@pytest.mark.parametrize("as_public_code", [False, True], ids=["paper", "code"])
def test_the_papers_agent_learns_from_imagination_alone(as_public_code):
    """P3: only the code weighs losses by γ^t."""
    trainer = with_episodes(newborn(joint(as_public_code)))
    (source,) = trainer.learner.sources
    assert isinstance(source, Imagination) and (source.policy_share, source.value_share) == (1, 1)
    rollout = source.rollout(trainer.agent, trainer.buffer)
    paths, horizon = trainer.config.batch.imagined, source.horizon
    assert rollout.tokens.shape == (paths, horizon + 1, trainer.agent.spec.K)
    assert rollout.cost.shape == rollout.lambda_.shape == rollout.weight.shape == (paths, horizon)
    assert (rollout.lambda_ == LAMBDA).all()
    late = source.discount ** torch.arange(horizon)
    torch.testing.assert_close(rollout.weight[0], late if as_public_code else torch.ones(horizon))


def test_shares_of_all_sources_are_one():
    sources = newborn(symbolic()).learner.sources
    assert len(sources) == 2
    for name in ("policy_share", "value_share"):
        assert sum(getattr(source, name) for source in sources) == pytest.approx(1)


def test_imagination_starts_anywhere_in_replay(monkeypatch):
    """No draw by groups serves it: the labels that fill the groups would choose where it starts."""
    trainer = with_episodes(newborn(symbolic()))
    for name in ("sequences", "frames", "diet", "newest"):
        monkeypatch.setattr(trainer.buffer, name, None)
    imagination = trainer.learner.sources[-1]
    asked, draw = [], trainer.buffer.windows
    monkeypatch.setattr(trainer.buffer, "windows", lambda *a: asked.append(a) or draw(*a))
    imagination.rollout(trainer.agent, trainer.buffer)
    assert asked == [(trainer.config.batch.imagined, trainer.agent.config.imagination.context)]


def test_a_rollout_has_no_gradient_and_its_losses_have():
    trainer = with_episodes(newborn(symbolic()))
    for source in trainer.learner.sources:
        policy, value = source.losses(trainer.agent, source.rollout(trainer.agent, trainer.buffer))
        assert policy.value.requires_grad and value.value.requires_grad
        assert not any(metric.requires_grad for loss in (policy, value) for metric in loss.metrics.values())
