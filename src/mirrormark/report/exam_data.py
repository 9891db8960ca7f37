"""An exam's folder as the report reads it. All that the report needs of the exam package is imported here."""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mirrormark.exam import conditions, history, measures, tables, verdict
from mirrormark.exam.before_after import MIN_KEPT_RUNS, Cuts, cuts
from mirrormark.exam.conditions import EXAM, YOKED
from mirrormark.exam.probes import POSTURES
from mirrormark.exam.protocol import CONTROL_STEP_S
from mirrormark.exam.recording import senses_of
from mirrormark.exam.results import load
from mirrormark.exam.statistics import Interval, Survival, median_time_s, seed_interval
from mirrormark.exam.verdict import CHANCE_RUNS, QUESTIONS

__all__ = [
    "CHANCE_RUNS", "CONTROL_STEP_S", "EXAM", "MIN_KEPT_RUNS", "POSTURES", "QUESTIONS", "YOKED",
    "Cuts", "Exam", "Interval", "RecordedRun", "Survival", "conditions", "load", "median_time_s",
    "seed_interval", "verdict",
]  # fmt: skip

AT_THE_MARK_M = 0.02
"""A hand that starts this near the mark was there by chance of posture (ours)."""


@dataclass(frozen=True)
class RecordedRun:
    """One run of the agent that is shown, kept whole."""

    label: str
    """median, best or failed."""
    exam_seed: int
    removed_s: float
    g: np.ndarray  # (T,) nats
    outside: np.ndarray  # (T, H, W, 3)
    seen: np.ndarray | None  # (T, 64, 64, 3); None for an agent without pixels
    unseen_because: str
    """Why the mark is not seen in the first frame; empty where it is."""

    @property
    def clip(self) -> str:
        """The id of its film on the page."""
        return f"clip-{self.label}"

    @property
    def removed_frame(self) -> int | None:
        """The first frame without the mark."""
        if not np.isfinite(self.removed_s):
            return None
        return min(round(self.removed_s / CONTROL_STEP_S), len(self.outside) - 1)


class Exam:
    """Results, tables and arrays of one exam."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.results = load(directory / "results.json")
        self.episodes = self._table("episodes", tables.EPISODES)
        self.steps = self._table("steps", tables.STEPS)
        self.training = self._table("training", history.TRAINING)
        self.scored = self._table("scored", history.SCORED)
        self.probes = self._arrays("probes.npz")
        self.recorded = list(self._recorded())

    @property
    def provenance(self) -> dict[str, Any]:
        path = self.directory / "provenance.json"
        return (
            json.loads(path.read_text()) if path.is_file() else {"sessions": [], "versions": {}, "agents": []}
        )

    def clip_of(self, run: Any) -> str | None:
        """The film of a row of episodes or pairs, if there is one. Films are of the first agent."""
        first = self.episodes.loc[self.episodes["run"] == self.results["shown"]["run"], "training_seed"].iloc[
            0
        ]
        if run.training_seed != first:
            return None
        return next((kept.clip for kept in self.recorded if kept.exam_seed == run.exam_seed), None)

    # Measures that only the report makes -------------------------------------------------------------------

    def pairs(self) -> dict[int, Cuts]:
        """G before and after removal, by training seed."""
        return cuts(of(self.episodes, EXAM), of(self.steps, EXAM))

    def first_touch(self, condition: str, away: bool = False) -> Survival | None:
        """When a hand first came within reach; away: only runs whose hand did not start at the mark."""
        steps = of(self.steps, condition)
        if away and len(steps):
            start = steps.groupby(measures.RUN)["distance_m"].transform("first")
            steps = steps[start > AT_THE_MARK_M]
        return measures.first_touch_curve(steps, self.results["reach_m"]) if len(steps) else None

    def started_at(self, column: str) -> float:
        """Share of exam runs whose nearer hand starts at the mark or at the yoked site."""
        start = of(self.steps, EXAM).groupby(measures.RUN)[column].first()
        return float((start <= AT_THE_MARK_M).mean())

    def distance_over_time(self, column: str) -> pd.DataFrame:
        return measures.distance_over_time(of(self.steps, EXAM), column)

    # Reading -----------------------------------------------------------------------------------------------

    def _table(self, name: str, schema: dict[str, str]) -> pd.DataFrame:
        path = self.directory / f"{name}.parquet"
        if not path.is_file():
            raise ValueError(f"{path} does not exist; run `mirrormark exam … --out {self.directory}` first.")
        return tables.check(pd.read_parquet(path), schema, path.name)

    def _arrays(self, name: str) -> dict[str, np.ndarray]:
        """Arrays that the exam kept of the agent that is shown; empty where there are none."""
        agent = "{run}@{checkpoint}".format(**self.results["shown"]).replace("/", "_")
        path = self.directory / "parts" / agent / name
        if not path.is_file():
            return {}
        with np.load(path) as arrays:
            return dict(arrays)

    def _recorded(self) -> Iterator[RecordedRun]:
        kept = self._arrays("recording.npz")
        steps = of(self.steps, EXAM)
        first = steps[(steps["run"] == self.results["shown"]["run"]) & (steps["t_s"] == 0)]
        unseen = first[first["mark_px"] == 0].set_index("exam_seed")["mark_in_view"]
        for k, label in enumerate(kept.get("label", ())):
            seed = int(kept["exam_seed"][k])
            why = "" if seed not in unseen else "covered by a hand or arm" if unseen[seed] else "out of view"
            yield RecordedRun(
                label=str(label),
                exam_seed=seed,
                removed_s=float(kept["removed_s"][k]),
                g=kept["expected_free_energy_nats"][k],
                outside=kept["outside"][k],
                seen=senses_of(kept, k).get("vision"),
                unseen_because=why,
            )


def of(table: pd.DataFrame, condition: str) -> pd.DataFrame:
    """The rows of one condition."""
    return table[table["condition"] == condition]
