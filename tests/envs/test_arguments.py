"""Bad input: one clear sentence that names the field, and the environments stay usable."""

import numpy as np
import pytest

from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (np.full((2, 12), np.nan, np.float32), "NaN"),
        (np.full((2, 12), 1.5, np.float32), r"outside \[-1, 1\]"),
        (np.zeros((2, 11), np.float32), r"give \(2, 12\)"),
        (np.zeros(12, np.float32), r"give \(2, 12\)"),
    ],
)
def test_a_bad_action_is_refused_and_the_world_goes_on(bad, sentence):
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
     ({"marked": [True]}, "marked"), ({"sham": "yes"}, "sham")],
)  # fmt: skip
def test_bad_resets_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        MirrorMarkEnvs("infant", 2, senses=("proprioception",)).reset(**arguments)


def test_step_before_reset_is_a_clear_mistake():
    with pytest.raises(ValueError, match="reset first"):
        MirrorMarkEnvs("infant", 1).step(np.zeros((1, 12), np.float32))
