"""One sitting of the exam: every condition for every agent, each kept on disk as soon as it is done.

OUT/exam.json        what is examined and how; another exam in the same folder is refused
OUT/parts/MIND/CONDITION.{episodes,steps}.parquet   a finished condition, never run again
OUT/parts/MIND/recording.npz                        three chosen runs of the exam, as seen and as acted
"""

import json
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import torch

from mirrormark.envs.babbling import BabblingConfig
from mirrormark.envs.senses import Device
from mirrormark.exam import conditions, tables, workers
from mirrormark.exam.agents import BabblingAgent, ExamAgent, Mode, OracleAgent, TrainedAgent
from mirrormark.exam.candidates import Candidate, check
from mirrormark.exam.conditions import EXAM, Condition
from mirrormark.exam.measures import NO_AGENT
from mirrormark.exam.protocol import RunKey, Tables, run_condition
from mirrormark.exam.recording import keep_three, save
from mirrormark.training.checkpoint import write_json
from mirrormark.training.env_config import EnvConfig, build_agent

CHANCE = "chance"
"""Name of the part that holds the conditions in which no agent acts."""


@dataclass(frozen=True)
class Settings:
    """How the exam is taken. The same settings and agents give the same results, byte for byte."""

    runs: int = 80
    """Runs an agent and condition (paper: 8 seeds × 10 runs)."""
    first_exam_seed: int = 0
    """Worlds are numbered from here: results are reported from 0 on, weights chosen from 1000 on."""
    chance_runs: int = 1000
    """Runs of each random movement; no eye is needed for them, so they are cheap (ours)."""
    mode: Mode = "sample"
    """Actions drawn from the policy, or its mean."""
    conditions: tuple[str, ...] = field(default_factory=conditions.names)
    """Which conditions are run; the default is all."""
    view_every_control_steps: int = 5
    """How often the view is measured in controls; in the exam itself it is every frame (ours)."""

    def __post_init__(self) -> None:
        for name in ("runs", "chance_runs", "view_every_control_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1 is needed.")
        if self.first_exam_seed < 0:
            raise ValueError(f"first_exam_seed is {self.first_exam_seed}: give 0 or more.")
        for name in self.conditions:
            conditions.get(name)
            if self.conditions.count(name) > 1:
                raise ValueError(f"conditions (--only): {name!r} is named twice; name it once.")
        if EXAM not in self.conditions:
            raise ValueError(f"conditions: {EXAM!r} is missing; without it there is nothing to compare.")


Progress = Callable[[str, int, int], None]
"""Told the condition that begins, how many are done and how many there are."""


def take_exam(
    candidates: Sequence[Candidate],
    out: Path,
    settings: Settings,
    progress: Progress | None = None,
    helpers: Executor | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Tables:
    """Run what is not on disk yet; the whole exam's tables, in a fixed order.

    helpers: a worker pool that runs conditions beside this process. meanwhile: done here before waiting for
    the last of them, when the exam itself is on disk.
    """
    claim(candidates, out, settings)
    sent = _send(candidates, out, settings, helpers) if helpers else {}
    first = candidates[0].setup
    without = left_out(first, settings)
    jobs = [job for job in _jobs(candidates, settings) if job[1].name not in without]
    parts: dict[str, Tables] = {}

    def run(job: Job) -> None:
        (candidate, condition), name = job, _name(*job)
        if progress:
            who = (
                f"{candidate.run}: {condition.title}"
                if candidate and len(candidates) > 1
                else condition.title
            )
            beside = [n for n, help in sent.items() if help.done() and not help.cancelled()]
            progress(who, len({*parts, *beside}), len(jobs))
        if name in sent and not sent[name].cancelled() and (problem := sent[name].exception()):
            warnings.warn(f"{condition.title}: a helper failed ({problem!r}); it runs here.", stacklevel=3)
        parts[name] = _part(candidate, first, condition, out, settings)

    for job in sorted(jobs, key=lambda job: _name(*job) in sent):
        if _name(*job) not in sent or sent[_name(*job)].cancel():
            run(job)
    if meanwhile:
        meanwhile()
    for job in jobs:
        if _name(*job) not in parts:
            run(job)
    if progress:
        progress("writing tables", len(jobs), len(jobs))
    ordered = [parts[_name(*job)] for job in jobs]
    episodes, steps = (pd.concat(frames, ignore_index=True) for frames in zip(*ordered, strict=True))
    tables.write(episodes, out / "episodes.parquet", tables.EPISODES)
    tables.write(steps, out / "steps.parquet", tables.STEPS)
    return Tables(episodes, steps)


Job = tuple[Candidate | None, Condition]


def _jobs(candidates: Sequence[Candidate], settings: Settings) -> list[Job]:
    wanted = [conditions.get(name) for name in settings.conditions]
    jobs: list[Job] = [(s, c) for s in candidates for c in wanted if c.per_agent and c.costless == s.costless]
    return jobs + [(None, c) for c in wanted if not c.per_agent]


def _name(candidate: Candidate | None, condition: Condition) -> str:
    return f"{candidate.name if candidate else CHANCE}/{condition.name}"


def _send(
    candidates: Sequence[Candidate], out: Path, settings: Settings, helpers: Executor
) -> dict[str, Future[None]]:
    """Give helpers all but the exam itself and the hidden site, whose search is done here only.

    They begin at the end, with the longest; this process goes on from the beginning.
    """
    sent: dict[str, Future[None]] = {}
    for candidate, condition in reversed(_jobs(candidates, settings)):
        setup = candidates[0].setup
        if condition.name != EXAM and not condition.out_of_sight and condition.why_not(setup) is None:
            which = (candidates.index(candidate), candidate.fingerprint) if candidate else None
            job = helpers.submit(_help, which, setup, condition, out, settings)
            sent[_name(candidate, condition)] = job
    return sent


def _help(
    which: tuple[int, str] | None, setup: EnvConfig, condition: Condition, out: Path, settings: Settings
) -> None:
    """In a helper: one condition of the agent with this number and these weights, onto the disk."""
    candidate = workers.agents()[which[0]] if which else None
    if which and candidate and candidate.fingerprint != which[1]:
        raise RuntimeError("the helper's agent has other weights")
    _part(candidate, setup, condition, out, settings)


def left_out(setup: EnvConfig, settings: Settings) -> dict[str, str]:
    """Conditions that this body and mirror cannot have, and why."""
    reasons = {name: conditions.get(name).why_not(setup) for name in settings.conditions}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def claim(candidates: Sequence[Candidate], out: Path, settings: Settings) -> None:
    """The folder belongs to one exam: the same agents, the same settings. Nothing happens the second time."""
    check(candidates)
    plan = {
        "settings": {**vars(settings), "conditions": list(settings.conditions)},
        "agents": [
            [candidate.name, candidate.training_seed, candidate.fingerprint] for candidate in candidates
        ],
    }
    path = out / "exam.json"
    if path.exists():
        if json.loads(path.read_text()) != plan:
            raise ValueError(f"{out} holds another exam (other agents or settings): choose another --out.")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and holds no exam: choose an empty folder for --out.")
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, plan)


