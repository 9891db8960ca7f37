"""Where marks may sit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormark.envs import bodies
from mirrormark.envs.mark import HALF_THICKNESS_M, MarkConfig, draw_site
from mirrormark.envs.scene import build

BODIES = ("infant", "arm")


@pytest.mark.parametrize("name", BODIES)
def test_sites_obey_the_rules(name):
    scene = build(bodies.get(name))
    config = MarkConfig()
    for seed in range(300):
        site = draw_site(scene, config, np.random.default_rng(seed))
        surface = scene.surfaces[site.surface]
        normal = site.mat[:, 2]
        assert normal[0] >= math.cos(math.radians(60)) - 1e-9
        skin = surface.mat.T @ (site.pos - HALF_THICKNESS_M * normal - surface.pos_m) / surface.size_m
        assert np.linalg.norm(skin) == pytest.approx(1.0, abs=1e-9)
        assert np.allclose(site.mat.T @ site.mat, np.eye(3)) and np.linalg.det(site.mat) > 0
        assert site.pos[2] >= surface.min_z_m
        if site.body == scene.eye_body_id:
            clearance = np.linalg.norm(site.pos - scene.eye_pos_m) - config.radius_m
            assert clearance >= scene.body.eye_keepout_m


def test_sites_are_even_by_area():
    """On the whole head, the share of sites in its upper and forward halves equals the share of area."""
    scene = build(bodies.get("infant"))
    config = MarkConfig(surface="head_geom", forward_angle_rad=math.pi)
    surface = next(s for s in scene.surfaces if s.geom == "head_geom")
    sites = [draw_site(scene, config, np.random.default_rng(seed)) for seed in range(1500)]
    points = np.array([(s.pos - surface.pos_m) / surface.size_m for s in sites])
    grid = np.random.default_rng(1).normal(size=(200_000, 3))
    grid /= np.linalg.norm(grid, axis=1, keepdims=True)
    area = np.linalg.norm(grid / surface.size_m, axis=1)
    away = np.linalg.norm(grid * surface.size_m + surface.pos_m - scene.eye_pos_m, axis=1)
    area = area * (away >= scene.body.eye_keepout_m + config.radius_m)
    for axis in range(3):
        for cut in (-0.5, 0.0, 0.5):
            share = (points[:, axis] > cut).mean()
            assert share == pytest.approx(area[grid[:, axis] > cut].sum() / area.sum(), abs=0.045)


def test_a_named_site_is_kept():
    scene = build(bodies.get("infant"))
    config = MarkConfig(surface="head_geom", site_m=(0.08, 0.03, 0.03))
    a, b = (draw_site(scene, config, np.random.default_rng(seed)) for seed in (0, 1))
    assert np.array_equal(a.pos, b.pos)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.005, 0.03), st.integers(0, 2**31))
def test_any_radius_finds_a_site(radius, seed):
    scene = build(bodies.get("infant"))
    assert draw_site(scene, MarkConfig(radius_m=radius), np.random.default_rng(seed)).mat.shape == (3, 3)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"radius_m": 0.0}, "radius_m"),
        ({"radius_m": math.nan}, "radius_m"),
        ({"rgb": (0.0, 2.0, 0.0)}, "rgb"),
        ({"reach_m": -1.0}, "reach_m"),
        ({"hold_sim_steps": 0}, "hold_sim_steps"),
        ({"site_m": (0.0, 0.0, 0.0)}, "site_m"),
    ],
)
def test_bad_fields_are_named(fields, name):
    with pytest.raises(ValueError, match=name):
        MarkConfig(**fields)


def test_an_unknown_surface_is_named():
    with pytest.raises(ValueError, match=r"mark\.surface"):
        draw_site(build(bodies.get("infant")), MarkConfig(surface="foot"), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("site", "sentence"), [((0.08, -0.028, -0.004), "seeing eye"), ((-0.1, 0.0, 0.0), "faces away")]
)
def test_a_named_site_obeys_the_rules_too(site, sentence):
    config = MarkConfig(surface="head_geom", site_m=site)
    with pytest.raises(ValueError, match=sentence):
        draw_site(build(bodies.get("infant")), config, np.random.default_rng(0))
