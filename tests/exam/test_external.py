"""A stranger's agent takes the whole exam: examples/scripted_agent.py and made-up ones."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import mirrormark
from mirrormark.exam import candidates, commands, tables
from mirrormark.exam.agents import AgentError
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.protocol import EXAM_VERSION
from mirrormark.exam.run import NO_UNTRAINED, Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = (EXAM, "absent", "sham", "untrained", "iid")


class KeepsStill:
    privileged = ()

    def reset(self, n):
        pass

    def act(self, observations):
        return np.zeros_like(observations["proprioception"])


class Trained(KeepsStill):
    """With all that is optional."""

    name, training_seed, environment_steps, gpu_minutes = "mine", 4, 12_000, 7.0
    privileged = ("reward", "mark position")

    def __init__(self, untrained=False, action=0.3):
        self.action = 0.0 if untrained else action

    def act(self, observations):
        return np.full_like(observations["proprioception"], self.action)

    def free_energy(self, observations):
        return observations["vision"].mean((1, 2, 3))


def test_the_exam_is_imported_when_it_is_asked_for():
    script = "import sys, mirrormark; assert 'torch' not in sys.modules; assert callable(mirrormark.examine)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [""] + sys.path)
    return "scripted_agent:make_agent"


def test_the_scripted_example_takes_the_exam_by_the_command(example, tmp_path, capsys):
    from mirrormark.report.commands import exam

    out = tmp_path / "exam"
    exam(agent=(example,), out=out, runs=40, chance_runs=10, only=NAMES)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"version {EXAM_VERSION}" in shown
    assert "scripted_agent.make_agent: privileged: the mark's colour; learned by 0 environment steps" in shown
    found = json.loads((out / "results.json").read_text())
    rates = {name: found["conditions"][name]["rate"] for name in (EXAM, "absent", "sham")}
    assert rates[EXAM] >= 0.15 and max(rates["absent"], rates["sham"]) <= 0.1  # it moves where it sees green
    assert found["left_out"] == {"untrained": NO_UNTRAINED} and found["free_energy"] is None
    assert found["exam_version"] == EXAM_VERSION and found["agents"][0]["privileged"] == ["the mark's colour"]
    page = (out / "report.html").read_text()
    assert "the mark&#39;s colour" in page and f"version {EXAM_VERSION}" in page
    rows = pd.read_csv(out / "runs.csv")
    assert list(rows.columns) == [
        "exam_version",
        "agent",
        "checkpoint",
        "privileged",
        *list(tables.CSV_COLUMNS)[2:],
    ]
    assert len(rows) == 3 * 40 + 10 and set(rows["region"]) == {"head", "chest"}
    own = rows[rows["condition"] == EXAM]
    assert (own["privileged"] == "the mark's colour").all() and own["removed"].mean() == rates[EXAM]
    assert (own["latency_s"].notna() == own["removed"]).all()
    episodes = tables.read(out / "episodes.parquet", tables.EPISODES)
    assert rows["latency_s"].fillna(-1).tolist() == pytest.approx(episodes["removed_s"].fillna(-1).tolist())


def test_the_same_agent_gives_the_same_bytes_and_another_is_refused(tmp_path):
    def take(make, place):
        return mirrormark.examine(
            make, out=tmp_path / place, runs=2, chance_runs=2, only=(EXAM, "untrained", "iid")
        )

    take(Trained, "a"), take(Trained, "b")
    for name in ("results.json", "runs.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    take(Trained, "a")
    with pytest.raises(ValueError, match="holds another exam"):
        take(lambda untrained=False: Trained(untrained, action=0.31), "a")


def test_what_is_optional_is_used_where_it_is_there(tmp_path):
    found = mirrormark.examine(
        Trained, "arm", tmp_path, runs=3, chance_runs=2, only=(EXAM, "untrained", "iid")
    )
    assert found["body"] == "arm" and found["left_out"] == {} and found["conditions"]["untrained"]["n"] == 3
    assert found["agents"] == [
        {
            "run": "mine",
            "checkpoint": "seed-4",
            "training_seed": 4,
            "privileged": ["reward", "mark position"],
            "environment_steps": 12_000,
            "gpu_minutes": 7.0,
        }
    ]
    steps = tables.read(tmp_path / "steps.parquet", tables.STEPS)
    g = steps.groupby("condition")["expected_free_energy_nats"]
    assert g.apply(lambda values: values.notna().all()).to_dict() == {
        EXAM: True,
        "untrained": True,
        "iid": False,
    }
    trained, untrained = (steps.loc[steps["condition"] == name, "distance_m"] for name in (EXAM, "untrained"))
    assert not np.array_equal(trained, untrained)


def test_several_seeds_are_examined_together(tmp_path):
    examinees = [candidates.external(KeepsStill, number=k) for k in (0, 1)]
    found = commands.examine(examinees, tmp_path / "exam", Settings(2, 0, 2, conditions=(EXAM, "iid")))
    assert [agent["training_seed"] for agent in found["agents"]] == [0, 1]
    assert found["conditions"][EXAM]["n"] == 4


def made(**parts):
    return type("Made", (KeepsStill,), parts)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("my_module", "write it as module:function"),
        ("no_such_module:make", "cannot be imported: No module named"),
        ("json:make", "cannot be imported: module 'json' has no attribute 'make'"),
        (3, "it has no act"),
        (made(reset=None), "has no reset"),
        (
            made(privileged=None),
            "does not say what it knows beyond the senses: give it an attribute privileged",
        ),
        (made(privileged="reward"), "does not say what it knows"),
        (
            made(act=lambda self, o: np.zeros((1, 2))),
            r"trial before the exam”, step 0: act returned the shape",
        ),
        (lambda: 1 / 0, "cannot be made: ZeroDivisionError"),
    ],
)
def test_an_agent_that_cannot_take_the_exam_is_one_sentence_and_leaves_nothing(source, message, tmp_path):
    out = tmp_path / "exam"
    with pytest.raises(AgentError, match=message) as error:
        mirrormark.examine(source, out=out, runs=2)
    assert not out.exists() and "\n" not in str(error.value)


def test_an_agent_that_fails_late_leaves_nothing(tmp_path):
    """It passes the trial, and one condition."""

    class Late(KeepsStill):
        resets = 0

        def reset(self, n):
            self.resets, self.step = self.resets + 1, 0

        def act(self, observations):
            self.step += 1
            late = self.resets == 3 and self.step == 51
            return super().act(observations) + (np.nan if late else 0)

    settings = Settings(2, 0, 2, conditions=(EXAM, "absent"))
    with pytest.raises(
        AgentError, match=r"Late, “no mirror”, step 50: act returned numbers that are not finite"
    ):
        commands.examine([candidates.external(Late)], tmp_path / "exam", settings)
    assert not (tmp_path / "exam").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agents": ("a:b",), "preset": "smoke"}, "leave one out"),
        ({"agents": ("a:b",), "checkpoints": (Path("infant"),)}, "examine each kind by itself"),
        ({}, "--agent for one of your own"),
    ],
)
def test_what_is_asked_for_twice_or_not_at_all(options, message):
    asked = {"checkpoints": (), "agents": (), "preset": None, "body": None, "device": "cpu"} | options
    with pytest.raises(ValueError, match=message):
        commands.load_examinees(**asked)


def test_our_agents_declare_that_labels_choose_what_they_learn_from():
    shipped = candidates.load(Path("infant"))
    assert shipped.privileged == ("marked data",) and shipped.environment_steps == 4_915_200
    assert candidates.untrained("smoke").privileged == ()
    assert candidates.untrained("symbolic").privileged == ("where the mark is seen",)
