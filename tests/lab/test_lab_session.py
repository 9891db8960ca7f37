"""The lab without a page: what a click, a switch and a step of training do."""

from dataclasses import replace
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pandas as pd
import pytest
import torch

from mirrormark.exam.oracle import Oracle
from mirrormark.lab.session import MOVERS, POLICY, SHIPPED, UNTRAINED, Agents, Session
from mirrormark.training.weights import describe, save_snapshot

FOREHEAD = np.array([0.06, 0.02, 0.045])
"""A place on the infant's brow, in the frame of its skull."""


@pytest.fixture(scope="module")
def agents() -> Agents:
    return Agents(preset="smoke", shipped=lambda body: None)


@pytest.fixture
def session(agents: Agents) -> Session:
    return Session(agents, "infant")


def in_world(session: Session, body: str, local: np.ndarray) -> np.ndarray:
    """A point of a body's frame, where it is now."""
    b = session.world.envs.scene.model.body(body).id
    return session.world.envs.xpos[0, b] + session.world.envs.xmat[0, b] @ local


def click_on(session: Session, target: np.ndarray, towards: np.ndarray):
    """Click with a ray that comes from 10 cm before the target."""
    towards = towards / np.linalg.norm(towards)
    return session.click(target - 0.1 * towards, towards)


def click_brow(session: Session):
    return click_on(session, in_world(session, "skull", FOREHEAD), np.array([-1.0, 0.0, 0.0]))


def greens(picture: np.ndarray) -> int:
    red, green, blue = picture.astype(int).transpose(2, 0, 1)
    return int(((green > red + 60) & (green > blue + 60)).sum())


def test_a_click_sticks_a_mark_that_the_eye_sees_and_a_second_click_takes_it_off(session: Session):
    assert not session.world.mark_on and session.world.mark_px == 0 and greens(session.world.picture) == 0
    answer = click_brow(session)
    assert answer.done and "head" in answer.text
    assert session.world.mark_on and session.world.mark_px > 0
    assert abs(greens(session.world.picture) - session.world.mark_px) <= 2
    assert click_brow(session).text == "You took the mark off."
    assert not session.world.mark_on and greens(session.world.picture) == 0
    assert (session.counts.stuck, session.counts.by_person, session.counts.by_itself) == (1, 1, 0)
    assert not session.remove().done


def test_the_mark_lies_where_the_ray_met_the_skin(session: Session):
    target = in_world(session, "skull", FOREHEAD)
    click_on(session, target, np.array([-1.0, 0.0, 0.0]))
    centre = in_world(session, "skull", session.world.envs.mark_state.pos[0])
    assert np.linalg.norm((centre - target)[1:]) < 0.002  # across the ray; along it the skin decides


def test_a_click_into_the_mirror_finds_the_face_it_shows(session: Session):
    pane, target = (
        session.world.envs.scene.pane,
        in_world(session, "skull", np.array([0.062, 0.025, 0.035])),
    )
    normal = pane.mat[:, 2]
    viewer = np.array([-0.42, -0.22, 0.40])
    image = target - 2 * ((target - pane.centre) @ normal) * normal
    assert session.click(viewer, image - viewer).done
    centre = in_world(session, "skull", session.world.envs.mark_state.pos[0])
    assert np.linalg.norm(centre - target) < 0.008


@pytest.mark.parametrize(
    ("body", "local", "word"),
    [
        ("skull", np.array([0.078, -0.028, -0.004]), "eye that sees"),
        ("r_hand", np.array([0.0, 0.0, -0.04]), "right hand"),
    ],
)
def test_marks_are_refused_over_the_seeing_eye_and_on_hands(session: Session, body, local, word):
    target = in_world(session, body, local)
    answer = session.click(target + np.array([0.06, 0.0, 0.0]), (-1.0, 0.0, 0.0))
    assert not answer.done and word in answer.text
    assert not session.world.mark_on and session.counts.stuck == 0


def test_clicks_beside_the_body_and_at_the_back_of_the_mirror_do_nothing(session: Session):
    assert "Nothing there" in session.click((0.0, -0.8, 0.7), (0.0, 1.0, 0.0)).text
    assert "mirror is in the way" in session.click((0.8, 0.0, 0.1), (-1.0, 0.0, 0.0)).text
    assert not session.click((0.0, 0.0, 1.0), (0.0, 0.0, 0.0)).done
    assert not session.world.mark_on


