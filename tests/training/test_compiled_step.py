"""The step captured, compiled, on two streams: it does what the eager step does."""

from dataclasses import replace

import pytest
import torch
from tiny_trainers import born, cells, joint, symbolic, weights

from mirrormark.training.schedule import Iteration
from mirrormark.training.trainer import Trainer

WAYS = pytest.mark.parametrize("preset", [symbolic(), cells(), joint()], ids=["tokens", "cells", "joint"])


@pytest.fixture(autouse=True)
def _compiled_anew():
    torch._dynamo.reset()


def iteration(steps: int) -> Iteration:
    return Iteration(
        0, "training", 4, 4, steps, ("world_model", "self_prior", "policy"), True, False, False, 0.0
    )


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", [False, True])
@WAYS
def test_the_captured_step_equals_the_eager_step(preset, overlap):
    """Same weights, same random numbers: the graph's replay does what the eager step does."""
    after = []
    for cuda_graph in (True, False):
        learner = replace(preset.training.learner, cuda_graph=cuda_graph, compile=False, overlap=overlap)
        trainer = Trainer(preset.env, preset.agent, replace(preset.training, learner=learner), 0, "cuda")
        trainer.buffer.extend(trainer.collect(iteration(0)))
        torch.manual_seed(1)
        trainer.learner.learn(trainer.buffer, iteration(8))
        after.append(weights(trainer))
    for name in after[0]:
        torch.testing.assert_close(after[0][name], after[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@WAYS
def test_the_overlapping_step_does_what_the_step_in_order_does(preset):
    """Compiled, in bf16 and captured, on two streams or on one."""
    after = []
    for overlap in (True, False):
        learner = replace(preset.training.learner, precision="bf16", overlap=overlap)
        trainer = Trainer(preset.env, preset.agent, replace(preset.training, learner=learner), 0, "cuda")
        assert trainer.learner.overlaps == overlap
        trainer.buffer.extend(trainer.collect(iteration(0)))
        torch.manual_seed(1)
        after.append((trainer.learner.learn(trainer.buffer, iteration(16)), weights(trainer)))
    assert after[0][0] == pytest.approx(after[1][0], rel=0.02, abs=2e-3)
    for name in after[0][1]:
        torch.testing.assert_close(after[0][1][name], after[1][1][name], rtol=2e-2, atol=2e-3)


@pytest.mark.gpu
@WAYS
def test_the_compiled_step_does_what_the_eager_step_does(preset):
    """Compiled and captured, with eager's random numbers: the same losses and weights after some steps."""
    in_order = {"reorder_for_locality": False, "reorder_for_peak_memory": False}  # for torch below 2.13
    after = []
    for compiled in (True, False):
        learner = replace(preset.training.learner, compile=compiled)
        trainer = Trainer(preset.env, preset.agent, replace(preset.training, learner=learner), 0, "cuda")
        trainer.buffer.extend(trainer.collect(iteration(0)))
        torch.manual_seed(1)
        with torch._inductor.config.patch(fallback_random=True, **in_order):
            metrics = trainer.learner.learn(trainer.buffer, iteration(8))
        after.append((metrics, weights(trainer)))
    assert after[0][0] == pytest.approx(after[1][0], rel=0.01, abs=1e-3)
    for name in after[0][1]:
        torch.testing.assert_close(after[0][1][name], after[1][1][name], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    "preset",
    [pytest.param(symbolic(), marks=pytest.mark.slow), cells(), joint()],
    ids=["tokens", "cells", "joint"],
)
def test_the_step_compiles_whole_and_stays_the_same(monkeypatch, preset):
    """No graph breaks, nothing compiled twice, the same weights to the bit (traced, run by eager kernels)."""
    traced = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: traced(f, **k, backend="aot_eager", fullgraph=True))
    after = []
    for compiled in (True, False):
        learner = replace(preset.training.learner, compile=compiled)
        trainer = born(replace(preset, training=replace(preset.training, learner=learner)))
        trainer.buffer.extend(trainer.collect(iteration(0)))
        torch.manual_seed(1)
        with torch._dynamo.config.patch(error_on_recompile=True):
            trainer.learner.learn(trainer.buffer, iteration(2))
        after.append(weights(trainer))
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])
