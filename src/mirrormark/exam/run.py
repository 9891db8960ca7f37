"""One exam: every condition for every agent, each kept on disk as soon as it is done.

OUT/exam.json                                      the plan; another exam in the same folder is refused
OUT/parts/AGENT/CONDITION.{episodes,steps}.parquet a finished condition
OUT/parts/AGENT/recording.npz                      three chosen runs of the exam: observations and actions
OUT/parts/AGENT/NAME.manifest.json                 checksums of a part (see parts.py)
"""

import json
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from mirrormark.envs.babbling import BabblingConfig
from mirrormark.envs.senses import Device
from mirrormark.exam import conditions, parts, tables, workers
from mirrormark.exam.agents import (
    BabblingAgent,
    ConditionAgent,
    Mode,
    OracleAgent,
    separate_random_numbers,
)
from mirrormark.exam.candidates import Examinee, check
from mirrormark.exam.conditions import EXAM, Condition
from mirrormark.exam.measures import NO_AGENT
from mirrormark.exam.protocol import EXAM_VERSION, RunKey, Tables, run_condition
from mirrormark.exam.recording import keep_three, to_bytes
from mirrormark.training.checkpoint import write_json
from mirrormark.training.env_config import EnvConfig

CHANCE = "chance"
"""Name of the part that holds the conditions in which no agent acts."""
RECORDING = "recording.npz"
NO_UNTRAINED = "no untrained agent was given"


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
"""Called with the condition that begins, how many are done and how many there are."""
Job = tuple[Examinee | None, Condition]


