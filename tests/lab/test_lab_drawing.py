"""What the lab draws: the body's instances, the reflection on the pane, the agent's pictures; and its
pace."""

import socket
import threading
import time

import numpy as np
import pytest
import torch

from mirrormark.lab.command import free_port
from mirrormark.lab.session import Agents, GCurve, Session

pytest.importorskip("viser", reason="the lab's page needs viser (pip install 'mirrormark[lab]')")
from mirrormark.lab.shapes import instances_of, unit_meshes
from mirrormark.lab.threads import AgentPictures, Pace, Pictures, within
from mirrormark.lab.view import TEXELS, PaneEye, in_front
from mirrormark.training.rollout import encode

SPHERES = ("bead", "ball", "globe")
VIEWER = np.array([-0.42, -0.22, 0.40])


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(Agents(preset="smoke", shipped=lambda body: None), "infant")
    skull = session.world.envs.scene.model.body("skull").id
    brow = session.world.envs.xpos[0, skull] + session.world.envs.xmat[0, skull] @ np.array(
        [0.06, 0.02, 0.045]
    )
    assert session.click(brow + np.array([0.05, 0.0, 0.0]), (-1.0, 0.0, 0.0)).done
    return session


@pytest.mark.parametrize("body", ["infant", "arm"])
def test_instances_lie_where_mujoco_has_the_geoms(body: str):
    import mujoco

    session = Session(Agents(preset="smoke", shipped=lambda body: None), body)
    model = session.world.envs.scene.model
    data = mujoco.MjData(model)
    data.qpos[:] = session.world.seen.qpos[0]
    mujoco.mj_kinematics(model, data)
    parts = instances_of(model)
    scale = np.concatenate([parts[mesh].scale for mesh in SPHERES if mesh in parts])
    placed = [
        parts[mesh].placed(session.world.envs.xpos[0], session.world.envs.xmat[0])
        for mesh in SPHERES
        if mesh in parts
    ]
    pos, quat = (np.concatenate(part) for part in zip(*placed))
    drawn = [g for g in range(model.ngeom) if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_ELLIPSOID]
    drawn = [g for g in drawn if model.geom_group[g] < 3]
    assert len(drawn) > 1
    for g in drawn:
        nearest = np.linalg.norm(pos - data.geom_xpos[g], axis=1) + 10 * np.abs(
            scale - model.geom_size[g]
        ).sum(1)
        k = int(nearest.argmin())
        assert nearest[k] < 1e-9, model.geom(g).name
        turned = np.empty(9)
        mujoco.mju_quat2Mat(turned, quat[k])
        assert np.allclose(turned.reshape(3, 3), data.geom_xmat[g].reshape(3, 3), atol=1e-9)


def test_unit_meshes_are_closed_outward_and_of_size_one():
    for name, (vertices, faces) in unit_meshes().items():
        assert np.abs(vertices).max() == pytest.approx(1.0), name
        a, b, c = (vertices[faces[:, k]] for k in range(3))
        outward = np.einsum("ni,ni->n", np.cross(b - a, c - a), a + b + c)
        assert (outward > 0).all(), name


def test_the_pane_shows_the_mark_where_a_mirror_would(session: Session):
    scene, sim_state = session.world.envs.scene, session.world.seen
    picture = PaneEye(scene, VIEWER).picture(sim_state).astype(int)
    assert picture.shape == (*TEXELS, 3)
    green = (picture[..., 1] > picture[..., 0] + 60) & (picture[..., 1] > picture[..., 2] + 60)
    assert green.sum() > 50
    found = np.argwhere(green).mean(0)
    pane, body = scene.pane, int(sim_state.marks.body[0])
    mark = sim_state.xpos[0, body] + sim_state.xmat[0, body] @ sim_state.marks.pos[0]
    normal = pane.mat[:, 2]
    image = mark - 2 * ((mark - pane.centre) @ normal) * normal
    along = (pane.centre - VIEWER) @ normal / ((image - VIEWER) @ normal)
    across, up = (VIEWER + along * (image - VIEWER) - pane.centre) @ pane.mat[:, :2] / pane.half
    expected = np.array([(1 - up) / 2 * TEXELS[0], (1 + across) / 2 * TEXELS[1]])
    assert np.abs(found - expected).max() < 6  # texels; the disc is seen at a slant and may be half hidden


def test_only_viewers_before_the_mirror_see_into_it(session: Session):
    pane = session.world.envs.scene.pane
    assert in_front(pane, VIEWER)
    assert not in_front(pane, pane.centre - 0.3 * pane.mat[:, 2])


def test_the_three_pictures_are_of_one_instant(session: Session):
    session.step()
    snapshot = session.snapshot()
    shown = Pictures.of(snapshot)
    assert shown.eye is snapshot.picture and shown.t_s == snapshot.t_s
    for picture in shown[1:]:
        assert picture.shape == (64, 64, 3) and picture.dtype == np.uint8
    agent = snapshot.agent
    with torch.no_grad():
        tokens = encode(agent, snapshot.observation, sample=False)
        decoded = agent.decode(tokens)["vision"][0]
    assert shown.reconstruction is not None
    assert np.abs(shown.reconstruction / 255 - 0.5 - decoded.numpy().clip(-0.5, 0.5)).max() < 0.003


