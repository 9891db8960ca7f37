"""What the tables say: rates with intervals, comparisons with controls, distance over time, first touch, and
why runs failed."""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mirrormark.exam import statistics
from mirrormark.exam.statistics import Difference, Interval, Survival

NO_AGENT = -1
"""`training_seed` where no agent acted (random actions, the oracle)."""


@dataclass(frozen=True)
class SeedRate:
    """One training seed's share: the dot in the figure."""

    training_seed: int
    successes: int
    n: int


@dataclass(frozen=True)
class Rate:
    """A share of runs, with its interval and everything that must stand beside it."""

    rate: float
    interval: Interval
    successes: int
    n: int
    seeds: tuple[SeedRate, ...]
    method: str

    @property
    def caption(self) -> str:
        """The note that goes with the rate wherever it is shown."""
        return f"n={self.n} runs, {_seeds_in_words(self.seeds)}"


def _seeds_in_words(seeds: tuple[SeedRate, ...]) -> str:
    if all(seed.training_seed == NO_AGENT for seed in seeds):
        return "no training seed"
    return f"{len(seeds)} training seed{'s' if len(seeds) > 1 else ''}"


def rate(episodes: pd.DataFrame, outcome: str = "removed") -> Rate:
    """Share of runs with the outcome. One seed: Wilson. Several: Student's t on seed means."""
    if episodes.empty:
        raise ValueError("rate: no runs in this condition; examine at least one run.")
    groups = episodes.groupby("training_seed")[outcome]
    seeds = tuple(SeedRate(int(seed), int(runs.sum()), len(runs)) for seed, runs in groups)
    successes, counts = [seed.successes for seed in seeds], [seed.n for seed in seeds]
    several = len(seeds) > 1
    centre = float(np.mean(np.divide(successes, counts)))
    interval = statistics.seed_interval(successes, counts)
    method = f"Student's t on {len(seeds)} seed means, no narrower than Wilson" if several else "Wilson 95%"
    return Rate(centre, interval, sum(successes), sum(counts), seeds, method)


@dataclass(frozen=True)
class Comparison:
    """Removal in the exam minus the same share in one control."""

    control: str
    difference: float
    interval: Interval
    p: float
    p_holm: float
    n: int
    method: str


def difference(exam: pd.DataFrame, control: pd.DataFrame, outcome: str = "removed") -> tuple[Difference, str]:
    """Exam minus control, paired by world where both ran the same worlds with the same seeds' agents."""
    shared = set(exam["training_seed"]) & set(control["training_seed"])
    if shared != set(exam["training_seed"]):
        return _against_unclustered(exam, control, outcome)
    pooled = _paired(exam["removed"].to_numpy(), _aligned(exam, control, outcome))
    if len(shared) == 1:
        return pooled, "Newcombe paired; exact McNemar"
    by_seed = [
        exam.loc[exam["training_seed"] == seed, "removed"].mean()
        - control.loc[control["training_seed"] == seed, outcome].mean()
        for seed in sorted(shared)
    ]
    found = statistics.seed_difference(by_seed, pooled)
    return found, "one difference a seed; Student's t, n = seeds, no narrower than Newcombe over all runs"


def _aligned(exam: pd.DataFrame, control: pd.DataFrame, outcome: str) -> np.ndarray:
    """The control's outcome in the order of the exam's agents and worlds."""
    world = ["training_seed", "exam_seed"]
    found = control.set_index(world)[outcome].reindex(pd.MultiIndex.from_frame(exam[world]))
    if found.isna().any():
        raise ValueError(
            "difference: the control lacks some of the exam's worlds; run both with the same exam seeds."
        )
    return found.to_numpy(dtype=bool)


def _paired(first: np.ndarray, second: np.ndarray) -> Difference:
    return statistics.newcombe_paired(
        both=int((first & second).sum()),
        first=int((first & ~second).sum()),
        second=int((~first & second).sum()),
        neither=int((~first & ~second).sum()),
    )


def _against_unclustered(exam: pd.DataFrame, control: pd.DataFrame, outcome: str) -> tuple[Difference, str]:
    """Against chance, which has no training seeds. One seed: Newcombe. Several: Student's interval and the
    control's Wilson interval joined by squares, as Newcombe joins two Wilson intervals."""
    hits, n = int(control[outcome].sum()), len(control)
    seeds = exam.groupby("training_seed")["removed"].mean().to_numpy(dtype=float)
    pooled = statistics.newcombe(int(exam["removed"].sum()), len(exam), hits, n)
    if seeds.size == 1:
        return pooled, "Newcombe; Fisher's exact"
    chance, wilson = hits / n, statistics.wilson(hits, n)
    found = statistics.seed_difference(seeds - chance, pooled)
    across = rate(exam).interval
    low = found.estimate - np.hypot(seeds.mean() - across.low, wilson.high - chance)
    high = found.estimate + np.hypot(across.high - seeds.mean(), chance - wilson.low)
    joined = Difference(found.estimate, Interval(float(low), float(high)), found.p, found.n)
    return joined, "seed means against chance; Student's t, n = seeds, no narrower than Newcombe"


def compare(exam: pd.DataFrame, controls: dict[str, tuple[pd.DataFrame, str]]) -> list[Comparison]:
    """Exam against each control (its episodes, and the column that counts), Holm-corrected together."""
    found = {name: difference(exam, *control) for name, control in controls.items()}
    adjusted = statistics.holm([effect.p for effect, _ in found.values()])
    return [
        Comparison(name, effect.estimate, effect.interval, effect.p, p_holm, effect.n, method)
        for (name, (effect, method)), p_holm in zip(found.items(), adjusted, strict=True)
    ]


def breakdown(episodes: pd.DataFrame, by: pd.Series) -> dict[str, Rate]:
    """Removal in each group of runs, in the order of the group's name."""
    return {str(name): rate(runs) for name, runs in episodes.groupby(by.to_numpy())}


def sides(episodes: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Side of the mark → hand that came nearest, as counts of runs (left/right confusion)."""
    counts = pd.crosstab(episodes["side"], episodes["hand"])
    return {str(side): {str(hand): int(n) for hand, n in row.items()} for side, row in counts.iterrows()}


RUN = ["training_seed", "exam_seed", "episode"]
"""Columns that tell one run of a condition from another."""


@dataclass(frozen=True)
class FailureRule:
    """When a failed run is called what; the first that fits is taken, in the order of the fields."""

    unseen_share: float = 0.5
    """Share of a run's steps in which the mark must be unseen to name the failure so. Ours."""
    left_share: float = 0.25
    """A mark is unseen where no more than this share of its largest view in the run is left: an edge that
    peeps out under a hand is hardly seen at 64 × 64 pixels. Ours."""
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
    found = first_touch(steps, reach_m)
    curves = [_curve(of_seed) for _, of_seed in found.groupby("training_seed")]
    return statistics.kaplan_meier_of_seeds(curves, _curve(found))


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
