"""Benchmarks of the train step and of tokenizers, at toy size."""

import json
from dataclasses import replace

import pytest

from mirrormark import bench
from mirrormark.config import CategoricalTokenizerConfig, PaperAgentConfig
from mirrormark.presets import PRESETS


def test_bench_learn_times_every_part(tmp_path, capsys):
    out = tmp_path / "bench.json"
    bench.bench_learn("smoke", "cpu", steps=1, out=out)
    kept = json.loads(out.read_text())
    assert [row["part"] for row in kept["rows"]] == ["world_model", "self_prior", "policy", "whole"]
    assert all(row["ms"] > 0 for row in kept["rows"]) and kept["precision"] == "fp32"
    assert "ms a step" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--steps is 0"):
        bench.bench_learn("smoke", "cpu", steps=0)


def test_bench_learn_knows_every_preset():
    (names,) = (a for a in [bench.bench_learn.__annotations__["preset"]])
    assert all(f'"{name}"' in names or f"'{name}'" in names for name in PRESETS)


def test_bench_tokenizer_trains_both_and_writes_json(tmp_path, capsys, monkeypatch):
    small = PaperAgentConfig(tokenizer=CategoricalTokenizerConfig(4, 8, 128, 4, 8))
    monkeypatch.setattr(bench, "PaperAgentConfig", lambda: small)
    monkeypatch.setattr(bench, "SwiftAgentConfig", lambda: PRESETS["smoke"].agent)
    held = bench.hold_out
    monkeypatch.setattr(
        bench, "hold_out", lambda env, c, place: held(env, replace(c, babbling_episodes=4, pairs=8), place)
    )
    out = tmp_path / "bench.json"
    bench.bench_tokenizer(device="cpu", episodes=4, steps=2, batch=4, out=out)
    kept = json.loads(out.read_text())
    assert list(kept["tokenizers"]) == ["paper", "swift"] and (kept["steps"], kept["batch"]) == (2, 4)
    assert all(score["loss"] > 0 and score["ms"] > 0 for score in kept["tokenizers"].values())
    assert capsys.readouterr().out.count("mark recovery") == 2
    with pytest.raises(ValueError, match="at least 1 step"):
        bench.bench_tokenizer(device="cpu", steps=0)
