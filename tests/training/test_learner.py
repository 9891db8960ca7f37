"""The learner: what a step changes, that it learns, that labels stay outside, that bad steps do nothing."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tiny_trainers import born, joint, symbolic, weights

from mirrormark.agent.numerics import ZClip
from mirrormark.agent.objective import actor_critic_objective
from mirrormark.training.learner import LearnerConfig
from mirrormark.training.nan import NotFinite
from mirrormark.training.optim import ADAM, CLIP_WARMUP_STEPS, Optimizer, OptimizerConfig
from mirrormark.training.schedule import Iteration
from mirrormark.training.trainer import run_iterations

ALL = ("world_model", "self_prior", "policy")


@pytest.fixture(autouse=True)
def _compiled_anew():
    torch._dynamo.reset()


def iteration(stages=ALL, steps=3, index=0) -> Iteration:
    return Iteration(index, "training", 4, 4, steps, stages, True, False, False, 0.0)


def on_policy(preset, iterations: int = 1):
    trainer = born(preset)
    for i in range(iterations):
        trainer.buffer.extend(trainer.collect(iteration(index=i)))
    return trainer


def changed(before: dict, after: dict) -> set[str]:
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    return {".".join(name.split(".")[: 2 if name.startswith("ema") else 1]) for name in moved}


@pytest.mark.parametrize(
    ("stages", "parts"),
    [
        (("world_model",), {"world_model", "expected_g"}),
        (("self_prior",), {"self_prior", "ema.self_prior"}),
        (("policy",), {"policy", "value", "ema.value", "return_range"}),
        (
            ALL,
            {"world_model", "expected_g", "self_prior", "ema.self_prior", "policy", "value", "ema.value"}
            | {"return_range"},
        ),
    ],
)
def test_a_stage_changes_its_own_parts_only(stages, parts):
    trainer = on_policy(symbolic())
    before = weights(trainer)
    trainer.learner.learn(trainer.buffer, iteration(stages))
    assert changed(before, weights(trainer)) == parts


def test_the_rate_term_grows_along_its_ramp():
    preset = symbolic()
    agent = replace(preset.agent, losses=replace(preset.agent.losses, rate_ramp=0.5))
    trainer = on_policy(replace(preset, agent=agent))
    shares = []
    for progress in (0.0, 0.25, 0.5, 0.75):
        trainer.learner.learn(trainer.buffer, iteration(("world_model",), 1)._replace(progress=progress))
        shares.append(float(trainer.agent.rate_share))
    assert shares == [0.0, 0.5, 1.0, 1.0]


def test_a_state_holds_all_that_a_repeated_step_depends_on():
    trainer, other = on_policy(symbolic()), born(symbolic(), seed=1)
    with torch.no_grad():
        for part in (trainer.learner.behavior_policy, trainer.learner.old_value):
            part.head.weight.add_(1.0)
    trainer.agent.rate_share.fill_(0.25)
    other.learner.load_state(trainer.learner.state())
    for name in ("behavior_policy", "old_value"):
        kept = getattr(other.learner, name).state_dict()
        assert all(torch.equal(v, kept[k]) for k, v in getattr(trainer.learner, name).state_dict().items())
    assert float(other.agent.rate_share) == 0.25


def test_joint_learning_changes_the_tokenizer():
    trainer = on_policy(joint())
    before = weights(trainer)
    trainer.learner.learn(trainer.buffer, iteration())
    assert {"tokenizer", "world_model"} <= changed(before, weights(trainer))


def test_losses_fall_on_a_fixed_memory():
    trainer = on_policy(symbolic(), iterations=3)
    first = trainer.learner.learn(trainer.buffer, iteration(ALL, 5))
    for _ in range(6):
        last = trainer.learner.learn(trainer.buffer, iteration(ALL, 25))
    assert last["dynamics"] < 0.8 * first["dynamics"]
    assert last["G_babbling"] < 0.8 * first["G_babbling"]
    assert last["skipped_steps"] == 0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["tokens", "joint"])
def test_every_part_learns_from_the_others_as_they_were_when_the_step_began(monkeypatch, preset, compiled):
    """If their steps left nothing of world model and self-prior, all losses of the step would be the same."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    learner = replace(preset.training.learner, compile=compiled)
    told = []
    for spoils in (False, False, True):  # the first only warms up: it may sum in another order
        trainer = on_policy(replace(preset, training=replace(preset.training, learner=learner)))
        parts = [trainer.learner.optimizers[name] for name in ("world_model", "self_prior")] if spoils else []
        for optimizer in parts:
            monkeypatch.setattr(optimizer.optimizer, "step", partial(spoil, optimizer.parameters))
        torch.manual_seed(1)
        told.append(trainer.learner.learn(trainer.buffer, iteration(steps=1)))
    assert told[1] == told[2]


