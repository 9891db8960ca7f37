"""Collected episodes: what one is, who moves, determinism, environments that break."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_trainers import frozen, joint, newborn, pixels, symbolic

from mirrormark.agent.acting import Actor, encode
from mirrormark.config import ActionNoiseConfig
from mirrormark.training.env_config import EnvConfig, babbling_of
from mirrormark.training.rollout import collect, plan_episodes
from mirrormark.training.schedule import Iteration
from mirrormark.training.trainer import UnstableEnvs


def iteration(index=0, policy=True) -> Iteration:
    return Iteration(index, "training", 4, 4, 1, ("world_model",), policy, False, False, 0.0)


@torch.no_grad()
def pushes_hard(agent, mean: float = 3.0, spread: float = -30.0) -> None:
    """A policy that does the same whatever it sees, with hardly any noise."""
    last = agent.policy.network[-1]
    last.weight.zero_()
    last.bias.copy_(torch.tensor([mean] * 12 + [spread] * 12))


def test_plans_are_half_and_half():
    plan = plan_episodes(64, iteration=3, seed=1, policy_share=0.5)
    assert plan.random == 32 and plan.marked[:32].sum() == 16 and plan.marked[32:].sum() == 16
    assert plan_episodes(64, 3, 1, 0.0).random == 64
    assert len(set(plan.seeds.tolist())) == 64
    odd = np.stack([plan_episodes(5, iteration, 0, 0.5).marked for iteration in range(2)])
    assert (odd.sum(0) == 1).all()  # odd numbers even out over neighbouring iterations


def test_plans_differ_by_iteration_and_seed_and_repeat_themselves():
    a, b, c = plan_episodes(8, 0, 0, 0.5), plan_episodes(8, 1, 0, 0.5), plan_episodes(8, 0, 1, 0.5)
    assert not np.array_equal(a.seeds, b.seeds) and not np.array_equal(a.seeds, c.seeds)
    assert np.array_equal(a.seeds, plan_episodes(8, 0, 0, 0.5).seeds)


def test_mirrorless_rooms_are_spread_over_a_run_and_kept_out_of_evaluations():
    kinds = [mirror.kind for mirror in EnvConfig(mirrorless_share=0.2).mirrors(100)]
    assert (kinds.count("absent"), kinds.count("covered"), kinds.count("present")) == (10, 10, 80)
    assert all("present" in kinds[i : i + 2] for i in range(99))
    trainer = newborn(joint())
    trainer.env = replace(trainer.env, mirrorless_share=0.5)
    assert [mirror.kind for mirror in trainer.make_envs(6).mirrors].count("present") == 3
    assert {mirror.kind for mirror in trainer.make_envs(6, evaluation=True).mirrors} == {"present"}
    with pytest.raises(ValueError, match=r"env\.mirrorless_share is a share"):
        EnvConfig(mirrorless_share=1.0)


def test_an_episode_begins_with_the_resets_frame_and_ends_without_an_action():
    trainer = newborn(joint())
    envs = trainer.make_envs(4)
    plan = plan_episodes(4, 0, 0, 0.0)
    episodes = collect(envs, babbling_of(trainer.env, envs), plan, None)
    assert episodes.observation["vision"].shape == (4, 101, 64, 64, 3)
    assert episodes.action.shape == (4, 101, 12) and (episodes.action[:, -1] == 0).all()
    observation, info = envs.reset(seed=plan.seeds.tolist(), marked=plan.marked)
    for t in range(3):
        for name, value in observation.items():
            assert np.array_equal(episodes.observation[name][:, t].numpy(), value), (name, t)
        assert np.array_equal(episodes.mark[:, t].numpy(), info["mark_present"])
        observation, _, _, _, info = envs.step(episodes.action[:, t].numpy())
    assert np.array_equal(episodes.marked.numpy(), plan.marked)


def test_the_same_seed_collects_the_same_and_another_does_not():
    first, second, other = (newborn(symbolic(), seed).collect(iteration()) for seed in (0, 0, 1))
    assert torch.equal(first.action, second.action)
    assert torch.equal(first.observation["tokens"], second.observation["tokens"])
    assert not torch.equal(first.action, other.action)


def test_the_policys_half_is_moved_by_the_policy():
    trainer = newborn(symbolic())
    trainer.config = replace(trainer.config, handover_share=0.0)
    pushes_hard(trainer.agent)
    episodes = trainer.collect(iteration())
    assert episodes.policy.tolist() == [False, False, True, True]
    assert (episodes.action[2:, :-1] > 0.9).all()
    assert (episodes.action[:2, :-1] < 0).any()


def test_where_the_policy_hands_over_babbling_takes_over():
    trainer = newborn(symbolic())
    pushes_hard(trainer.agent)
    envs, plan = trainer.make_envs(4), plan_episodes(4, 0, 0, 0.5, handover_share=1.0)
    assert (
        plan.handover[:2].tolist() == [0, 0] and ((plan.handover[2:] >= 16) & (plan.handover[2:] < 76)).all()
    )
    actor, tokenizes = Actor(trainer.agent, 2, noise_rho=0.0), trainer.agent
    episodes = collect(envs, babbling_of(trainer.env, envs), plan, actor, tokenizes)
    babbling = collect(envs, babbling_of(trainer.env, envs), plan._replace(random=4), None, tokenizes)
    assert torch.equal(episodes.action[:2], babbling.action[:2])
    for i in (2, 3):
        when = int(plan.handover[i])
        assert (episodes.action[i, :when] > 0.9).all()
        assert torch.equal(episodes.action[i, when:], babbling.action[i, when:])
    assert episodes.handover.tolist() == plan.handover.tolist()


def test_how_many_handover_is_a_share_of_the_policys():
    plan = plan_episodes(4000, 0, 0, 0.5, handover_share=0.25)
    assert (plan.handover[:2000] == 0).all()
    assert (plan.handover[2000:] < 101).mean() == pytest.approx(0.25, abs=0.03)
    assert (plan_episodes(100, 0, 0, 0.5).handover[50:] == 101).all()


@pytest.mark.parametrize("preset", [symbolic(), pixels()], ids=["symbolic", "pixels"])
def test_tokens_that_are_stored_are_those_of_the_frames(preset):
    trainer = frozen(preset)
    envs, plan = trainer.make_envs(4), plan_episodes(4, 0, 0, 0.0)
    frames = collect(envs, babbling_of(trainer.env, envs), plan, None)
    stored = collect(envs, babbling_of(trainer.env, envs), plan, None, trainer.agent)
    flat = {name: value.flatten(0, 1) for name, value in frames.observation.items()}
    assert torch.equal(encode(trainer.agent, flat), stored.observation["tokens"].flatten(0, 1))


@pytest.mark.parametrize("acting_context", [0, 9, 30])
def test_the_actor_acts_on_what_a_full_pass_would_give(acting_context):
    """Its growing, cut-back past equals running the sequence model over the same steps at once."""
    ours = symbolic()
    long = replace(ours.training, batch=replace(ours.training.batch, sequence_frames=31))
    trainer = newborn(replace(ours, agent=replace(ours.agent, acting_context=acting_context), training=long))
    actor, agent = Actor(trainer.agent, 3, "mean"), trainer.agent
    generator = torch.Generator().manual_seed(0)
    frames = [torch.randint(8, (3, agent.spec.K), generator=generator) for _ in range(12)]
    past, actions, begin = agent.config.imagination.context - 1, [], 0
    for t, tokens in enumerate(frames):
        if t - begin > (acting_context or past + agent.config.imagination.horizon):
            begin = t - past
        expected = torch.zeros(3, agent.world_model.config.width)
        if t > begin:
            steps = torch.stack(frames[begin:t], 1), torch.stack(actions[begin:t], 1)
            expected = agent.world_model(*steps, dropout=False)[:, -1]
        torch.testing.assert_close(actor.hidden, expected, atol=1e-5, rtol=1e-4)
        actions.append(torch.from_numpy(actor.act_on(tokens)))
    assert (begin > 0) is (acting_context < 12)  # the past was cut back at least once, or never
    assert actor.expected_free_energy.shape == (3,)


def test_equal_seeds_draw_equal_noise_and_the_mean_draws_none():
    trainer = newborn(symbolic())
    tokens = torch.zeros(2, trainer.agent.spec.K, dtype=torch.int64)
    acts = []
    for seed in (1, 1, 2):
        actor = Actor(trainer.agent, 2)
        actor.begin(seed)
        acts.append(actor.act_on(tokens))
    assert np.array_equal(acts[0], acts[1]) and not np.array_equal(acts[0], acts[2])
    means = [Actor(trainer.agent, 2, "mean").act_on(tokens) for _ in range(2)]
    assert np.array_equal(means[0], means[1])
    with pytest.raises(ValueError, match="mode"):
        Actor(trainer.agent, 2, "best")  # type: ignore[arg-type]


@pytest.mark.parametrize("noise_rho", [0.0, 0.9])
def test_noise_lasts_as_long_as_asked_and_is_as_strong(noise_rho):
    ours = symbolic()
    noise = ActionNoiseConfig(noise_rho, None)
    trainer = newborn(replace(ours, agent=replace(ours.agent, action_noise=noise)))
    pushes_hard(trainer.agent, 0.0, 0.0)
    actor, tokens = Actor(trainer.agent, 400), torch.zeros(400, trainer.agent.spec.K, dtype=torch.int64)
    acts = np.stack([np.arctanh(actor.act_on(tokens).clip(-0.9999, 0.9999)) for _ in range(6)])
    assert acts.std((1, 2)) == pytest.approx(acts[0].std(), rel=0.06)
    for later in (1, 3):
        lasts = np.corrcoef(acts[0].ravel(), acts[later].ravel())[0, 1]
        assert lasts == pytest.approx(noise_rho**later, abs=0.06)
    actor.begin(0)
    anew = np.arctanh(actor.act_on(tokens).clip(-0.9999, 0.9999))
    assert np.array_equal(anew, acts[0])


@pytest.mark.parametrize("power", [2.0, 6.0])
def test_noise_lasts_less_and_less_and_in_the_end_as_asked(power):
    ours = symbolic()
    noise = ActionNoiseConfig(0.9, 0.1, power)
    trainer = newborn(replace(ours, agent=replace(ours.agent, action_noise=noise)))
    assert Actor(trainer.agent, 2).noise_rho == pytest.approx(0.1)  # whoever meets the agent later
    lasted = []
    for iteration in trainer.schedule.iterations():
        iteration = iteration._replace(policy_acts=True)
        trainer.collect(iteration)
        (actor,) = trainer._actors.values()
        lasted.append(actor.noise_rho)
        assert lasted[-1] == pytest.approx(0.9 - 0.8 * iteration.progress**power)
    assert lasted[0] == pytest.approx(0.9) and lasted[-1] < 0.8


class Breaking:
    """Real environments, some of which report broken physics at step 5."""

    def __init__(self, envs, broken: list[int]) -> None:
        self.envs, self.broken, self.n, self.actions, self.t = envs, broken, envs.n, envs.actions, 0

    def reset(self, **options):
        self.t = 0
        return self.envs.reset(**options)

    def step(self, action):
        *rest, info = self.envs.step(action)
        self.t += 1
        if self.t == 5:
            info["unstable"] = info["unstable"].copy()
            info["unstable"][self.broken] = True
        return *rest, info


def test_an_unstable_environment_is_left_out_and_too_many_stop_the_run():
    trainer = newborn(symbolic())
    trainer._envs[4, False] = Breaking(trainer.make_envs(4), [1])  # type: ignore[assignment]
    episodes = trainer.collect(iteration())
    assert len(episodes.marked) == 3 and episodes.policy.tolist() == [False, True, True]
    assert trainer.run_iteration(iteration(policy=False))["unstable_envs"] == 1
    trainer._envs[4, False].broken = [0, 1, 3]  # type: ignore[attr-defined]
    with pytest.raises(UnstableEnvs, match="3 of 4 environments"):
        trainer.collect(iteration())


def test_the_public_codes_actor_is_blind_to_the_present_frame_and_begins_at_random():
    """D10: its first action is even over [-1, 1], from its own generator; the next is chosen before it
    sees."""
    trainer, later, first = newborn(joint(as_public_code=True)), [], []
    agent = trainer.agent.eval()
    actor = Actor(agent, 200, "mean")
    for seed, fill in ((1, 0), (1, 3), (2, 0)):
        actor.begin(seed)
        torch.manual_seed(fill)
        first.append(actor.act_on(torch.full((200, agent.spec.K), fill)))
    assert np.array_equal(first[0], first[1]) and not np.array_equal(first[0], first[2])
    share = np.histogram(first[0], bins=4, range=(-1, 1))[0] / first[0].size
    assert np.abs(share - 0.25).max() < 0.05
    for fill in (0, 3):
        actor.begin(1)
        actor.act_on(torch.zeros(200, agent.spec.K, dtype=torch.int64))
        now = torch.full((200, agent.spec.K), fill)
        later.append([actor.act_on(now), actor.act_on(now)])
    assert np.array_equal(later[0][0], later[1][0]) and not np.array_equal(later[0][1], later[1][1])
