"""The compiled bodies against the tables they were built from."""

import copy
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from mirrormark.envs import bodies, scene
from mirrormark.envs.mark import MarkConfig, Site, draw_site

ARM_JOINTS = ("elv_angle", "shoulder_elv", "shoulder_rot", "elbow_flexion", "pro_sup")
INFANT_ORDER = ("neck_pitch", "neck_yaw", *(f"{side}_{name}" for side in "rl" for name in ARM_JOINTS))
TABLE_I_RAD = {
    "neck_pitch": (-0.30, 0.10),
    "neck_yaw": (-0.30, 0.30),
    "elv_angle": (-0.87, 2.09),
    "shoulder_elv": (0.17, 2.70),
    "shoulder_rot": (-0.87, 0.79),
    "elbow_flexion": (0.0, 2.27),
    "pro_sup": (-1.57, 1.57),
}
DAMPING_ARMATURE = {
    "neck_pitch": (0.6, 0.010),
    "neck_yaw": (0.6, 0.010),
    "elv_angle": (0.60, 0.010),
    "shoulder_elv": (0.60, 0.010),
    "shoulder_rot": (0.60, 0.010),
    "elbow_flexion": (0.45, 0.006),
    "pro_sup": (0.30, 0.004),
}
HALF_SIZES_M = {
    "chest": (0.062, 0.088, 0.105),
    "belly": (0.066, 0.084, 0.085),
    "pelvis": (0.075, 0.090, 0.065),
    "head_geom": (0.076, 0.071, 0.079),
    "r_upper_geom": (0.025, 0.0575),
    "l_fore_geom": (0.021, 0.041),
    "l_elbow_geom": (0.0245,),
    "r_hand_geom": (0.028, 0.016, 0.046),
}
MASS_KG = {"trunk": 5.7, "skull": 1.9, "r_upper": 0.30, "l_fore": 0.19, "r_hand": 0.10}
FLEXOR = {
    "elv_angle": (0.7, 1.0),
    "shoulder_elv": (0.7, 1.1),
    "shoulder_rot": (1.0, -0.4),
    "elbow_flexion": (0.8, 2.1),
    "pro_sup": (0.6, 0.0),
}


def _plain(joint: str) -> str:
    return joint.removeprefix("r_").removeprefix("l_")


def _infant(tone: str | None = None, tone_scale: float = 1.0) -> scene.Scene:
    return scene.build(bodies.get("infant"), tone=tone, tone_scale=tone_scale)


def test_infant_joints_and_motors_are_table_one() -> None:
    built = _infant("limp")
    model = built.model
    assert tuple(j.name for j in built.joints) == INFANT_ORDER
    assert tuple(model.actuator(a).name for a in range(model.nu)) == INFANT_ORDER
    assert (model.opt.timestep, tuple(model.opt.gravity)) == (0.01, (0, 0, 0))
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for a, name in enumerate(INFANT_ORDER):
        joint, motor = model.joint(name), model.actuator(name)
        damping, armature = DAMPING_ARMATURE[_plain(name)]
        assert tuple(joint.range) == TABLE_I_RAD[_plain(name)]
        assert (joint.damping[0], joint.armature[0]) == (damping, armature)
        assert motor.trnid[0] == joint.id and motor.gear[0] == 1.0 and tuple(motor.ctrlrange) == (-1, 1)
        assert built.qpos_adr[a] == joint.qposadr[0] and built.dof_adr[a] == joint.dofadr[0]


def test_infant_segments_have_the_table_s_sizes_and_masses() -> None:
    model = _infant().model
    for name, half in HALF_SIZES_M.items():
        np.testing.assert_allclose(model.geom(name).size[: len(half)], half, err_msg=name)
    for name, mass in MASS_KG.items():
        np.testing.assert_allclose(model.body(name).mass, mass, err_msg=name)
    assert model.body_mass.sum() == pytest.approx(5.7 + 1.9 + 2 * (0.30 + 0.19 + 0.10))