@torch.no_grad()
def spoil(parameters: list[torch.nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.fill_(float("nan"))


def test_without_a_graph_nothing_overlaps():
    after, preset = [], symbolic()
    for overlap in (None, True):
        learner = replace(preset.training.learner, overlap=overlap)
        trainer = on_policy(replace(preset, training=replace(preset.training, learner=learner)))
        assert not trainer.learner.overlaps
        torch.manual_seed(1)
        trainer.learner.learn(trainer.buffer, iteration(steps=2))
        after.append(weights(trainer))
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])


def test_dreams_of_tokens_start_anywhere_in_memory(monkeypatch):
    """No draw by groups serves them: the labels that fill the groups would choose where dreams start."""
    trainer = on_policy(symbolic())
    monkeypatch.setattr(trainer.buffer, "sequences", None)
    assert trainer.learner.learn(trainer.buffer, iteration(("policy",)))["skipped_steps"] == 0


def test_a_non_finite_step_changes_nothing_and_is_counted():
    trainer = on_policy(symbolic())
    trainer.learner.learn(trainer.buffer, iteration())
    with torch.no_grad():
        trainer.agent.world_model.position[0, 0] = float("nan")
    before = weights(trainer)
    metrics = trainer.learner.learn(trainer.buffer, iteration(("world_model",), 4))
    after = weights(trainer)
    assert all(torch.equal(before[n].nan_to_num(-9), after[n].nan_to_num(-9)) for n in before)
    assert (metrics["skipped_steps"], metrics["skipped_in_a_row"]) == (4, 4)
    with torch.no_grad():
        trainer.agent.world_model.position[0, 0] = 0.0
    assert trainer.learner.learn(trainer.buffer, iteration(("world_model",), 2))["skipped_in_a_row"] == 0
    assert all(value.isfinite().all() for value in weights(trainer).values())


def test_a_row_of_refusals_stops_the_run_though_the_iterations_last_step_is_good(monkeypatch):
    preset = symbolic()
    monkeypatch.setattr("mirrormark.training.trainer.REFUSED_IN_A_ROW", 3)
    schedule = replace(preset.training.schedule, steps_per_iteration=5)
    trainer = born(replace(preset, training=replace(preset.training, schedule=schedule)))
    with torch.no_grad():
        trainer.agent.world_model.position[0, 0] = float("nan")
    real, steps = trainer.learner.train_step, []

    def heals(buffer, stages):
        steps.append(stages)
        if len(steps) == 4:
            with torch.no_grad():
                trainer.agent.world_model.position[0, 0] = 0.0
        real(buffer, stages)

    monkeypatch.setattr(trainer.learner, "train_step", heals)
    with pytest.raises(NotFinite, match="3 train steps in a row"):
        run_iterations(trainer)
    assert len(steps) == 5 and trainer.learner.in_a_row == 0


def test_optimizer_refuses_and_recovers():
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = Optimizer([parameter], OptimizerConfig(learning_rate=0.1))
    optimizer.minimize(parameter.square().sum())
    here, clip = parameter.clone(), [b.clone() for b in optimizer.zclip.buffers()]
    optimizer.minimize(parameter.square().sum() * float("inf"))
    assert optimizer.skipped == 1 and torch.equal(parameter, here)
    assert all(torch.equal(a, b) for a, b in zip(clip, optimizer.zclip.buffers()))
    optimizer.minimize(parameter.square().sum())
    assert optimizer.skipped == 0 and (parameter < here).all()


