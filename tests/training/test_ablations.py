"""The lives that are to tell swift's departures apart: minutes of a GPU depend on their words."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mirrormark import train_command
from mirrormark.presets import PRESETS, Config
from mirrormark.training import trainer
from mirrormark.training.env_config import build_agent
from mirrormark.training.run_folder import read_lines

ROOT = Path(__file__).parents[2]
TRAININGS = (ROOT / "experiments" / "ablations.txt").read_text().splitlines()
DREAMS = (ROOT / "experiments" / "dreams.txt").read_text().splitlines()


def test_lives_have_names_of_their_own():
    trainers = TRAININGS + DREAMS
    assert len({line.split()[0] for line in trainers}) == len(trainers) > 10


@pytest.mark.parametrize("line", TRAININGS + DREAMS, ids=lambda line: line.split()[0])
def test_every_life_can_be_lived_and_all_but_one_differ_from_swift(
    line: str, monkeypatch: pytest.MonkeyPatch
):
    asked = []
    monkeypatch.setattr(train_command.commands, "train", lambda *given: asked.append(given))
    name, *words = line.split()
    train_command.train(words)
    ((_, env, agent, config, *_),) = asked
    trainer.check(agent, config)
    build_agent(agent, env.make_envs(1))
    if env.ablation:
        return
    assert config.tokenizer_from == (None if name == "paper-tokenizer" else "shipped")
    same = Config(env, agent, replace(config, tokenizer_from=None)) == PRESETS["swift"]
    assert same == name.startswith("as-it-is")


def removal() -> dict[tuple[str, int], float | None]:
    """Of the lives of runs 21 and 22, and of run 20's three of this kind, at each exam point."""
    found, results = {}, ROOT / "docs" / "results"
    for path in (
        *results.glob("run-2*/ablations.evaluations.jsonl"),
        *results.glob("run-20/*.evaluations.jsonl"),
    ):
        for point in read_lines(path):
            name = point.get("training", path.name.partition(".")[0])
            found[name, point["episodes"]] = point.get("removal_rate")
    return found


def test_what_paper_md_says_of_lives_is_what_they_did():
    done, told = removal(), set()
    for row in re.findall(r"^\| `.*$", (ROOT / "docs" / "paper.md").read_text(), re.M):
        for name, said in re.findall(r"`([a-z0-9-]+)` (?:\([^)]*\) )?(\**\.\d\d[^`|;]*)", row):
            for figure, early in re.findall(r"\.(\d\d)\b\**( at 8,192)?", said)[:2]:
                assert figure == f"{100 * (done[name, 8_192 if early else 16_384] or 0):02.0f}", row
            told.add(name)
    names = {line.split()[0] for line in TRAININGS}
    assert told >= {name for name in names if not name.startswith("as-it-is")}
