"""Our forward kinematics against MuJoCo's."""

import mujoco
import numpy as np
import pytest

from mirrormark.envs import bodies, physics, scene

ODD_TREE = """<mujoco><compiler angle="radian"/><worldbody>
  <body pos=".1 -.2 .3" euler=".3 -.5 .9">
    <geom size=".1"/>
    <body pos=".2 .1 0" quat=".8 .1 -.5 .3">
      <joint axis="1 2 -1" pos=".05 -.02 .1"/><joint axis="0 1 0" pos="-.1 0 .03" ref=".4"/><geom size=".1"/>
      <body pos="0 .3 0">
        <geom size=".05"/>
        <body pos=".1 0 0" euler="0 1 0"><joint axis="0 .3 1"/><geom size=".1"/></body>
      </body>
    </body>
    <body pos="-.2 0 .1"><joint axis="1 0 0" pos="0 0 .2"/><geom size=".1"/></body>
  </body></worldbody></mujoco>"""
"""Anchors off the origin, a reference angle, two joints on a body, turned and fixed bodies between."""


def _models() -> dict[str, mujoco.MjModel]:
    models = {name: scene.build(bodies.get(name)).model for name in ("infant", "arm")}
    return models | {"odd": mujoco.MjModel.from_xml_string(ODD_TREE)}


@pytest.mark.parametrize("name", ["infant", "arm", "odd"])
def test_poses_equal_mujoco(name: str) -> None:
    model = _models()[name]
    qpos = np.random.default_rng(0).uniform(-3, 3, (200, model.nq))
    xpos, xmat = physics.poses(physics.tree(model), qpos)
    data = mujoco.MjData(model)
    for w in range(len(qpos)):
        data.qpos[:] = qpos[w]
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(xpos[w], data.xpos, atol=1e-9)
        np.testing.assert_allclose(xmat[w], data.xmat.reshape(-1, 3, 3), atol=1e-9)


def test_a_world_does_not_depend_on_its_neighbours() -> None:
    tree = physics.tree(scene.build(bodies.get("infant")).model)
    qpos = np.random.default_rng(1).uniform(-1, 1, (physics.PARALLEL_ENVS + 1, 12))
    xpos, xmat = physics.poses(tree, qpos)
    alone_xpos, alone_xmat = physics.poses(tree, qpos[20:21])
    np.testing.assert_array_equal(alone_xpos[0], xpos[20])
    np.testing.assert_array_equal(alone_xmat[0], xmat[20])


def test_other_joints_are_refused() -> None:
    xml = '<mujoco><worldbody><body><joint type="slide"/><geom size=".1"/></body></worldbody></mujoco>'
    with pytest.raises(ValueError, match="hinge joints only"):
        physics.tree(mujoco.MjModel.from_xml_string(xml))
