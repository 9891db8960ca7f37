"""What the lab draws: the body's instances, the reflection on the pane, the agent's pictures; and its
pace."""

import socket
import threading
import time

import numpy as np
import pytest
import torch

from mirrormark.lab.agents import Agents
from mirrormark.lab.command import free_port
from mirrormark.lab.pace import Pace
from mirrormark.lab.session import Session

pytest.importorskip("viser", reason="the lab's page needs viser (pip install 'mirrormark[lab]')")
from mirrormark.lab.agent_view import Thinker, expect, reconstruct
from mirrormark.lab.reflection import TEXELS, PaneEye, in_front
from mirrormark.lab.shapes import instances_of, unit_meshes

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


def test_the_agent_is_shown_as_it_is(session: Session):
    session.step()
    agent, look = session.candidate.agent, session.look()
    assert look.tokens is not None
    seen, expected = reconstruct(agent, look.tokens), expect(agent, look.observation)
    for picture in (seen, expected):
        assert picture is not None and picture.shape == (64, 64, 3) and picture.dtype == np.uint8
    decoded = agent.decode(look.tokens)["vision"][0]
    assert np.abs(seen / 255 - 0.5 - decoded.numpy().clip(-0.5, 0.5)).max() < 0.003


def test_a_agent_without_pixels_has_no_pictures():
    session = Session(Agents(preset="symbolic", shipped=lambda body: None), "infant")
    session.step()
    look, agent = session.look(), session.candidate.agent
    assert (
        look.picture.shape == (64, 64, 3) and look.picture.std() > 10
    )  # people still see what the eye would
    assert reconstruct(agent, look.tokens) is None and expect(agent, look.observation) is None
    assert session.candidate.setup.ablation


def test_life_goes_at_its_pace_pauses_and_ends(session: Session):
    pace, thinker = Pace(session), Thinker(session)
    pace.start()
    thinker.start()
    began = time.perf_counter()
    while (
        pace.steps_per_s == 0 or thinker.thoughts.expectation is None
    ) and time.perf_counter() - began < 20:
        time.sleep(0.05)
    pace.pause(True)
    with session.lock:
        at = session.t_s
    time.sleep(0.2)
    assert at > 0 and session.t_s - at <= 0.05 and pace.steps_per_s == 0 and pace.problem is None
    assert thinker.thoughts.reconstruction is not None and thinker.thoughts.expectation is not None
    pace.close()
    thinker.close()
    assert not pace.is_alive() and not thinker.is_alive()


def test_life_that_breaks_says_so(session: Session, monkeypatch: pytest.MonkeyPatch):
    def fail() -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(session, "step", fail)
    pace = Pace(session)
    pace.start()
    for _ in range(100):
        if pace.problem:
            break
        time.sleep(0.02)
    assert pace.problem == "Life stopped: no more" and pace.paused
    pace.close()


def test_life_rests_while_nobody_looks(session: Session):
    looked_at = threading.Event()
    pace, before = Pace(session, wanted=looked_at.is_set), session.t_s
    pace.start()
    time.sleep(0.2)
    assert session.t_s == before
    looked_at.set()
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


def test_the_shipped_size_lives_at_twenty_control_steps_a_second():
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
