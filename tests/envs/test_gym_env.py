"""The Gymnasium environments as a user meets them."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import mirrormark  # noqa: F401  (registers the ids)
from mirrormark.envs.mirror_mark import MirrorMarkEnvs

IDS = [
    "mirrormark/Infant-v0",
    "mirrormark/Arm-v0",
    "mirrormark/InfantSymbolic-v0",
    "mirrormark/ArmSymbolic-v0",
]


@pytest.mark.parametrize("env_id", IDS)
def test_check_env_is_clean(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id, render_mode="rgb_array", width=32, height=32).unwrapped)


def test_an_episode_is_a_hundred_steps_without_reward():
    env = gymnasium.make("mirrormark/Infant-v0")
    observation, info = env.reset(seed=1)
    assert set(observation) == {"vision", "proprioception"}
    assert observation["vision"].shape == (64, 64, 3) and observation["proprioception"].shape == (12,)
    assert info["mark_present"]
    for t in range(100):
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert reward == 0 and not terminated and truncated == (t == 99)


def test_the_env_is_world_zero_of_envs():
    env = gymnasium.make("mirrormark/Infant-v0")
    envs = MirrorMarkEnvs("infant", 3)
    single, _ = env.reset(seed=11)
    many, _ = envs.reset(seed=[11, 12, 13])
    action = np.linspace(-1, 1, 12, dtype=np.float32)
    for _ in range(5):
        assert np.array_equal(single["vision"], many["vision"][0])
        single, *_ = env.step(action)
        many, *_ = envs.step(np.tile(action, (3, 1)))


def test_make_vec_steps_many_envs_and_resets_in_the_same_step():
    envs = gymnasium.make_vec("mirrormark/Infant-v0", num_envs=3, senses=("proprioception",))
    observation, _ = envs.reset(seed=0)
    assert observation["proprioception"].shape == (3, 12)
    for _ in range(100):
        observation, _, _, truncated, info = envs.step(envs.action_space.sample())
    assert truncated.all() and info["_final_obs"].all() and info["_final_info"].all()
    assert (info["final_info"]["t"] == 100).all() and (info["t"] == 0).all()
    assert envs.observation_space.contains(observation)


def test_make_vec_renders_every_world():
    envs = gymnasium.make_vec(
        "mirrormark/Arm-v0",
        num_envs=2,
        senses=("proprioception",),
        render_mode="rgb_array",
        width=32,
        height=24,
    )
    envs.reset(seed=0)
    assert [picture.shape for picture in envs.render()] == [(24, 32, 3)] * 2


def test_options_leave_the_mark_off():
    env = gymnasium.make("mirrormark/Infant-v0", mirror="covered")
    assert not env.reset(seed=0, options={"marked": False})[1]["mark_present"]
    with pytest.raises(ValueError, match="colour"):
        env.reset(options={"colour": "red"})


def test_pictures_need_no_opengl():
    env = gymnasium.make("mirrormark/Infant-v0", render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (48, 64, 3) and picture.std() > 20


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"mirror": "broken"}, "broken"), ({"render_mode": "ansi"}, "ansi"), ({"tone": "x"}, "tone")],
)
def test_unknown_names_are_refused(options, sentence):
    with pytest.raises((ValueError, gymnasium.error.Error), match=sentence):
        gymnasium.make("mirrormark/Infant-v0", **options)


def test_a_wrong_action_is_refused_in_one_sentence():
    env = gymnasium.make("mirrormark/Infant-v0", senses=("proprioception",)).unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"give \(12,\)"):
        env.step(np.zeros(5, np.float32))