@pytest.mark.parametrize("tone_scale", [1.0, 0.5])
def test_flexor_tone_scales_the_arms_only(tone_scale: float) -> None:
    built = _infant("flexor", tone_scale)
    for name in INFANT_ORDER:
        joint = built.model.joint(name)
        if name.startswith("neck"):
            assert (joint.stiffness[0], joint.damping[0], joint.qpos_spring[0]) == (3.3, 1.5, 0.0)
        else:
            stiffness, rest_rad = FLEXOR[_plain(name)]
            assert (joint.stiffness[0], joint.qpos_spring[0]) == (tone_scale * stiffness, rest_rad)


def test_neck_and_limp_tones() -> None:
    stiffness = {tone: _infant(tone).model.jnt_stiffness for tone in ("neck", "limp")}
    neck = [_infant().model.joint(name).id for name in ("neck_pitch", "neck_yaw")]
    assert not stiffness["limp"].any()
    assert np.flatnonzero(stiffness["neck"]).tolist() == sorted(neck)
    assert _infant("limp").model.joint("neck_yaw").damping[0] == 0.6
    assert bodies.get("infant").tones[0] == "flexor"


def test_infant_arms_mirror_each_other() -> None:
    built = _infant()
    data, rng = mujoco.MjData(built.model), np.random.default_rng(0)
    for _ in range(50):
        arm = rng.uniform(built.range_rad[2:7, 0], built.range_rad[2:7, 1])
        data.qpos[built.qpos_adr] = (0, 0, *arm, *arm)
        mujoco.mj_kinematics(built.model, data)
        right, left = data.geom_xpos[built.hand_geom_ids]
        np.testing.assert_allclose(right, left * (1, -1, 1), atol=1e-12)


def test_infant_collides_as_told() -> None:
    """Hands, forearms, elbows: trunk, head, other arm, mirror. Upper arm: head only."""
    model = _infant().model

    def meet(one: str, two: str) -> bool:
        a, b = model.geom(one), model.geom(two)
        return bool(a.contype[0] & b.conaffinity[0] or b.contype[0] & a.conaffinity[0])

    for part in ("r_hand_geom", "r_fore_geom", "r_elbow_geom"):
        for other in ("chest", "belly", "pelvis", "head_geom", "l_hand_geom", "l_fore_geom", "mirror"):
            assert meet(part, other), (part, other)
        assert not meet(part, "r_upper_geom") and not meet(part, "hair")
    assert meet("r_upper_geom", "head_geom")
    for other in ("chest", "l_hand_geom", "l_upper_geom", "mirror"):
        assert not meet("r_upper_geom", other)
    assert not meet("head_geom", "mirror")


@pytest.mark.parametrize("name", bodies.names())
def test_every_body_keeps_its_promises(name: str) -> None:
    built = scene.build(bodies.get(name))
    body, model = built.body, built.model
    low, high = built.range_rad.T
    assert np.all((low <= body.rest_pose_rad) & (body.rest_pose_rad <= high))
    assert built.joints == body.joints
    data = mujoco.MjData(model)
    data.qpos[:] = built.rest_qpos
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.camera(body.eye_camera).xpos, body.eye_rest_m, atol=1e-9)
    assert data.ncon == 0
    for surface in built.surfaces:
        np.testing.assert_allclose(data.xmat[surface.body_id].reshape(3, 3), np.eye(3), atol=1e-12)
    drawn = model.geom_group == 1
    assert not (model.geom_contype[drawn] | model.geom_conaffinity[drawn]).any()
    assert np.count_nonzero(model.geom_group < 3) <= 56  # every drawn geom costs the eye time
    red, green, blue, _ = model.geom_rgba[model.geom_matid < 0].T
    assert not np.any((green > red + 0.1) & (green > blue + 0.1))


