"""`mirrormark exam`: take the exam, write tables, results and provenance. The report is the show's."""

import dataclasses
import json
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console

from mirrormark.exam import candidates, conditions, history, probes, tables
from mirrormark.exam.agents import Mode
from mirrormark.exam.candidates import Candidate
from mirrormark.exam.exam_run import Settings, claim, left_out, take_exam
from mirrormark.exam.findings import lead
from mirrormark.exam.measures import NO_AGENT
from mirrormark.exam.progress import ExamProgress
from mirrormark.exam.protocol import Tables
from mirrormark.exam.recording import save
from mirrormark.exam.results import clean, dump, results
from mirrormark.exam.workers import worker_pool
from mirrormark.training.checkpoint import write_json
from mirrormark.training.commands import Device, choose_device
from mirrormark.training.run_folder import command, versions

Report = Callable[[Path, Executor | None], None]
"""Writes an exam's report; what helpers it may use."""


def exam(
    checkpoints: tuple[Path, ...] = (),
    /,
    out: Path = Path("exam"),
    preset: str | None = None,
    body: str | None = None,
    runs: int = 80,
    chance_runs: int = 1000,
    first_exam_seed: int = 0,
    mode: Mode = "sample",
    only: tuple[str, ...] = (),
    device: Device = "cpu",
    report: Annotated[Report | None, tyro.conf.Suppress] = None,
) -> Path:
    """Take the mirror-mark exam with all its controls; an interrupted exam goes on where it stopped.

    Args:
        checkpoints: Run folders, checkpoints or snapshots, one for each training seed; or a body's name
            (infant, arm): the agent that is shipped for it.
        out: Folder for tables and results.
        preset: Without checkpoints: examine a new, untrained agent of this preset.
        body: With --preset: which body.
        runs: Runs of each condition for each agent.
        chance_runs: Runs of each random movement; below 1,000 nothing can be called passed.
        first_exam_seed: Number of the first world; weights are chosen on 1000 and above, reported on 0.
        mode: Draw actions from the policy, or take its mean.
        only: Conditions to run; none: all.
        device: Where agent and eye run.
        report: Called at the end, to write the report.
    """
    console = Console()
    settings = Settings(runs, first_exam_seed, chance_runs, mode, only or conditions.names())
    load = partial(load_candidates, checkpoints, preset, body, device)
    with worker_pool(load, device) as helpers:
        agents = load()
        helpers = helpers if agents[0].agent.device.type == "cuda" else None
        found = examine(agents, out, settings, console, helpers)
        show(found, console)
        console.print(f"Tables and results: {out}", highlight=False)
        if report:
            report(out, helpers)
    return out


def load_candidates(
    checkpoints: tuple[Path, ...], preset: str | None, body: str | None, device: Device
) -> list[Candidate]:
    """The agents that were asked for."""
    if checkpoints and preset:
        raise ValueError("--preset asks for a new agent, but checkpoints were given too: leave one out.")
    if body and not preset:
        raise ValueError("--body is read with --preset only: a checkpoint knows its body.")
    if not checkpoints and not preset:
        raise ValueError("no agent to examine: name a run or a checkpoint, or --preset for a new agent.")
    if preset:
        return [candidates.untrained(preset, body, device=choose_device(device))]
    return [candidates.load(path, choose_device(device)) for path in checkpoints]


def examine(
    agents: list[Candidate],
    out: Path,
    settings: Settings,
    console: Console | None = None,
    helpers: Executor | None = None,
) -> dict:
    """The whole exam: what is on disk is not done again. Returns what results.json holds."""
    console, watch = console or Console(quiet=True), _Stopwatch()
    claim(agents, out, settings)  # before anything is shown: it may refuse
    with ExamProgress(console) as progress:

        def tell(what: str, done: int, of: int) -> None:
            watch.begin(what)
            progress.begin(what, done, of)

        def probe() -> None:
            watch.begin("probes")
            _probe(_shown(agents), out, console)

        found = take_exam(agents, out, settings, tell, helpers, meanwhile=probe)
    watch.begin("results")
    looked = _look_closer(agents, out)
    told = dataclasses.asdict(settings) | {"conditions": list(settings.conditions)}
    setup = agents[0].setup
    without, mark = left_out(setup, settings), setup.mark
    summary = results(found, told, mark.reach_m, looked, without, mark.hold_sim_steps)
    dump(summary, out / "results.json")
    _write_provenance(agents, out, found, watch)
    return summary


