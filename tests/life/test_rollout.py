"""Rollouts: what an episode is, who moves, determinism, worlds that break."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_lives import born, joint, symbolic

from mirrormark.life.live import Life, UnstableWorlds
from mirrormark.life.rollout import Actor, Sight, encode, gather, recipe
from mirrormark.life.schedule import Lap
from mirrormark.life.setup import WorldSetup, movement_of


def lap(index=0, policy=True) -> Lap:
    return Lap(index, "life", 4, 4, 1, ("world",), policy, False, False, 0.0)


def test_recipes_are_half_and_half():
    plan = recipe(64, lap=3, seed=1, policy_share=0.5)
    assert plan.random == 32 and plan.marked[:32].sum() == 16 and plan.marked[32:].sum() == 16
    assert recipe(64, 3, 1, 0.0).random == 64
    assert len(set(plan.seeds.tolist())) == 64
    odd = np.stack([recipe(5, lap, 0, 0.5).marked for lap in range(2)])
    assert (odd.sum(0) == 1).all()  # odd numbers even out over neighbouring laps


def test_recipes_differ_by_lap_and_seed_and_repeat_themselves():
    a, b, c = recipe(8, 0, 0, 0.5), recipe(8, 1, 0, 0.5), recipe(8, 0, 1, 0.5)
    assert not np.array_equal(a.seeds, b.seeds) and not np.array_equal(a.seeds, c.seeds)
    assert np.array_equal(a.seeds, recipe(8, 0, 0, 0.5).seeds)


def test_mirrorless_rooms_are_spread_over_a_life_and_kept_out_of_exams():
    kinds = [mirror.kind for mirror in WorldSetup(mirrorless_share=0.2).mirrors(100)]
    assert (kinds.count("absent"), kinds.count("covered"), kinds.count("present")) == (10, 10, 80)
    assert all("present" in kinds[i : i + 2] for i in range(99))
    life = born(joint())
    life.world = replace(life.world, mirrorless_share=0.5)
    assert [mirror.kind for mirror in life.worlds(6).mirrors].count("present") == 3
    assert {mirror.kind for mirror in life.worlds(6, examined=True).mirrors} == {"present"}
    with pytest.raises(ValueError, match=r"world\.mirrorless_share is a share"):
        WorldSetup(mirrorless_share=1.0)


def test_an_episode_begins_with_the_resets_frame_and_ends_without_an_action():
    life = born(joint())
    worlds = life.worlds(4)
    plan = recipe(4, 0, 0, 0.0)
    episodes = gather(worlds, movement_of(life.world, worlds), plan, None)
    assert episodes.observation["vision"].shape == (4, 101, 64, 64, 3)
    assert episodes.action.shape == (4, 101, 12) and (episodes.action[:, -1] == 0).all()
    observation, info = worlds.reset(seed=plan.seeds.tolist(), marked=plan.marked)
    for t in range(3):
        for name, value in observation.items():
            assert np.array_equal(episodes.observation[name][:, t].numpy(), value), (name, t)
        assert np.array_equal(episodes.mark[:, t].numpy(), info["mark_present"])
        observation, _, _, _, info = worlds.step(episodes.action[:, t].numpy())
    assert np.array_equal(episodes.marked.numpy(), plan.marked)


def test_the_same_seed_gathers_the_same_and_another_does_not():
    first, second, other = (born(symbolic(), seed).gather(lap()) for seed in (0, 0, 1))
    assert torch.equal(first.action, second.action)
    assert torch.equal(first.observation["latent"], second.observation["latent"])
    assert not torch.equal(first.action, other.action)


def test_the_policys_half_is_moved_by_the_policy():
    life = born(symbolic())
    life.config = replace(life.config, let_go_share=0.0)
    with torch.no_grad():
        life.mind.policy.head.weight.zero_()
        life.mind.policy.head.bias.copy_(
            torch.tensor([3.0] * 12 + [-30.0] * 12)
        )  # push hard, hardly any noise
    episodes = life.gather(lap())
    assert episodes.policy.tolist() == [False, False, True, True]
    assert (episodes.action[2:, :-1] > 0.9).all()
    assert (episodes.action[:2, :-1] < 0).any()


def test_where_the_policy_lets_go_everyday_movement_takes_over():
    life = born(symbolic())
    with torch.no_grad():
        life.mind.policy.head.weight.zero_()
        life.mind.policy.head.bias.copy_(torch.tensor([3.0] * 12 + [-30.0] * 12))
    worlds, plan = life.worlds(4), recipe(4, 0, 0, 0.5, let_go_share=1.0)
    assert plan.let_go[:2].tolist() == [0, 0] and ((plan.let_go[2:] >= 16) & (plan.let_go[2:] < 76)).all()
    actor, sight = Actor(life.mind, 2), Sight(life.mind, replays=False)
    episodes = gather(worlds, movement_of(life.world, worlds), plan, actor, sight)
    everyday = gather(worlds, movement_of(life.world, worlds), plan._replace(random=4), None, sight)
    assert torch.equal(episodes.action[:2], everyday.action[:2])
    for i in (2, 3):
        when = int(plan.let_go[i])
        assert (episodes.action[i, :when] > 0.9).all()
        assert torch.equal(episodes.action[i, when:], everyday.action[i, when:])
    assert episodes.let_go.tolist() == plan.let_go.tolist()


def test_how_many_let_go_is_a_share_of_the_policys():
    plan = recipe(4000, 0, 0, 0.5, let_go_share=0.25)
    assert (plan.let_go[:2000] == 0).all()
    assert (plan.let_go[2000:] < 101).mean() == pytest.approx(0.25, abs=0.03)
    assert (recipe(100, 0, 0, 0.5).let_go[50:] == 101).all()


def test_latents_that_are_stored_are_those_of_the_frames():
    life = born(symbolic())
    worlds, plan = life.worlds(4), recipe(4, 0, 0, 0.0)
    frames = gather(worlds, movement_of(life.world, worlds), plan, None)
    stored = gather(worlds, movement_of(life.world, worlds), plan, None, Sight(life.mind, replays=False))
    flat = {name: value.flatten(0, 1) for name, value in frames.observation.items()}
    assert torch.equal(encode(life.mind, flat), stored.observation["latent"].flatten(0, 1))


@pytest.mark.parametrize("remembers", [0, 9, 30])
def test_the_actor_acts_on_what_a_full_pass_would_give(remembers):
    """Its growing, cut-back past equals running the sequence model over the same steps at once."""
    ours = symbolic()
    imagination = replace(ours.mind.imagination, remembers=remembers)
    long = replace(ours.life, learner=replace(ours.life.learner, world_frames=31))
    life = born(replace(ours, mind=replace(ours.mind, imagination=imagination), life=long))
    actor, mind = Actor(life.mind, 3, "mean"), life.mind
    generator = torch.Generator().manual_seed(0)
    frames = [torch.randint(8, (3, mind.spec.K), generator=generator) for _ in range(12)]
    past, actions, begin = mind.config.imagination.context - 1, [], 0
    for t, latent in enumerate(frames):
        if t - begin > (remembers or past + mind.config.imagination.horizon):
            begin = t - past
        expected = torch.zeros(3, mind.dynamics.width)
        if t > begin:
            steps = torch.stack(frames[begin:t], 1), torch.stack(actions[begin:t], 1)
            expected = mind.dynamics(*steps, dropout=False)[:, -1]
        torch.testing.assert_close(actor.hidden, expected, atol=1e-5, rtol=1e-4)
        actions.append(torch.from_numpy(actor.act_on(latent)))
    assert (begin > 0) is (remembers < 12)  # the past was cut back at least once, or never
    assert actor.expected_free_energy.shape == (3,)


def test_equal_seeds_draw_equal_noise_and_the_mean_draws_none():
    life = born(symbolic())
    latent = torch.zeros(2, life.mind.spec.K, dtype=torch.int64)
    acts = []
    for seed in (1, 1, 2):
        actor = Actor(life.mind, 2)
        actor.begin(seed)
        acts.append(actor.act_on(latent))
    assert np.array_equal(acts[0], acts[1]) and not np.array_equal(acts[0], acts[2])
    means = [Actor(life.mind, 2, "mean").act_on(latent) for _ in range(2)]
    assert np.array_equal(means[0], means[1])
    with pytest.raises(ValueError, match="mode"):
        Actor(life.mind, 2, "best")  # type: ignore[arg-type]


@pytest.mark.parametrize("persistence", [0.0, 0.9])
def test_noise_lasts_as_long_as_asked_and_is_as_strong(persistence):
    ours = symbolic()
    policy = replace(ours.mind.policy, persistence=persistence, final_persistence=None)
    life = born(replace(ours, mind=replace(ours.mind, policy=policy)))
    with torch.no_grad():
        life.mind.policy.head.weight.zero_()
        life.mind.policy.head.bias.zero_()
    actor, latent = Actor(life.mind, 400), torch.zeros(400, life.mind.spec.K, dtype=torch.int64)
    acts = np.stack([np.arctanh(actor.act_on(latent).clip(-0.9999, 0.9999)) for _ in range(6)])
    assert acts.std((1, 2)) == pytest.approx(acts[0].std(), rel=0.06)
    for later in (1, 3):
        lasts = np.corrcoef(acts[0].ravel(), acts[later].ravel())[0, 1]
        assert lasts == pytest.approx(persistence**later, abs=0.06)
    actor.begin(0)
    anew = np.arctanh(actor.act_on(latent).clip(-0.9999, 0.9999))
    assert np.array_equal(anew, acts[0])
    with pytest.raises(ValueError, match=r"policy\.persistence is 1.0"):
        replace(policy, persistence=1.0)
    with pytest.raises(ValueError, match=r"policy\.final_persistence is -0.1"):
        replace(policy, final_persistence=-0.1)


@pytest.mark.parametrize("power", [2.0, 6.0])
def test_noise_lasts_less_and_less_and_in_the_end_as_asked(power):
    ours = symbolic()
    policy = replace(ours.mind.policy, persistence=0.9, final_persistence=0.1, persistence_power=power)
    life = born(replace(ours, mind=replace(ours.mind, policy=policy)))
    assert Actor(life.mind, 2).persistence == pytest.approx(0.1)  # whoever meets the mind later
    lasted = []
    for lap in life.schedule.laps():
        lap = lap._replace(policy_moves=True)
        life.gather(lap)
        (actor,) = life._actors.values()
        lasted.append(actor.persistence)
        assert lasted[-1] == pytest.approx(0.9 - 0.8 * lap.progress**power)
    assert lasted[0] == pytest.approx(0.9) and lasted[-1] < 0.8
    with pytest.raises(ValueError, match=r"policy\.persistence_power is 0"):
        replace(policy, persistence_power=0)


@pytest.mark.gpu
@pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["tokens", "joint"])
def test_a_replayed_rollout_is_the_eager_one(preset):
    """Seeing and acting from graphs, over two laps between which the mind has learned."""
    told = []
    for replays in (True, False):
        learner = replace(preset.life.learner, replays=replays, compile=False)
        life = Life(preset.world, preset.mind, replace(preset.life, learner=learner), 0, "cuda")
        laps = [life.gather(lap(0))]
        with torch.no_grad():
            for parameter in life.mind.policy.parameters():
                parameter.add_(0.1)
        told.append([*laps, life.gather(lap(1))])
    for replayed, eager in zip(*told):
        torch.testing.assert_close(replayed.action, eager.action, atol=1e-3, rtol=1e-3)
        assert torch.equal(replayed.mark, eager.mark)
    assert not torch.equal(told[0][0].action, told[0][1].action)


class Breaking:
    """Real worlds, some of which report broken physics at step 5."""

    def __init__(self, worlds, broken: list[int]) -> None:
        self.worlds, self.broken, self.n, self.actions, self.t = worlds, broken, worlds.n, worlds.actions, 0

    def reset(self, **options):
        self.t = 0
        return self.worlds.reset(**options)

    def step(self, action):
        *rest, info = self.worlds.step(action)
        self.t += 1
        if self.t == 5:
            info["unstable"] = info["unstable"].copy()
            info["unstable"][self.broken] = True
        return *rest, info


def test_an_unstable_world_is_left_out_and_too_many_stop_the_run():
    life = born(symbolic())
    life._worlds[4, False] = Breaking(life.worlds(4), [1])  # type: ignore[assignment]
    episodes = life.gather(lap())
    assert len(episodes.marked) == 3 and episodes.policy.tolist() == [False, True, True]
    assert life.live(lap(policy=False))["unstable_worlds"] == 1
    life._worlds[4, False].broken = [0, 1, 3]  # type: ignore[attr-defined]
    with pytest.raises(UnstableWorlds, match="3 of 4 worlds"):
        life.gather(lap())
