"""What happened within runs: distance over time, first touch, and why a run failed. From the tables only."""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mirrormark.exam import statistics
from mirrormark.exam.statistics import Survival

RUN = ["training_seed", "exam_seed", "episode"]
"""Columns that tell one run of a condition from another."""


@dataclass(frozen=True)
class FailureRule:
    """When a failed run is called what; the first that fits is taken, in the order of the fields."""

    unseen_share: float = 0.5
    """Share of a run's steps in which the mark must be unseen to name the failure so. Ours."""
    left_share: float = 0.25
    """A mark is unseen where no more than this share of its largest view in the run is left: an edge that
    peeps out under a hand tells a coarse eye little. Ours."""
    approach_m: float = 0.04
    """A hand that came this near the mark approached it; twice the reach that counts as touching. Ours."""


FAILURES = ("out of view", "hidden by hand", "approached", "not approached")


def first_touch(steps: pd.DataFrame, reach_m: float) -> pd.DataFrame:
    """For each run the first time a hand was within reach, or the run's end, censored."""
    touching = steps[steps["distance_m"] <= reach_m].groupby(RUN)["t_s"].min()
    end = steps.groupby(RUN)["t_s"].max()
    touched = touching.reindex(end.index)
    return pd.DataFrame({"time_s": touched.fillna(end), "touched": touched.notna()})


def first_touch_curve(steps: pd.DataFrame, reach_m: float) -> Survival:
    """Kaplan-Meier over all runs; with several training seeds the mean of their curves and its band."""
    runs = first_touch(steps, reach_m)
    curves = [_curve(of_seed) for _, of_seed in runs.groupby("training_seed")]
    return statistics.kaplan_meier_of_seeds(curves, _curve(runs))


def _curve(runs: pd.DataFrame) -> Survival:
    return statistics.kaplan_meier(runs["time_s"].to_numpy(), runs["touched"].to_numpy())


def distance_over_time(steps: pd.DataFrame, column: str = "distance_m") -> pd.DataFrame:
    """Mean over runs and the 5–95% band of runs at each time."""
    grouped = steps.groupby("t_s")[column]
    band = grouped.quantile([0.05, 0.95]).unstack()
    return pd.DataFrame({"mean": grouped.mean(), "low": band[0.05], "high": band[0.95]}).reset_index()


def mean_distance_m(steps: pd.DataFrame) -> dict[str, float]:
    """Distance averaged over each run, then over runs, with the 5–95% band of runs (Fig. 4a)."""
    by_run = steps.groupby(RUN)["distance_m"].mean().to_numpy(dtype=float)
    low, high = np.quantile(by_run, [0.05, 0.95])
    return {"mean": float(by_run.mean()), "low": float(low), "high": float(high), "n": int(by_run.size)}


def failures(
    episodes: pd.DataFrame, steps: pd.DataFrame, rule: FailureRule | None = None
) -> tuple[dict[str, int], pd.Series]:
    """Each failed run's label, and how many runs carry it.

    Out of view: the mark's place in the mirror lies outside the field of view for at least half of the run.
    Hidden by hand: it lies inside, but hardly a pixel of the mark is seen, for at least half of the run (the
    head does not hide its own front: an arm or a hand stands between). Else by how near a hand came.
    """
    rule = rule or FailureRule()
    failed = episodes.loc[~episodes["removed"], RUN]
    runs = steps.merge(failed, on=RUN)
    looked = runs.dropna(subset="mark_px")  # the view is not measured in every frame of every condition
    unseen = looked["mark_px"] <= rule.left_share * looked.groupby(RUN)["mark_px"].transform("max")
    looked = looked.assign(
        out=(unseen & (looked["mark_in_view"] == 0)).astype(float),
        hidden=(unseen & (looked["mark_in_view"] == 1)).astype(float),
    )
    grouped = pd.DataFrame({"near": runs.groupby(RUN)["distance_m"].min()})
    grouped = grouped.join(looked.groupby(RUN)[["out", "hidden"]].mean()).fillna({"out": 0.0, "hidden": 0.0})
    labels = np.select(
        [
            grouped["out"] >= rule.unseen_share,
            grouped["hidden"] >= rule.unseen_share,
            grouped["near"] <= rule.approach_m,
        ],
        FAILURES[:3],
        FAILURES[3],
    )
    labelled = pd.Series(labels, index=grouped.index, dtype=object)
    return {name: int((labelled == name).sum()) for name in FAILURES}, labelled
