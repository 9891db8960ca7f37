"""The exam as a whole, small: real worlds, a real (untrained, tiny) agent, real files."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import torch

from mirrormark.envs.babbling import BabblingConfig
from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.exam import agents, candidates, commands, conditions, history, recording, run, tables
from mirrormark.exam.agents import BabblingAgent, TrainedAgent
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.protocol import RunKey, run_condition
from mirrormark.exam.results import load
from mirrormark.exam.run import Settings, take_exam
from mirrormark.training.weights import describe, save_snapshot

SMALL = Settings(runs=3, chance_runs=4, conditions=(EXAM, "absent", "sham", "iid"))
KEYS = RunKey("r", "c", "infant", EXAM, 0, "flexor", "pixels")


@pytest.fixture(scope="module")
def agent():
    torch.set_num_threads(1)
    return candidates.untrained("smoke")


@pytest.fixture(scope="module")
def exam_folder(agent, tmp_path_factory):
    out = tmp_path_factory.mktemp("exam") / "one"
    commands.examine([agent], out, SMALL)
    return out


def test_tables_obey_their_schema(exam_folder):
    episodes = tables.read(exam_folder / "episodes.parquet", tables.EPISODES)
    steps = tables.read(exam_folder / "steps.parquet", tables.STEPS)
    assert episodes.groupby("condition").size().to_dict() == {EXAM: 3, "absent": 3, "sham": 3, "iid": 4}
    assert len(steps) == 100 * len(episodes)
    exam = steps[steps["condition"] == EXAM]
    assert np.isfinite(exam[["expected_free_energy_nats", "mark_px", "distance_m"]].to_numpy()).all()
    assert steps.loc[steps["condition"] == "iid", "mark_px"].isna().all()
    assert (steps.loc[steps["condition"] == "sham", "mark_px"].dropna() == 0).all()
    assert (steps.loc[steps["condition"] == "absent", "mark_px"].dropna() == 0).all()


def test_same_envs_in_every_condition(exam_folder):
    episodes = tables.read(exam_folder / "episodes.parquet", tables.EPISODES)
    sites = episodes.pivot(index="exam_seed", columns="condition", values="site_y_m")
    assert (sites[EXAM].iloc[:3] == sites["absent"].iloc[:3]).all()
    assert (sites[EXAM].iloc[:3] == sites["iid"].iloc[:3]).all()


def test_same_seed_gives_the_same_bytes(agent, exam_folder, tmp_path):
    commands.examine([agent], tmp_path / "again", SMALL)
    assert (tmp_path / "again" / "results.json").read_bytes() == (exam_folder / "results.json").read_bytes()
    text = (exam_folder / "results.json").read_text()
    assert str(exam_folder) not in text and "versions" not in text


def test_an_interrupted_exam_goes_on_where_it_stopped(agent, exam_folder, tmp_path, monkeypatch):
    out = tmp_path / "exam"
    real, begun = run._run, []

    def stop_at_second(examinee, setup, condition, settings):
        begun.append(condition.name)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return real(examinee, setup, condition, settings)

    monkeypatch.setattr(run, "_run", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        commands.examine([agent], out, SMALL)
    assert not (out / "results.json").exists()
    commands.examine([agent], out, SMALL)
    assert begun == [EXAM, "absent", "absent", "sham", "iid"]
    assert (out / "results.json").read_bytes() == (exam_folder / "results.json").read_bytes()


def test_a_folder_belongs_to_one_exam(agent, exam_folder, tmp_path):
    with pytest.raises(ValueError, match="holds another exam"):
        take_exam([agent], exam_folder, dataclasses.replace(SMALL, runs=4))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="empty folder"):
        take_exam([agent], tmp_path, SMALL)


def test_results_are_versioned(exam_folder, tmp_path):
    found = load(exam_folder / "results.json")
    assert found["verdict"]["status"] in ("not passed", "incomplete")
    assert found["conditions"][EXAM]["n"] == 3 and found["tone"] == "flexor"
    (tmp_path / "results.json").write_text(json.dumps({"schema": "other"}))
    with pytest.raises(ValueError, match="schema"):
        load(tmp_path / "results.json")
    with pytest.raises(ValueError, match="does not exist"):
        load(tmp_path / "none.json")


def test_the_symbolic_eye_is_labelled_and_never_passes(tmp_path):
    candidate = candidates.untrained("symbolic")
    found = commands.examine([candidate], tmp_path / "symbolic", Settings(2, 0, 2, conditions=(EXAM, "iid")))
    assert (
        found["label"] == "ablation: told where the mark is seen" and found["verdict"]["status"] == "ablation"
    )
    assert found["probes"] is None and found["tone"] == "flexor ×0.5"
    episodes = tables.read(tmp_path / "symbolic" / "episodes.parquet", tables.EPISODES)
    assert episodes.groupby("condition")["eye"].unique().map(list).to_dict() == {
        EXAM: ["symbolic"],
        "iid": ["symbolic"],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": 0}, "runs is 0"),
        ({"chance_runs": 0}, "chance_runs is 0"),
        ({"first_exam_seed": -1}, "first_exam_seed"),
        ({"conditions": ("absent",)}, "'mirror' is missing"),
        ({"conditions": (EXAM, "moon")}, "'moon' is unknown"),
        ({"conditions": (EXAM, "absent", EXAM)}, "'mirror' is named twice"),
    ],
)
def test_bad_settings_are_one_sentence(change, message):
    with pytest.raises(ValueError, match=message):
        Settings(**change)


def test_agents_that_do_not_belong_together(agent, tmp_path):
    with pytest.raises(ValueError, match="no agent to examine"):
        take_exam([], tmp_path / "a", SMALL)
    with pytest.raises(ValueError, match="share training seed 0"):
        take_exam([agent, dataclasses.replace(agent, run="other")], tmp_path / "b", SMALL)
    with pytest.raises(ValueError, match="differs from untrained-smoke in tone"):
        take_exam(
            [agent, dataclasses.replace(candidates.untrained("symbolic"), training_seed=1)],
            tmp_path / "c",
            SMALL,
        )
    for name, value in (
        ("mirror", MirrorConfig(distance_m=0.2)),
        ("mark", MarkConfig(radius_m=0.03)),
        ("babbling", BabblingConfig("iid")),
        ("mirrorless_share", 0.7),
    ):
        setup = dataclasses.replace(agent.setup, **{name: value})
        other = dataclasses.replace(agent, run="other", training_seed=1, setup=setup)
        with pytest.raises(ValueError, match=f"differs from untrained-smoke in {name}"):
            take_exam([agent, other], tmp_path / "d", SMALL)
    with pytest.raises(ValueError, match="leave one out"):
        commands.load_examinees((tmp_path,), (), "smoke", None, "cpu")
    with pytest.raises(ValueError, match="knows its body"):
        commands.load_examinees((tmp_path,), (), None, "arm", "cpu")


def test_an_agent_comes_back_from_its_snapshot(agent, tmp_path):
    metadata = describe(agent.agent, agent.setup, preset="smoke", seed=5)
    save_snapshot(tmp_path / "snapshots", "episodes-1", agent.agent, metadata)
    found = candidates.load(tmp_path)
    assert found.training_seed == 5 and found.checkpoint == "episodes-1" and not found.costless
    assert candidates.load(tmp_path).fingerprint == found.fingerprint, "else no exam of it could go on"
    part = next((tmp_path / "snapshots" / "episodes-1").glob("*.safetensors"))
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        candidates.load(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        candidates.load(tmp_path / "none")


def test_the_command_prints_the_verdict(tmp_path, capsys):
    commands.exam(preset="smoke", out=tmp_path / "exam", runs=2, chance_runs=2, only=(EXAM, "iid"))
    shown = capsys.readouterr().out
    assert "Not passed" in shown and "n=2, seeds=1" in shown


def test_a_new_agent_goes_where_it_is_sent(monkeypatch):
    """The device of --preset, without a GPU: torch's meta device."""
    monkeypatch.setattr(commands, "choose_device", lambda device: torch.device("meta"))
    monkeypatch.setattr(candidates, "fingerprint", lambda agent: "0")
    (found,) = commands.load_examinees((), (), "smoke", None, "cuda")
    assert {parameter.device.type for parameter in found.agent.parameters()} == {"meta"}


