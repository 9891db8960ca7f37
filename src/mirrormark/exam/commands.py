"""`mirrormark exam`: take the exam, write tables, results and provenance. `report` adds figures and page."""

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mirrormark.exam import candidates, conditions, history, parts, probes, tables
from mirrormark.exam.agents import AgentError, Mode
from mirrormark.exam.candidates import Candidate, Examinee
from mirrormark.exam.measures import NO_AGENT
from mirrormark.exam.protocol import EXAM_VERSION, Tables
from mirrormark.exam.recording import from_bytes, to_bytes
from mirrormark.exam.results import LearnedBy, clean, dump, results
from mirrormark.exam.run import RECORDING, Settings, claim, left_out, plan_sha256, take_exam
from mirrormark.exam.verdict import agents_in_words, lead
from mirrormark.exam.workers import worker_pool
from mirrormark.training.checkpoint import write_json
from mirrormark.training.commands import Device, choose_device
from mirrormark.training.run_folder import command, versions

Report = Callable[[Path, Executor | None], None]
"""Writes an exam's report; what helpers it may use."""
PROBES = "probes"
"""Name of the part that holds the probes."""


def exam(
    checkpoints: tuple[Path, ...] = (),
    /,
    out: Path = Path("exam"),
    agent: tuple[str, ...] = (),
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
        agent: Instead of checkpoints: any agent, as module:function of the function that makes it, one for
            each training seed (docs/exam.md).
        preset: Instead of checkpoints: a new, untrained agent of this preset.
        body: With --agent or --preset: which body.
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
    load = partial(load_examinees, checkpoints, agent, preset, body, device)
    with worker_pool(load, "cpu" if agent else device) as helpers:
        examinees = load()
        helpers = helpers if examinees[0].device.type == "cuda" else None
        found = examine(examinees, out, settings, console, helpers)
        show(found, console)
        console.print(f"Tables and results: {out}", highlight=False)
        if report:
            report(out, helpers)
    return out


def load_examinees(
    checkpoints: tuple[Path, ...],
    agents: tuple[str, ...],
    preset: str | None,
    body: str | None,
    device: Device,
) -> list[Examinee]:
    """The agents that were asked for."""
    if preset and (checkpoints or agents):
        raise ValueError("--preset asks for a new agent, but others were given too: leave one out.")
    if checkpoints and agents:
        raise ValueError("--agent was given beside checkpoints: examine each kind by itself.")
    if body and checkpoints:
        raise ValueError("--body is read with --agent or --preset only: a checkpoint knows its body.")
    if agents:
        return [candidates.external(one, body or "infant", k) for k, one in enumerate(agents)]
    if preset:
        return [candidates.untrained(preset, body, device=choose_device(device))]
    if not checkpoints:
        raise ValueError(
            "no agent to examine: name a run or a checkpoint, --agent for one of your own, or --preset for a"
            " new one."
        )
    return [candidates.load(path, choose_device(device)) for path in checkpoints]


def examine(
    examinees: Sequence[Examinee],
    out: Path,
    settings: Settings,
    console: Console | None = None,
    helpers: Executor | None = None,
) -> dict:
    """The whole exam: what is on disk is not done again. Returns what results.json holds.

    An agent that fails leaves nothing behind where the folder was not there before.
    """
    console, watch = console or Console(quiet=True), _Stopwatch()
    new = claim(examinees, out, settings)  # before anything is shown: it may refuse
    shown = next(one for one in examinees if not one.costless)

    def begin(part: str, done: int, of: int) -> None:
        watch.begin(part)
        progress.begin(part, done, of)

    def probe() -> None:
        watch.begin(PROBES)
        _probe(shown, out, plan_sha256(examinees, settings), console)

    try:
        with ExamProgress(console) as progress:
            found = take_exam(examinees, out, settings, begin, helpers, meanwhile=probe)
    except AgentError:
        if new:
            shutil.rmtree(out)
        raise
    watch.begin("results")
    numbers = json.loads((_folder(shown, out) / "probes.json").read_text())
    setup = shown.setup
    summary = results(
        found,
        dataclasses.asdict(settings) | {"conditions": list(settings.conditions)},
        setup.mark.reach_m,
        {"run": shown.run, "checkpoint": shown.checkpoint, **numbers} if numbers else None,
        left_out(examinees, settings),
        setup.mark.hold_sim_steps,
        {
            one.training_seed: LearnedBy(one.privileged, one.environment_steps, one.gpu_minutes)
            for one in examinees
            if not one.costless
        },
    )
    privileged = {one.run: "; ".join(one.privileged) for one in examinees}
    tables.write_csv(found.episodes, out / "runs.csv", EXAM_VERSION, privileged)
    _write_curves(examinees, shown, out)
    dump(summary, out / "results.json")
    _write_provenance(examinees, out, found, watch)
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


class ExamProgress:
    """A bar in a terminal; a line for each finished part where output goes to a file."""

    def __init__(self, console: Console) -> None:
        self.console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("getting ready")
        self._last: tuple[str, float] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, part: str, done: int, of: int) -> None:
        """A part begins, so the one before it has ended."""
        self._bar.update(self._task, description=part, completed=done, total=of)
        if self._last and not self.console.is_terminal:
            name, began = self._last
            took_s = time.perf_counter() - began
            self.console.print(f"{done}/{of} {name} ({took_s:.0f} s)", highlight=False, soft_wrap=True)
        self._last = part, time.perf_counter()