class _Stopwatch:
    """How long each part took."""

    def __init__(self) -> None:
        self.began_s = time.time()
        self._begun: list[tuple[str, float]] = []
        self.begin("getting ready")

    def begin(self, part: str) -> None:
        """This part begins, and the one before it ends."""
        self._begun.append((part, time.perf_counter()))

    def took_s(self) -> dict[str, float]:
        ends = [*(began for _, began in self._begun[1:]), time.perf_counter()]
        return {part: round(end - began, 2) for (part, began), end in zip(self._begun, ends, strict=True)}


def _shown(agents: list[Candidate]) -> Candidate:
    """The agent of probes, dream, strip and film."""
    return next(agent for agent in agents if not agent.costless)


def _recording(agent: Candidate, out: Path) -> dict[str, np.ndarray]:
    with np.load(out / "parts" / agent.name / "recording.npz") as stored:
        return dict(stored)


def _probe(agent: Candidate, out: Path, console: Console) -> None:
    """What the self-prior has learned, as numbers and pictures beside the exam's parts."""
    folder = out / "parts" / agent.name
    if (folder / "probes.json").exists():
        return
    console.print("probes: what the self-prior has learned", highlight=False)
    numbers, pictures = probes.probe(agent.agent, agent.setup)
    pictures |= probes.dream_strip(agent.agent, _recording(agent, out))
    save(folder / "probes.npz", pictures)
    write_json(folder / "probes.json", clean(numbers))


def _look_closer(agents: list[Candidate], out: Path) -> dict | None:
    """Curves over training and the recorded run's scores as tables beside the exam's; the probes' numbers."""
    shown = _shown(agents)
    tables.write(history.training(agents), out / "training.parquet", history.TRAINING)
    scored = history.scored(shown, _recording(shown, out))
    tables.write(scored, out / "scored.parquet", history.SCORED)
    numbers = json.loads((out / "parts" / shown.name / "probes.json").read_text())
    return {"run": shown.run, "checkpoint": shown.checkpoint, **numbers} if numbers else None


def _write_provenance(agents: list[Candidate], out: Path, found: Tables, watch: _Stopwatch) -> None:
    """When, where and with what: everything that may differ between two equal exams."""
    path = out / "provenance.json"
    sessions = json.loads(path.read_text())["sessions"] if path.exists() else []
    took = {"seconds": round(time.time() - watch.began_s, 2), "took_s": watch.took_s()}
    sessions.append({"began_s": watch.began_s, **took, "command": command()})
    sources = [
        {
            "run": m.run,
            "folder": str(m.folder) if m.folder else None,
            "weights_sha256": m.fingerprint,
            "posture_precision": m.agent.config.imagination.posture_precision,
        }
        for m in agents
    ]
    rows = {"episodes": len(found.episodes), "steps": len(found.steps)}
    write_json(path, {"sessions": sessions, "versions": versions(), "agents": sources, "rows": rows})


def show(found: dict, console: Console) -> None:
    """The verdict and every condition in a few lines."""
    if found["label"]:
        console.print(f"[bold]{found['label']}[/bold]", highlight=False)
    for sentence in lead(found):
        console.print(f"[bold]{sentence}[/bold]", highlight=False)
    for caveat in found["verdict"]["caveats"]:
        console.print(caveat, highlight=False)
    listed = list(found["conditions"].values()) + [found["yoked"] | {"title": conditions.title("yoked")}]
    for condition in listed:
        low, high = (100 * end for end in condition["interval"])
        line = f"  {condition['title']:<38} {100 * condition['rate']:4.0f}%  ({low:.0f}–{high:.0f}%)"
        agents = sum(seed["training_seed"] != NO_AGENT for seed in condition["seeds"])
        seeds = f", seeds={agents}" if agents else ""
        console.print(f"{line}  n={condition['n']}{seeds}", highlight=False)
    for name, reason in found["left_out"].items():
        console.print(f"  left out: {conditions.title(name)} ({reason})", highlight=False)