def run_folder(agent, folder, cost="self_prior"):
    """A run as `mirrormark train` leaves it, without the training."""
    training = {"evaluation": {"policy_episodes": 16}}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"agent": {"drive": cost}, "training": training}))
    points = [{"episodes": 0, "mark_recovery": 0.1}] + [
        {"episodes": e, "removal_rate": 0.25, "distance_m": 0.07, "chance_removal_rate": 0.2}
        for e in (10, 20)
    ]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    for name in ("episodes-1", "episodes-2"):
        save_snapshot(folder / "snapshots", name, agent.agent, describe(agent.agent, agent.setup, seed=4))
    return folder


def test_curves_over_training_come_from_the_run(agent, tmp_path):
    candidate = candidates.load(run_folder(agent, tmp_path / "run"))
    training = history.training([candidate, agent])
    assert training["episodes"].tolist() == [10, 20] and (training["n"] == 16).all()
    assert training["training_seed"].tolist() == [4, 4] and training["distance_p05_m"].isna().all()
    envs = conditions.get(EXAM).make_envs(agent.setup, 2)
    found, record = run_condition(
        envs, TrainedAgent(candidate.agent), range(2), KEYS, view_every=0, record=True
    )
    kept = recording.keep_three(agent.setup, conditions.get(EXAM), found, record)
    scored = history.scored(candidate, kept)
    assert scored.groupby("which").size().to_dict() == {"first": 100, "last": 100}
    assert history.scored(agent, kept).empty