@pytest.mark.parametrize("tone", ["flexor", "neck", "limp"])
def test_infant_stays_finite_and_near_its_ranges_under_random_torques(tone: str) -> None:
    built = _infant(tone)
    data, rng = mujoco.MjData(built.model), np.random.default_rng(0)
    data.qpos[:] = built.rest_qpos
    for _ in range(60):
        data.ctrl[:] = rng.choice([-1.0, 1.0], built.model.nu)
        for _ in range(25):
            mujoco.mj_step(built.model, data)
        angle = data.qpos[built.qpos_adr]
        assert np.all(angle > built.range_rad[:, 0] - 0.1) and np.all(angle < built.range_rad[:, 1] + 0.1)


def _covered(model: mujoco.MjModel, data: mujoco.MjData, point: np.ndarray, geom: int) -> bool:
    local = data.geom_xmat[geom].reshape(3, 3).T @ (point - data.geom_xpos[geom])
    return float(np.sum((local / model.geom_size[geom]) ** 2)) < 1.0


def test_hair_jowls_and_tummy_leave_the_mark_s_skin_bare() -> None:
    built = _infant()
    model, data, rng = built.model, mujoco.MjData(built.model), np.random.default_rng(0)
    data.qpos[:] = built.rest_qpos
    mujoco.mj_kinematics(model, data)
    over = [model.geom(name).id for name in ("hair", "jowls", "tummy")]
    for _ in range(500):
        site = draw_site(built, MarkConfig(), rng)
        point = data.xpos[site.body] + site.pos
        assert not any(_covered(model, data, point, geom) for geom in over)


def _solve_reach(
    built: scene.Scene, data: mujoco.MjData, model: mujoco.MjModel, site: Site, start: np.ndarray
) -> None:
    """Damped least squares on the point of the tip that faces the mark; leaves the posture in data."""
    hand, jacobian = built.hand_geom_ids[0], np.zeros((3, model.nv))
    data.qpos[built.qpos_adr] = start
    for _ in range(60):
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        towards = data.geom_xmat[hand].reshape(3, 3).T @ -site.mat[:, 2]
        half = model.geom_size[hand]
        support = half**2 * towards / np.linalg.norm(half * towards)
        tip = data.geom_xpos[hand] + data.geom_xmat[hand].reshape(3, 3) @ support
        error = site.pos + 0.004 * site.mat[:, 2] - tip
        mujoco.mj_jac(model, data, jacobian, None, tip, model.geom_bodyid[hand])
        step = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + 1e-4 * np.eye(3), error)
        angle = data.qpos[built.qpos_adr] + np.clip(step[built.dof_adr], -0.3, 0.3)
        data.qpos[built.qpos_adr] = np.clip(angle, *built.range_rad.T)


def test_the_arm_reaches_every_site() -> None:
    built = scene.build(bodies.get("arm"))
    model, rng = copy.deepcopy(built.model), np.random.default_rng(0)
    data, hand = mujoco.MjData(model), built.hand_geom_ids[0]
    for _ in range(200):
        site = draw_site(built, MarkConfig(), rng)
        name = built.surfaces[site.surface].geom
        scene.place_mark_for_gl(model, name, site.pos, site.mat[:, 2])
        nearest, start = np.inf, np.array(built.body.rest_pose_rad)
        for _ in range(60):
            _solve_reach(built, data, model, site, start)
            mujoco.mj_forward(model, data)
            if all(contact.dist > -0.003 for contact in data.contact):
                mark = model.geom(f"mark_{name}").id
                nearest = min(nearest, mujoco.mj_geomDistance(model, data, hand, mark, 1.0, None))
            if nearest < 0.02:
                break
            start = rng.uniform(*built.range_rad.T)
        assert nearest < 0.02, (name, site.pos)


def test_unknown_and_taken_names() -> None:
    assert {"infant", "arm"} <= set(bodies.names())
    with pytest.raises(ValueError, match=r"body 'cat' is unknown: use one of arm, infant"):
        bodies.get("cat")
    with pytest.raises(ValueError, match="is taken"):
        bodies.register(replace(bodies.get("arm"), eye_keepout_m=1.0))
