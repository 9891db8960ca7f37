"""Labels choose what is drawn and score exams: no loss, no gradient and no action depends on one."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tiny_lives import born, cells, joint, symbolic, weights

from mirrormark.life.live import Life
from mirrormark.life.memory import Draw, Memory
from mirrormark.life.schedule import Lap
from mirrormark.presets import SMOKE, Preset

STEPS = 2
ALL = ("world", "self_prior", "policy")
CODEC = replace(SMOKE, life=replace(SMOKE.life, schedule=replace(SMOKE.life.schedule, codec_laps=1)))
KINDS = [
    pytest.param(symbolic(), ALL, id="tokens"),
    pytest.param(cells(), ALL, id="cells"),
    pytest.param(joint(), ALL, id="joint"),
    pytest.param(CODEC, ("codec",), id="codec"),
]


def lap(stages: tuple[str, ...], index: int = 0) -> Lap:
    phase = "codec" if stages == ("codec",) else "life"
    return Lap(index, phase, 4, 4, STEPS, stages, phase == "life", False, False, 0.0)


DRAWING = ("sequences", "any_sequences", "newest_sequences", "frames")


class Recorder:
    """A memory that remembers what it gave out."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self.draws = memory, list[Draw | dict]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._memory, name)
        return partial(self._keep, found) if name in DRAWING else found

    def _keep(self, draw: Callable, *asked: Any) -> Any:
        self.draws.append(draw(*asked))
        return self.draws[-1]


class Fixed:
    """Gives out the recorded batches; whoever asks for anything else finds the memory with its flags."""

    def __init__(self, draws: list[Draw | dict], memory: Memory) -> None:
        self._memory, self.left = memory, list(draws)

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: self.left.pop(0)) if name in DRAWING else getattr(self._memory, name)


def learned(preset: Preset, stages: tuple[str, ...], draws: list[Draw | dict], flip: bool) -> Life:
    """A newborn's steps on the recorded batches, beside a memory with true or with flipped flags."""
    life = born(preset)
    episodes = life.gather(lap(stages))
    if flip:
        episodes = episodes._replace(mark=~episodes.mark, policy=~episodes.policy, marked=~episodes.marked)
    memory = life.memory_of(lap(stages))
    memory.extend(episodes)
    torch.manual_seed(5)
    life.mind.train()
    fixed = Fixed(draws, memory)
    for _ in range(STEPS):
        life.learner.train_step(fixed, stages)  # type: ignore[arg-type]
    assert fixed.left == []
    return life


@pytest.mark.parametrize(("preset", "stages"), KINDS)
def test_flipping_every_flag_leaves_losses_gradients_and_weights_bitwise_equal(preset, stages):
    recording = born(preset)
    memory = recording.memory_of(lap(stages))
    memory.extend(recording.gather(lap(stages)))
    recorder = Recorder(memory)
    for _ in range(STEPS):
        recording.learner.train_step(recorder, stages)  # type: ignore[arg-type]
    true, flipped = (learned(preset, stages, recorder.draws, flip) for flip in (False, True))
    one, other = (life.memory_of(lap(stages)) for life in (true, flipped))
    assert not torch.equal(one.action, other.action)  # every episode lies in another group
    assert true.learner._sums and all(
        torch.equal(total, flipped.learner._sums[name]) for name, total in true.learner._sums.items()
    )
    gradients = 0
    for p, q in zip(true.mind.parameters(), flipped.mind.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None and q.grad is not None:
            assert torch.equal(p.grad, q.grad)
            gradients += 1
    a, b = weights(true), weights(flipped)
    assert gradients > 5 and all(torch.equal(a[name], b[name]) for name in a)
    newborn = weights(born(preset))
    assert any(not torch.equal(a[name], newborn[name]) for name in a)  # and something was learned


def otherwise(value: np.ndarray) -> np.ndarray:
    """Every flag the opposite, every number another."""
    if value.dtype == np.bool_:
        return ~value
    return np.where(np.isnan(value), 0.5, -1 - value).astype(value.dtype)


class Lying:
    """Worlds that tell nothing as it is (flags, distances, places, surfaces, hands, time) but that physics
    broke."""

    def __init__(self, worlds: Any) -> None:
        self._worlds = worlds
        self.lied = set[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worlds, name)

    def _lie(self, told: tuple) -> tuple:
        info = {name: value if name == "unstable" else otherwise(value) for name, value in told[-1].items()}
        self.lied |= {name for name, value in info.items() if (value != told[-1][name]).all()}
        return (*told[:-1], info)

    def reset(self, **asked: Any) -> tuple:
        return self._lie(self._worlds.reset(**asked))

    def step(self, action: np.ndarray) -> tuple:
        return self._lie(self._worlds.step(action))


@pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["tokens", "joint"])
def test_lies_of_the_world_about_itself_leave_actions_and_memories_equal(preset, monkeypatch):
    told = []
    for lie in (False, True):
        life = born(preset)
        lying = Lying(life.worlds(4))
        if lie:
            monkeypatch.setattr(life, "worlds", lambda n, lying=lying: lying)
        torch.manual_seed(3)
        told.append(life.gather(lap(ALL, index=7)))
    true, lied = told
    assert {"mark_present", "hand_mark_distance_m", "mark_site_m", "mark_surface", "t"} <= lying.lied
    assert torch.equal(true.mark, ~lied.mark)
    assert true.policy.any() and torch.equal(true.action, lied.action)
    assert all(torch.equal(true.observation[name], lied.observation[name]) for name in true.observation)
