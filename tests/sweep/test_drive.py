"""The driver's decisions, with an engine that only pretends: what is retried, left alone, made to wait."""

import json
import socket
from collections import deque

import pytest
from small_sweeps import pretend_examined, pretend_trained, spec

from mirrormark.sweep import journal
from mirrormark.sweep.drive import drive
from mirrormark.sweep.plan import Folder, plan
from mirrormark.sweep.work import Ended, Work


class Pretender:
    """Ends every command at once: well, unless its job is listed as bad for so many times."""

    name, workers = "pretender", 1

    def __init__(self, folder: Folder, jobs, bad: dict[str, int] | None = None) -> None:
        self.folder, self.jobs, self.bad = folder, {job.name: job for job in jobs}, bad or {}
        self.given: list[Work] = []
        self._ended: deque[Ended] = deque()

    def submit(self, work: Work) -> None:
        self.given.append(work)
        job = self.jobs[work.job]
        key = f"{work.job}/{work.step}"
        if self.bad.get(key, 0) > 0:
            self.bad[key] -= 1
            if work.step == "train":
                pretend_trained(self.folder, job, "running", host="a-lost-machine")
            work.log.parent.mkdir(parents=True, exist_ok=True)
            work.log.write_text("some\nlast words\n")
            self._ended.append(Ended(work, "killed by signal 9", 1.0))
            return
        (pretend_trained if work.step == "train" else pretend_examined)(self.folder, job)
        self._ended.append(Ended(work, "exit 0", 2.0))

    def wait(self, timeout_s: float) -> list[Ended]:
        return [self._ended.popleft()] if self._ended else []

    def stop(self) -> None: ...

    def close(self) -> None: ...


def steps(engine: Pretender, job: str) -> list[tuple[str, bool]]:
    return [(work.step, "--resume" in work.words) for work in engine.given if work.job == job]


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


def run(folder, jobs, bad=None, tries=3):
    engine, told = Pretender(folder, jobs, bad), []
    entries = drive(jobs, folder, engine, tries, lambda _, what: told.append(what) if what else None)
    return engine, entries, told


def test_each_job_is_trained_then_examined_once(folder):
    jobs = plan(spec())
    engine, entries, _ = run(folder, jobs)
    assert all(
        entry.state == "finished" and entry.seconds == {"train": 2.0, "exam": 2.0}
        for entry in entries.values()
    )
    assert all(steps(engine, job.name) == [("train", False), ("exam", False)] for job in jobs)


def test_a_killed_training_is_tried_again_from_its_checkpoint_even_on_a_lost_machine(folder):
    jobs = plan(spec())
    name = jobs[0].name
    engine, entries, told = run(folder, jobs, {f"{name}/train": 2})
    assert steps(engine, name) == [("train", False), ("train", True), ("train", True), ("exam", False)]
    assert entries[name].state == "finished" and entries[name].failures == 2
    assert any("tried again from its last checkpoint (1 of 3" in what for what in told)


def test_after_so_many_tries_a_job_is_failed_with_its_log_and_the_rest_goes_on(folder):
    jobs = plan(spec())
    name = jobs[0].name
    engine, entries, told = run(folder, jobs, {f"{name}/train": 99}, tries=2)
    assert len(steps(engine, name)) == 2
    assert [job.name for job in jobs if entries[job.name].state == "failed"] == [name]
    assert entries[name].reason == "train: killed by signal 9; last words"
    assert any(str(folder.log(name)) in what for what in told)
    assert all(entries[job.name].state == "finished" for job in jobs[1:])


def test_started_again_only_what_is_missing_runs(folder):
    jobs = plan(spec())
    pretend_trained(folder, jobs[0])
    pretend_examined(folder, jobs[0])
    pretend_trained(folder, jobs[1])
    pretend_trained(folder, jobs[2], "killed")
    engine, _, _ = run(folder, jobs)
    assert steps(engine, jobs[0].name) == []
    assert steps(engine, jobs[1].name) == [("exam", False)]
    assert steps(engine, jobs[2].name) == [("train", True), ("exam", False)]


def test_a_failed_job_gets_new_tries_from_a_new_driver(folder):
    jobs = plan(spec())
    run(folder, jobs, {f"{jobs[0].name}/train": 99}, tries=2)
    _, entries, _ = run(folder, jobs)
    assert entries[jobs[0].name].state == "finished" and entries[jobs[0].name].failures == 0


def test_a_run_killed_before_it_said_what_it_is_starts_over(folder):
    jobs = plan(spec())
    half = folder.run(jobs[0].name)
    half.mkdir(parents=True)
    (half / "versions.json").write_text("{}")
    half_exam = folder.exam(jobs[0].name)
    half_exam.mkdir(parents=True)
    (half_exam / ".writing-exam.json").write_text("")
    engine, _, _ = run(folder, jobs)
    assert steps(engine, jobs[0].name)[0] == ("train", False) and not (half / "versions.json").exists()
    assert not (half_exam / ".writing-exam.json").exists()


def test_a_command_that_still_lives_is_not_doubled(folder, monkeypatch):
    """Its process is this machine's first, which always lives; then it ends, and the run is taken up."""
    jobs = plan(spec())
    pretend_trained(folder, jobs[0], "running", host=socket.gethostname())
    engine = Pretender(folder, jobs)
    rounds = []

    def tell(entries, what):
        rounds.append(steps(engine, jobs[0].name))
        if len(rounds) == 20:
            pretend_trained(folder, jobs[0], "interrupted", host=socket.gethostname())

    drive(jobs, folder, engine, 3, tell)
    assert all(not given for given in rounds[:20])
    assert steps(engine, jobs[0].name) == [("train", True), ("exam", False)]


def test_a_stranger_with_the_number_of_a_dead_command_is_not_waited_for(folder):
    jobs = plan(spec())
    pretend_trained(folder, jobs[0], "running", host=socket.gethostname())
    (folder.run(jobs[0].name) / "lock").write_text("1 on here\n")  # which nobody holds
    engine, _, _ = run(folder, jobs)
    assert steps(engine, jobs[0].name) == [("train", True), ("exam", False)]


def test_an_exam_beside_a_twin_waits_for_the_twins_training(folder):
    jobs = plan(spec(seeds=1, grid={"cost": ["none", "self_prior"]}))
    costless, twin = jobs
    engine, _, _ = run(folder, jobs, {f"{twin.name}/train": 2})
    order = [(work.job, work.step) for work in engine.given]
    assert order.index((costless.name, "exam")) > max(
        i for i, one in enumerate(order) if one == (twin.name, "train")
    )


def test_a_twin_that_fails_takes_its_exam_with_it(folder):
    jobs = plan(spec(seeds=1, grid={"cost": ["none", "self_prior"]}))
    _, entries, _ = run(folder, jobs, {f"{jobs[1].name}/train": 99})
    assert [entry.state for entry in entries.values()] == ["failed", "failed"]
    assert "beside which it is examined" in entries[jobs[0].name].reason


def test_the_journal_on_disk_is_what_the_driver_returns(folder):
    jobs = plan(spec())
    _, entries, _ = run(folder, jobs)
    assert {job.name: journal.read(folder, job.name) for job in jobs} == entries
    assert json.loads(folder.journal(jobs[0].name).read_text())["state"] == "finished"
