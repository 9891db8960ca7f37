"""The Gymnasium environments as a user meets them."""

import importlib.util
import pickle
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordVideo

import mirrormark  # noqa: F401  (registers the ids)
from mirrormark.envs.mirror_mark import MirrorMarkEnvs

IDS = [
    "mirrormark/Infant-v0",
    "mirrormark/Arm-v0",
    "mirrormark/InfantSymbolic-v0",
    "mirrormark/ArmSymbolic-v0",
]
BLIND = {"senses": ("proprioception",)}


@pytest.mark.parametrize("env_id", IDS)
def test_check_env_is_clean(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id, render_mode="rgb_array", width=32, height=32).unwrapped)


def test_an_episode_is_a_hundred_steps_without_reward():
    env = gymnasium.make("mirrormark/Infant-v0")
    assert env.spec.max_episode_steps == 100
    observation, info = env.reset(seed=1)
    assert set(observation) == {"vision", "proprioception"}
    assert observation["vision"].shape == (64, 64, 3) and observation["proprioception"].shape == (12,)
    assert info["mark_present"]
    for t in range(100):
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert reward == 0 and not terminated and truncated == (t == 99)


def test_the_time_limit_is_the_users():
    env = gymnasium.make("mirrormark/Arm-v0", max_episode_steps=103, **BLIND)
    envs = gymnasium.make_vec("mirrormark/Arm-v0", num_envs=2, max_episode_steps=3, **BLIND)
    env.reset(seed=0)
    ends = [env.step(np.zeros(6, np.float32))[3] for _ in range(103)]
    assert ends.index(True) == 102
    envs.reset(seed=0)
    assert [envs.step(envs.action_space.sample())[3].all() for _ in range(6)] == [False, False, True] * 2


def test_the_env_is_the_first_of_many():
    env = gymnasium.make("mirrormark/Infant-v0")
    envs = MirrorMarkEnvs("infant", 3)
    single, _ = env.reset(seed=11)
    many, _ = envs.reset(seed=[11, 12, 13])
    action = np.linspace(-1, 1, 12, dtype=np.float32)
    for _ in range(5):
        assert np.array_equal(single["vision"], many["vision"][0])
        single, *_ = env.step(action)
        many, *_ = envs.step(np.tile(action, (3, 1)))


def test_make_vec_gives_the_simulator_and_resets_in_the_same_step():
    envs = gymnasium.make_vec("mirrormark/Infant-v0", num_envs=3, **BLIND)
    assert isinstance(envs, MirrorMarkEnvs)  # no wrapper, so as fast as the simulator
    observation, _ = envs.reset(seed=0)
    assert observation["proprioception"].shape == (3, 12)
    for _ in range(100):
        observation, _, _, truncated, info = envs.step(envs.action_space.sample())
    assert truncated.all() and info["_final_obs"].all() and info["_final_info"].all()
    assert (info["final_info"]["t"] == 100).all() and (info["t"] == 0).all()
    assert envs.observation_space.contains(observation)


def test_a_mask_resets_some_environments_only():
    envs = MirrorMarkEnvs("arm", 3, **BLIND)
    with pytest.raises(ValueError, match="first reset"):
        envs.reset(seed=0, options={"reset_mask": np.array([True, False, False])})
    envs.reset(seed=0)
    before = envs.step(np.ones((3, 6), np.float32))[0]["proprioception"]
    for mask, marked in (([False] * 3, [True] * 3), ([False, True, False], [True, False, True])):
        options = {"reset_mask": np.array(mask), "marked": False}
        observation, info = envs.reset(seed=5, options=options)
        same = (observation["proprioception"] == before).all(1)
        assert same.tolist() == [not chosen for chosen in mask]
        assert info["mark_present"].tolist() == marked and (info["t"] == 1).tolist() == same.tolist()


