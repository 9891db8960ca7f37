"""Conditions as changes of the agent's own environment, and what the mirror shows in them."""

import dataclasses
import math

import numpy as np
import pytest

from mirrormark.envs.babbling import BabblingConfig
from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.exam import candidates, conditions, hidden_site, run
from mirrormark.exam.agents import BabblingAgent, OracleAgent
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.protocol import RunKey, mark_in_view, reflected_mark, run_condition
from mirrormark.training.env_config import EnvConfig

KEYS = RunKey("r", "c", "infant", EXAM, 0, "flexor", "pixels")
BLIND = EnvConfig(senses=("proprioception",))


def test_a_leak_removes_the_mark_and_needs_no_mirror():
    """The oracle in the agent's place: it removes marks, and as often without a mirror."""
    removed = {}
    for name in (EXAM, "absent", "sham"):
        condition = conditions.get(name)
        envs = condition.make_envs(BLIND, 12)
        keys = dataclasses.replace(KEYS, condition=name)
        found, _ = run_condition(envs, OracleAgent(), range(12), keys, sham=condition.sham, view_every=0)
        removed[name] = int(found.episodes["removed"].sum())
    assert removed[EXAM] >= 11
    assert removed["absent"] == removed["sham"] == removed[EXAM]


def test_the_mark_is_where_geometry_says():
    """The reflected centre against the middle of the mark's own pixels, where the whole disc is seen."""
    envs = conditions.get(EXAM).make_envs(EnvConfig(), 40)
    envs.reset(seed=0, marked=True)
    mask, place = envs.paired_frames()["mark_mask"], reflected_mark(envs)
    inside = (np.abs(place.field) < 0.85).all(1) & (np.abs(place.pane) < 0.85).all(1)
    whole = inside & (mask.sum((1, 2)) >= 12)
    assert whole.sum() >= 10
    for world in np.flatnonzero(whole):
        row, column = (axis.mean() + 0.5 for axis in np.nonzero(mask[world]))
        right, up = place.field[world]
        assert (column, row) == pytest.approx((32 * (1 + right), 32 * (1 - up)), abs=1.6)
    assert mark_in_view(envs)[whole].all()


@pytest.mark.parametrize("body", ["infant", "arm"])
def test_a_mark_out_of_sight_is_not_seen_but_can_be_reached(body):
    setup, unseen = EnvConfig(body=body, senses=("proprioception",)), conditions.get("unseen")
    assert unseen.why_not(setup) is None
    envs = unseen.make_envs(setup, 24)
    found, _ = run_condition(envs, BabblingAgent(BabblingConfig("held")), range(24), KEYS, view_every=5)
    assert (found.steps["mark_px"].dropna() > 0).mean() < 0.01
    found, _ = run_condition(envs, OracleAgent(), range(24), KEYS, view_every=0)
    assert found.episodes["removed"].mean() >= 0.25


def test_a_body_without_such_a_site_leaves_the_condition_out(monkeypatch):
    monkeypatch.setattr(conditions, "hidden_site", lambda setup: None)
    blind = dataclasses.replace(candidates.untrained("smoke"), setup=BLIND)
    settings = run.Settings(conditions=(EXAM, "unseen"))
    (name, reason), *rest = run.left_out([blind], settings).items()
    assert name == "unseen" and "no site within reach" in reason and not rest


def test_a_site_that_the_mirror_shows_is_no_hidden_one():
    """Among all sites of the front only: every one is seen in some frame, so none is left."""
    scene = BLIND.make_envs(1).scene
    surface = scene.surfaces[0]
    front = hidden_site.site_near(surface, 0, surface.pos_m + np.array([1.0, 0.3, 0.3]) * surface.size_m)
    assert hidden_site._unseen(BLIND, [front] * 4) == []


def test_conditions_are_changes_of_the_agents_own_environment():
    setup = dataclasses.replace(
        BLIND,
        mirror=MirrorConfig(distance_m=0.2, yaw_rad=0.05, pitch_rad=0.02, width_m=0.22),
        mark=MarkConfig(radius_m=0.015, rgb=(0.1, 0.2, 0.9), reach_m=0.03),
    )
    exam = conditions.get(EXAM)
    assert exam.mirror_of(setup) == setup.mirror and exam.mark_of(setup) == setup.mark
    absent = conditions.get("absent").mirror_of(setup)
    assert absent == dataclasses.replace(setup.mirror, kind="absent")
    assert conditions.get("farther").mirror_of(setup).distance_m == pytest.approx(0.23)
    assert conditions.get("tilt-10").mirror_of(setup).yaw_rad == pytest.approx(0.05 - math.radians(10))
    assert conditions.get("small").mark_of(setup).radius_m == pytest.approx(0.009)
    assert conditions.get("recoloured").mark_of(setup).rgb == pytest.approx((0.9, 0.8, 0.1))
    assert conditions.get("recoloured").mark_of(BLIND).rgb == (0.85, 0.05, 0.15)
    assert exam.make_envs(setup, 1).mark == setup.mark


def test_a_mirror_that_cannot_come_nearer_leaves_the_condition_out():
    setup = dataclasses.replace(BLIND, mirror=MirrorConfig(distance_m=0.025))
    assert conditions.get("nearer").why_not(setup) is not None


def test_a_new_condition_is_one_entry():
    mine = conditions.Condition("tiny", "tiny mark", radius_scale=0.25)
    try:
        conditions.register(mine)
        assert "tiny" in conditions.names("reported") and conditions.get("tiny") is mine
        with pytest.raises(ValueError, match="is taken"):
            conditions.register(dataclasses.replace(mine, title="another"))
    finally:
        conditions._conditions.pop("tiny")
