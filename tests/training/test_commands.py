"""The smaller commands: runs, bench, pictures."""

import io
import json
import time

import numba
import pytest
import torch
from rich.console import Console
from tiny_commands import TINY
from tiny_trainers import born, joint, symbolic

from mirrormark.agent import bench as codecs
from mirrormark.train_command import train
from mirrormark.training.bench import bench_codec, bench_learn
from mirrormark.training.commands import _threads, runs
from mirrormark.training.held_out import IndicatorConfig, hold_out
from mirrormark.training.pictures import picture
from mirrormark.training.recorder import Records
from mirrormark.training.run_folder import Run, read_lines


def test_runs_prints_every_run_with_its_state(tmp_path, capsys):
    with pytest.raises(ValueError, match="none is no folder"):
        runs(tmp_path / "none")
    runs(tmp_path)
    assert "No runs below" in capsys.readouterr().out
    run = Run.create(tmp_path / "a", {"preset": "ideal", "body": "arm", "seed": 7, "ablation": "ablation: x"})
    run.append("exams.jsonl", {"lap": 0, "removal_rate": 0.25, "chance_removal_rate": 0.18})
    run.note("interrupted", lap=3, episodes=12)
    runs(tmp_path)
    said = capsys.readouterr().out
    assert all(word in said for word in ("ideal", "arm", "interrupted", "0.25", "0.18", "ablation: x"))


def test_a_finished_run_tells_the_episodes_that_it_lived(tmp_path):
    """Whole laps: ten episodes are lived as twelve."""
    threads = torch.get_num_threads()
    train(["--preset", "ideal", *TINY, "--life.schedule.episodes=10", "--out", str(tmp_path / "run")])
    torch.set_num_threads(threads)
    status = Run(tmp_path / "run").status()
    assert (status["state"], status["episodes"]) == ("finished", 12)
    assert read_lines(tmp_path / "run" / "metrics.jsonl")[-1]["episodes"] == 12


def test_a_life_keeps_to_its_threads_and_gives_them_back():
    before = numba.get_num_threads()
    for asked, given in ((1, 1), (None, before), (before + 5, before)):
        with _threads(asked):
            assert numba.get_num_threads() == given
        assert numba.get_num_threads() == before


def test_bench_learn_times_every_part(tmp_path, capsys):
    out = tmp_path / "bench.json"
    bench_learn(
        "smoke", "cpu", steps=1, world_sequences=2, world_frames=6, self_prior_frames=4, dreams=2, out=out
    )
    kept = json.loads(out.read_text())
    assert [row["part"] for row in kept["rows"]] == ["world", "self_prior", "policy", "whole"]
    assert all(row["ms"] > 0 and row["reference_ms"] is None for row in kept["rows"])
    assert "ms a step" in capsys.readouterr().out


def test_the_progress_line_tells_the_newest_indicators_and_the_time_left(tmp_path):
    life, seen = born(symbolic()), io.StringIO()
    console = Console(file=seen, force_terminal=True, width=400)
    run = Run.create(tmp_path / "a", {"preset": "tiny"})
    with Records(run, life, "tiny", console) as records:
        for index in range(3):
            now = life.schedule.lap(index)
            records(now, life, life.live(now))
            facts = records._progress.tasks[0].fields["facts"]
            assert ("mark_recovery" in facts) == (index >= 1)  # the first exam point is after 8 episodes
        assert records.left_s(life.schedule.lap(2)) == pytest.approx(
            (time.monotonic() - records._began) / 3, rel=0.1
        )
    last = read_lines(run.path / "exams.jsonl")[-1]
    assert f"removal_rate {last['removal_rate']:.3g}" in facts and facts.startswith("ETA 0:")
    assert "ETA 0:" in seen.getvalue()


def test_bench_codec_prints_each_codec_when_it_is_done_and_is_small_on_a_cpu(tmp_path, capsys, monkeypatch):
    asked, score = [], codecs.CodecScore(0.5, 1.0, 1.0, 1.0, 1.0, 0.9, 0.1)

    def compare(senses, frames, marked, unmarked, config):
        asked.append((config.steps, config.batch, len(frames["vision"]) // 101))
        for name in ("one", "two"):
            assert "| one |" in capsys.readouterr().out or name == "one"
            yield name, score

    monkeypatch.setattr(codecs, "compare", compare)
    bench_codec(device="cpu", episodes=4, out=tmp_path / "bench.json")
    assert "| two |" in capsys.readouterr().out
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert asked == [(10, 16, 4)] and list(kept["codecs"]) == ["one", "two"]
    assert (kept["steps"], kept["batch"], kept["device"]) == (10, 16, "cpu")
    with pytest.raises(ValueError, match="at least 1 step"):
        bench_codec(device="cpu", steps=0)


def test_a_picture_has_four_rows_and_the_first_is_real():
    life = born(joint())
    held = hold_out(life.world, IndicatorConfig(everyday_episodes=4, pairs=4, policy_episodes=4), "cpu")
    image = picture(life.mind, held)
    assert image is not None and image.shape == (256, 512, 3)
    context = life.mind.config.imagination.context
    episode = int(held.episodes.marked.int().argmax())
    real = held.episodes.observation["vision"][episode, context - 1]
    assert torch.equal(torch.from_numpy(image[:64, :64].copy()), real)


def test_without_eyes_there_is_no_picture():
    life = born(symbolic())
    held = hold_out(life.world, IndicatorConfig(everyday_episodes=4, pairs=4, policy_episodes=4), "cpu")
    assert picture(life.mind, held) is None
