"""Indicators: each gate on agents and data whose answer is known."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_trainers import joint, newborn, pixels, symbolic

from mirrormark.config import EvaluationConfig
from mirrormark.envs.raycaster.eye import NO_CELL
from mirrormark.training import evaluation, evaluation_dreams, held_out
from mirrormark.training.env_config import EnvConfig
from mirrormark.training.held_out import HELD_OUT_SEED, hold_out
from mirrormark.training.rollout import plan_episodes


@pytest.fixture(scope="module")
def seen():
    """Held-out pixels."""
    return hold_out(EnvConfig(), EvaluationConfig(babbling_episodes=8, pairs=24, policy_episodes=4), "cpu")


@pytest.fixture(scope="module")
def told():
    """Held-out symbols."""
    config = EvaluationConfig(babbling_episodes=48, pairs=40, policy_episodes=4)
    return hold_out(symbolic().env, config, "cpu")


def test_pairs_differ_in_the_marks_pixels_only(seen):
    shown, hidden = seen.pairs.with_mark["vision"], seen.pairs.without_mark["vision"]
    differs = (shown.int() - hidden.int()).abs().amax(-1) > 0
    assert len(shown) > 10 and seen.pairs.mask.flatten(1).any(1).all()
    assert not (differs & ~seen.pairs.mask).any()  # sensor noise is the same in both
    assert (differs & seen.pairs.mask).sum() > 0.9 * seen.pairs.mask.sum()
    assert torch.equal(seen.pairs.with_mark["proprioception"], seen.pairs.without_mark["proprioception"])


def test_symbolic_pairs_have_a_cell_and_none(told):
    assert (told.pairs.with_mark["cell"] < NO_CELL).all()
    assert (told.pairs.without_mark["cell"] == NO_CELL).all()


def test_no_run_has_held_out_seeds(told):
    assert plan_episodes(1000, 5, 3, 0.5).seeds.max() < HELD_OUT_SEED
    assert told.episodes.marked.float().mean() == 0.75
    assert 0 <= told.removal_rate < 1 and 0.01 < told.distance_m < 0.5


class Painter(torch.nn.Module):
    """An agent whose tokenizer paints what it is told to, whatever it encodes."""

    def __init__(self, agent, painted):
        super().__init__()
        self.tokenizer, self.world_model, self.painted = agent.tokenizer, agent.world_model, painted
        self._agent, self._row, self.device = agent, 0, agent.device

    def encode(self, observation, sample=True):
        return self._agent.encode(observation, sample)

    def decode(self, tokens):
        rows = slice(self._row, self._row + len(tokens))
        self._row += len(tokens)
        return self._agent.tokenizer.targets({k: v[rows] for k, v in self.painted.items()})


def test_mark_recovery_is_one_for_the_frame_itself_and_zero_for_the_frame_without_mark(seen):
    agent = newborn(joint()).agent
    assert evaluation.mark_recovery(Painter(agent, seen.pairs.with_mark), seen.pairs) == pytest.approx(1.0)
    assert evaluation.mark_recovery(Painter(agent, seen.pairs.without_mark), seen.pairs) == pytest.approx(0.0)
    half = {k: v.clone() for k, v in seen.pairs.with_mark.items()}
    blend = (seen.pairs.with_mark["vision"].float() + seen.pairs.without_mark["vision"].float()) / 2
    half["vision"] = blend / 255
    assert evaluation.mark_recovery(Painter(agent, half), seen.pairs) == pytest.approx(0.75, abs=0.01)


def test_the_symbolic_tokenizer_loses_no_cell(told):
    assert evaluation.mark_recovery(newborn(symbolic()).agent, told.pairs) == 1.0


def test_the_gap_is_what_the_density_says(told):
    """A self-prior that gives "no cell" log-odds of 5 over any other cell has a gap of 5."""
    agent = newborn(symbolic()).agent
    with torch.no_grad():
        for parameter in agent.self_prior.parameters():
            parameter.zero_()
        agent.self_prior.bias[-1, NO_CELL] = 5.0
    assert evaluation.efe_gap_nats(agent, told.pairs) == pytest.approx(5.0, abs=1e-4)


def test_posture_range_counts_seconds_not_moments():
    flat = torch.full((4, 101), 10.0)
    assert evaluation.posture_range_nats(flat) == pytest.approx(0.0)
    moment = flat.clone()
    moment[:, 50] = 0.0  # one lucky frame is worth a twentieth of a window
    assert evaluation.posture_range_nats(moment) < 0.6
    calm = flat.clone()
    calm[0, 20:80] = 2.0
    assert evaluation.posture_range_nats(calm) == pytest.approx(float(calm.mean()) - 2.0, abs=0.05)


def test_removals_are_found_ten_steps_ahead_and_only_with_room():
    mark = torch.zeros(5, 101, dtype=torch.bool)
    mark[0, :40] = True  # came off at frame 40
    mark[1] = True  # stayed
    mark[2, :12] = True  # too early for a context of 4 before frame 2
    mark[3, :95] = True  # too late for 20 steps after frame 85
    rows, present = evaluation_dreams.find_removals(mark, context=4)
    assert rows.tolist() == [0] and present.tolist() == [30]


def test_a_perfect_dreamer_falls_like_the_world_and_a_stubborn_one_does_not(told, monkeypatch):
    agent = newborn(symbolic()).agent
    with torch.no_grad():
        for parameter in agent.self_prior.parameters():
            parameter.zero_()
        agent.self_prior.bias[-1, NO_CELL] = 5.0
    tokens = held_out.encode_in_pieces(agent, told.episodes.observation)
    cost = held_out.efe(agent, tokens)
    mark = told.episodes.mark
    rows, present = evaluation_dreams.find_removals(mark, agent.config.imagination.context)
    assert len(rows) >= 3
    real = tokens[rows, present + 20], tokens[mark.all(1), :][:, 0]

    def perfect(world_model, context, past, ahead):
        end = real[0] if len(context) == len(rows) else context[:, -1]
        return torch.stack([context[:, -1], end], 1)

    monkeypatch.setattr(evaluation_dreams, "predict", perfect)
    found = evaluation_dreams.dreamed_removal(agent, told, tokens, cost, 5.0)
    assert found["dreamed_fall_nats"] == pytest.approx(found["real_fall_nats"])
    assert found["dreamed_gone_where_removed"] == 1.0
    assert found["dreamed_fall_ratio"] == pytest.approx(1)
    assert 0.8 < found["dreamed_fall_contrast"] < 1.3  # it lets every other mark be, as most are
    monkeypatch.setattr(
        evaluation_dreams, "predict", lambda d, context, *_: torch.stack([context[:, -1]] * 2, 1)
    )
    stubborn = evaluation_dreams.dreamed_removal(agent, told, tokens, cost, 5.0)
    assert stubborn["dreamed_fall_nats"] == pytest.approx(0.0)
    assert stubborn["dreamed_gone_where_kept"] <= 0.5
    assert stubborn["dreamed_fall_contrast"] == pytest.approx(0)
    silent = tokens[:1, 0].clone()
    silent[:, -1] = NO_CELL
    monkeypatch.setattr(evaluation_dreams, "predict", lambda d, c, *_: silent.expand(len(c), 2, -1))
    fading = evaluation_dreams.dreamed_removal(agent, told, tokens, cost, 5.0)
    assert fading["dreamed_fall_ratio"] == pytest.approx(1, abs=0.05)  # all marks fade: a perfect ratio
    assert abs(fading["dreamed_fall_contrast"]) < 0.5  # which tells nothing apart


class Measured:
    """Real worlds whose hands are said to be so far from the mark."""

    def __init__(self, envs, distance_m: np.ndarray) -> None:
        self._envs, self._distance_m, self.n = envs, distance_m, envs.n  # (steps, n)
        self._t = 0

    def reset(self, **options):
        return self._envs.reset(**options)

    def step(self, action):
        *rest, info = self._envs.step(action)
        self._t += 1
        return *rest, info | {"hand_mark_distance_m": self._distance_m[self._t - 1]}


def test_optimism_is_what_the_dream_lacks_of_the_real_cost(told, monkeypatch):
    """The world's own future is no optimism; a dream that stands still lacks what the world adds later."""
    agent = newborn(symbolic()).agent
    tokens = held_out.encode_in_pieces(agent, told.episodes.observation)[:4, :100]
    action, cost = told.episodes.action[:4, :100], held_out.efe(agent, tokens)
    ahead = slice(50, 50 + evaluation_dreams.DREAM_CONTROL_STEPS + 1)

    def optimism(imagined, cost=cost):
        def replay(_, past, acted, to_do):
            assert torch.equal(past[:, -1], tokens[:, 50]) and acted.shape[1] == past.shape[1] - 1
            assert torch.equal(to_do, action[:, ahead][:, :-1])
            return imagined

        monkeypatch.setattr(evaluation_dreams, "predict", replay)
        return evaluation_dreams.dream_optimism_nats(agent, tokens, action, cost)

    assert optimism(tokens[:, ahead]) == pytest.approx(0, abs=1e-4)
    still = tokens[:, 50:51].expand_as(tokens[:, ahead])
    rising = cost[:, 50:51] + torch.arange(100.0)
    assert optimism(still, rising) == pytest.approx(float(torch.arange(51.0, 71.0).mean()), abs=1e-3)


