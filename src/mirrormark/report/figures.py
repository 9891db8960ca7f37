"""All figures of an exam, drawn from its saved tables only, as PNG and SVG with a caption each."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from mirrormark.exam import history, tables
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.results import load
from mirrormark.report import figures_exam, figures_probes, figures_time, style
from mirrormark.report.page import plural

SHARES = 4
"""Parts into which the figures are cut for helpers; each reads the tables (ours)."""


class Caption(NamedTuple):
    """What stands under a figure; it always says n, body and tone."""

    name: str
    title: str
    text: str


def draw(directory: Path, helpers: Executor | None = None) -> list[Caption]:
    """Draw what the exam's tables hold into DIRECTORY/figures; what cannot be drawn is left out."""
    results = load(directory / "results.json")
    training = tables.read(directory / "training.parquet", history.TRAINING)
    captions = _captions(results, training)
    names = [caption.name for caption in captions]
    if helpers:
        shares = [helpers.submit(_draw, directory, names[k::SHARES]) for k in range(SHARES)]
        drawn = {name for share in shares for name in share.result()}
    else:
        drawn = set(_draw(directory, names))
    return [caption for caption in captions if caption.name in drawn]


def _draw(directory: Path, names: list[str]) -> list[str]:
    """Those of these figures for which there is something to draw."""
    results = load(directory / "results.json")
    episodes = tables.read(directory / "episodes.parquet", tables.EPISODES)
    steps = tables.read(directory / "steps.parquet", tables.STEPS)
    training = tables.read(directory / "training.parquet", history.TRAINING)
    scored = tables.read(directory / "scored.parquet", history.SCORED)
    recording, pictures = (stored(directory, results, f"{name}.npz") for name in ("recording", "probes"))
    makers: dict[str, Callable[[], Figure | None]] = {
        "removal": lambda: figures_exam.removal(results),
        "fig4a": lambda: figures_time.training_distance(training),
        "fig4b": lambda: figures_time.training_removal(training),
        "fig3a": lambda: figures_time.strip(recording) if recording else None,
        "fig3b": lambda: figures_time.scored(scored),
        "fig3c": lambda: figures_exam.before_after(episodes, steps),
        "distance": lambda: figures_exam.distance(episodes, steps),
        "first-touch": lambda: figures_exam.first_touch(steps, results["reach_m"]),
        "failures": lambda: figures_exam.failures(results),
        "fig5-samples": lambda: figures_probes.pictures(pictures, "samples"),
        "fig5-erasure": lambda: figures_probes.pictures(pictures, "erasure"),
        "fig5-crossing": lambda: figures_probes.pictures(pictures, "crossing"),
        "fig5-dream": lambda: figures_probes.pictures(pictures, "dream"),
    }
    drawn = []
    with style.styled():
        for name in names:
            figure = makers[name]()
            if figure is not None:
                style.save(figure, directory / "figures", name, results["label"])
                drawn.append(name)
    return drawn


def stored(directory: Path, results: dict[str, Any], name: str) -> dict[str, np.ndarray]:
    """Arrays that the exam kept of the agent that is shown; empty where there are none."""
    agent = "{run}@{checkpoint}".format(**results["shown"]).replace("/", "_")
    path = directory / "parts" / agent / name
    if not path.is_file():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)


def unseen_at_first(directory: Path, results: dict[str, Any], envs: Sequence[int]) -> str:
    """Which of these worlds of the agent that is shown begin without a mark in the picture, and why; else
    nothing."""
    steps = tables.read(directory / "steps.parquet", tables.STEPS)
    shown = steps["run"] == results["shown"]["run"]
    first = steps[shown & (steps["condition"] == EXAM) & (steps["t_s"] == 0) & (steps["mark_px"] == 0)]
    told = [
        f"world {row.exam_seed} (" + ("covered by a hand or arm" if row.mark_in_view else "out of view") + ")"
        for row in first[first["exam_seed"].isin(envs)].itertuples()
    ]
    return f" The mark is on, but not seen in the first frame: {', '.join(told)}." if told else ""


def _captions(results: dict[str, Any], training: Any) -> list[Caption]:
    exam = results["conditions"][EXAM]
    seeds = len(exam["seeds"])
    who = f"{results['body']}, {results['tone']} tone"
    if results["label"]:
        who += f"; {results['label']}"
    n = f"n={plural(exam['n'], 'run')}, {plural(seeds, 'training seed')}; {who}"
    shown = results["shown"]["run"]
    one = f"One run of {shown}, the median of its removals (where it has two or more); {who}"
    probes = results["probes"] or {}
    frames = f"n={probes.get('frames', 0)} paired babbling frames of {shown}; {who}"
    points = f"{plural(len(training), 'exam point')}, n={plural(_runs(training), 'run')} each; {who}"
    shift = results["free_energy"]["pairs"] if results["free_energy"] else 0
    return [
        Caption("removal", "Removal beside its controls", f"95% intervals; small dots: training seeds. {n}."),
        Caption("fig4a", "Fig. 4a: distance over training", f"{points}."),
        Caption("fig4b", "Fig. 4b: removal over training", f"95% interval. {points}."),
        Caption("fig3a", "Fig. 3a: a run", f"The frame in which the mark is gone has a red edge. {one}."),
        Caption("fig3b", "Fig. 3b: the same run, valued before and after learning", f"{one}."),
        Caption("fig3c", "Fig. 3c: G before and after removal", f"{plural(shift, 'pair')}; {n}."),
        Caption(
            "distance",
            "Distance within a run",
            "Mean and 5–95% band of runs. Red ticks: removals; after its own, a run's distance is to where"
            f" the mark was. {n}.",
        ),
        Caption(
            "first-touch",
            "First touch (Kaplan–Meier)",
            f"Runs without a touch are censored at their end. {n}.",
        ),
        Caption("failures", "Failed runs, and which hand came", f"{n}."),
        Caption(
            "fig5-samples",
            "Fig. 5a: drawn from the self-prior",
            "Plain dark frames are of days with a covered mirror or none (env.mirrorless_share)."
            f" Of {shown}; {who}.",
        ),
        Caption("fig5-erasure", "Fig. 5b: a marked frame through the self-prior", f"{frames}."),
        Caption("fig5-crossing", "Fig. 5b: vision from proprioception alone", f"{frames}."),
        Caption(
            "fig5-dream",
            "What it dreams of the same actions",
            "Above what came, below what the world model expects of the recorded actions, from up to ten"
            " steps before removal. Dreams keep and lose marks imperfectly: one is shown, none is counted."
            f" {one}.",
        ),
    ]


def _runs(training: Any) -> int:
    return int(training["n"].max()) if len(training) else 0