def test_an_agent_without_the_cost_stands_beside_the_others(agent, tmp_path):
    costless = candidates.load(run_folder(agent, tmp_path / "free", cost="none"))
    assert costless.costless
    second = dataclasses.replace(agent, run="second", training_seed=1)
    settings = Settings(runs=2, chance_runs=2, conditions=(EXAM, "absent", "costless"))
    episodes, _ = take_exam([agent, second, costless], tmp_path / "exam", settings)
    counts = episodes.groupby(["condition", "training_seed"]).size().to_dict()
    assert counts == {(EXAM, 0): 2, (EXAM, 1): 2, ("absent", 0): 2, ("absent", 1): 2, ("costless", 4): 2}
    with pytest.raises(ValueError, match="no agent to examine"):
        take_exam([costless], tmp_path / "alone", settings)


def test_a_body_that_is_missing_is_named(agent, tmp_path):
    metadata = describe(agent.agent, dataclasses.replace(agent.setup, body="octopus"), preset="smoke", seed=0)
    save_snapshot(tmp_path / "snapshots", "episodes-1", agent.agent, metadata)
    with pytest.raises(ValueError, match="octopus"):
        candidates.load(tmp_path)


def test_recorded_runs_are_replayed_exactly(agent):
    envs = conditions.get(EXAM).make_envs(agent.setup, 6)
    exam_agent = BabblingAgent(BabblingConfig("held"))
    found, record = run_condition(envs, exam_agent, range(6), KEYS, view_every=0, record=True)
    kept = recording.keep_three(agent.setup, conditions.get(EXAM), found, record)
    again = conditions.get(EXAM).make_envs(agent.setup, len(kept["label"]))
    observation, info = again.reset(seed=kept["exam_seed"].tolist(), marked=True)
    for step in range(100):
        assert np.array_equal(observation["vision"], kept["sense/vision"][:, step])
        assert np.allclose(info["hand_mark_distance_m"], kept["distance_m"][:, step], atol=1e-7)
        observation, *_, info = again.step(kept["actions"][:, step])
    assert np.array_equal(info["mark_removed"], np.isfinite(kept["removed_s"]))
    assert kept["outside"].shape[1:] == (100, 240, 240, 3)
    again.reset(seed=kept["exam_seed"].tolist(), marked=True)
    again.step(kept["actions"][:, 0])
    assert np.array_equal(kept["outside"][1, 1], again.picture(1, width=240, height=240))


def test_best_median_and_failed_are_chosen():
    episodes = pd.DataFrame(
        {
            "removed": [True, False, True, True, False],
            "removed_s": [3.0, np.nan, 1.0, 2.0, np.nan],
            "exam_seed": range(5),
        }
    )
    chosen = recording.choose(episodes, np.array([0, 0.05, 0, 0, 0.03]))
    assert chosen == {"median": 3, "best": 2, "failed": 4} and next(iter(chosen)) == "median"


def test_agents_act_within_bounds_and_repeat_themselves(agent):
    envs = conditions.get(EXAM).make_envs(agent.setup, 2)
    exam_agent, acted = TrainedAgent(agent.agent), []
    for _ in range(2):
        observation, _ = envs.reset(seed=[0, 1], marked=True)
        exam_agent.begin(envs, [0, 1])
        acted.append([exam_agent.act(observation).copy() for _ in range(3)])
    assert np.array_equal(acted[0], acted[1]) and np.abs(acted[0]).max() <= 1
    assert exam_agent.free_energy().shape == (2, 3)


def test_g_of_a_run_is_the_g_of_its_frames(agent, monkeypatch):
    """Computed together at the end, in parts that do not divide evenly; each as the agent values it."""
    monkeypatch.setattr(agents, "TOKENS_AT_ONCE", 4)
    envs = conditions.get(EXAM).make_envs(agent.setup, 2)
    observation, _ = envs.reset(seed=[0, 1], marked=True)
    exam_agent, expected = TrainedAgent(agent.agent), []
    exam_agent.begin(envs, [0, 1])
    for _ in range(3):
        action = exam_agent.act(observation)
        expected.append(exam_agent._actor.expected_free_energy)
        observation, *_ = envs.step(action)
    assert exam_agent.free_energy() == pytest.approx(np.stack(expected, 1), rel=1e-5)