def test_a_long_context_is_whole_when_optimism_is_asked_for(told, monkeypatch):
    """It begins with the episode, and the second that follows is compared with the second that followed."""
    agent = newborn(symbolic()).agent
    c = agent.config
    model, imagination = replace(c.world_model, max_length=100), replace(c.imagination, context=70)
    agent.config = replace(c, world_model=model, imagination=imagination, acting_context=0)
    tokens = held_out.encode_in_pieces(agent, told.episodes.observation)[:4, :100]
    cost = held_out.efe(agent, tokens)

    def replay(_, past, acted, to_do):
        assert torch.equal(past, tokens[:, :70]) and acted.shape[1] == 69 and to_do.shape[1] == 20
        return tokens[:, 69:90]

    monkeypatch.setattr(evaluation_dreams, "predict", replay)
    assert evaluation_dreams.dream_optimism_nats(
        agent, tokens, told.episodes.action[:4], cost
    ) == pytest.approx(0, abs=1e-4)


def test_the_band_of_distances_is_over_episodes_not_over_moments():
    """Four episodes around 1, 2, 3 and 4 cm; each moves by ±1 cm, and in the last one the mark comes off."""
    trainer = newborn(symbolic())
    distance_m = np.tile([0.01, 0.02, 0.03, 0.04], (100, 1))
    distance_m[::2] += 0.01
    distance_m[1::2] -= 0.01
    distance_m[50:, 3] = np.nan
    done = evaluation.behave(trainer.agent, Measured(trainer.make_envs(4, evaluation=True), distance_m))  # type: ignore[arg-type]
    assert done.distance_p05_m == pytest.approx(0.0115) and done.distance_p95_m == pytest.approx(0.0385)


