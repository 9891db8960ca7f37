"""G before and after removal, paired within runs, beside what time alone does to G (paper-notes D16, D23).

A removed run is cut at its removal. The agent's runs without removal are cut at the same moments: what G does
there is time alone. Runs of one training seed are not independent cases of learning, so with several seeds
every effect is one number a seed, and n counts seeds.
"""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false, reportAttributeAccessIssue=false

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mirrormark.exam import statistics
from mirrormark.exam.measures import RUN
from mirrormark.exam.statistics import Interval

MIN_SIDE_CONTROL_STEPS = 5
"""Steps that a run must have on each side of its removal to give a pair: 0.25 s. Ours."""
MIN_KEPT_RUNS = 10
"""Fewest runs without removal, of one agent, that show what time alone does. Ours."""


class Cuts(NamedTuple):
    """One agent's runs, cut at its removals."""

    pairs: pd.DataFrame  # a row a removed run: mean G before and after
    kept: NDArray[np.float64]  # (pairs, kept runs) change of G in each run without removal at each cut


@dataclass(frozen=True)
class Effect:
    """A change of G in nats, with what its p-value rests on."""

    estimate: float
    interval: Interval
    p: float
    n: int
    unit: str
    """What n counts: "pairs", "runs" or "training seeds"."""
    method: str
    rank_biserial: float | None = None
    """Matched-pairs rank correlation, where Wilcoxon's test was made."""


@dataclass(frozen=True)
class BeforeAfter:
    """The paper's Fig. 3c with what it lacks: n, the cluster, and a control of matched time."""

    before_mean: float
    before_sd: float | None
    after_mean: float
    after_sd: float | None
    pairs: int
    """Removed runs with time on both sides, of all agents."""
    by_seed: dict[int, float]
    """Mean shift of each training seed's pairs."""
    shift: Effect
    matched: Effect | None
    """Shift minus that of runs without removal, cut at the same moments."""
    matched_control: float | None
    """What time alone did to G in those runs."""
    matched_missing: str | None
    """Why there is no matched control, in words."""
    speaks_of: str
    """What the intervals generalise to."""


def cuts(episodes: pd.DataFrame, steps: pd.DataFrame) -> dict[int, Cuts]:
    """Of each training seed that has a removed run with time on both sides."""
    found: dict[int, Cuts] = {}
    for seed, runs in episodes.groupby("training_seed"):
        of_seed = steps[steps["training_seed"] == seed]
        curves = of_seed.pivot_table(
            index=["exam_seed", "episode"], columns="t_s", values="expected_free_energy_nats"
        )
        if not curves.empty:
            one = _cuts_of_seed(int(seed), runs, curves)
            if len(one.pairs):
                found[int(seed)] = one
    return found


def _cuts_of_seed(seed: int, runs: pd.DataFrame, curves: pd.DataFrame) -> Cuts:
    time_s = curves.columns.to_numpy(dtype=float)
    world = ["exam_seed", "episode"]
    kept = curves[curves.index.isin(pd.MultiIndex.from_frame(runs.loc[~runs["removed"], world]))].to_numpy(
        dtype=float
    )
    rows, changes = [], []
    for run in runs[runs["removed"]].itertuples():
        curve = curves.loc[(run.exam_seed, run.episode)].to_numpy(dtype=float)
        after = time_s >= run.removed_s
        if min(after.sum(), (~after).sum()) < MIN_SIDE_CONTROL_STEPS:
            continue
        rows.append((seed, run.exam_seed, run.episode, curve[~after].mean(), curve[after].mean()))
        changes.append(kept[:, after].mean(1) - kept[:, ~after].mean(1))
    pairs = pd.DataFrame(rows, columns=[*RUN, "before", "after"])
    return Cuts(pairs, np.array(changes, dtype=float).reshape(len(rows), len(kept)))


def before_after(episodes: pd.DataFrame, steps: pd.DataFrame) -> BeforeAfter | None:
    """None where no run gives a pair: nothing was removed, or too near the ends of the run."""
    found = cuts(episodes, steps)
    if not found:
        return None
    pairs = pd.concat([one.pairs for one in found.values()])
    agents = int(episodes["training_seed"].nunique())
    matched, control, missing = _matched(found)
    return BeforeAfter(
        before_mean=float(pairs["before"].mean()),
        before_sd=float(pairs["before"].std(ddof=1)) if len(pairs) > 1 else None,
        after_mean=float(pairs["after"].mean()),
        after_sd=float(pairs["after"].std(ddof=1)) if len(pairs) > 1 else None,
        pairs=len(pairs),
        by_seed={seed: float(_change(one).mean()) for seed, one in found.items()},
        shift=_shift(found),
        matched=matched,
        matched_control=control,
        matched_missing=missing,
        speaks_of=_speaks_of(len(found), agents),
    )


def _change(one: Cuts) -> NDArray[np.float64]:
    return (one.pairs["after"] - one.pairs["before"]).to_numpy(dtype=float)


def _shift(found: dict[int, Cuts]) -> Effect:
    if len(found) > 1:
        return _across_seeds([float(_change(one).mean()) for one in found.values()])
    (one,) = found.values()
    shift = statistics.paired_shift(one.pairs["before"], one.pairs["after"])
    method = "Hodges–Lehmann shift; Wilcoxon's signed-rank test"
    return Effect(shift.estimate, shift.interval, shift.p, shift.n, "pairs", method, shift.rank_biserial)


def _across_seeds(values: list[float]) -> Effect:
    found = statistics.seed_difference(values)
    return Effect(
        found.estimate, found.interval, found.p, found.n, "training seeds", "Student's t on seed means"
    )


def _matched(found: dict[int, Cuts]) -> tuple[Effect | None, float | None, str | None]:
    """The shift with time taken out, what time did, or why neither can be said."""
    able = [one for one in found.values() if one.kept.shape[1] >= MIN_KEPT_RUNS and len(one.pairs) >= 2]
    most = max(one.kept.shape[1] for one in found.values())
    if len(able) < min(len(found), 2):
        reason = (
            f"an agent needs {MIN_KEPT_RUNS} runs without removal and two with it to show what time alone "
            f"does to G: {len(able)} of {len(found)} agents have them (most runs without removal: {most})"
        )
        return None, None, reason
    control = float(np.mean([one.kept.mean() for one in able]))
    if len(able) > 1:
        values = [float((_change(one) - one.kept.mean(1)).mean()) for one in able]
        return _across_seeds(values), control, None
    shift = statistics.crossed_shift(_change(able[0]), able[0].kept)
    method = "mean of all pairs of a removed and a kept run; Welch's t with the errors of both groups"
    return Effect(shift.estimate, shift.interval, shift.p, shift.n, "runs", method), control, None


def _speaks_of(seeds: int, agents: int) -> str:
    if seeds > 1:
        return f"{seeds} of {agents} training seeds gave pairs: n counts seeds"
    if agents > 1:
        return f"only one of {agents} training seeds gave pairs: this speaks of that one agent only"
    return "one training seed: this speaks of this one agent only, not of what another seed would learn"