def _folder(examinee: Examinee, out: Path) -> Path:
    return out / "parts" / examinee.name


def _recording(examinee: Examinee, out: Path) -> dict:
    return from_bytes((_folder(examinee, out) / RECORDING).read_bytes())


def _probe(examinee: Examinee, out: Path, exam: str, console: Console) -> None:
    """What the self-prior has learned, as numbers and pictures beside the exam's parts; of an agent that is
    not ours there is nothing to probe."""
    folder = _folder(examinee, out)
    if parts.load(folder, PROBES, exam) is not None:
        return
    numbers, pictures = {}, {}
    if isinstance(examinee, Candidate):
        console.print("probes: what the self-prior has learned", highlight=False)
        numbers, pictures = probes.probe(examinee.agent, examinee.setup)
        pictures |= probes.dream_strip(examinee.agent, _recording(examinee, out))
    text = json.dumps(clean(numbers), indent=1) + "\n"
    parts.save(folder, PROBES, exam, {"probes.npz": to_bytes(pictures), "probes.json": text.encode()})


def _write_curves(examinees: Sequence[Examinee], shown: Examinee, out: Path) -> None:
    """Evaluations during training, and G of the recorded run by early and late snapshots, as tables."""
    tables.write(history.training(examinees), out / "training.parquet", history.TRAINING)
    scored = history.scored(shown, _recording(shown, out))
    tables.write(scored, out / "scored.parquet", history.SCORED)


def _write_provenance(examinees: Sequence[Examinee], out: Path, found: Tables, watch: _Stopwatch) -> None:
    """When, where and with what: everything that may differ between two equal exams."""
    path = out / "provenance.json"
    before = parts.read_json(path, "times and commands of earlier sessions are lost, results are not")
    sessions = (before or {}).get("sessions", [])
    took = {"seconds": round(time.time() - watch.began_s, 2), "took_s": watch.took_s()}
    sessions.append({"began_s": watch.began_s, **took, "command": command()})
    agents = [
        {"run": one.run, "folder": str(one.folder) if one.folder else None, "fingerprint": one.fingerprint}
        | (
            {"posture_precision": getattr(one.agent.config, "posture_precision", 1.0)}
            if isinstance(one, Candidate)
            else {}
        )
        for one in examinees
    ]
    rows = {"episodes": len(found.episodes), "steps": len(found.steps)}
    write_json(
        path,
        {
            "exam_version": EXAM_VERSION,
            "sessions": sessions,
            "versions": versions(),
            "agents": agents,
            "rows": rows,
        },
    )


def show(found: dict, console: Console) -> None:
    """The verdict and every condition in a few lines."""
    for line in agents_in_words(found):
        console.print(line, highlight=False, markup=False)
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
