"""When losses stop being finite: keep batch and state of such a step, and repeat it later."""

from pathlib import Path
from typing import Any

import torch

from mirrormark.life import checkpoint
from mirrormark.life.learner import Learner, LearnerConfig
from mirrormark.life.memory import Draw, Memory, MemoryConfig
from mirrormark.life.run import from_json, to_json
from mirrormark.life.schedule import Lap
from mirrormark.life.setup import WorldSetup
from mirrormark.life.weights import describe, rebuild

_TRIES = 10
"""Steps tried for the dump: after a long row of refusals nearly every step is one."""


class NotFinite(RuntimeError):
    """Too many steps in a row had a loss or gradient that is not finite."""

    def __init__(self, lap: int, in_a_row: int, place: Path | None) -> None:
        where = (
            f"batch and state are in {place}: mirrormark replay-nan {place}"
            if place
            else "no dump was asked for"
        )
        super().__init__(
            f"Lap {lap}: {in_a_row} train steps in a row were not finite and were skipped; {where}"
        )
        self.place = place


class _Recorder:
    """A memory that remembers what it gave out, and where the device's random numbers stood after it."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self.config = memory, memory.config
        self.draws: list[dict[str, Any]] = []
        self.random: list[torch.Tensor] = []

    def sequences(self, batch: int, length: int) -> Draw:
        return self._keep(self._memory.sequences(batch, length))

    def any_sequences(self, batch: int, length: int) -> Draw:
        return self._keep(self._memory.any_sequences(batch, length))

    def newest_sequences(self, batch: int, length: int, early: int = 0) -> Draw:
        return self._keep(self._memory.newest_sequences(batch, length, early))

    def _keep(self, draw: Draw) -> Draw:
        self._note(draw._asdict())
        return draw

    def _note(self, draw: dict[str, Any]) -> None:
        self.draws.append(draw)
        device = self._memory.device
        self.random.append(
            torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        )

    def frames(self, *arguments: Any) -> dict[str, torch.Tensor]:
        frames = self._memory.frames(*arguments)
        self._note({"observation": frames})
        return frames

    def report_error(self, *arguments: Any) -> None:
        """A repeated step leaves no trace in memory."""


class _Playback(_Recorder):
    """A memory that gives out what was recorded, in order, and goes on with the random numbers of then: to
    draw took some. Without them (on another kind of device) what is random in a step is drawn anew."""

    def __init__(
        self, draws: list[dict[str, Any]], memory_config: MemoryConfig, random: list[torch.Tensor]
    ) -> None:
        self._left, self.config, self._random = list(draws), memory_config, list(random)

    def _next(self) -> dict[str, Any]:
        draw = self._left.pop(0)
        if self._random:
            state, device = self._random.pop(0), next(iter(draw["observation"].values())).device
            torch.cuda.set_rng_state(state, device) if device.type == "cuda" else torch.set_rng_state(state)
        return draw

    def sequences(self, batch: int, length: int, early: int = 0) -> Draw:
        return Draw(**self._next())

    any_sequences = newest_sequences = sequences

    def frames(self, *arguments: Any) -> dict[str, torch.Tensor]:
        return self._next()["observation"]


def dump(learner: Learner, memory: Memory, lap: Lap, folder: Path, world: WorldSetup) -> Path:
    """Repeat steps until one is refused, and keep the state before it with its batch."""
    learner.mind.train()
    for _ in range(_TRIES):
        before, recorder = _copied(learner.state()), _Recorder(memory)
        learner.train_step(recorder, lap.stages)  # type: ignore[arg-type]
        if float(learner.in_a_row) > 0:
            break
    learner.mind.eval()
    about = describe(learner.mind, world, lap=lap.index, stages=list(lap.stages), tokens=learner.tokens)
    about["learner"], about["memory"] = to_json(learner.config), to_json(memory.config)
    about["device"] = memory.device.type
    tree = {"about": about, "learner": before, "draws": recorder.draws, "random": recorder.random}
    return checkpoint.save(folder, f"lap-{lap.index:08d}", tree)


def _copied(tree: Any) -> Any:
    """State as it is now: later steps change the weights in place."""
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_copied(value) for value in tree]
    return tree.clone() if isinstance(tree, torch.Tensor) else tree


def replay(place: Path, device: str = "cpu") -> dict[str, Any]:
    """Do the kept step again; tells which descents refused it and what in batch and weights is not finite."""
    tree = checkpoint.load(place)
    about = tree["about"]
    mind = rebuild(about).to(device)
    learner = Learner(mind, from_json(LearnerConfig, about["learner"], "learner"), bool(about["tokens"]))
    learner.load_state(tree["learner"])
    learner.mind.train()
    draws = [_moved(draw, device) for draw in tree["draws"]]
    random = tree["random"] if about["device"] == torch.device(device).type else []
    playback = _Playback(draws, from_json(MemoryConfig, about["memory"], "memory"), random)
    weights = [name for name, value in mind.state_dict().items() if not value.isfinite().all()]
    seen = {name for draw in draws for name, value in _flat(draw).items() if not value.isfinite().all()}
    learner.train_step(playback, tuple(about["stages"]))  # type: ignore[arg-type]
    refused = [name for name, descent in learner.descents.items() if float(descent.refused) > 0]
    return {"lap": about["lap"], "refused": refused, "bad_weights": weights, "bad_in_batch": sorted(seen)}


def _flat(draw: dict[str, Any]) -> dict[str, torch.Tensor]:
    return draw["observation"] | {name: value for name, value in draw.items() if name != "observation"}


def _moved(draw: dict[str, Any], device: str) -> dict[str, Any]:
    return {
        name: {k: v.to(device) for k, v in value.items()} if isinstance(value, dict) else value.to(device)
        for name, value in draw.items()
    }
