"""The learner: what a step changes, that it learns, that labels stay outside, that bad steps do nothing."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tiny_lives import born, joint, symbolic, weights

from mirrormark.life.descent import ADAM, CLIP_WARMUP_STEPS, Descent, DescentConfig
from mirrormark.life.learner import LearnerConfig
from mirrormark.life.live import live
from mirrormark.life.nan import NotFinite
from mirrormark.life.schedule import Lap
from mirrormark.mind.numerics import ZClip
from mirrormark.mind.objective import behaviour_objective

ALL = ("world", "self_prior", "policy")


@pytest.fixture(autouse=True)
def _compiled_anew():
    torch._dynamo.reset()


def lap(stages=ALL, steps=3, index=0) -> Lap:
    return Lap(index, "life", 4, 4, steps, stages, True, False, False, 0.0)


def lived(preset, laps: int = 1):
    life = born(preset)
    for i in range(laps):
        life.memory.extend(life.gather(lap(index=i)))
    return life


def changed(before: dict, after: dict) -> set[str]:
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    return {".".join(name.split(".")[: 2 if name.startswith("ema") else 1]) for name in moved}


@pytest.mark.parametrize(
    ("stages", "parts"),
    [
        (("world",), {"dynamics", "outlook"}),
        (("self_prior",), {"self_prior", "ema.self_prior"}),
        (("policy",), {"policy", "value", "ema.value", "return_range"}),
        (
            ALL,
            {"dynamics", "outlook", "self_prior", "ema.self_prior", "policy", "value", "ema.value"}
            | {"return_range"},
        ),
    ],
)
def test_a_stage_changes_its_own_parts_only(stages, parts):
    life = lived(symbolic())
    before = weights(life)
    life.learner.learn(life.memory, lap(stages))
    assert changed(before, weights(life)) == parts


def test_the_rate_term_grows_along_its_ramp():
    preset = symbolic()
    mind = replace(preset.mind, losses=replace(preset.mind.losses, quiet_ramp=0.5))
    life = lived(replace(preset, mind=mind))
    shares = []
    for progress in (0.0, 0.25, 0.5, 0.75):
        life.learner.learn(life.memory, lap(("world",), 1)._replace(progress=progress))
        shares.append(float(life.mind.quiet_share))
    assert shares == [0.0, 0.5, 1.0, 1.0]


def test_a_state_holds_all_that_a_repeated_step_depends_on():
    life, other = lived(symbolic()), born(symbolic(), seed=1)
    with torch.no_grad():
        for part in (life.learner.acted, life.learner.judged):
            part.head.weight.add_(1.0)
    life.mind.quiet_share.fill_(0.25)
    other.learner.load_state(life.learner.state())
    for name in ("acted", "judged"):
        kept = getattr(other.learner, name).state_dict()
        assert all(torch.equal(v, kept[k]) for k, v in getattr(life.learner, name).state_dict().items())
    assert float(other.mind.quiet_share) == 0.25


def test_joint_learning_changes_the_codec():
    life = lived(joint())
    before = weights(life)
    life.learner.learn(life.memory, lap())
    assert {"codec", "dynamics"} <= changed(before, weights(life))


def test_losses_fall_on_a_fixed_memory():
    life = lived(symbolic(), laps=3)
    first = life.learner.learn(life.memory, lap(ALL, 5))
    for _ in range(6):
        last = life.learner.learn(life.memory, lap(ALL, 25))
    assert last["dynamics"] < 0.8 * first["dynamics"]
    assert last["G_everyday"] < 0.8 * first["G_everyday"]
    assert last["refused_steps"] == 0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["tokens", "joint"])
def test_every_part_learns_from_the_others_as_they_were_when_the_step_began(monkeypatch, preset, compiled):
    """If their steps left nothing of world model and self-prior, all losses of the step would be the same."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    learner = replace(preset.life.learner, compile=compiled)
    told = []
    for spoils in (False, False, True):  # the first only warms up: it may sum in another order
        life = lived(replace(preset, life=replace(preset.life, learner=learner)))
        parts = [life.learner.descents[name] for name in ("world", "self_prior")] if spoils else []
        for descent in parts:
            monkeypatch.setattr(descent.optimiser, "step", partial(spoil, descent.parameters))
        torch.manual_seed(1)
        told.append(life.learner.learn(life.memory, lap(steps=1)))
    assert told[1] == told[2]


@torch.no_grad()
def spoil(parameters: list[torch.nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.fill_(float("nan"))


def test_without_a_graph_nothing_overlaps():
    after, preset = [], symbolic()
    for overlap in (None, True):
        learner = replace(preset.life.learner, overlap=overlap)
        life = lived(replace(preset, life=replace(preset.life, learner=learner)))
        assert not life.learner.overlaps
        torch.manual_seed(1)
        life.learner.learn(life.memory, lap(steps=2))
        after.append(weights(life))
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])


def test_dreams_of_tokens_start_anywhere_in_memory(monkeypatch):
    """No draw by groups serves them: the labels that fill the groups would choose where dreams start."""
    life = lived(symbolic())
    monkeypatch.setattr(life.memory, "sequences", None)
    assert life.learner.learn(life.memory, lap(("policy",)))["refused_steps"] == 0


