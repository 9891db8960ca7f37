"""The smaller commands, the progress line and the pictures."""

import io
import time

import numba
import pytest
import torch
from rich.console import Console
from tiny_commands import words
from tiny_trainers import joint, newborn, symbolic

from mirrormark.config import EvaluationConfig
from mirrormark.train_command import train
from mirrormark.training.commands import _threads, runs
from mirrormark.training.held_out import hold_out
from mirrormark.training.pictures import picture
from mirrormark.training.recorder import Recorder
from mirrormark.training.run_folder import RunFolder, read_lines


def test_runs_prints_every_run_with_its_state(tmp_path, capsys):
    with pytest.raises(ValueError, match="none is no folder"):
        runs(tmp_path / "none")
    runs(tmp_path)
    assert "No runs below" in capsys.readouterr().out
    run = RunFolder.create(
        tmp_path / "a", {"preset": "symbolic", "body": "arm", "seed": 7, "ablation": "ablation: x"}
    )
    run.append("evaluations.jsonl", {"iteration": 0, "removal_rate": 0.25, "chance_removal_rate": 0.18})
    run.note("interrupted", iteration=3, episodes=12)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_bytes(b"\xff\xfe")
    runs(tmp_path)
    said = capsys.readouterr().out
    assert "damaged" in said
    assert all(word in said for word in ("symbolic", "arm", "interrupted", "0.25", "0.18", "ablation: x"))


def test_a_finished_run_tells_its_episodes(tmp_path):
    """Whole iterations: ten episodes become twelve."""
    threads = torch.get_num_threads()
    train([*words("symbolic"), "--training.schedule.episodes=10", "--out", str(tmp_path / "run")])
    torch.set_num_threads(threads)
    status = RunFolder(tmp_path / "run").status()
    assert (status["state"], status["episodes"]) == ("finished", 12)
    assert read_lines(tmp_path / "run" / "metrics.jsonl")[-1]["episodes"] == 12


def test_a_run_keeps_to_its_threads_and_gives_them_back():
    before = numba.get_num_threads()
    for asked, given in ((1, 1), (None, before), (before + 5, before)):
        with _threads(asked):
            assert numba.get_num_threads() == given
        assert numba.get_num_threads() == before


def test_the_progress_line_tells_the_newest_indicators_and_the_time_left(tmp_path):
    trainer, seen = newborn(symbolic()), io.StringIO()
    console = Console(file=seen, force_terminal=True, width=400)
    run = RunFolder.create(tmp_path / "a", {"preset": "tiny"})
    with Recorder(run, trainer, "tiny", console) as records:
        for index in range(3):
            now = trainer.schedule.iteration(index)
            records(now, trainer, trainer.run_iteration(now))
            facts = records._progress.tasks[0].fields["facts"]
            assert ("mark_recovery" in facts) == (index >= 1)  # the first exam point is after 8 episodes
        assert records.left_s(trainer.schedule.iteration(2)) == pytest.approx(
            (time.monotonic() - records._began) / 3, rel=0.1
        )
    last = read_lines(run.path / "evaluations.jsonl")[-1]
    assert f"removal_rate {last['removal_rate']:.3g}" in facts and facts.startswith("ETA 0:")
    assert "ETA 0:" in seen.getvalue()


def test_a_picture_has_four_rows_and_the_first_is_real():
    trainer = newborn(joint())
    held = hold_out(trainer.env, EvaluationConfig(babbling_episodes=4, pairs=4, policy_episodes=4), "cpu")
    image = picture(trainer.agent, held)
    assert image is not None and image.shape == (256, 512, 3)
    context = trainer.agent.config.imagination.context
    episode = int(held.episodes.marked.int().argmax())
    real = held.episodes.observation["vision"][episode, context - 1]
    assert torch.equal(torch.from_numpy(image[:64, :64].copy()), real)


def test_without_eyes_there_is_no_picture():
    trainer = newborn(symbolic())
    held = hold_out(trainer.env, EvaluationConfig(babbling_episodes=4, pairs=4, policy_episodes=4), "cpu")
    assert picture(trainer.agent, held) is None
