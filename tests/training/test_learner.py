"""The learner: iterations, its state, and that capture and compilation change nothing."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny_trainers import ALL, frozen, iteration, joint, newborn, pixels, symbolic, weights, with_episodes

from mirrormark.training import learner as learner_module
from mirrormark.training.learner import Learner
from mirrormark.training.trainer import Trainer

WAYS = pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["swift", "paper"])


@pytest.fixture(autouse=True)
def _compiled_anew():
    torch._dynamo.reset()


def test_the_rate_term_grows_along_its_ramp():
    trainer = newborn(pixels())
    trainer.phase.extend(trainer.collect(trainer.schedule.iteration(0)))
    shares = []
    for progress in (0.0, 0.25, 0.5, 0.75):
        now = iteration(("tokenizer",), 1, progress=progress)
        trainer.learner.learn(trainer.phase.buffer, now)
        shares.append(float(trainer.agent.tokenizer.rate_share))
    assert shares == [0.0, 0.5, 1.0, 1.0]


def test_a_state_holds_all_that_the_next_step_depends_on():
    """Weights, slow copies, what sources remember, optimisers, random numbers."""
    straight, other = (with_episodes(newborn(symbolic(), seed), 2) for seed in (0, 1))
    straight.learner.learn(straight.buffer, iteration())
    state = copy.deepcopy(straight.learner.state())
    assert len(state["sources"]) == 2 and all(state["sources"])  # behaviour policy and old value; the range
    for trainer in (straight, other):
        trainer.learner.load_state(copy.deepcopy(state))
        trainer.buffer.load_state(straight.buffer.state())
        trainer.learner._take_steps(trainer.buffer, iteration(steps=2))
    a, b = weights(straight), weights(other)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert straight.learner.steps == other.learner.steps


def test_an_iteration_without_steps_learns_nothing_and_says_nothing():
    trainer = with_episodes(newborn(symbolic()))
    before = weights(trainer)
    assert trainer.learner.learn(trainer.buffer, iteration((), 0)) == {}
    after = weights(trainer)
    assert all(torch.equal(before[name], after[name]) for name in before)


@WAYS
def test_the_step_compiles_whole_and_stays_the_same(monkeypatch, preset):
    """No graph breaks, nothing compiled after the first step, the same weights to the bit (traced, run by
    eager kernels)."""
    traced = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: traced(f, **k, backend="aot_eager", fullgraph=True))
    after = []
    for compiled in (True, False):
        trainer = with_episodes(newborn(preset))
        learner = trainer.learner
        if compiled:
            learner = Learner(trainer.agent, learner.sources, trainer.config)
            learner.step = learner_module.TrainStep(
                trainer.agent, learner.sources, trainer.config, learner_module._compiled
            )
            learner_module._compile_parts(trainer.agent, learner.sources)
        torch.manual_seed(1)
        learner.learn(trainer.buffer, iteration(steps=1))
        with torch._dynamo.config.patch(error_on_recompile=True):
            learner.learn(trainer.buffer, iteration(steps=1))
        after.append(weights(trainer))
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])


@pytest.mark.gpu
@pytest.mark.parametrize("preset", [symbolic(), joint(), pixels()], ids=["swift", "paper", "pixels"])
def test_the_captured_step_does_what_the_eager_step_does(preset):
    """Compiled and captured, with eager's random numbers: the same metrics and weights after some steps."""
    in_order = {"reorder_for_locality": False, "reorder_for_peak_memory": False}  # for torch below 2.13
    after = []
    for cuda_graph in (True, False):
        training = replace(preset.training, cuda_graph=cuda_graph)
        tokenizer = None if preset.agent.kind == "paper" else frozen(preset).agent.tokenizer
        trainer = Trainer(preset.env, preset.agent, training, 0, "cuda", tokenizer)
        trainer.buffer.extend(trainer.collect(iteration()))
        torch.manual_seed(1)
        with torch._inductor.config.patch(fallback_random=True, **in_order):
            metrics = trainer.learner.learn(trainer.buffer, iteration(ALL, 8))
        after.append((metrics, weights(trainer)))
    assert after[0][0] == pytest.approx(after[1][0], rel=0.01, abs=1e-3)
    for name in after[0][1]:
        torch.testing.assert_close(after[0][1][name], after[1][1][name], rtol=1e-2, atol=1e-3)
