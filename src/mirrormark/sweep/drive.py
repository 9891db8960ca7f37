"""The driver: gives each job's next command to the engine until every job is finished or has failed.

It keeps nothing in memory that is not on disk, so it can be killed at any moment and started again.
"""

import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

from mirrormark.sweep import journal
from mirrormark.sweep.journal import Entry
from mirrormark.sweep.plan import Folder, Job
from mirrormark.sweep.work import Ended, Engine, Step, Work
from mirrormark.training.run_folder import RunFolder

LOOK_S = 0.5
"""How often the table is drawn anew while nothing ends."""
_LAST_WORDS = 300
"""Characters of a log's last line that go into the journal."""

Tell = Callable[[dict[str, Entry], str | None], None]
"""Told all entries, and a sentence when something has happened."""


def drive(jobs: Sequence[Job], folder: Folder, engine: Engine, tries: int, tell: Tell) -> dict[str, Entry]:
    """Run what is not finished yet; the entries at the end. A job that failed before gets new tries."""
    driver = _Driver(jobs, folder, engine, tries)
    for job in jobs:
        driver.take_up(job)
    while driver.open():
        for job in driver.ready():
            driver.submit(job)
        ended = engine.wait(LOOK_S)
        for one in ended:
            tell(driver.entries, driver.note(one))
        if not ended:
            tell(driver.entries, None)
    return driver.entries


class _Driver:
    def __init__(self, jobs: Sequence[Job], folder: Folder, engine: Engine, tries: int) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.folder, self.engine, self.tries = folder, engine, tries
        self.entries: dict[str, Entry] = {}

    def open(self) -> bool:
        return any(entry.state not in ("finished", "failed") for entry in self.entries.values())

    def take_up(self, job: Job) -> None:
        """What an earlier driver left is read from the run's own folders."""
        before = journal.read(self.folder, job.name)
        done = journal.examined(self.folder, job.name)
        self._write(job.name, Entry("finished" if done else "waiting", seconds=before.seconds))

    def ready(self) -> list[Job]:
        """Jobs whose next command can be given to the engine."""
        found = []
        for name, job in self.jobs.items():
            if self.entries[name].state != "waiting":
                continue
            if self.step(job) == "exam" and job.beside and not self._twin(job, job.beside):
                continue
            if not self._left_over(job):
                found.append(job)
        return found

    def step(self, job: Job) -> Step:
        return "exam" if journal.trained(self.folder, job.name) else "train"

    def _twin(self, job: Job, twin: str) -> bool:
        """Whether the agent beside which this one is examined has grown up; it waits, or fails with it."""
        if self.entries[twin].state == "failed" and not journal.trained(self.folder, twin):
            reason = f"{twin}, beside which it is examined, has failed"
            self._write(job.name, replace(self.entries[job.name], state="failed", reason=reason))
        return journal.trained(self.folder, twin)

    def _left_over(self, job: Job) -> bool:
        """Whether a command of an earlier driver still lives here. It is waited for, never doubled.

        One that is marked as running on another machine was ours and has ended, or this job would not be
        waiting: that machine could not say so any more.
        """
        status = RunFolder(self.folder.run(job.name)).status()
        return status["state"] in ("running", "starting") and status["host"] == socket.gethostname()

    def submit(self, job: Job) -> None:
        step = self.step(job)
        work = self._train(job) if step == "train" else self._exam(job)
        self._write(job.name, replace(self.entries[job.name], state=step))
        self.engine.submit(work)

    def _train(self, job: Job) -> Work:
        run = self.folder.run(job.name)
        resume = (run / "config.json").exists()
        if not resume and run.exists():
            shutil.rmtree(run)  # killed before it had written what it is: there is nothing in it
        return self.folder.trained(job, resume)

    def _exam(self, job: Job) -> Work:
        exam = self.folder.exam(job.name)
        if exam.exists() and not (exam / "exam.json").exists():
            shutil.rmtree(exam)
        return self.folder.examined(job)

    def note(self, ended: Ended) -> str:
        """What came of it, judged by what is on disk: a command that was asked to stop ends with 0 too."""
        name, step = ended.work.job, ended.work.step
        before = self.entries[name]
        spent = before.seconds.get(step, 0.0) + ended.seconds
        entry = replace(before, seconds=before.seconds | {step: round(spent, 2)})
        done = journal.trained if step == "train" else journal.examined
        if done(self.folder, name):
            self._write(name, replace(entry, state="waiting" if step == "train" else "finished"))
            return f"{name}: {'trained' if step == 'train' else 'examined'}"
        reason = f"{step}: {ended.how}; {last_words(ended.work)}"
        entry = journal.failed(entry, reason, self.tries)
        self._write(name, entry)
        if entry.state == "failed":
            return f"{name}: failed after {entry.failures} tries ({reason}); its log is {ended.work.log}"
        failures = f"{entry.failures} of {self.tries} tries failed"
        return f"{name}: {ended.how}, tried again from its last checkpoint ({failures})"

    def _write(self, name: str, entry: Entry) -> None:
        self.entries[name] = entry
        journal.write(self.folder, name, entry)


def last_words(work: Work) -> str:
    """The last line of the log that says something."""
    try:
        lines = work.log.read_text(errors="replace").splitlines()
    except OSError:
        return "no log"
    spoken = [line.strip() for line in lines if line.strip(" │╰╯─")]
    return spoken[-1][:_LAST_WORDS] if spoken else "its log is empty"