def take_exam(
    examinees: Sequence[Examinee],
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
    claim(examinees, out, settings)
    sent = _send(examinees, out, settings, helpers) if helpers else {}
    jobs = _jobs(examinees, settings)
    done: dict[str, Tables] = {}

    def run(job: Job) -> None:
        (examinee, condition), name = job, _name(*job)
        if progress:
            title = condition.title
            if examinee and len(examinees) > 1:
                title = f"{examinee.run}: {title}"
            beside = [n for n, help in sent.items() if help.done() and not help.cancelled()]
            progress(title, len({*done, *beside}), len(jobs))
        if name in sent and not sent[name].cancelled() and (problem := sent[name].exception()):
            warnings.warn(f"{condition.title}: a helper failed ({problem!r}); it runs here.", stacklevel=3)
        done[name] = _part(job, examinees, out, settings)

    for job in sorted(jobs, key=lambda job: _name(*job) in sent):
        if _name(*job) not in sent or sent[_name(*job)].cancel():
            run(job)
    if meanwhile:
        meanwhile()
    for job in jobs:
        if _name(*job) not in done:
            run(job)
    if progress:
        progress("writing tables", len(jobs), len(jobs))
    ordered = [done[_name(*job)] for job in jobs]
    episodes, steps = (pd.concat(frames, ignore_index=True) for frames in zip(*ordered, strict=True))
    tables.write(episodes, out / "episodes.parquet", tables.EPISODES)
    tables.write(steps, out / "steps.parquet", tables.STEPS)
    return Tables(episodes, steps)


def _jobs(examinees: Sequence[Examinee], settings: Settings) -> list[Job]:
    without = left_out(examinees, settings)
    wanted = [conditions.get(name) for name in settings.conditions if name not in without]
    jobs: list[Job] = [(e, c) for e in examinees for c in wanted if c.per_agent and c.costless == e.costless]
    return jobs + [(None, c) for c in wanted if not c.per_agent]


def _name(examinee: Examinee | None, condition: Condition) -> str:
    return f"{examinee.name if examinee else CHANCE}/{condition.name}"


def _send(
    examinees: Sequence[Examinee], out: Path, settings: Settings, helpers: Executor
) -> dict[str, Future[None]]:
    """Give helpers all but the exam itself and the hidden site, which is searched for here only.

    They begin at the end, with the longest; this process goes on from the beginning.
    """
    sent: dict[str, Future[None]] = {}
    for examinee, condition in reversed(_jobs(examinees, settings)):
        if condition.name != EXAM and not condition.out_of_sight:
            which = (examinees.index(examinee), examinee.fingerprint) if examinee else None
            sent[_name(examinee, condition)] = helpers.submit(_help, which, condition, out, settings)
    return sent


def _help(which: tuple[int, str] | None, condition: Condition, out: Path, settings: Settings) -> None:
    """In a helper: one condition of the agent with this number and these weights, onto the disk."""
    examinees = workers.agents()
    examinee = examinees[which[0]] if which else None
    if which and examinee and examinee.fingerprint != which[1]:
        raise RuntimeError("the helper's agent has other weights")
    _part((examinee, condition), examinees, out, settings)


def left_out(examinees: Sequence[Examinee], settings: Settings) -> dict[str, str]:
    """Conditions that this body and mirror, or these agents, cannot have, and why."""
    setup = examinees[0].setup
    given = all(examinee.gives_untrained for examinee in examinees)
    reasons = {
        name: NO_UNTRAINED
        if conditions.get(name).agent == "untrained" and not given
        else conditions.get(name).why_not(setup)
        for name in settings.conditions
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _plan(examinees: Sequence[Examinee], settings: Settings) -> dict:
    return {
        "exam_version": EXAM_VERSION,
        "settings": {**vars(settings), "conditions": list(settings.conditions)},
        "agents": [[e.name, e.training_seed, e.fingerprint] for e in examinees],
    }


def plan_sha256(examinees: Sequence[Examinee], settings: Settings) -> str:
    """What a part's manifest names its exam by."""
    return parts.sha256(json.dumps(_plan(examinees, settings), sort_keys=True).encode())


def claim(examinees: Sequence[Examinee], out: Path, settings: Settings) -> bool:
    """The folder belongs to one exam: the same agents, the same settings. Returns whether it is new."""
    check(examinees)
    plan, path = _plan(examinees, settings), out / "exam.json"
    if path.exists():
        found = parts.read_json(path, "it is written anew, and only parts of this very exam are used")
        if found is None:
            write_json(path, plan)
        elif found != plan:
            raise ValueError(f"{out} holds another exam (other agents or settings): choose another --out.")
        return False
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and holds no exam: choose an empty folder for --out.")
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, plan)
    return True


def _part(job: Job, examinees: Sequence[Examinee], out: Path, settings: Settings) -> Tables:
    """A condition from disk; else it is run and written."""
    examinee, condition = job
    folder = out / "parts" / (examinee.name if examinee else CHANCE)
    exam = plan_sha256(examinees, settings)
    episodes, steps = (f"{condition.name}.{kind}.parquet" for kind in ("episodes", "steps"))
    if files := parts.load(folder, condition.name, exam):
        return Tables(
            tables.from_bytes(files[episodes], tables.EPISODES, episodes),
            tables.from_bytes(files[steps], tables.STEPS, steps),
        )
    found, recording = _run(examinee, examinees[0].setup, condition, settings)
    files = {
        episodes: tables.to_bytes(found.episodes, tables.EPISODES, episodes),
        steps: tables.to_bytes(found.steps, tables.STEPS, steps),
    }
    parts.save(folder, condition.name, exam, files | ({RECORDING: recording} if recording else {}))
    return found


def _run(
    examinee: Examinee | None, setup: EnvConfig, condition: Condition, settings: Settings
) -> tuple[Tables, bytes | None]:
    """The tables of a condition, and in the exam itself the recording."""
    random = condition.agent in ("iid", "babbling")
    n = settings.chance_runs if random else settings.runs
    seeds = list(range(settings.first_exam_seed, settings.first_exam_seed + n))
    eye = "symbolic" if "cell" in setup.senses else "pixels"
    if not condition.sees:
        setup = replace(setup, senses=("proprioception",))
    envs = condition.make_envs(setup, n, _eye_device(examinee, setup))
    keys = RunKey(
        run=examinee.run if examinee else CHANCE,
        checkpoint=examinee.checkpoint if examinee else "-",
        body=setup.body,
        condition=condition.name,
        training_seed=examinee.training_seed if examinee else NO_AGENT,
        tone=envs.scene.tone + (f" ×{setup.tone_scale:g}" if setup.tone_scale != 1 else ""),
        eye=eye,
    )
    view = 0 if not condition.sees else 1 if condition.name == EXAM else settings.view_every_control_steps
    with separate_random_numbers():
        agent = _acting(examinee, setup, condition, settings.mode)
        found, recording = run_condition(
            envs, agent, seeds, keys, sham=condition.sham, view_every=view, record=condition.name == EXAM
        )
    return found, to_bytes(keep_three(setup, condition, found, recording)) if recording else None


def _eye_device(examinee: Examinee | None, setup: EnvConfig) -> Device:
    """The eye renders where the agent computes; without an agent or pixels, on the CPU."""
    if examinee is None or "vision" not in setup.senses:
        return "cpu"
    return "cuda" if examinee.device.type == "cuda" else "cpu"


def _acting(examinee: Examinee | None, setup: EnvConfig, condition: Condition, mode: Mode) -> ConditionAgent:
    if condition.agent == "iid":
        return BabblingAgent(BabblingConfig("iid"))
    if condition.agent == "babbling":
        return BabblingAgent(setup.babbling)
    if condition.agent == "oracle":
        return OracleAgent()
    assert examinee is not None
    if condition.agent == "untrained":
        return examinee.acting_untrained(condition.title, mode)
    return examinee.acting(condition.title, mode)
