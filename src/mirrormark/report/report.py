"""One self-contained HTML report of an exam, from its folder: the finding first, then what it rests on."""

import base64
import shlex
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS
from mirrormark.envs.scene import TIMESTEP_S
from mirrormark.report import exam_data, figures, film, pictures
from mirrormark.report.exam_data import EXAM, YOKED, Exam, RecordedRun, conditions, verdict
from mirrormark.report.page import listed, percent, plural, render

NULL_SHARE = 0.05
"""By this share of the encoder's error the self-prior must be nearer, else it adds nothing (ours)."""


def write(directory: Path, helpers: Executor | None = None) -> Path:
    """Draw figures and films anew, with helpers the films all at a time, and write DIRECTORY/report.html."""
    exam = Exam(directory)
    path = directory / "report.html"
    path.write_text(render("report.html", **_values(exam, *_films(exam, helpers))), encoding="utf-8")
    return path


# Films -----------------------------------------------------------------------------------------------------


def _films(exam: Exam, helpers: Executor | None) -> tuple[list[dict[str, Any]], str]:
    """The films for the page, the opening one first, and what is to be said of those that are missing."""
    unseen = [run for run in exam.recorded if run.unseen_because]
    removals = [run for run in exam.recorded if run.removed_frame is not None and run not in unseen]
    failed = [run for run in exam.recorded if run.removed_frame is None]
    runs = removals + failed if removals else exam.recorded
    if not runs:
        return [], ""
    limits, label = film.g_limits(runs), exam.results["label"]
    paths = [exam.directory / f"film-{run.label}.mp4" for run in runs]
    jobs = [(run, path, limits, label) for run, path in zip(runs, paths)]
    try:
        if helpers:
            posters = [job.result() for job in [helpers.submit(film.write, *job) for job in jobs]]
        else:
            posters = [film.write(*job) for job in jobs]
    except film.NoFilm as reason:
        return [], str(reason)
    clips = [_clip(run, path, poster) for run, path, poster in zip(runs, paths, posters)]
    reasons = listed([f"world {run.exam_seed} ({run.label} run: {run.unseen_because})" for run in unseen])
    return clips, f"The mark is on, but not seen in the first frame: {reasons}." if unseen else ""


def _clip(run: RecordedRun, path: Path, poster: Any) -> dict[str, Any]:
    return {
        "id": run.clip,
        "name": {"median": "the median removal", "best": "the fastest removal"}.get(
            run.label, "a failed run"
        ),
        "exam_seed": run.exam_seed,
        "removed_s": None if run.removed_frame is None else run.removed_s,
        "src": f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}",
        "poster": pictures.data_uri(poster, "jpeg", 70),
    }


# What the page says ----------------------------------------------------------------------------------------


def headline(results: dict[str, Any]) -> str:
    """The finding in one sentence: removal with and without a mirror, or beside the yoked site."""
    found = results["conditions"]
    rate, name = found[EXAM], "absent" if "absent" in found else YOKED
    other = results[YOKED] if name == YOKED else found[name]
    sentence = (
        f"Before a mirror the {results['body']} took the mark off in {percent(rate['rate'])} of"
        f" {plural(rate['n'], 'run')}; "
    )
    if name == YOKED:
        sentence += f"an unseen place of the same kind was touched in {percent(other['rate'])} of them"
    else:
        sentence += f"without one in {percent(other['rate'])} of {other['n']:,}"
    low = next((c["interval"][0] for c in results["comparisons"] if c["control"] == name), None)
    return (
        f"{sentence}."
        if low is not None and low > 0
        else f"{sentence}: no difference that these runs can show."
    )


