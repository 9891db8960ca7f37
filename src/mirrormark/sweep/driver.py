"""The driver: Ray Tune over every job that is not finished yet.

All that it must know is on disk, so it can be killed at any moment and started again: a new Tune experiment
then holds the jobs that are left, and each goes on from its own checkpoints. `Tuner.restore` would hold on to
the search space of the first start; seeds and settings could not be added, and Tune's memory of what is
finished would stand beside the runs' own.
"""

import contextlib
import logging
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from types import FrameType
from typing import Any

import ray
from ray import tune

from mirrormark.sweep import status
from mirrormark.sweep.folder import Folder, Job, cores, last_words
from mirrormark.sweep.spec import Resources, fitting, gpus_here
from mirrormark.sweep.status import Seen, in_words
from mirrormark.sweep.trial import FAILED, Trial

TELL_S = 60.0
"""How often a line tells how far each run under way has come."""
_STORE_BYTES = 80 * 2**20
"""Ray's object store: nothing of ours goes through it, and this is about the least that Ray takes (ours)."""


def drive(jobs: Sequence[Job], folder: Folder, resources: Resources, address: str | None) -> None:
    """Everything that is still to be done. A job that failed before gets new tries."""
    folder.stop.unlink(missing_ok=True)
    shutil.rmtree(folder.path / "ray", ignore_errors=True)  # an earlier driver's, which nobody reads any more
    left = [job for job in jobs if not folder.examined(job.name)]
    # Agents without drive are examined beside those with one, and so come second.
    first, second = ([job for job in left if bool(job.beside) is beside] for beside in (False, True))
    progress = Progress(jobs, folder, resources.tries)
    with _ray(address), progress.asked_to_stop():  # in this order: Ray has signal handlers of its own
        workers = fitting(resources, _machines(), "the largest machine has")
        print(f"{len(left)} of {len(jobs)} runs to do, {workers} at a time: {folder.path}", flush=True)
        _fit(first, folder, resources, progress)
        for job in [job for job in second if job.beside and not folder.trained(job.beside)]:
            second.remove(job)
            progress.give_up(job.name, f"{job.beside}, beside which it is examined, has failed")
        _fit(second, folder, resources, progress)


def _fit(jobs: Sequence[Job], folder: Folder, resources: Resources, progress: "Progress") -> None:
    """One Tune experiment: a trial for each of these jobs."""
    if not jobs:
        return
    space = [{"job": asdict(job), "folder": str(folder.path), "directory": os.getcwd()} for job in jobs]
    name = {"trial_name_creator": _name, "trial_dirname_creator": lambda trial: trial.trial_id}
    tuner = tune.Tuner(
        tune.with_resources(Trial, {"cpu": resources.cpus, "gpu": resources.gpus}),
        param_space={"run": tune.grid_search(space)},
        tune_config=tune.TuneConfig(max_concurrent_trials=resources.workers or None, **name),
        run_config=tune.RunConfig(
            storage_path=str(folder.path / "ray"),
            failure_config=tune.FailureConfig(max_failures=resources.tries - 1),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # runs keep their own
            callbacks=[progress],
            verbose=0,
        ),
    )
    tuner.fit()


def _name(trial: Any) -> str:
    return trial.config["run"]["job"]["name"]


@contextlib.contextmanager
def _ray(address: str | None) -> Iterator[None]:
    """Ray, started here for this sweep alone and reached from this machine only; or joined at an address."""
    options: dict[str, Any] = {"logging_level": "CRITICAL", "log_to_driver": False}
    if address is None:
        options |= {"num_cpus": cores(), "num_gpus": gpus_here(), "object_store_memory": _STORE_BYTES}
        options |= {"include_dashboard": False}
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = f"--address {address}: no Ray cluster answers there" if address else "Ray does not start here"
        raise ValueError(f"{where} ({error}).") from error
    try:
        yield
    finally:
        ray.shutdown()


def _machines() -> list[tuple[int, int]]:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [(int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in nodes]


class Progress(tune.Callback):
    """A line for whatever happens to a run, and now and then one for each that is under way."""

    def __init__(self, jobs: Sequence[Job], folder: Folder, tries: int) -> None:
        before = status.read_progress(folder)
        self.jobs, self.folder, self.tries = {job.name: job for job in jobs}, folder, tries
        self.seen = {name: Seen(seconds=before.get(name, Seen()).seconds) for name in self.jobs}
        self.stages: dict[str, str] = {}  # of runs under way
        self.stopping = False
        self.told_s = time.monotonic()

    @contextlib.contextmanager
    def asked_to_stop(self) -> Iterator[None]:
        """Ctrl-C or SIGTERM: each run saves first; a second one kills them where they stand."""
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.stopping or not self.stages:
            raise KeyboardInterrupt
        self.stopping = True
        self.folder.stop.touch()
        print("Stopping: each run finishes its iteration and saves; once more stops at once.", flush=True)

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        if not self.stopping:  # else it ends before it has begun
            self.stages[_name(trial)] = "starting"

    def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict, **info: Any) -> None:
        name, stage = _name(trial), result["stage"]
        self.seen[name].seconds |= result.get("seconds", {})
        if name in self.stages and self.stages[name] != stage and not result["done"]:
            self.stages[name] = stage
            self._say(name, stage)

    def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        name = _name(trial)
        self.stages.pop(name, None)
        if self.folder.examined(name):
            self.seen[name] = Seen(seconds=self.seen[name].seconds)
            spent = ", ".join(f"{step} {in_words(s)}" for step, s in self.seen[name].seconds.items())
            self._say(name, f"finished ({spent})")
        self._write()

    def on_trial_recover(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        seen = self._failed(_name(trial))
        words = f"{seen.reason}; tried again from its last checkpoint"
        self._say(_name(trial), f"{words} ({seen.failures} of {self.tries} tries failed)")

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        self.give_up(_name(trial), self._failed(_name(trial)).reason)

    def on_step_end(self, iteration: int, trials: list, **info: Any) -> None:
        if self.stopping and not self.stages:
            raise KeyboardInterrupt  # every run has saved
        if time.monotonic() - self.told_s > TELL_S:
            self.told_s = time.monotonic()
            for one in status.standings(list(self.jobs.values()), self.folder):
                if one.job.name in self.stages and not one.ended:
                    words = f"{one.stage}, iteration {one.iterations}, {in_words(one.left_s)} left"
                    self._say(one.job.name, words)

    def give_up(self, name: str, reason: str) -> None:
        """This job is left alone."""
        self.seen[name].failed, self.seen[name].reason = True, reason
        self._write()
        self._say(name, f"failed after {self.seen[name].failures} tries: {reason}; {self.folder.log(name)}")

    def _failed(self, name: str) -> Seen:
        """One more failure: what the worker wrote down, or, if it died, what its command said last."""
        self.stages.pop(name, None)
        said, seen = last_words(self.folder.log(name)), self.seen[name]
        seen.reason = said.removeprefix(FAILED) if said.startswith(FAILED) else f"its worker died; {said}"
        seen.failures += 1
        self._write()
        return seen

    def _write(self) -> None:
        status.write_progress(self.folder, self.seen)

    def _say(self, name: str, what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {name}: {what}", flush=True)
