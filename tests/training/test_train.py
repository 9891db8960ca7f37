"""The real command: every preset for a few steps, resuming bit for bit, and mistakes in the input."""

import json
import re
import subprocess

import pytest
import torch
from tiny_commands import COMMAND, ENVIRONMENT, WORDS, bytes_of, stopped_at, words

from mirrormark.envs.senses import ABLATION
from mirrormark.train_command import train
from mirrormark.training import checkpoint
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.run_folder import list_runs, read_lines
from mirrormark.training.weights import load_weights

INDICATORS = ("mark_recovery", "efe_gap_nats", "efe_gap_per_posture_range", "removal_rate", "distance_m")


@pytest.fixture(autouse=True)
def _as_it_was():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.mark.parametrize("preset", WORDS)
def test_every_preset_trains_for_a_few_steps(preset, tmp_path, capsys):
    train([*words(preset), "--out", str(tmp_path / "run")])
    rows = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert {"dynamics", "G_babbling", "policy", "value_loss"} <= set(rows[-1])
    assert rows[-1]["skipped_steps"] == 0
    exam = read_lines(tmp_path / "run" / "evaluations.jsonl")[-1]
    assert set(INDICATORS) <= set(exam)
    assert (tmp_path / "run" / "snapshots" / exam["snapshot"] / "manifest.json").exists()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["preset"] == preset and list_runs(tmp_path)[0]["state"] == "finished"
    told = ABLATION in capsys.readouterr().out
    assert (
        told == (exam["ablation"] == ABLATION) == (config["ablation"] == ABLATION) == (preset == "symbolic")
    )


IN_THE_TOKENIZERS_PHASE = pytest.param("smoke", 0, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("preset", "iteration"), [IN_THE_TOKENIZERS_PHASE, ("smoke", 2), ("symbolic", 1), ("paper", 1)]
)
def test_resuming_is_bitwise(preset, iteration, tmp_path, monkeypatch):
    asked = [*words(preset), *["--training.tokenizer-phase.iterations=2"] * (preset == "smoke")]
    train([*asked, "--out", str(tmp_path / "straight")])
    half = [*asked, "--out", str(tmp_path / "halves")]
    stopped_at(iteration, half, monkeypatch)
    torch.manual_seed(99)  # whatever state the next process starts in
    train([*half, "--resume"])
    straight, halves = bytes_of(tmp_path / "straight"), bytes_of(tmp_path / "halves")
    assert [name for name in straight if straight[name] != halves.get(name)] == []
    assert len(straight) == len(halves) > 50

    def kept(folder: str) -> list[dict]:
        rows = read_lines(tmp_path / folder / "metrics.jsonl") + read_lines(
            tmp_path / folder / "evaluations.jsonl"
        )
        clocks = ("seconds", "steps_per_s", "collect_seconds", "learn_seconds")
        return [{k: v for k, v in row.items() if k not in clocks} for row in rows]

    assert kept("straight") == kept("halves")


@pytest.mark.slow
def test_a_tokenizer_is_taken_over_frozen_and_the_run_resumes(tmp_path, monkeypatch):
    donor, heir = tmp_path / "donor", tmp_path / "heir"
    train([*words("smoke"), "--out", str(donor)])
    source = f"--training.tokenizer-phase.source={donor}"
    asked = [*words("smoke"), "--out", str(heir), "--seed=5", source]
    stopped_at(1, asked, monkeypatch)
    train([*asked, "--resume"])
    given, taken = load_weights(donor).agent, load_weights(heir).agent
    assert given.config.tokenizer == taken.config.tokenizer
    assert all(
        torch.equal(v, taken.tokenizer.state_dict()[k]) for k, v in given.tokenizer.state_dict().items()
    )
    assert not torch.equal(given.policy.network[0].weight, taken.policy.network[0].weight)
    assert read_lines(heir / "metrics.jsonl")[0]["phase"] == "training"
    nowhere = "--training.tokenizer-phase.source=nowhere"
    with pytest.raises(CheckpointError, match="does not exist"):
        train([*words("smoke"), "--out", str(tmp_path / "x"), nowhere])
    assert not (tmp_path / "x").exists()