def _values(exam: Exam, clips: list[dict[str, Any]], missing_films: str) -> dict[str, Any]:
    results = exam.results
    shown = next((run for run in exam.recorded if not run.unseen_because), None) or next(
        iter(exam.recorded), None
    )
    return {
        "title": f"Mirror-mark exam: {results['body']}",
        "results": results,
        "headline": headline(results),
        "word": verdict.word(results),
        "agents": verdict.agents_in_words(results),
        "lead": verdict.lead(results),
        "answers": [_answer(results, question) for question in results["verdict"]["answers"]],
        "titles": {
            name: conditions.title(name) for name in (*conditions.names(), *results["left_out"], YOKED)
        },
        "clips": clips,
        "missing_films": missing_films,
        "strip": pictures.strip(shown) if shown else [],
        "strip_run": shown,
        "n": figures.captioned_n(exam),
        "lead_bars": figures.lead_bars(exam),
        "all_bars": figures.all_bars(exam),
        "several_seeds": any(figures.seeds(rate) for rate in results["conditions"].values()),
        "training_removal": figures.training_removal(exam),
        "training_distance": figures.training_distance(exam),
        "training": exam.training,
        "distance": figures.distance(exam),
        "first_touch": figures.first_touch(exam),
        "touch": _touch(exam),
        "before_after": figures.before_after(exam, {clip["id"] for clip in clips}),
        "scored": figures.scored(exam),
        "scored_removed": bool(exam.scored["removed_s"].notna().any()),
        "probe_rows": {g: pictures.probe_rows(exam, g) for g in ("samples", "erasure", "crossing", "dream")},
        "null": _null(results["probes"]),
        "postures": exam_data.POSTURES,
        "method": _method(results),
        "provenance": _provenance(exam),
    }


def _answer(results: dict[str, Any], question: str) -> tuple[str, str, str]:
    """Question, answer and the rates that it rests on."""
    rates = []
    for name in exam_data.QUESTIONS[question]:
        found = results[YOKED] if name == YOKED else results["conditions"].get(name)
        if found:
            rates.append(f"{conditions.title(name)} {percent(found['rate'])}")
    answer = verdict.answer(results, question)
    return question, answer, listed(rates) if answer in ("yes", "no") else ""


def _touch(exam: Exam) -> dict[str, Any]:
    """First touch with all runs, and without those whose hand started at the mark."""
    away = exam.first_touch(EXAM, away=True)
    median = exam_data.median_time_s(away) if away else float("nan")
    return {
        "at_cm": 100 * exam_data.AT_THE_MARK_M,
        "at_mark": exam.started_at("distance_m"),
        "at_yoked": exam.started_at("yoked_distance_m"),
        "away": f"{away.events} of {plural(away.n, 'run')}" if away else "none",
        "away_median": f"{median:.2f} s" if median == median else "not reached",
    }


def _null(probes: dict[str, Any] | None) -> list[str]:
    """Where the self-prior does no better than the encoder alone: a null result, called one."""
    if not probes:
        return []
    senses = {
        "joint angles from vision": probes["proprioception_from_vision_rad"],
        "vision from joint angles": probes["vision_from_proprioception_rms"],
    }
    return [
        name
        for name, error in senses.items()
        if error["self-prior"] > (1 - NULL_SHARE) * error["encoder only"]
    ]


def _method(results: dict[str, Any]) -> dict[str, Any]:
    hold = results["hold_sim_steps"]
    return {
        "steps": EPISODE_CONTROL_STEPS,
        "seconds": round(EPISODE_CONTROL_STEPS * exam_data.CONTROL_STEP_S, 6),
        "reach_cm": round(100 * results["reach_m"], 6),
        "hold_steps": hold,
        "hold_s": round(hold * TIMESTEP_S, 6),
        "chance_runs": exam_data.CHANCE_RUNS,
        "kept": exam_data.MIN_KEPT_RUNS,
    }


def _provenance(exam: Exam) -> dict[str, Any]:
    found, settings = exam.provenance, exam.results["settings"]
    versions = {name: value for name, value in found["versions"].items() if name not in ("command", "host")}
    commands = [shlex.join(["mirrormark", *session["command"][1:]]) for session in found["sessions"]]
    return {
        "weights": sorted({agent.get("posture_precision", 1.0) for agent in found["agents"]} - {1.0}),
        "worlds": f"{settings['first_exam_seed']}–{settings['first_exam_seed'] + settings['runs'] - 1}",
        "versions": ", ".join(f"{name} {value}" for name, value in versions.items()),
        "commands": list(dict.fromkeys(commands)),
    }