def test_while_paused_the_pictures_follow_every_change(session: Session):
    pictures = AgentPictures(session)
    pictures.start()
    try:
        session.stick_in_sight(1)
        for change in (session.remove, lambda: session.stick_in_sight(0), session.step):
            change()
            end = time.monotonic() + 20
            while pictures.latest.eye is not session.world.picture and time.monotonic() < end:
                time.sleep(0.02)
            assert pictures.latest.eye is session.world.picture
            assert pictures.latest.expectation is not None and pictures.problem is None
    finally:
        pictures.close()


def test_an_agent_without_pixels_has_no_pictures():
    session = Session(Agents(preset="symbolic", shipped=lambda body: None), "infant")
    session.step()
    shown = Pictures.of(session.snapshot())
    assert shown.eye.shape == (64, 64, 3) and shown.eye.std() > 10  # people still see what the eye would
    assert shown.reconstruction is None and shown.expectation is None
    assert session.candidate.setup.ablation


def test_pictures_that_fail_are_reported_and_the_thread_goes_on(session: Session, monkeypatch):
    def fail(snapshot) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(Pictures, "of", fail)
    pictures = AgentPictures(session)
    pictures.start()
    end = time.monotonic() + 20
    while pictures.problem is None and time.monotonic() < end:
        time.sleep(0.02)
    assert pictures.problem == "No pictures of this instant: no more" and pictures.is_alive()
    monkeypatch.undo()
    session.step()
    while pictures.problem and time.monotonic() < end:
        time.sleep(0.02)
    assert pictures.problem is None and pictures.latest.eye is session.world.picture
    pictures.close()


def test_the_simulation_keeps_its_pace_pauses_and_ends(session: Session):
    pace = Pace(session)
    pace.start()
    began = time.perf_counter()
    while pace.steps_per_s == 0 and time.perf_counter() - began < 20:
        time.sleep(0.05)
    pace.pause(True)
    with session.lock:
        at = session.t_s
    time.sleep(0.2)
    assert at > 0 and session.t_s - at <= 0.05 and pace.steps_per_s == 0 and pace.problem is None
    pace.close()
    assert not pace.is_alive()


@pytest.mark.parametrize("speed", [0.0, -1.0, 100.0, float("nan"), float("inf")])
def test_an_impossible_speed_is_refused_and_changes_nothing(session: Session, speed: float):
    pace = Pace(session)
    with pytest.raises(ValueError, match=r"give a number from 0.1 to 4"):
        pace.speed = speed
    assert pace.speed == 1.0


def test_numbers_out_of_limits_are_known():
    assert within(0.2, 0.12, 0.4)
    assert not any(within(value, 0.12, 0.4) for value in (1e308, float("inf"), float("nan"), -1.0))


def test_g_has_a_mean_of_half_a_second_and_a_band_of_what_is_usual():
    steps = [(0.05 * k, 10.0 + k % 2, False) for k in range(60)]
    curve = GCurve.of(steps)
    assert curve.mean[0] == 10 and np.allclose(curve.mean[10:], 10.5)
    assert curve.usual == pytest.approx((10.5, 10.5))
    marked = [(3 + 0.05 * k, 100.0, True) for k in range(20)]
    assert GCurve.of(steps + marked).usual == pytest.approx((10.5, 10.5))  # marked steps are no part of it
    assert GCurve.of(steps + marked).mean[-1] == pytest.approx(100)
    assert GCurve.of(steps[:30]).usual is None and len(GCurve.of([]).t_s) == 0


def test_a_simulation_that_breaks_says_so(session: Session, monkeypatch: pytest.MonkeyPatch):
    def fail() -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(session, "step", fail)
    pace = Pace(session)
    pace.start()
    for _ in range(100):
        if pace.problem:
            break
        time.sleep(0.02)
    assert pace.problem == "The simulation stopped: no more" and pace.paused
    pace.close()


def test_the_simulation_rests_while_no_tab_is_open(session: Session):
    watched = threading.Event()
    pace, before = Pace(session, wanted=watched.is_set), session.t_s
    pace.start()
    time.sleep(0.2)
    assert session.t_s == before
    watched.set()
    end = time.monotonic() + 20
    while session.t_s == before and time.monotonic() < end:
        time.sleep(0.02)
    pace.close()
    assert session.t_s > before


def test_a_busy_port_gives_the_next_free_one():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < free_port("127.0.0.1", port) < port + 100
    with pytest.raises(ValueError, match="65535"):
        free_port("127.0.0.1", 70000)
    with pytest.raises(ValueError, match="unknown here"):
        free_port("no-such-host.invalid", 8080)


def test_the_shipped_size_runs_at_twenty_control_steps_a_second():
    """Processor time of one core, so that other programs on the machine do not decide the test."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    session = Session(Agents(preset="swift", shipped=lambda body: None), "infant")
    for _ in range(5):
        session.step()
    began = time.thread_time()
    for _ in range(20):
        session.step()
    per_step_s = (time.thread_time() - began) / 20
    torch.set_num_threads(threads)
    print(f"{1000 * per_step_s:.1f} ms of one core a control step")
    assert per_step_s < 0.05
