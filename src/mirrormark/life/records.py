"""What a run leaves behind as it goes: metrics, indicators, snapshots, checkpoints, pictures, a progress
line."""

import time
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from mirrormark.life import checkpoint
from mirrormark.life.held_out import HeldOut, hold_out
from mirrormark.life.indicators import indicators
from mirrormark.life.live import Life
from mirrormark.life.pictures import picture, save_picture
from mirrormark.life.run import Run
from mirrormark.life.schedule import Lap
from mirrormark.life.weights import describe, save_snapshot

SHOWN = (
    "mark_recovery",
    "efe_gap_nats",
    "efe_gap_per_posture_range",
    "dreamed_fall_nats",
    "removal_rate",
    "distance_m",
)
"""The gates' keys, in their order; they come first in every row."""


class Records:
    """A hook: called after every lap."""

    def __init__(self, run: Run, life: Life, preset: str, console: Console) -> None:
        self.run, self.life, self.preset, self.console = run, life, preset, console
        self._held: HeldOut | None = None
        self._began = self._last = time.monotonic()
        columns = ("{task.description}", "{task.fields[facts]}")
        self._progress = Progress(
            TextColumn(columns[0]), BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f}%"),
            TimeElapsedColumn(), TimeRemainingColumn(), TextColumn(columns[1]), console=console,
            disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task(preset, total=life.schedule.total_laps, facts="")
        self._progress.update(self._task, completed=life.next_lap)
        self._newest: dict[str, float] = {}

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
            worlds = life.worlds(config.policy_episodes) if acting else None
            found = indicators(life.mind, self._held, worlds)
            image = picture(life.mind, self._held)
        first = {key: found[key] for key in SHOWN if key in found}
        name = f"episodes-{lap.episodes_after:08d}"
        facts = {"lap": lap.index, "episodes": lap.episodes_after, "steps": life.learner.steps}
        about = describe(life.mind, life.world, preset=self.preset, seed=life.seed, **facts)
        save_snapshot(self.run.snapshots, name, life.mind, about)
        seconds = round(time.monotonic() - self._began, 2)
        row = facts | first | found | {"snapshot": name, "seconds": seconds, "ablation": life.world.ablation}
        self.run.append("exams.jsonl", row)
        for key, value in found.items():
            self._board.add_scalar(f"gates/{key}", value, life.learner.steps)
        if image is not None:
            save_picture(self.run.pictures / f"{name}.png", image)
            shown = "real, reconstructed, dreamed, self-prior"
            self._board.add_image(shown, image, life.learner.steps, dataformats="HWC")
        self._newest = first
        told = "  ".join(f"{key} {value:.3g}" for key, value in first.items())
        chance = f"(chance {found['chance_removal_rate']:.2f}, {found['chance_distance_m']:.3f} m)"
        note = f"  [{life.world.ablation}]" if life.world.ablation else ""
        self.console.print(
            f"episodes {lap.episodes_after:>6}  {told}  {chance}{note}", highlight=False, markup=False
        )

    def save(self, lap: Lap | None = None) -> None:
        """A checkpoint of everything after this lap (None: before the first)."""
        life = self.life
        facts = {"episodes": lap.episodes_after if lap else 0, "steps": life.learner.steps, "seed": life.seed}
        about = describe(life.mind, life.world, preset=self.preset, **facts)
        checkpoint.save(self.run.checkpoints, f"lap-{life.next_lap:08d}", life.state() | {"about": about})

    def _show(self, lap: Lap, row: dict[str, Any], metrics: dict[str, float]) -> None:
        stages = "+".join(lap.stages) or "gathering"
        shown = [f"{row['steps_per_s']:.1f} steps/s", f"episodes {lap.episodes_after}"]
        shown += [
            f"{key} {metrics[key]:.3g}" for key in ("vision", "dynamics", "G_everyday") if key in metrics
        ]
        self._progress.update(self._task, completed=lap.index + 1, description=stages, facts=", ".join(shown))
