"""Bad input: one clear sentence that names the field, and the environments stay usable."""

import numpy as np
import pytest

from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.envs.senses import Vision


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (np.full((2, 12), np.nan, np.float32), "NaN"),
        (np.full((2, 12), 1.5, np.float32), r"outside \[-1, 1\]"),
        (np.zeros((2, 11), np.float32), r"give \(2, 12\)"),
        (np.zeros(12, np.float32), r"give \(2, 12\)"),
    ],
)
def test_a_bad_action_is_refused_and_the_environments_go_on(bad, sentence):
    envs = MirrorMarkEnvs("infant", 2, senses=("proprioception",))
    envs.reset(seed=0)
    before = envs.state.copy()
    with pytest.raises(ValueError, match=sentence):
        envs.step(bad)
    assert np.array_equal(envs.state, before)
    envs.step(np.zeros((2, 12), np.float32))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"num_envs": 1.5}, "num_envs is 1.5"),
        ({"num_envs": "3"}, "num_envs is '3'"),
        ({"mark": {"radius_m": 0.02}}, "MarkConfig"),
        ({"mirror": 3}, "MirrorConfig"),
        ({"senses": ()}, "senses is empty"),
        ({"body": "octopus"}, "octopus"),
        ({"tone": "stiff"}, "stiff"),
        ({"tone_scale": -1.0}, "tone_scale"),
        ({"senses": ("smell",)}, "smell"),
        ({"device": "tpu"}, "tpu"),
        ({"device": "tpu", "senses": ("proprioception",)}, "tpu"),
        ({"senses": "vision"}, "senses is 'vision'"),
        ({"senses": 3}, "senses is 3"),
        ({"body": []}, "body"),
        ({"tone": ["limp"]}, "tone"),
        ({"tone_scale": "2"}, "tone_scale is 2"),
        ({"threads": 0}, "threads is 0"),
        ({"max_episode_steps": 0.5}, "max_episode_steps is 0.5"),
        ({"num_envs": 2, "mirror": [MirrorConfig()]}, "1 mirrors for 2 environments"),
        ({"num_envs": 2, "mirror": [MirrorConfig(), MirrorConfig(distance_m=0.2)]}, "place or size"),
    ],
)
def test_bad_arguments_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        MirrorMarkEnvs(**arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [({"seed": 1.7}, "seed is 1.7"), ({"seed": -1}, "seed"), ({"seed": [1, 2, 3]}, "2 of them"),
     ({"seed": 2**63}, "seed"), ({"marked": [True]}, "marked"), ({"sham": "yes"}, "sham"),
     ({"options": ["sham"]}, "give a dict"), ({"options": {"reset_mask": 0.5}}, "reset_mask")],
)  # fmt: skip
def test_bad_resets_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        MirrorMarkEnvs("infant", 2, senses=("proprioception",)).reset(**arguments)


def test_step_before_reset_is_a_clear_mistake():
    with pytest.raises(ValueError, match="reset first"):
        MirrorMarkEnvs("infant", 1).step(np.zeros((1, 12), np.float32))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hold_sim_steps": 2**70}, "from 1 to 1,000,000"),
        ({"hold_sim_steps": True}, "hold_sim_steps is True"),
        ({"radius_m": "2"}, "radius_m is 2"),
        ({"rgb": None}, "rgb is None"),
        ({"reach_m": None}, "reach_m is None"),
        ({"reach_m": 2**70}, "from 0 to 10 m"),
        ({"surface": 3}, "surface is 3"),
        ({"surface": "head_geom", "site_m": "abc"}, "three numbers"),
        ({"surface": "head_geom", "site_m": (np.nan, 0.0, 0.0)}, "three numbers"),
        ({"forward_angle_rad": "x"}, "forward_angle_rad is x"),
    ],
)
def test_impossible_marks_are_named(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        MarkConfig(**options)


def test_impossible_pictures_are_named():
    envs = MirrorMarkEnvs("infant", 1, senses=("proprioception",))
    envs.reset(seed=0)
    for options, sentence in (
        ({"camera": None}, "camera None is not in the model: use one of world, behind"),
        ({"width": 10**9}, "width is 1000000000"),
        ({"height": "8"}, "height is '8'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            envs.picture(**options)
    for options, sentence in (
        ({"noise": -1}, "noise is -1"),
        ({"biased_noise": None}, "biased_noise is None"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Vision(**options)
