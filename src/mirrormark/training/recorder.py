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

from mirrormark.config import AgentConfig
from mirrormark.training import checkpoint
from mirrormark.training.evaluation import indicators
from mirrormark.training.held_out import HeldOut, hold_out
from mirrormark.training.pictures import picture, save_picture
from mirrormark.training.run_folder import RunFolder
from mirrormark.training.schedule import Iteration
from mirrormark.training.trainer import Trainer
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


class Recorder:
    """A hook: called after every iteration."""

    def __init__(self, run: RunFolder, trainer: Trainer, preset: str, console: Console) -> None:
        self.run, self.trainer, self.preset, self.console = run, trainer, preset, console
        self._held: HeldOut | None = None
        self._began = self._last = time.monotonic()
        columns = ("{task.description}", "{task.fields[facts]}")
        self._progress = Progress(
            TextColumn(columns[0]), BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f}%"),
            TimeElapsedColumn(), TextColumn(columns[1]), console=console,
            disable=not console.is_terminal,
        )  # fmt: skip
        self._first_iteration = trainer.next_iteration
        self._task = self._progress.add_task(preset, total=trainer.schedule.total_iterations, facts="")
        self._progress.update(self._task, completed=trainer.next_iteration)
        self._newest: dict[str, float | None] = {}
        self._warned: set[str] = set()

    def __enter__(self) -> "Recorder":
        self._board = SummaryWriter(str(self.run.tensorboard), purge_step=self.trainer.learner.steps)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._board.close()

    def __call__(self, iteration: Iteration, trainer: Trainer, metrics: dict[str, float]) -> None:
        now = time.monotonic()
        spent, self._last = now - self._last, now
        row: dict[str, Any] = {
            "iteration": iteration.index,
            "phase": iteration.phase,
            "episodes": iteration.episodes_after,
            "steps": trainer.learner.steps,
            "seconds": round(now - self._began, 2),
            "steps_per_s": round(iteration.steps / spent, 2),
        }
        self.run.append("metrics.jsonl", row | metrics)
        for name, value in metrics.items():
            self._board.add_scalar(f"learn/{name}", value, trainer.learner.steps)
        if iteration.evaluation:
            self.evaluate(iteration)
        if iteration.checkpoint:
            self.save(iteration)
        self.run.note("running", iteration=trainer.next_iteration, episodes=iteration.episodes_after)
        for field, warning in out_of_reach(trainer.agent.config, metrics).items():
            if field not in self._warned:
                self._warned.add(field)
                self.console.print(f"Warning: {warning}", highlight=False, markup=False)
        self._show(iteration, row, metrics)
        self._last = time.monotonic()

    def evaluate(self, iteration: Iteration) -> None:
        """Indicators on held-out episodes, a line in evaluations.jsonl and a weights-only snapshot."""
        trainer, config = self.trainer, self.trainer.config.evaluation
        # The indicators draw random numbers of their own: the training run goes on as without them.
        devices = [trainer.device] if trainer.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(0)
            if self._held is None:
                self._held = hold_out(trainer.env, config, trainer.device)
            acting = iteration.phase == "training" and "policy" in iteration.stages
            envs = trainer.make_envs(config.policy_episodes, evaluation=True) if acting else None
            found = indicators(trainer.agent, self._held, envs)
            image = picture(trainer.agent, self._held)
        first = {key: found[key] for key in SHOWN if key in found}
        name = self.snapshot(iteration)
        seconds = round(time.monotonic() - self._began, 2)
        row = self._facts(iteration) | first | found | {"snapshot": name, "seconds": seconds}
        row["ablation"] = trainer.env.ablation
        self.run.append("evaluations.jsonl", row)
        for key, value in found.items():
            if value is not None:
                self._board.add_scalar(f"evaluation/{key}", value, trainer.learner.steps)
        if image is not None:
            save_picture(self.run.pictures / f"{name}.png", image)
            shown = "real, reconstructed, imagined, self-prior"
            self._board.add_image(shown, image, trainer.learner.steps, dataformats="HWC")
        self._newest = first
        words = "  ".join(_in_words(first))
        chance = f"(chance {found['chance_removal_rate']:.2f}, {found['chance_distance_m']:.3f} m)"
        note = f"  [{trainer.env.ablation}]" if trainer.env.ablation else ""
        self.console.print(
            f"episodes {iteration.episodes_after:>6}  {words}  {chance}{note}", highlight=False, markup=False
        )

    def _facts(self, iteration: Iteration) -> dict[str, int]:
        return {
            "iteration": iteration.index,
            "episodes": iteration.episodes_after,
            "steps": self.trainer.learner.steps,
        }

    def snapshot(self, iteration: Iteration) -> str:
        """The agent's weights alone, as after this iteration; gives the snapshot's name."""
        trainer, name = self.trainer, f"episodes-{iteration.episodes_after:08d}"
        metadata = describe(
            trainer.agent, trainer.env, preset=self.preset, seed=trainer.seed, **self._facts(iteration)
        )
        save_snapshot(self.run.snapshots, name, trainer.agent, metadata)
        return name

    def save(self, iteration: Iteration | None = None) -> None:
        """A checkpoint of everything after this iteration (None: before the first)."""
        trainer = self.trainer
        facts = {
            "episodes": iteration.episodes_after if iteration else 0,
            "steps": trainer.learner.steps,
            "seed": trainer.seed,
        }
        metadata = describe(trainer.agent, trainer.env, preset=self.preset, **facts)
        checkpoint.save(
            self.run.checkpoints,
            f"iteration-{trainer.next_iteration:08d}",
            trainer.state() | {"metadata": metadata},
        )

    def left_s(self, iteration: Iteration) -> float:
        """Until the run ends, at the mean pace of this process so far."""
        done = iteration.index + 1 - self._first_iteration
        left = self.trainer.schedule.total_iterations - iteration.index - 1
        return (time.monotonic() - self._began) / done * left

    def _show(self, iteration: Iteration, row: dict[str, Any], metrics: dict[str, float]) -> None:
        stages = "+".join(iteration.stages) or "gathering"
        left = timedelta(seconds=round(self.left_s(iteration)))
        shown = [f"ETA {left}", f"{row['steps_per_s']:.1f} steps/s", f"episodes {iteration.episodes_after}"]
        shown += [
            f"{key} {metrics[key]:.3g}" for key in ("vision", "dynamics", "G_babbling") if key in metrics
        ]
        shown += _in_words(self._newest)  # as of the last evaluation
        self._progress.update(
            self._task, completed=iteration.index + 1, description=stages, facts=", ".join(shown)
        )


def out_of_reach(agent: AgentConfig, metrics: Mapping[str, float]) -> dict[str, str]:
    """Fields whose bins end where the mean of what they hold lies, with a sentence each. Beyond the last bin
    all looks alike. Means only: ends that a spread alone overruns show as a `value_explained_variance`
    near 0."""
    if agent.kind != "swift":
        return {}
    cost = "cost_on_policy" if "cost_on_policy" in metrics else "imagined_cost"
    ends = {"expected_g.reach": (cost, agent.expected_g.reach if agent.expected_g.control_steps else None)}
    ends["value_reach"] = ("value", agent.value_reach)
    return {
        field: f"agent.{field} ends at {end:g} nats, and {key} is {metrics[key]:.4g} in the mean: raise it."
        for field, (key, end) in ends.items()
        if end is not None and abs(metrics.get(key, 0.0)) > _NEAR_THE_END * end
    }


def _in_words(found: Mapping[str, float | None]) -> list[str]:
    """Indicators in words; what could not be measured is said to be unknown."""
    return [f"{key} {'unknown' if value is None else f'{value:.3g}'}" for key, value in found.items()]