def test_a_mark_that_the_eye_cannot_see_says_so(session: Session):
    behind = in_world(session, "skull", np.array([-0.1, 0.0, 0.02]))
    answer = session.click(behind - np.array([0.1, 0.0, 0.0]), (1.0, 0.0, 0.0))
    assert answer.done and "cannot see it" in answer.text and "Mark its" in answer.text
    assert session.world.mark_on and session.world.mark_px == 0


@pytest.mark.parametrize(
    ("body", "surface", "word"), [("infant", 0, "head"), ("infant", 1, "chest"), ("arm", 1, "torso")]
)
def test_a_mark_is_put_where_the_eye_sees_it(session: Session, body: str, surface: int, word: str):
    session.set_body(body)
    answer = session.stick_in_sight(surface)
    assert answer.done and f"on the {word}: the eye sees it" in answer.text
    assert session.world.mark_px > 5 and session.counts.stuck == 1
    if (body, surface) == ("infant", 0):
        assert session.world.envs.mark_state.pos[0, 2] > session.world.envs.scene.eye_pos_m[2]


def test_counts_are_of_one_body(session: Session):
    session.stick_in_sight(1)
    session.remove()
    session.set_body("arm")
    assert session.counts.stuck == session.counts.by_person == 0


def test_without_a_mirror_the_mark_is_on_but_not_seen(session: Session):
    click_brow(session)
    for kind in ("absent", "covered"):
        session.set_mirror(replace(session.world.mirror, kind=kind))
        assert session.world.mark_on and session.world.mark_px == 0 and greens(session.world.picture) == 0
    session.set_mirror(replace(session.world.mirror, kind="present"))
    assert session.world.mark_px > 0


def test_a_delayed_mirror_shows_the_mark_after_its_delay(session: Session):
    session.set_mirror(replace(session.world.mirror, kind="delayed", delay_control_steps=4))
    for _ in range(6):
        session.step()
    assert "0.2 s" in click_brow(session).text
    seen = []
    for _ in range(5):
        seen.append(session.world.mark_px > 0)
        session.step()
    assert seen == [False] * 4 + [True]


def test_moving_the_mirror_keeps_posture_and_mark(session: Session):
    click_brow(session)
    before = session.world.envs.physics.qpos(session.world.envs.state).copy()
    session.set_mirror(replace(session.world.mirror, distance_m=0.3, yaw_rad=0.1))
    assert np.array_equal(session.world.envs.physics.qpos(session.world.envs.state), before)
    assert session.world.mark_on and session.world.envs.scene.pane.centre[0] > 0.35
    session.step()


def test_an_impossible_mirror_is_refused_and_changes_nothing(session: Session):
    before, picture = session.world.mirror, session.world.picture.copy()
    with pytest.raises(ValueError, match="raise mirror distance_m"):
        session.set_mirror(replace(before, distance_m=0.01))
    assert session.world.mirror == before and np.array_equal(session.world.picture, picture)
    session.step()


def test_what_the_body_takes_off_itself_is_counted(session: Session, monkeypatch: pytest.MonkeyPatch):
    click_brow(session)
    oracle = Oracle(session.world.envs)
    oracle.begin()
    monkeypatch.setattr(session, "_decide", lambda: (0.0, oracle.act(session.world.observation)))
    for _ in range(200):
        session.step()
        if session.counts.by_itself:
            break
    assert session.counts.by_itself == 1 and not session.world.mark_on
    assert session.counts.last_s == pytest.approx(session.t_s) and "hand" in session.counts.last_hand


def test_every_mover_moves_and_g_is_known_for_each_step(session: Session):
    for mover in MOVERS:
        session.set_mover(mover)
        before = session.world.envs.xpos.copy()
        session.step()
        assert not np.array_equal(session.world.envs.xpos, before), mover
    assert len(session.curve) == len(MOVERS) and np.isfinite([g for _, g, _ in session.curve]).all()
    with pytest.raises(ValueError, match="choose its policy"):
        session.set_mover("magic")