def test_optimizer_wakes_up_after_steps_with_nothing_to_learn():
    """A policy that learns from on-policy data alone has no gradient until it has lived: run 17 lost three
    lives."""
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = Optimizer([parameter], OptimizerConfig(learning_rate=0.1), ADAM)
    for _ in range(CLIP_WARMUP_STEPS + 5):
        optimizer.minimize(parameter.square().sum() * 0.0)
    assert torch.equal(parameter, torch.ones(3))
    optimizer.minimize(parameter.square().sum())
    assert (parameter < 0.95).all()


def test_one_backward_for_policy_and_value_does_what_two_do():
    """They share a dream and no parameter, so neither loss moves the other's weights, finite or not."""
    for broken in (False, True):
        after = []
        for together in (True, False):
            trainer = on_policy(symbolic())
            learner = trainer.learner
            batch = trainer.buffer.windows(4, trainer.agent.config.imagination.context)
            dreamed = trainer.agent.dream(batch.observation["tokens"].long(), batch.action[:, :-1])
            policy, value = actor_critic_objective(trainer.agent, dreamed)
            if broken:
                policy = policy._replace(loss=policy.loss * float("nan"))
            if together:
                learner._backward_and_step(policy=policy, value=value)
            else:
                learner.optimizers["policy"].zero_grad()
                policy.loss.backward(retain_graph=True)
                learner.optimizers["policy"].minimize(policy.loss)
                learner.optimizers["value"].minimize(value.loss)
            assert [learner.optimizers[n].skipped.item() for n in ("policy", "value")] == [broken, False]
            after.append(weights(trainer))
        assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])


def test_cosine_runs_from_first_to_final_rate():
    optimizer = Optimizer([torch.nn.Parameter(torch.ones(1))], OptimizerConfig(1e-3, 1e-5))
    rates = []
    for progress in (0.0, 0.5, 1.0):
        optimizer.set_progress(progress)
        rates.append(float(optimizer.rate))
    assert rates == pytest.approx([1e-3, 0.5 * (1e-3 + 1e-5), 1e-5])
    assert isinstance(optimizer.zclip, ZClip)


def test_without_cost_only_entropy_is_learned():
    preset = symbolic()
    learner = replace(preset.training.learner, cost="none")
    trainer = on_policy(replace(preset, training=replace(preset.training, learner=learner)))
    metrics = trainer.learner.learn(trainer.buffer, iteration(("policy",), 5))
    assert "cost_dreamed" not in metrics and metrics["policy"] < 0 and metrics["skipped_steps"] == 0


@pytest.mark.parametrize("field", ["sequences", "dreams", "self_prior_frames"])
def test_zero_batches_are_refused(field):
    with pytest.raises(ValueError, match=f"learner.{field}"):
        LearnerConfig(**{field: 0})


def test_what_is_learned_from_life_reaches_as_far_back_as_the_body_remembers(monkeypatch):
    ours, asked = symbolic(), []
    imagination = replace(ours.agent.imagination, acting_context=30)
    learner = replace(ours.training.learner, sequence_frames=31)
    trainer = on_policy(
        replace(
            ours,
            agent=replace(ours.agent, imagination=imagination),
            training=replace(ours.training, learner=learner),
        )
    )
    batch = trainer.buffer.newest
    monkeypatch.setattr(trainer.buffer, "newest", lambda *a: asked.append(a) or batch(*a))
    trainer.learner.learn(trainer.buffer, iteration(("policy",), 1))
    assert asked == [(ours.training.learner.on_policy_windows, 31, 31 - imagination.context)]


@pytest.mark.parametrize("name", ["dreams", "on_policy_windows"])
def test_a_learner_without_batches_is_refused(name):
    with pytest.raises(ValueError, match=rf"learner\.{name} is 0"):
        LearnerConfig(**{name: 0})
