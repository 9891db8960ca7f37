"""G before and after removal, paired within runs, beside what time alone does to G (paper-notes D16, D23)."""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false, reportAttributeAccessIssue=false

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mirrormark.exam import statistics
from mirrormark.exam.runs import RUN
from mirrormark.exam.statistics import Interval, Shift

MIN_SIDE_CONTROL_STEPS = 5
"""Steps that a run must have on each side of its removal to give a pair: 0.25 s. Ours."""


@dataclass(frozen=True)
class BeforeAfter:
    """The paper's Fig. 3c with what it lacks: n, the cluster, and a control of matched time."""

    before_mean: float
    before_sd: float
    after_mean: float
    after_sd: float
    shift: Shift
    by_seed: dict[int, float]
    """Mean shift of each training seed's pairs."""
    seed_interval: Interval | None
    """Student's interval of the seed means; None with one seed."""
    matched: Shift | None
    """Shift minus that of runs without removal, cut at the same moments; None where every run removed."""
    matched_control: float | None
    """What time alone did to G: mean shift of the runs without removal."""


def pairs(episodes: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """One row a removed run: mean G before and after, and the same cut in that mind's other runs."""
    rows = []
    for seed, runs in episodes.groupby("training_seed"):
        of_seed = steps[steps["training_seed"] == seed]
        curves = of_seed.pivot_table(
            index=["exam_seed", "episode"], columns="t_s", values="expected_free_energy_nats"
        )
        if curves.empty:
            continue
        time_s = curves.columns.to_numpy(dtype=float)
        kept = curves.loc[[key for key in _keys(runs[~runs["removed"]]) if key in curves.index]].to_numpy(
            dtype=float
        )
        for run in runs[runs["removed"]].itertuples():
            curve = curves.loc[(run.exam_seed, run.episode)].to_numpy(dtype=float)
            after = time_s >= run.removed_s
            if min(after.sum(), (~after).sum()) < MIN_SIDE_CONTROL_STEPS:
                continue
            control = (kept[:, after].mean(1) - kept[:, ~after].mean(1)).mean() if len(kept) else np.nan
            rows.append(
                (seed, run.exam_seed, run.episode, curve[~after].mean(), curve[after].mean(), control)
            )
    return pd.DataFrame(rows, columns=[*RUN, "before", "after", "control"])


def _keys(runs: pd.DataFrame) -> list[tuple[int, int]]:
    return list(zip(runs["exam_seed"], runs["episode"], strict=True))


def before_after(episodes: pd.DataFrame, steps: pd.DataFrame) -> BeforeAfter | None:
    """None where no run gives a pair: nothing was removed, or too near the ends of the run."""
    found = pairs(episodes, steps)
    if found.empty:
        return None
    change = found["after"] - found["before"]
    by_seed = {int(seed): float(values.mean()) for seed, values in change.groupby(found["training_seed"])}
    timed = found.dropna(subset="control")
    matched = (
        statistics.paired_shift(timed["before"] + timed["control"], timed["after"])
        if not timed.empty
        else None
    )
    return BeforeAfter(
        before_mean=float(found["before"].mean()),
        before_sd=float(found["before"].std(ddof=1)) if len(found) > 1 else 0.0,
        after_mean=float(found["after"].mean()),
        after_sd=float(found["after"].std(ddof=1)) if len(found) > 1 else 0.0,
        shift=statistics.paired_shift(found["before"], found["after"]),
        by_seed=by_seed,
        seed_interval=statistics.t_interval(list(by_seed.values())) if len(by_seed) > 1 else None,
        matched=matched,
        matched_control=float(timed["control"].mean()) if not timed.empty else None,
    )
