"""The folder belongs to one sweep and one driver."""

import pytest
from small_sweeps import described, pretend_examined, pretend_trained, spec

from mirrormark.sweep import journal
from mirrormark.sweep.journal import Entry
from mirrormark.sweep.plan import Folder, plan


def test_a_sweep_is_read_back_as_it_was_planned(tmp_path):
    folder, one = Folder(tmp_path / "s"), spec()
    journal.claim(folder, one, plan(one))
    assert journal.jobs_of(folder) == plan(one)


def test_a_taken_folder_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"is taken: .* choose another --out"):
        journal.claim(Folder(tmp_path), spec(), plan(spec()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_another_sweep_is_refused_and_says_where_it_differs(tmp_path):
    folder = Folder(tmp_path / "s")
    journal.claim(folder, spec(), plan(spec()))
    other = spec(overrides=described()["overrides"] | {"training.schedule.episodes": 12})
    with pytest.raises(ValueError, match=r"holds another sweep .*episodes=8.*episodes=12"):
        journal.claim(folder, other, plan(other))
    fewer = spec(seeds=1)
    with pytest.raises(ValueError, match=r"tone_scale-0\.5-infant-seed1, which this spec lacks"):
        journal.claim(folder, fewer, plan(fewer))


def test_more_seeds_and_other_resources_may_join(tmp_path):
    folder = Folder(tmp_path / "s")
    journal.claim(folder, spec(), plan(spec()))
    more = spec(seeds=3, resources={"tries": 9})
    journal.claim(folder, more, plan(more))
    assert len(journal.jobs_of(folder)) == 6


def test_a_second_driver_is_refused_until_the_first_has_ended(tmp_path):
    folder = Folder(tmp_path)
    with (
        journal.driver_of(folder),
        pytest.raises(ValueError, match="another driver"),
        journal.driver_of(folder),
    ):
        pass
    with journal.driver_of(folder):
        pass


def test_what_is_done_is_read_from_the_runs_themselves(tmp_path):
    folder, job = Folder(tmp_path), plan(spec())[0]
    assert not journal.trained(folder, job.name) and not journal.examined(folder, job.name)
    pretend_trained(folder, job, "interrupted")
    assert not journal.trained(folder, job.name)
    pretend_trained(folder, job)
    pretend_examined(folder, job)
    assert journal.trained(folder, job.name) and journal.examined(folder, job.name)


def test_the_last_try_ends_a_job():
    entry = journal.failed(Entry("train"), "exit 1", tries=2)
    assert entry.state == "waiting" and entry.failures == 1
    assert journal.failed(entry, "exit 1", tries=2).state == "failed"


def test_entries_survive(tmp_path):
    folder, entry = Folder(tmp_path), Entry("train", 2, "exit 1", {"train": 3.5})
    journal.write(folder, "a", entry)
    assert journal.read(folder, "a") == entry and journal.read(folder, "b") == Entry()


def test_a_folder_without_a_sweep_is_said(tmp_path):
    with pytest.raises(ValueError, match="holds no sweep"):
        journal.load(Folder(tmp_path))