def _part(
    candidate: Candidate | None, setup: EnvConfig, condition: Condition, out: Path, settings: Settings
) -> Tables:
    folder = out / "parts" / (candidate.name if candidate else CHANCE)
    paths = [folder / f"{condition.name}.{kind}.parquet" for kind in ("episodes", "steps")]
    if all(path.exists() for path in paths):
        return Tables(tables.features(paths[0], tables.EPISODES), tables.features(paths[1], tables.STEPS))
    folder.mkdir(parents=True, exist_ok=True)
    found = _run(candidate, setup, condition, folder, settings)
    tables.write(found.episodes, paths[0], tables.EPISODES)
    tables.write(found.steps, paths[1], tables.STEPS)
    return found


def _run(
    candidate: Candidate | None, setup: EnvConfig, condition: Condition, folder: Path, settings: Settings
) -> Tables:
    random = condition.agent in ("iid", "babbling")
    n = settings.chance_runs if random else settings.runs
    seeds = list(range(settings.first_exam_seed, settings.first_exam_seed + n))
    eye = "symbolic" if "cell" in setup.senses else "pixels"
    if not condition.sees:
        setup = replace(setup, senses=("proprioception",))
    envs = condition.make_envs(setup, n, _eye_device(candidate, setup))
    keys = RunKey(
        run=candidate.run if candidate else CHANCE,
        checkpoint=candidate.checkpoint if candidate else "-",
        body=setup.body,
        condition=condition.name,
        training_seed=candidate.training_seed if candidate else NO_AGENT,
        tone=envs.scene.tone + (f" ×{setup.tone_scale:g}" if setup.tone_scale != 1 else ""),
        eye=eye,
    )
    view = 0 if not condition.sees else 1 if condition.name == EXAM else settings.view_every_control_steps
    with torch.random.fork_rng():  # players seed torch; the caller's random numbers stay as they were
        agent = _player(candidate, setup, condition, settings.mode)
        found, recording = run_condition(
            envs, agent, seeds, keys, sham=condition.sham, view_every=view, record=condition.name == EXAM
        )
    if recording is not None:
        kept = keep_three(setup, condition, found, recording)
        save(folder / "recording.npz", kept)
    return found


def _eye_device(candidate: Candidate | None, setup: EnvConfig) -> Device:
    """The eye looks where the agent thinks; without an agent or pixels, on the CPU."""
    if candidate is None or "vision" not in setup.senses:
        return "cpu"
    return "cuda" if candidate.agent.device.type == "cuda" else "cpu"


def _player(candidate: Candidate | None, setup: EnvConfig, condition: Condition, mode: Mode) -> ExamAgent:
    if condition.agent == "iid":
        return BabblingAgent(BabblingConfig("iid"))
    if condition.agent == "babbling":
        return BabblingAgent(setup.babbling)
    if condition.agent == "oracle":
        return OracleAgent()
    assert candidate is not None
    if condition.agent == "agent":
        return TrainedAgent(candidate.agent, mode)
    torch.manual_seed(candidate.training_seed)
    fresh = build_agent(candidate.agent.config, candidate.setup.make_envs(1))
    return TrainedAgent(fresh.to(next(candidate.agent.world_model.parameters()).device).eval(), mode)
