"""One optimiser: its rule, its clipping, its refusals."""

import pytest
import torch

from mirrormark.agent.numerics import ZClip
from mirrormark.config import OptimizerConfig
from mirrormark.training.optim import CLIP_WARMUP_STEPS, RULES, Optimizer


def optimizer(name: str = "policy", **config) -> tuple[torch.nn.Parameter, Optimizer]:
    parameter = torch.nn.Parameter(torch.ones(3))
    return parameter, Optimizer(name, [parameter], OptimizerConfig(**config))


def step(optimizer: Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step(loss)


@pytest.mark.parametrize("name", RULES)
def test_optimisers_are_made_as_the_table_says(name):
    """Table III, O1, D8."""
    rule, (_, made) = RULES[name], optimizer(name, eps=1e-7)
    (group,) = made.optimizer.param_groups
    decays = name in ("world_model", "self_prior", "tokenizer")
    assert type(made.optimizer).__name__ == ("AdamW" if decays else "Adam")
    assert group["weight_decay"] == (0.01 if decays else 0) and group["eps"] == 1e-7
    assert group["betas"] == rule.betas and made.zclip.cap == rule.norm_cap
    assert (made.zclip.alpha, made.zclip.z, made.zclip.warmup_steps) == (0.97, 2.5, 25)
    assert isinstance(made.zclip, ZClip)


def test_a_step_that_is_not_finite_is_skipped_and_leaves_no_trace():
    parameter, made = optimizer(learning_rate=0.1)
    step(made, parameter.square().sum())
    here, clip = parameter.clone(), [buffer.clone() for buffer in made.zclip.buffers()]
    step(made, parameter.square().sum() * float("inf"))
    assert made.skipped == 1 and torch.equal(parameter, here)
    assert all(torch.equal(a, b) for a, b in zip(clip, made.zclip.buffers()))
    step(made, parameter.square().sum())
    assert made.skipped == 0 and (parameter < here).all()


def test_it_wakes_up_after_steps_with_nothing_to_learn():
    """A policy that learns from real episodes alone has no gradient until there are some."""
    parameter, made = optimizer(learning_rate=0.1)
    for _ in range(CLIP_WARMUP_STEPS + 5):
        step(made, parameter.square().sum() * 0.0)
    assert torch.equal(parameter, torch.ones(3))
    step(made, parameter.square().sum())
    assert (parameter < 0.95).all()


def test_cosine_runs_from_first_to_final_rate_and_without_one_the_rate_stays():
    for final, wanted in ((1e-5, [1e-3, 0.5 * (1e-3 + 1e-5), 1e-5]), (None, [1e-3] * 3)):
        _, made = optimizer(learning_rate=1e-3, final_learning_rate=final)
        rates = []
        for progress in (0.0, 0.5, 1.0):
            made.set_progress(progress)
            rates.append(float(made.rate))
        assert rates == pytest.approx(wanted)


def test_a_state_goes_on_to_the_bit():
    one, first = optimizer(learning_rate=0.1)
    for _ in range(3):
        step(first, one.square().sum())
    other, second = optimizer(learning_rate=0.1)
    other.data.copy_(one.data)
    second.load_state(first.state())
    for parameter, made in ((one, first), (other, second)):
        step(made, parameter.square().sum())
    assert torch.equal(one, other)
