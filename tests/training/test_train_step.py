"""One train step: which loss reaches which parameters, what a step changes, that bad steps change nothing."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tiny_trainers import ALL, frozen, iteration, joint, newborn, pixels, symbolic, weights, with_episodes

from mirrormark.training.train_step import TrainStep

KINDS = pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["swift", "paper"])


def grouped(trainer) -> dict[int, str]:
    """Parameter -> its group."""
    return {id(p): name for name, group in trainer.agent.groups().items() for p in group}


@pytest.mark.parametrize("preset", [symbolic(), pixels(), joint()], ids=["symbolic", "pixels", "paper"])
def test_groups_are_disjoint_and_hold_all_that_learns(preset):
    trainer = newborn(preset)
    groups = trainer.agent.groups()
    assert len(grouped(trainer)) == sum(map(len, groups.values()))
    every = {id(p) for name, p in trainer.agent.named_parameters() if not name.startswith("ema.")}
    assert set(grouped(trainer)) == every
    assert set(trainer.learner.step.optimizers) == set(groups)


@KINDS
def test_each_loss_reaches_its_own_group_only(preset):
    trainer = with_episodes(newborn(preset))
    group_of, step = grouped(trainer), trainer.learner.step
    trainer.agent.train()
    losses = step.losses(trainer.buffer, ALL)
    drives = {"drive"} if preset.agent.kind == "swift" else set()
    assert set(losses) == {"world_model", "self_prior", "policy", "value"} | drives
    everything = list(trainer.agent.parameters())
    for name, loss in losses.items():
        trainer.agent.zero_grad()
        loss.value.backward(retain_graph=True, inputs=[p for p in everything if p.requires_grad])
        reached = {group_of.get(id(p), "ema") for p in everything if p.grad is not None and p.grad.any()}
        assert reached == {name}, name


def test_the_paper_agents_tokenizer_learns_in_the_world_models_group():
    trainer = with_episodes(newborn(joint()))
    before = weights(trainer)
    trainer.learner.learn(trainer.buffer, iteration(("world_model",)))
    assert changed(before, weights(trainer)) == {"tokenizer", "world_model"}


def changed(before: dict, after: dict) -> set[str]:
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    return {".".join(name.split(".")[: 2 if name.startswith("ema") else 1]) for name in moved}


@pytest.mark.parametrize(
    ("stages", "parts"),
    [
        (("world_model",), {"world_model", "drive"}),
        (("self_prior",), {"self_prior", "ema.self_prior"}),
        (("policy",), {"policy", "value", "ema.value"}),
        (ALL, {"world_model", "drive", "self_prior", "ema.self_prior", "policy", "value", "ema.value"}),
    ],
    ids=["world model", "self-prior", "policy", "all"],
)
def test_a_stage_changes_its_own_parts_only(stages, parts):
    trainer = with_episodes(newborn(symbolic()))
    before = weights(trainer)
    trainer.learner.learn(trainer.buffer, iteration(stages))
    assert changed(before, weights(trainer)) == parts


def test_a_phase_of_the_tokenizer_changes_the_tokenizer_only():
    trainer = newborn(pixels())
    phase = trainer.schedule.iteration(0)
    trainer.phase.extend(trainer.collect(phase))
    before = weights(trainer)
    trainer.learner.learn(trainer.phase.buffer, phase._replace(steps=2))
    assert changed(before, weights(trainer)) == {"tokenizer"}


def test_a_frozen_tokenizer_stays():
    trainer = with_episodes(frozen(pixels()))
    before = weights(trainer)
    trainer.learner.learn(trainer.buffer, iteration())
    moved = changed(before, weights(trainer))
    assert "tokenizer" not in moved and {"world_model", "policy", "drive"} <= moved


@KINDS
def test_every_part_learns_from_the_others_as_they_were_when_the_step_began(monkeypatch, preset):
    """If the optimisers' steps left nothing of world model and self-prior, all losses of the step would be
    the same."""
    found = []
    for spoils in (False, True):
        trainer = with_episodes(newborn(preset))
        parts = (
            [trainer.learner.step.optimizers[name] for name in ("world_model", "self_prior")]
            if spoils
            else []
        )
        for optimizer in parts:
            monkeypatch.setattr(optimizer.optimizer, "step", partial(spoil, optimizer.parameters))
        torch.manual_seed(1)
        found.append(trainer.learner.learn(trainer.buffer, iteration(steps=1)))
    assert found[0] == found[1]


@torch.no_grad()
def spoil(parameters: list[torch.nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.fill_(float("nan"))


def test_a_non_finite_step_changes_nothing_and_is_counted():
    trainer = with_episodes(newborn(symbolic()))
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


def test_one_part_that_is_not_finite_holds_up_no_other():
    trainer = with_episodes(newborn(symbolic()))
    step = trainer.learner.step
    losses = step.losses(trainer.buffer, ("self_prior", "policy"))
    losses["value"] = float("nan") * losses["value"]
    before = weights(trainer)
    step._update(losses)
    assert changed(before, weights(trainer)) == {"self_prior", "ema.self_prior", "policy"}
    assert [step.optimizers[name].skipped.item() for name in ("policy", "value")] == [False, True]


def test_metrics_are_means_over_the_iterations_steps():
    trainer = with_episodes(newborn(symbolic()))
    seen, real = [], trainer.learner.step.losses

    def watch(buffer, stages):
        losses = real(buffer, stages)
        seen.append(losses["world_model"].metrics["dynamics"].item())
        return losses

    trainer.learner.step.losses = watch  # type: ignore[method-assign]
    for steps in (3, 2):  # the second mean holds nothing of the first
        seen.clear()
        metrics = trainer.learner.learn(trainer.buffer, iteration(("world_model",), steps))
        assert metrics["dynamics"] == pytest.approx(sum(seen) / steps) and len(seen) == steps
    assert {"world_model_gradient", "expected_g", "skipped_steps"} <= set(metrics)
    assert "policy" not in metrics


def test_losses_fall_on_fixed_episodes():
    trainer = with_episodes(newborn(symbolic()), iterations=3)
    first = trainer.learner.learn(trainer.buffer, iteration(ALL, 5))
    for _ in range(4):
        last = trainer.learner.learn(trainer.buffer, iteration(ALL, 25))
    assert last["dynamics"] < 0.8 * first["dynamics"]
    assert last["G_babbling"] < 0.8 * first["G_babbling"]
    assert last["skipped_steps"] == 0


def test_without_a_drive_nothing_but_predictability_is_learned():
    preset = symbolic()
    preset = replace(preset, agent=replace(preset.agent, drive="none", on_policy=None))
    preset = replace(preset, training=replace(preset.training, handover_share=0.0))
    trainer = with_episodes(newborn(preset))
    assert "drive" not in trainer.agent.groups()
    metrics = trainer.learner.learn(trainer.buffer, iteration(("policy",), 2))
    assert metrics["imagined_cost"] == 0 and metrics["skipped_steps"] == 0


def test_shares_of_sources_weigh_their_losses():
    trainer = with_episodes(newborn(symbolic()))
    step = trainer.learner.step
    torch.manual_seed(1)
    parts = [
        source.losses(trainer.agent, source.rollout(trainer.agent, trainer.buffer)) for source in step.sources
    ]
    torch.manual_seed(1)
    policy, value = step._behavior(trainer.buffer)
    real, imagined = parts  # of policy and value each
    assert policy.value.item() == pytest.approx(
        (0.97 * real[0].value + 0.03 * imagined[0].value).item(), rel=1e-5
    )
    assert value.value.item() == pytest.approx(
        (0.9 * real[1].value + 0.1 * imagined[1].value).item(), rel=1e-5
    )
    assert {"policy_on_policy", "imagined_cost"} <= set(policy.metrics)


def test_what_wraps_a_function_is_asked_to():
    """The learner compiles from outside; the step itself knows no compiler."""
    trainer, wrapped = newborn(symbolic()), []
    TrainStep(
        trainer.agent, trainer.learner.sources, trainer.config, lambda f: wrapped.append(f.__name__) or f
    )
    assert {"world_model_loss", "self_prior_loss", "clip_factor"} <= set(wrapped)