def test_equal_seeds_give_equal_runs(agents: Agents):
    trainers = []
    for _ in range(2):
        torch.manual_seed(0)  # the posterior is sampled
        session = Session(agents, "infant", seed=5)
        for _ in range(3):
            session.step()
        trainers.append(session.world.envs.state.copy())
    assert np.array_equal(*trainers)


def test_reset_takes_the_seed_or_the_next(session: Session):
    first = session.world.envs.xpos.copy()
    session.reset()
    assert session.seed == 1 and not np.array_equal(session.world.envs.xpos, first)
    session.reset(0)
    assert np.array_equal(session.world.envs.xpos, first)
    for seed in (-1, 10**20, 1e300):
        with pytest.raises(ValueError, match="from 0 to 2147483647"):
            session.reset(seed)  # pyright: ignore[reportArgumentType]
    assert session.seed == 0


def test_the_arm_runs_too(session: Session):
    session.set_body("arm")
    session.step()
    assert session.agent_name == UNTRAINED and session.world.envs.actions == 6
    b = session.world.envs.scene.surfaces[0].body_id
    target = session.world.envs.xpos[0, b] + np.array([0.06, 0.04, 0.15])
    assert session.click(target + np.array([0.05, 0.0, 0.0]), (-1.0, 0.0, 0.0)).done


def test_agents_come_from_the_command_line_and_never_from_the_page(tmp_path: Path, agents: Agents):
    candidate = agents.get(UNTRAINED, "infant")
    metadata = describe(candidate.agent, candidate.setup, seed=3)
    place = save_snapshot(tmp_path / "grown" / "snapshots", "step-1", candidate.agent, metadata)
    offered = Agents([place], preset="smoke", shipped=lambda body: None)
    assert offered.names("infant") == ("snapshots@step-1", UNTRAINED)
    assert offered.names("arm") == (UNTRAINED,) and offered.first_body == "infant"
    session = Session(offered)
    assert session.agent_name == "snapshots@step-1" and session.mover == POLICY
    with pytest.raises(ValueError, match="does not fit the infant"):
        session.set_agent(str(place))
    session.set_agent(UNTRAINED)
    session.step()


def test_shipped_agents_are_found_and_loaded_when_asked_for(tmp_path: Path, agents: Agents):
    candidate = agents.get(UNTRAINED, "arm")
    place = save_snapshot(
        tmp_path, "arm", candidate.agent, describe(candidate.agent, candidate.setup, seed=6)
    )
    offered = Agents(preset="smoke", shipped=lambda body: place if body == "arm" else None)
    assert offered.names("arm") == (SHIPPED, UNTRAINED) and offered.names("infant") == (UNTRAINED,)
    assert offered.first_body == "arm" and agents.first_body == "infant"
    assert offered.get(SHIPPED, "arm").training_seed == 6
    assert offered.get(SHIPPED, "arm") is offered.get(SHIPPED, "arm")


def test_a_recording_is_a_film_and_a_table(session: Session, tmp_path: Path):
    session.recorder.start()
    click_brow(session)
    for _ in range(3):
        session.step()
    session.remove()
    session.step()
    film, table = session.recorder.stop().write(tmp_path, "take")
    rows = pd.read_parquet(table)
    assert rows["mark_on"].tolist() == [True, True, True, False]
    assert np.isfinite(rows["expected_free_energy_nats"]).all() and not rows["removed_by_itself"].any()
    joints = [joint.name for joint in session.world.envs.scene.joints]
    assert rows[[f"action_{name}" for name in joints]].abs().to_numpy().max() <= 1
    frames = iio.imread(film)
    assert frames.shape == (4, 384, 768, 3)
    marked = frames[..., 384:, :].astype(int)
    green = ((marked[..., 1] > marked[..., 0] + 60) & (marked[..., 1] > marked[..., 2] + 60)).sum((1, 2))
    assert (green[:3] > 0).all() and green[3] == 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    with pytest.raises(ValueError, match="nothing was recorded"):
        session.recorder.stop()


def test_a_recording_ends_with_its_body_and_its_start(session: Session):
    for change in (lambda: session.set_body("arm"), session.reset):
        session.recorder.start()
        session.step()
        change()
        session.step()
        assert not session.recorder.running and len(session.recorder) == 1
        session.recorder.stop()