def test_make_vec_renders_every_environment():
    size = {"render_mode": "rgb_array", "width": 32, "height": 24}
    envs = gymnasium.make_vec("mirrormark/Arm-v0", num_envs=2, **size, **BLIND)
    envs.reset(seed=0)
    assert [picture.shape for picture in envs.render()] == [(24, 32, 3)] * 2


@pytest.mark.parametrize("make", [gymnasium.make, gymnasium.make_vec])
def test_a_pickled_environment_goes_on_as_the_original(make):
    env = make("mirrormark/Infant-v0", mirror="covered")
    env.reset(seed=3)
    env.step(env.action_space.sample())
    other = pickle.loads(pickle.dumps(env))
    action = env.action_space.sample()
    ours, theirs = env.step(action), other.step(action)
    for mine, copied in ((ours[0], theirs[0]), (ours[4], theirs[4]), (env.reset()[0], other.reset()[0])):
        assert all(np.array_equal(mine[name], copied[name]) for name in mine)


PUPPET = """
import gymnasium, mirrormark
from dataclasses import replace
from mirrormark.envs import bodies
bodies.register(replace(bodies.get("arm"), name="puppet", title="Puppet"))
env = gymnasium.make("mirrormark/Puppet-v0")
print(env.reset(seed=0)[0]["vision"].shape, gymnasium.make_vec("mirrormark/PuppetSymbolic-v0", num_envs=2))
taken = ("puppet2", "Puppet", "title"), ("arm", "Arm2", "name"), ("p", "Two words", "title")
for name, title, word in taken:
    try:
        bodies.register(replace(bodies.get("arm"), name=name, title=title))
    except ValueError as error:
        assert f"body {word}" in str(error), error
    else:
        raise AssertionError(name)
"""


def test_a_body_registered_in_a_script_is_known_to_gymnasium():
    done = subprocess.run([sys.executable, "-c", PUPPET], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "(64,",
        "64,",
        "3)",
        "MirrorMarkEnvs(mirrormark/PuppetSymbolic-v0,",
        "num_envs=2)",
    ]


def test_options_leave_the_mark_off():
    env = gymnasium.make("mirrormark/Infant-v0", mirror="covered")
    assert not env.reset(seed=0, options={"marked": False})[1]["mark_present"]
    for bad, sentence in (({"colour": "red"}, "colour"), (["marked"], "give a dict")):
        with pytest.raises(ValueError, match=sentence):
            env.unwrapped.reset(options=bad)


def test_pictures_need_no_opengl():
    env = gymnasium.make("mirrormark/Infant-v0", render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (48, 64, 3) and picture.std() > 20


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("mode", "needs"), [("rgb_array", "moviepy"), ("human", "pygame")])
def test_videos_and_windows_work_or_name_what_is_missing(tmp_path, monkeypatch, mode, needs):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")

    def play() -> None:
        env = gymnasium.make("mirrormark/Arm-v0", render_mode=mode, width=32, height=32, **BLIND)
        if mode == "rgb_array":
            env = RecordVideo(env, str(tmp_path))
        env.reset(seed=0)
        env.step(env.action_space.sample())
        env.close()

    if importlib.util.find_spec(needs) is None:
        with pytest.raises(gymnasium.error.DependencyNotInstalled, match="pip install"):
            play()
        return
    play()
    assert mode == "human" or list(tmp_path.glob("*.mp4"))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"mirror": "broken"}, "broken"), ({"render_mode": "ansi"}, "ansi"), ({"tone": "x"}, "tone")],
)
def test_unknown_names_are_refused(options, sentence):
    with pytest.raises((ValueError, gymnasium.error.Error), match=sentence):
        gymnasium.make("mirrormark/Infant-v0", **options)


def test_many_environments_have_no_window():
    with pytest.raises(ValueError, match="open no window"):
        gymnasium.make_vec("mirrormark/Infant-v0", num_envs=2, render_mode="human")


def test_a_wrong_action_is_refused_in_one_sentence():
    env = gymnasium.make("mirrormark/Infant-v0", **BLIND).unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"give \(12,\)"):
        env.step(np.zeros(5, np.float32))
