"""Labels choose what is drawn and score exams: no loss, no gradient and no action depends on one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tiny_trainers import ALL, frozen, joint, newborn, pixels, symbolic, weights
from tiny_trainers import iteration as iteration_of

from mirrormark.presets import Config
from mirrormark.training.replay_buffer import Batch, ReplayBuffer
from mirrormark.training.schedule import Iteration
from mirrormark.training.trainer import Trainer

STEPS = 2
KINDS = [
    pytest.param(symbolic(), ALL, id="symbolic"),
    pytest.param(pixels(), ALL, id="pixels"),
    pytest.param(joint(), ALL, id="paper"),
    pytest.param(joint(as_public_code=True), ALL, id="paper-code"),
    pytest.param(pixels(), ("tokenizer",), id="tokenizer"),
]
DRAWING = ("sequences", "windows", "newest", "frames", "diet")


def iteration(stages: tuple[str, ...], index: int = 0) -> Iteration:
    return iteration_of(stages, STEPS, index)


def begun(preset: Config, stages: tuple[str, ...]) -> Trainer:
    """One whose buffer is that of these stages."""
    return newborn(preset) if preset.agent.kind == "paper" or "tokenizer" in stages else frozen(preset)


class Recorder:
    """A buffer that remembers what it gave out."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._memory, self.draws = buffer, list[Batch | dict]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._memory, name)
        return partial(self._keep, found) if name in DRAWING else found

    def _keep(self, draw: Callable, *asked: Any, **named: Any) -> Any:
        self.draws.append(draw(*asked, **named))
        return self.draws[-1]


class Fixed:
    """Gives out the recorded batches; whoever asks for anything else finds the buffer with its flags."""

    def __init__(self, draws: list[Batch | dict], buffer: ReplayBuffer) -> None:
        self._memory, self.left = buffer, list(draws)

    def __getattr__(self, name: str) -> Any:
        return (lambda *_, **__: self.left.pop(0)) if name in DRAWING else getattr(self._memory, name)


def learned(preset: Config, stages: tuple[str, ...], draws: list[Batch | dict], flip: bool) -> Trainer:
    """First steps on the recorded batches, beside a buffer with true or with flipped flags."""
    trainer = begun(preset, stages)
    episodes = trainer.collect(iteration(stages))
    if flip:
        episodes = episodes._replace(mark=~episodes.mark, policy=~episodes.policy, marked=~episodes.marked)
    buffer = trainer.buffer_of(iteration(stages))
    buffer.extend(episodes)
    torch.manual_seed(5)
    trainer.agent.train()
    fixed = Fixed(draws, buffer)
    for _ in range(STEPS):
        trainer.learner.step(fixed, stages)  # type: ignore[arg-type]
    assert fixed.left == []
    return trainer


@pytest.mark.parametrize(("preset", "stages"), KINDS)
def test_flipping_every_flag_leaves_losses_gradients_and_weights_bitwise_equal(preset, stages):
    recording = begun(preset, stages)
    buffer = recording.buffer_of(iteration(stages))
    buffer.extend(recording.collect(iteration(stages)))
    recorder = Recorder(buffer)
    for _ in range(STEPS):
        recording.learner.step(recorder, stages)  # type: ignore[arg-type]
    true, flipped = (learned(preset, stages, recorder.draws, flip) for flip in (False, True))
    one, other = (trainer.buffer_of(iteration(stages)) for trainer in (true, flipped))
    assert not torch.equal(one.action, other.action)  # every episode lies in another group
    sums, others = true.learner.step.metrics._sums, flipped.learner.step.metrics._sums
    assert sums and all(torch.equal(total, others[name]) for name, total in sums.items())
    gradients = 0
    for p, q in zip(true.agent.parameters(), flipped.agent.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None and q.grad is not None:
            assert torch.equal(p.grad, q.grad)
            gradients += 1
    a, b = weights(true), weights(flipped)
    assert gradients > 5 and all(torch.equal(a[name], b[name]) for name in a)
    first = weights(begun(preset, stages))
    assert any(not torch.equal(a[name], first[name]) for name in a)  # and something was learned


def otherwise(value: np.ndarray) -> np.ndarray:
    """Every flag the opposite, every number another."""
    if value.dtype == np.bool_:
        return ~value
    return np.where(np.isnan(value), 0.5, -1 - value).astype(value.dtype)


class Lying:
    """Environments whose infos tell nothing as it is, save that physics broke."""

    def __init__(self, envs: Any) -> None:
        self._envs = envs
        self.lied = set[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._envs, name)

    def _lie(self, told: tuple) -> tuple:
        info = {name: value if name == "unstable" else otherwise(value) for name, value in told[-1].items()}
        self.lied |= {name for name, value in info.items() if (value != told[-1][name]).all()}
        return (*told[:-1], info)

    def reset(self, **asked: Any) -> tuple:
        return self._lie(self._envs.reset(**asked))

    def step(self, action: np.ndarray) -> tuple:
        return self._lie(self._envs.step(action))


@pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["swift", "paper"])
def test_lies_in_infos_leave_actions_and_stored_frames_equal(preset, monkeypatch):
    told = []
    for lie in (False, True):
        trainer = newborn(preset)
        lying = Lying(trainer.make_envs(4))
        if lie:
            monkeypatch.setattr(trainer, "make_envs", lambda n, lying=lying: lying)
        torch.manual_seed(3)
        told.append(trainer.collect(iteration(ALL, index=7)))
    true, lied = told
    assert {"mark_present", "mark_site_m", "mark_surface", "t"} <= lying.lied
    assert torch.equal(true.mark, ~lied.mark)
    assert true.policy.any() and torch.equal(true.action, lied.action)
    assert all(torch.equal(true.observation[name], lied.observation[name]) for name in true.observation)
