"""What a run leaves behind as it goes: metrics, indicators, snapshots, checkpoints, pictures, a progress
line."""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch.utils.tensorboard import SummaryWriter

from mirrormark.agent.agent import MindConfig
from mirrormark.training import checkpoint
from mirrormark.training.evaluation import indicators
from mirrormark.training.held_out import HeldOut, hold_out
from mirrormark.training.pictures import picture, save_picture
from mirrormark.training.run_folder import Run
from mirrormark.training.schedule import Lap
from mirrormark.training.trainer import Life
from mirrormark.training.weights import describe, save_snapshot

SHOWN = (
    "mark_recovery",
    "efe_gap_nats",
    "efe_gap_per_posture_range",
    "dreamed_fall_nats",
    "removal_rate",
    "distance_m",
)
"""The gates' keys, in their order; they come first in every row."""
_NEAR_THE_END = 0.9
"""Of the bins' reach: a mean beyond this share says that many values lie beyond the last bin."""


class Records:
    """A hook: called after every lap."""

    def __init__(self, run: Run, life: Life, preset: str, console: Console) -> None:
        self.run, self.life, self.preset, self.console = run, life, preset, console
        self._held: HeldOut | None = None
        self._began = self._last = time.monotonic()
        columns = ("{task.description}", "{task.fields[facts]}")
        self._progress = Progress(
            TextColumn(columns[0]), BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f}%"),
            TimeElapsedColumn(), TextColumn(columns[1]), console=console,
            disable=not console.is_terminal,
        )  # fmt: skip
        self._first_lap = life.next_lap
        self._task = self._progress.add_task(preset, total=life.schedule.total_laps, facts="")
        self._progress.update(self._task, completed=life.next_lap)
        self._newest: dict[str, float | None] = {}
        self._warned: set[str] = set()

    def __enter__(self) -> "Records":
        self._board = SummaryWriter(str(self.run.tensorboard), purge_step=self.life.learner.steps)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._board.close()

    def __call__(self, lap: Lap, life: Life, metrics: dict[str, float]) -> None:
        now = time.monotonic()
        spent, self._last = now - self._last, now
        row: dict[str, Any] = {
            "lap": lap.index,
            "phase": lap.phase,
            "episodes": lap.episodes_after,
            "steps": life.learner.steps,
            "seconds": round(now - self._began, 2),
            "steps_per_s": round(lap.steps / spent, 2),
        }
        self.run.append("metrics.jsonl", row | metrics)
        for name, value in metrics.items():
            self._board.add_scalar(f"learn/{name}", value, life.learner.steps)
        if lap.exam:
            self.examine(lap)
        if lap.checkpoint:
            self.save(lap)
        self.run.note("running", lap=life.next_lap, episodes=lap.episodes_after)
        for field, warning in out_of_reach(life.mind.config, metrics).items():
            if field not in self._warned:
                self._warned.add(field)
                self.console.print(f"Warning: {warning}", highlight=False, markup=False)
        self._show(lap, row, metrics)
        self._last = time.monotonic()

    def examine(self, lap: Lap) -> None:
        """Indicators on held-out episodes, a line in exams.jsonl and a weights-only snapshot."""
        life, config = self.life, self.life.config.indicators
        # The indicators draw random numbers of their own: the life goes on as if nobody had looked.
        devices = [life.device] if life.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(0)
            if self._held is None:
                self._held = hold_out(life.world, config, life.device)
            acting = lap.phase == "life" and "policy" in lap.stages
            worlds = life.worlds(config.policy_episodes, examined=True) if acting else None
            found = indicators(life.mind, self._held, worlds)
            image = picture(life.mind, self._held)
        first = {key: found[key] for key in SHOWN if key in found}
        name = self.snapshot(lap)
        seconds = round(time.monotonic() - self._began, 2)
        row = self._facts(lap) | first | found | {"snapshot": name, "seconds": seconds}
        row["ablation"] = life.world.ablation
        self.run.append("exams.jsonl", row)
        for key, value in found.items():
            if value is not None:
                self._board.add_scalar(f"gates/{key}", value, life.learner.steps)
        if image is not None:
            save_picture(self.run.pictures / f"{name}.png", image)
            shown = "real, reconstructed, dreamed, self-prior"
            self._board.add_image(shown, image, life.learner.steps, dataformats="HWC")
        self._newest = first
        told = "  ".join(_told(first))
        chance = f"(chance {found['chance_removal_rate']:.2f}, {found['chance_distance_m']:.3f} m)"
        note = f"  [{life.world.ablation}]" if life.world.ablation else ""
        self.console.print(
            f"episodes {lap.episodes_after:>6}  {told}  {chance}{note}", highlight=False, markup=False
        )

    def _facts(self, lap: Lap) -> dict[str, int]:
        return {"lap": lap.index, "episodes": lap.episodes_after, "steps": self.life.learner.steps}

    def snapshot(self, lap: Lap) -> str:
        """The mind's weights alone, as after this lap; gives the snapshot's name."""
        life, name = self.life, f"episodes-{lap.episodes_after:08d}"
        about = describe(life.mind, life.world, preset=self.preset, seed=life.seed, **self._facts(lap))
        save_snapshot(self.run.snapshots, name, life.mind, about)
        return name

    def save(self, lap: Lap | None = None) -> None:
        """A checkpoint of everything after this lap (None: before the first)."""
        life = self.life
        facts = {"episodes": lap.episodes_after if lap else 0, "steps": life.learner.steps, "seed": life.seed}
        about = describe(life.mind, life.world, preset=self.preset, **facts)
        checkpoint.save(self.run.checkpoints, f"lap-{life.next_lap:08d}", life.state() | {"about": about})

    def left_s(self, lap: Lap) -> float:
        """Until the run ends, at the mean pace of this process so far."""
        lived = lap.index + 1 - self._first_lap
        left = self.life.schedule.total_laps - lap.index - 1
        return (time.monotonic() - self._began) / lived * left

    def _show(self, lap: Lap, row: dict[str, Any], metrics: dict[str, float]) -> None:
        stages = "+".join(lap.stages) or "gathering"
        left = timedelta(seconds=round(self.left_s(lap)))
        shown = [f"ETA {left}", f"{row['steps_per_s']:.1f} steps/s", f"episodes {lap.episodes_after}"]
        shown += [
            f"{key} {metrics[key]:.3g}" for key in ("vision", "dynamics", "G_everyday") if key in metrics
        ]
        shown += _told(self._newest)  # as of the last exam point
        self._progress.update(self._task, completed=lap.index + 1, description=stages, facts=", ".join(shown))


def out_of_reach(mind: MindConfig, metrics: Mapping[str, float]) -> dict[str, str]:
    """Fields whose bins end where the mean of what they hold lies, with a sentence each. Beyond the last bin
    all looks alike. Means only: ends that a spread alone overruns are told by a `value_explains` near 0."""
    cost = "cost_lived" if "cost_lived" in metrics else "cost_dreamed"
    ends = {"outlook.reach": (cost, mind.outlook.reach if mind.outlook.control_steps else None)}
    ends["value.reach"] = ("value", mind.value.reach if mind.value.linear else None)
    return {
        field: f"mind.{field} ends at {end:g} nats, and {key} is {metrics[key]:.4g} in the mean: raise it."
        for field, (key, end) in ends.items()
        if end is not None and abs(metrics.get(key, 0.0)) > _NEAR_THE_END * end
    }


def _told(found: Mapping[str, float | None]) -> list[str]:
    """Indicators in words; what could not be measured is said to be unknown."""
    return [f"{key} {'unknown' if value is None else f'{value:.3g}'}" for key, value in found.items()]
