"""The real command: every preset for a few steps, resuming bit for bit, and mistakes in the input."""

import json
import re
import subprocess

import pytest
import torch
from tiny_commands import COMMAND, ENVIRONMENT, FIRST, TINY, bytes_of, stopped_at

from mirrormark.envs.senses import ABLATION
from mirrormark.train_command import train
from mirrormark.training import checkpoint
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.run_folder import list_runs, read_lines
from mirrormark.training.weights import load_weights

GATES = ("mark_recovery", "efe_gap_nats", "efe_gap_per_posture_range", "removal_rate", "distance_m")


@pytest.fixture(autouse=True)
def _as_it_was():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.mark.parametrize("preset", ["smoke", "symbolic", "laptop", "swift", "paper", "paper-code"])
def test_every_preset_lives_for_a_few_steps(preset, tmp_path, capsys):
    words = TINY + (FIRST if preset in ("smoke", "laptop", "swift") else [])
    # The same kinds of nets, narrower: these presets are sized for a GPU.
    if preset in ("swift", "paper", "paper-code"):
        words += [
            "--agent.tokenizer.channels=4",
            "--agent.tokenizer.posture-width=32",
            "--agent.tokenizer.embedding=128",
        ]
    if preset == "swift":  # windows of a few frames hold neither its memory nor its expected G
        words += ["--agent.imagination.acting-context=0", "--agent.expected-g.control-steps=4"]
    train(["--preset", preset, "--out", str(tmp_path / "run"), *words])
    rows = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert {"dynamics", "G_babbling", "policy", "value_loss"} <= set(rows[-1])
    assert rows[-1]["skipped_steps"] == 0
    exam = read_lines(tmp_path / "run" / "evaluations.jsonl")[-1]
    assert set(GATES) <= set(exam)
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
    words = ["--preset", preset, *TINY]
    if preset == "smoke":
        words += [
            "--training.schedule.tokenizer-iterations=2",
            "--training.schedule.tokenizer-first-episodes=4",
            *FIRST[2:],
        ]
        words += ["--training.schedule.tokenizer-episodes-per-iteration=4"]
    if preset == "paper":
        words += ["--agent.tokenizer.channels=4", "--agent.tokenizer.embedding=128"]
    train([*words, "--out", str(tmp_path / "straight")])
    half = [*words, "--out", str(tmp_path / "halves")]
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
    train(["--preset", "smoke", "--out", str(donor), *TINY, *FIRST])
    words = ["--preset", "smoke", "--out", str(heir), "--seed=5", *TINY, f"--training.tokenizer-from={donor}"]
    stopped_at(1, words, monkeypatch)
    train([*words, "--resume"])
    given, taken = load_weights(donor).agent, load_weights(heir).agent
    assert given.config.tokenizer == taken.config.tokenizer
    assert all(
        torch.equal(v, taken.tokenizer.state_dict()[k]) for k, v in given.tokenizer.state_dict().items()
    )
    assert not torch.equal(given.policy.head.weight, taken.policy.head.weight)
    assert read_lines(heir / "metrics.jsonl")[0]["phase"] == "training"
    with pytest.raises(CheckpointError, match="does not exist"):
        train(["--preset", "smoke", "--out", str(tmp_path / "x"), "--training.tokenizer-from=nowhere"])


def test_the_same_seed_lives_the_same_life_and_another_does_not(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        train(["--preset", "symbolic", *TINY, "--seed", str(seed), "--out", str(tmp_path / name)])
    a, b, c = (bytes_of(tmp_path / name) for name in "abc")
    assert a == b and a != c


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, capsys, monkeypatch):
    words = ["--preset", "symbolic", *TINY, "--out", str(tmp_path / "run")]
    stopped_at(1, words, monkeypatch)
    newest = tmp_path / "run" / "checkpoints" / checkpoint.names(tmp_path / "run" / "checkpoints")[-1]
    part = newest / "part-00000.safetensors"
    part.write_bytes(part.read_bytes()[:-100])
    train([*words, "--resume"])
    said = " ".join(capsys.readouterr().out.split())
    assert "is damaged" in said and "Going back to iteration-00000001" in said
    assert list_runs(tmp_path)[0]["state"] == "finished"


def test_another_torch_version_is_said(tmp_path, capsys, monkeypatch):
    words = ["--preset", "symbolic", *TINY, "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.9.0")
        stopped_at(0, words, monkeypatch)
    train([*words, "--resume"])
    assert "saved by torch 2.9.0" in " ".join(capsys.readouterr().out.split())


def test_a_changed_configuration_is_refused(tmp_path, monkeypatch):
    words = ["--preset", "symbolic", *TINY, "--out", str(tmp_path / "run")]
    stopped_at(0, words, monkeypatch)
    with pytest.raises(ValueError, match=r"training\.learner\.dreams was 2, now 3"):
        train([*words, "--resume", "--training.learner.dreams=3"])
    with pytest.raises(ValueError, match="already holds a run"):
        train(words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--preset", "huge"], "choose smoke, symbolic, laptop, swift, paper, paper-code"),
        (["--preset", "smoke", "--training.schedule.episodes=0"], r"schedule\.episodes"),
        (["--preset", "smoke", "--seed=-1"], "--seed"),
        (["--preset", "smoke", "--env.threads=0"], "env.threads is 0"),
        (["--preset", "smoke", "--body", "octopus"], "octopus"),
        (["--preset", "smoke", "--training.learner.diet-marked-share=2"], "diet_marked_share"),
        (["--preset", "smoke", "--training.learner.sequence-frames=200"], "sequence_frames is 200"),
        (
            ["--preset", "smoke", "--agent.expected-g.control-steps=14"],
            "expected G of 14 control steps needs 18",
        ),
        (["--preset", "smoke", "--training.handover-share=2"], "training.handover_share is a share"),
        (["--preset", "smoke", "--agent.imagination.acting-context=3"], "imagination.acting_context is 3"),
        (
            ["--preset", "smoke", "--agent.imagination.acting-context=30"],
            "never learns more than 15 control steps",
        ),
        (["--preset", "swift", "--agent.expected-g.control-steps=0"], "serves expected G only"),
        (
            ["--preset", "swift", "--agent.imagination.horizon=90", "--agent.world-model.max-length=120"],
            "= 105",
        ),
    ],
)
def test_a_mistake_is_one_sentence_before_any_work(words, sentence, tmp_path):
    done = subprocess.run(
        [*COMMAND, *words, "--out", str(tmp_path / "run")], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    assert re.search(sentence, " ".join((done.stderr + done.stdout).replace("│", " ").split()))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_where_there_is_none_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="finds no CUDA GPU"):
        train(["--preset", "smoke", "--device", "cuda", "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
