"""The scripted reacher shows that the task can be done."""

import numpy as np
import pytest

from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.exam import oracle as oracle_module
from mirrormark.exam.oracle import Oracle


@pytest.mark.parametrize("body", ["infant", "arm"])
def test_the_oracle_removes_nearly_every_mark(body):
    envs = MirrorMarkEnvs(body, 100, senses=("proprioception",))
    envs.reset(seed=0)
    oracle = Oracle(envs)
    oracle.begin()
    for _ in range(100):
        info = envs.step(oracle.act())[4]
    assert info["mark_removed"].mean() >= 0.95
    assert info["yoked_touched"].mean() < 0.5


def test_the_oracle_needs_no_mirror():
    """It knows the mark's place, so a covered mirror must not stop it: it cannot pass for seeing."""
    envs = MirrorMarkEnvs("infant", 20, senses=("proprioception",), mirror=MirrorConfig(kind="covered"))
    envs.reset(seed=0)
    oracle = Oracle(envs)
    oracle.begin()
    for _ in range(100):
        action = oracle.act()
        assert (np.abs(action) <= 1).all()
        info = envs.step(action)[4]
    assert info["mark_removed"].mean() >= 0.9


def test_the_oracle_plans_for_the_mark_that_is_on(monkeypatch):
    """A small mark must be met more closely than a large one."""
    real, radii = oracle_module.hand_to_site, set()
    monkeypatch.setattr(oracle_module, "hand_to_site", lambda *a: radii.add(a[-1]) or real(*a))
    envs = MirrorMarkEnvs("infant", 1, senses=("proprioception",), mark=MarkConfig(radius_m=0.008))
    envs.reset(seed=0)
    Oracle(envs).begin()
    assert radii == {0.008}