def test_the_same_seed_trains_the_same_agent_and_another_does_not(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        train([*words("symbolic"), "--seed", str(seed), "--out", str(tmp_path / name)])
    a, b, c = (bytes_of(tmp_path / name) for name in "abc")
    assert a == b and a != c


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, capsys, monkeypatch):
    asked = [*words("symbolic"), "--out", str(tmp_path / "run")]
    stopped_at(1, asked, monkeypatch)
    newest = tmp_path / "run" / "checkpoints" / checkpoint.names(tmp_path / "run" / "checkpoints")[-1]
    part = newest / "part-00000.safetensors"
    part.write_bytes(part.read_bytes()[:-100])
    train([*asked, "--resume"])
    said = " ".join(capsys.readouterr().out.split())
    assert "is damaged" in said and "Going back to iteration-00000001" in said
    assert list_runs(tmp_path)[0]["state"] == "finished"


def test_another_torch_version_is_said(tmp_path, capsys, monkeypatch):
    asked = [*words("symbolic"), "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.9.0")
        stopped_at(0, asked, monkeypatch)
    train([*asked, "--resume"])
    assert "saved by torch 2.9.0" in " ".join(capsys.readouterr().out.split())


def test_a_changed_configuration_is_refused(tmp_path, monkeypatch):
    asked = [*words("symbolic"), "--out", str(tmp_path / "run")]
    stopped_at(0, asked, monkeypatch)
    with pytest.raises(ValueError, match=r"training\.batch\.imagined was 2, now 3"):
        train([*asked, "--resume", "--training.batch.imagined=3"])
    with pytest.raises(ValueError, match="already holds a run"):
        train(asked)


MISTAKES = [
    (
        ["--preset", "huge"],
        "choose smoke, symbolic, laptop, swift, swift-arm, paper, paper-code, paper-quick",
    ),
    (["--preset", "smoke", "--training.schedule.episodes=0"], r"schedule\.episodes is 0"),
    (["--preset", "smoke", "--training.schedule.episods=3"], r"--training\.schedule\.episodes INT"),
    (["--preset", "smoke", "--seed=-1"], "--seed is -1"),
    (["--preset", "smoke", "--env.threads=0"], "env.threads is 0"),
    (["--preset", "smoke", "--body", "octopus"], "body 'octopus' is unknown: use one of arm, infant"),
    (["--preset", "smoke", "--training.tokenizer-phase.source=nowhere"], "nowhere does not exist"),
    (["--preset", "smoke", "--agent.acting-context=30"], "never learns more than 15 control steps"),
]


@pytest.mark.parametrize(("asked", "sentence"), MISTAKES, ids=[mistake[0][-1] for mistake in MISTAKES])
def test_a_mistake_is_told_before_any_work_and_leaves_no_folder(asked, sentence, tmp_path):
    done = subprocess.run(
        [*COMMAND, *asked, "--out", str(tmp_path / "run")], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    assert re.search(sentence, " ".join((done.stderr + done.stdout).replace("│", " ").split()))


def test_print_shows_what_config_json_would_hold_and_trains_nothing(tmp_path, capsys):
    asked = [*words("symbolic"), "--seed=3", "--out", str(tmp_path / "run")]
    train([*asked, "--print"])
    shown = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "run").exists()
    assert shown["training"]["schedule"]["episodes"] == 12 and shown["seed"] == 3
    train(asked)
    assert shown == json.loads((tmp_path / "run" / "config.json").read_text())


def test_print_resolves_the_tokenizer_that_is_taken_over(capsys):
    train(["--preset", "laptop", "--print", "--agent.tokenizer.bins=8"])
    assert json.loads(capsys.readouterr().out)["agent"]["tokenizer"]["bins"] == 64


def test_a_run_of_an_earlier_version_is_not_resumed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"preset": "symbolic", "mind": {}, "life": {}}))
    with pytest.raises(ValueError, match="run was written by an earlier version of mirrormark: start a new"):
        train([*words("symbolic"), "--out", str(tmp_path / "run"), "--resume"])


@pytest.mark.parametrize("preset", ["swift", "paper", "symbolic"])
def test_help_fits_300_lines(preset, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "110")
    with pytest.raises(SystemExit):
        train(["--preset", preset, "--help"])
    said = capsys.readouterr().out
    assert "--agent.world-model.width INT" in said and len(said.splitlines()) <= 300
    assert "--help-verbose" in said  # where each field is explained


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_where_there_is_none_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="finds no CUDA GPU"):
        train(["--preset", "smoke", "--device", "cuda", "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