def test_the_cost_of_a_worn_mark_is_taken_while_it_is_on(monkeypatch):
    """Marks that go after 30 control steps, and a cost that tells the time."""
    trainer = newborn(symbolic())
    envs, clock = trainer.make_envs(4, evaluation=True), torch.arange(100.0).expand(4, 100)
    step = envs.step

    def losing(action):
        *rest, info = step(action)
        return *rest, info | {"mark_present": info["t"] < 30}

    monkeypatch.setattr(envs, "step", losing)
    monkeypatch.setattr(evaluation, "efe", lambda _, tokens: clock[:, : tokens.shape[1]])
    done = evaluation.behave(trainer.agent, envs)
    assert done.efe_nats == pytest.approx(49.5) and done.efe_worn_nats == pytest.approx(14.5)


def test_all_indicators_have_the_keys_and_repeat_themselves(told):
    trainer = newborn(symbolic())
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        results.append(evaluation.indicators(trainer.agent, told, trainer.make_envs(4, evaluation=True)))
    keys = {"mark_recovery", "efe_gap_nats", "efe_gap_per_posture_range", "dreamed_fall_nats", "removal_rate"}
    keys |= {"distance_m", "distance_p05_m", "distance_p95_m", "chance_removal_rate", "yoked_rate"}
    assert keys <= set(results[0])
    assert results[0] == results[1]
    known = [value for value in results[0].values() if value is not None]
    assert np.isfinite(known).all() and len(known) >= len(results[0]) - 2


def test_a_dream_is_not_compared_with_a_fall_that_did_not_happen(told):
    """A self-prior that prefers the mark: G rises when it goes, and a ratio would mean nothing."""
    agent = newborn(symbolic()).agent
    with torch.no_grad():
        for parameter in agent.self_prior.parameters():
            parameter.zero_()
        agent.self_prior.bias[-1, NO_CELL] = -5.0
    tokens = held_out.encode_in_pieces(agent, told.episodes.observation)
    found = evaluation_dreams.dreamed_removal(agent, told, tokens, held_out.efe(agent, tokens), 5.0)
    assert found["real_fall_nats"] < 0 and found["dreamed_fall_ratio"] is None
    assert found["dreamed_fall_nats"] is not None


@pytest.mark.parametrize("preset", [symbolic(), pixels(), joint()], ids=["symbolic", "pixels", "paper"])
@pytest.mark.parametrize("kind", ["absent", "covered"])
def test_where_no_mark_is_ever_seen_the_indicators_that_need_one_are_unknown(preset, kind, tmp_path):
    env = replace(preset.env, mirror=replace(preset.env.mirror, kind=kind))
    trainer = newborn(replace(preset, env=env))
    held = hold_out(env, EvaluationConfig(babbling_episodes=4, pairs=4, policy_episodes=4), "cpu")
    found = evaluation.indicators(trainer.agent, held, trainer.make_envs(4, evaluation=True))
    unknown = ("mark_recovery", "efe_gap_nats", "efe_gap_per_posture_range", "dreamed_fall_nats")
    assert len(held.pairs.mask) == 0 and all(found[name] is None for name in unknown)
    assert found["posture_range_nats"] is not None and found["removal_rate"] is not None
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_without_a_removal_dreamed_removal_is_unknown(told):
    agent = newborn(symbolic()).agent
    tokens = held_out.encode_in_pieces(agent, told.episodes.observation)
    stays = told._replace(episodes=told.episodes._replace(mark=torch.ones_like(told.episodes.mark)))
    found = evaluation_dreams.dreamed_removal(agent, stays, tokens, held_out.efe(agent, tokens), 5.0)
    assert found["removals_found"] == 0
    assert all(
        found[name] is None for name in ("dreamed_fall_nats", "dreamed_fall_ratio", "dreamed_fall_contrast")
    )
    assert json.loads(json.dumps(found)) == found