def test_a_non_finite_step_changes_nothing_and_is_counted():
    life = lived(symbolic())
    life.learner.learn(life.memory, lap())
    with torch.no_grad():
        life.mind.dynamics.position[0, 0] = float("nan")
    before = weights(life)
    metrics = life.learner.learn(life.memory, lap(("world",), 4))
    after = weights(life)
    assert all(torch.equal(before[n].nan_to_num(-9), after[n].nan_to_num(-9)) for n in before)
    assert (metrics["refused_steps"], metrics["refused_in_a_row"]) == (4, 4)
    with torch.no_grad():
        life.mind.dynamics.position[0, 0] = 0.0
    assert life.learner.learn(life.memory, lap(("world",), 2))["refused_in_a_row"] == 0
    assert all(value.isfinite().all() for value in weights(life).values())


def test_a_row_of_refusals_stops_the_run_though_the_laps_last_step_is_good(monkeypatch):
    preset = symbolic()
    monkeypatch.setattr("mirrormark.life.live.REFUSED_IN_A_ROW", 3)
    schedule = replace(preset.life.schedule, steps_per_lap=5)
    life = born(replace(preset, life=replace(preset.life, schedule=schedule)))
    with torch.no_grad():
        life.mind.dynamics.position[0, 0] = float("nan")
    real, steps = life.learner.train_step, []

    def heals(memory, stages):
        steps.append(stages)
        if len(steps) == 4:
            with torch.no_grad():
                life.mind.dynamics.position[0, 0] = 0.0
        real(memory, stages)

    monkeypatch.setattr(life.learner, "train_step", heals)
    with pytest.raises(NotFinite, match="3 train steps in a row"):
        live(life)
    assert len(steps) == 5 and life.learner.in_a_row == 0


def test_descent_refuses_and_recovers():
    parameter = torch.nn.Parameter(torch.ones(3))
    descent = Descent([parameter], DescentConfig(learning_rate=0.1))
    descent.step(parameter.square().sum())
    here, clip = parameter.clone(), [b.clone() for b in descent.zclip.buffers()]
    descent.step(parameter.square().sum() * float("inf"))
    assert descent.refused == 1 and torch.equal(parameter, here)
    assert all(torch.equal(a, b) for a, b in zip(clip, descent.zclip.buffers()))
    descent.step(parameter.square().sum())
    assert descent.refused == 0 and (parameter < here).all()


def test_descent_wakes_up_after_steps_with_nothing_to_learn():
    """A policy that learns from life alone has no gradient until it has lived: run 17 lost three lives."""
    parameter = torch.nn.Parameter(torch.ones(3))
    descent = Descent([parameter], DescentConfig(learning_rate=0.1), ADAM)
    for _ in range(CLIP_WARMUP_STEPS + 5):
        descent.step(parameter.square().sum() * 0.0)
    assert torch.equal(parameter, torch.ones(3))
    descent.step(parameter.square().sum())
    assert (parameter < 0.95).all()


def test_one_backward_for_policy_and_value_does_what_two_do():
    """They share a dream and no parameter, so neither loss moves the other's weights, finite or not."""
    for broken in (False, True):
        after = []
        for together in (True, False):
            life = lived(symbolic())
            learner = life.learner
            draw = life.memory.any_sequences(4, life.mind.config.imagination.context)
            dreamed = life.mind.dream(draw.observation["latent"].long(), draw.action[:, :-1])
            policy, value = behaviour_objective(life.mind, dreamed)
            if broken:
                policy = policy._replace(loss=policy.loss * float("nan"))
            if together:
                learner._descend(policy=policy, value=value)
            else:
                learner.descents["policy"].forget()
                policy.loss.backward(retain_graph=True)
                learner.descents["policy"].take(policy.loss)
                learner.descents["value"].step(value.loss)
            assert [learner.descents[n].refused.item() for n in ("policy", "value")] == [broken, False]
            after.append(weights(life))
        assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])


def test_cosine_runs_from_first_to_final_rate():
    descent = Descent([torch.nn.Parameter(torch.ones(1))], DescentConfig(1e-3, 1e-5))
    rates = []
    for progress in (0.0, 0.5, 1.0):
        descent.set_progress(progress)
        rates.append(float(descent.rate))
    assert rates == pytest.approx([1e-3, 0.5 * (1e-3 + 1e-5), 1e-5])
    assert isinstance(descent.zclip, ZClip)


def test_without_cost_only_entropy_is_learned():
    preset = symbolic()
    learner = replace(preset.life.learner, cost="none")
    life = lived(replace(preset, life=replace(preset.life, learner=learner)))
    metrics = life.learner.learn(life.memory, lap(("policy",), 5))
    assert "cost_dreamed" not in metrics and metrics["policy"] < 0 and metrics["refused_steps"] == 0


@pytest.mark.parametrize("field", ["world_sequences", "dreams", "self_prior_frames"])
def test_zero_batches_are_refused(field):
    with pytest.raises(ValueError, match=f"learner.{field}"):
        LearnerConfig(**{field: 0})


def test_what_is_learned_from_life_reaches_as_far_back_as_the_body_remembers(monkeypatch):
    ours, asked = symbolic(), []
    imagination = replace(ours.mind.imagination, remembers=30)
    learner = replace(ours.life.learner, world_frames=31)
    life = lived(
        replace(
            ours,
            mind=replace(ours.mind, imagination=imagination),
            life=replace(ours.life, learner=learner),
        )
    )
    draw = life.memory.newest_sequences
    monkeypatch.setattr(life.memory, "newest_sequences", lambda *a: asked.append(a) or draw(*a))
    life.learner.learn(life.memory, lap(("policy",), 1))
    assert asked == [(ours.life.learner.lived, 31, 31 - imagination.context)]


@pytest.mark.parametrize("name", ["dreams", "lived"])
def test_a_learner_without_batches_is_refused(name):
    with pytest.raises(ValueError, match=rf"learner\.{name} is 0"):
        LearnerConfig(**{name: 0})
