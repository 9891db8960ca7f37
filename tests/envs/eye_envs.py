"""States and models that the tests of the eye share."""

from typing import NamedTuple

import mujoco
import numpy as np

from mirrormark.envs import bodies
from mirrormark.envs.raycaster.eye import PRESENT, Camera, Eye, Marks, Panes, camera_of, no_marks, panes_of
from mirrormark.envs.scene import Scene, build

GREEN = (0.05, 0.85, 0.15)


class Poses(NamedTuple):
    """Arguments of `Eye.look`."""

    xpos: np.ndarray
    xmat: np.ndarray
    mirror_xpos: np.ndarray
    mirror_xmat: np.ndarray
    panes: Panes
    marks: Marks

    def only(self, w: int) -> "Poses":
        one = slice(w, w + 1)
        panes, marks = Panes(*(f[one] for f in self.panes)), Marks(*(f[one] for f in self.marks))
        return Poses(*(f[one] for f in self[:4]), panes, marks)


def random_qpos(scene: Scene, n: int, seed: int = 0) -> np.ndarray:
    """Joint angles, each uniform in its range."""
    rng = np.random.default_rng(seed)
    qpos = np.tile(scene.rest_qpos, (n, 1))
    qpos[:, scene.qpos_adr] = rng.uniform(*scene.range_rad.T, (n, len(scene.joints)))
    return qpos


def body_poses(model: mujoco.MjModel, qpos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By MuJoCo, one state at a time."""
    data = mujoco.MjData(model)
    xpos, xmat = np.empty((len(qpos), model.nbody, 3)), np.empty((len(qpos), model.nbody, 3, 3))
    for w, q in enumerate(qpos):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        xpos[w], xmat[w] = data.xpos, data.xmat.reshape(-1, 3, 3)
    return xpos, xmat


def random_marks(scene: Scene, n: int, seed: int = 0) -> tuple[Marks, list[str]]:
    """Marks on the forward half of the surfaces, shown; and the surfaces' names."""
    rng = np.random.default_rng(seed)
    body, pos, mat, names = [], [], [], []
    for w in range(n):
        surface = scene.surfaces[w % len(scene.surfaces)]
        ball = rng.normal(size=3) + (1.0, 0.0, 0.0)
        ball /= np.linalg.norm(ball)
        normal = surface.mat @ (ball / surface.size_m)
        normal /= np.linalg.norm(normal)
        quat, turn = np.empty(4), np.empty(9)
        mujoco.mju_quatZ2Vec(quat, normal)
        mujoco.mju_quat2Mat(turn, quat)
        body.append(surface.body_id)
        pos.append(surface.pos_m + surface.mat @ (ball * surface.size_m) + 0.0015 * normal)
        mat.append(turn.reshape(3, 3))
        names.append(surface.geom)
    colour, shown = np.tile(np.array(GREEN, np.float32), (n, 1)), np.ones(n, bool)
    radius = np.full(n, 0.02)
    return Marks(np.array(body), np.array(pos), np.array(mat), radius, colour, shown, shown.copy()), names


def random_envs(name: str, n: int, seed: int = 0) -> tuple[Scene, Poses]:
    """A body in n random postures, each with a mark."""
    scene = build(bodies.get(name))
    xpos, xmat = body_poses(scene.model, random_qpos(scene, n, seed))
    marks, _ = random_marks(scene, n, seed)
    return scene, Poses(xpos, xmat, xpos, xmat, panes_of(scene.model, n), marks)


def own_eye(scene: Scene, width: int = 64, height: int = 64, **options) -> Eye:
    return Eye(scene.model, camera_of(scene.model, scene.body.eye_camera), width, height, **options)


FORWARD_CAMERA = Camera(0, np.zeros(3), np.array([[0.0, 0, -1], [-1, 0, 0], [0, 1, 0]]), np.pi / 2)
"""At the origin, looks along x with z up: u is -y / x and v is z / x, each from -1 to 1."""


def toy(geoms: str, pane_axes: str = "0 -1 0 0 0 1") -> mujoco.MjModel:
    """A square pane through (1, 0, 0), by default facing the origin, and some geoms in the environment."""
    return mujoco.MjModel.from_xml_string(f"""<mujoco>
      <visual><map znear=".01" zfar="10"/><headlight ambient=".5 .5 .5" diffuse="0 0 0"/></visual>
      <statistic extent="1"/>
      <worldbody>
        <light dir="1 0 0" diffuse=".5 .5 .5" directional="true"/>
        <geom name="mirror" type="box" size=".8 .8 .003" pos="1 0 0" xyaxes="{pane_axes}" rgba="0 0 0 1"/>
        {geoms}
      </worldbody></mujoco>""")


def toy_poses(model: mujoco.MjModel, marks: Marks | None = None, kind: int = PRESENT) -> Poses:
    """One environment of a toy: its pane is centred on (1, 0, 0)."""
    xpos, xmat = body_poses(model, np.zeros((1, model.nq)))
    panes = panes_of(model, 1, kind)._replace(centre=np.array([[1.0, 0.0, 0.0]]))
    return Poses(xpos, xmat, xpos, xmat, panes, no_marks(1) if marks is None else marks)
