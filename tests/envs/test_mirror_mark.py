"""Many environments: determinism, conditions, marks, faults."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, MirrorMarkEnvs
from mirrormark.envs.raycaster.eye import MARK, MIRRORED, Camera, Eye
from mirrormark.envs.senses import Sense
from mirrormark.exam.oracle import Oracle


def actions(envs: MirrorMarkEnvs, steps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (steps, envs.n, envs.actions)).astype(np.float32)


def fingerprint(seed: int) -> str:
    envs = MirrorMarkEnvs("infant", 2)
    digest = hashlib.sha256()
    envs.reset(seed=seed)
    for action in actions(envs, 4):
        observation, *_ = envs.step(action)
        digest.update(observation["vision"].tobytes() + observation["proprioception"].tobytes())
    return digest.hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_another_process():
    code = "from tests.envs.test_mirror_mark import fingerprint; print(fingerprint(7))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == fingerprint(7)
    assert fingerprint(8) != fingerprint(7)


@pytest.mark.parametrize("body", ["infant", "arm"])
def test_a_world_among_many_equals_a_world_alone(body):
    many = MirrorMarkEnvs(body, 5)
    seen = [many.reset(seed=20)[0]]
    plan = actions(many, 6)
    infos = []
    for action in plan:
        observation, _, _, _, info = many.step(action)
        seen.append(observation)
        infos.append(info)
    alone = MirrorMarkEnvs(body, 1)
    mine = [alone.reset(seed=[23])[0]]
    for action, info in zip(plan, infos):
        observation, _, _, _, own = alone.step(action[3:4])
        mine.append(observation)
        assert own["hand_mark_distance_m"][0] == info["hand_mark_distance_m"][3]
    for many_obs, alone_obs in zip(seen, mine):
        for name in many_obs:
            assert np.array_equal(many_obs[name][3], alone_obs[name][0]), name


def test_envs_that_differ_in_the_mirror_share_their_physics():
    kinds = ["present", "absent", "covered", "delayed"]
    mirrors = [MirrorConfig(kind=k, delay_control_steps=3 if k == "delayed" else 0) for k in kinds]
    envs = MirrorMarkEnvs("infant", 4, mirror=mirrors)
    envs.reset(seed=[5] * 4)
    for action in actions(envs, 30):
        observation, *_, info = envs.step(np.repeat(action[:1], 4, axis=0))
    assert (observation["proprioception"] == observation["proprioception"][0]).all()
    assert (info["hand_mark_distance_m"] == info["hand_mark_distance_m"][0]).all()
    frames = observation["vision"].astype(int)
    assert all(np.abs(frames[0] - frames[k]).max() > 30 for k in (1, 2, 3))


def test_the_delayed_mirror_shows_the_past():
    delay = 4
    late = MirrorMarkEnvs("infant", 1, mirror=MirrorConfig(kind="delayed", delay_control_steps=delay))
    live = MirrorMarkEnvs("infant", 1)
    late.reset(seed=[3])
    live.reset(seed=[3])
    past = [live.sim_state()]
    for t, action in enumerate(actions(late, 12), start=1):
        late.step(action)
        live.step(action)
        past.append(live.sim_state())
        shown = late.sim_state()
        assert np.array_equal(shown.mirror_xpos, past[max(0, t - delay)].xpos)
        assert np.array_equal(shown.xpos, past[t].xpos)


def test_a_removed_mark_leaves_a_delayed_mirror_late():
    delay = 6
    envs = MirrorMarkEnvs("infant", 1, mirror=MirrorConfig(kind="delayed", delay_control_steps=delay))
    envs.reset(seed=[0])
    oracle = Oracle(envs)
    oracle.begin()
    shown = []
    for _ in range(EPISODE_CONTROL_STEPS):
        info = envs.step(oracle.act())[4]
        shown.append((bool(info["mark_present"][0]), bool(envs.sim_state().marks.shown_mirror[0])))
    gone = [present for present, _ in shown].index(False)
    vanished = [mirrored for _, mirrored in shown].index(False)
    assert vanished == gone + delay


@pytest.mark.parametrize("body", ["infant", "arm"])
def test_the_own_mark_is_never_seen_directly(body):
    """Geometry alone forbids it: an eye that would draw the mark directly never does, in 2,000 states."""
    envs = MirrorMarkEnvs(body, 250, senses=("proprioception",))
    scene = envs.scene
    camera = Camera(scene.eye_body_id, scene.eye_pos_m, scene.eye_mat, scene.eye_fovy_rad)
    eye = Eye(scene.model, camera, mark_in_direct_view=True)
    mirrored = 0
    for round_ in range(4):
        envs.reset(seed=1000 * round_)
        for action in actions(envs, 2, seed=round_):
            envs.step(np.sign(action))
            labels = envs.sim_state(mark_shown=True).labels(eye)
            assert not (labels == MARK).any()
            mirrored += (labels == MARK + MIRRORED).any((1, 2)).sum()
    assert mirrored > 1000


def test_in_the_mirror_the_mark_is_seen():
    envs = MirrorMarkEnvs("infant", 64)
    envs.reset(seed=0)
    pair = envs.paired_frames()
    assert (pair["mark_mask"].sum((1, 2)) >= 4).mean() > 0.7
    different = np.abs(pair["with_mark"].astype(int) - pair["without_mark"]).max(-1) > 12
    assert (different <= pair["mark_mask"]).mean() > 0.999


def test_a_sham_mark_is_timed_and_not_seen():
    real, sham = (MirrorMarkEnvs("infant", 4) for _ in range(2))
    real.reset(seed=0)
    unseen, info = sham.reset(seed=0, sham=True)
    bare, _ = MirrorMarkEnvs("infant", 4).reset(seed=0, marked=False)
    assert info["mark_present"].all()
    assert np.array_equal(unseen["vision"], bare["vision"])
    oracles = [Oracle(real), Oracle(sham)]
    for oracle in oracles:
        oracle.begin()
    for _ in range(60):
        a, b = (envs.step(oracle.act())[4] for envs, oracle in zip((real, sham), oracles))
        assert np.array_equal(a["mark_removed"], b["mark_removed"])
    assert a["mark_removed"].any()


def test_removal_does_not_end_the_episode_and_reward_stays_zero():
    envs = MirrorMarkEnvs("infant", 8)
    envs.reset(seed=0)
    oracle = Oracle(envs)
    oracle.begin()
    for t in range(EPISODE_CONTROL_STEPS):
        _, reward, terminated, truncated, info = envs.step(oracle.act())
        assert (reward == 0).all() and not terminated.any()
        assert truncated.all() == (t == EPISODE_CONTROL_STEPS - 1)
    assert info["mark_removed"].all() and not info["mark_present"].any()


def test_autoreset_begins_the_next_episode_in_the_same_step():
    envs = MirrorMarkEnvs("infant", 2, senses=("proprioception",), autoreset=True)
    envs.reset(seed=0)
    for action in actions(envs, EPISODE_CONTROL_STEPS):
        observation, _, _, truncated, info = envs.step(action)
    assert (
        truncated.all()
        and (info["t"] == 0).all()
        and (info["final_info"]["t"] == EPISODE_CONTROL_STEPS).all()
    )
    assert not np.array_equal(observation["proprioception"], info["final_obs"]["proprioception"])
    fresh = MirrorMarkEnvs("infant", 2, senses=("proprioception",))
    fresh.reset(seed=0)
    following, _ = fresh.reset()
    assert np.array_equal(observation["proprioception"], following["proprioception"])


def test_unstable_physics_restarts_that_world_alone():
    envs, calm = (
        MirrorMarkEnvs("infant", 3, senses=("proprioception",)),
        MirrorMarkEnvs("infant", 3, senses=("proprioception",)),
    )
    envs.reset(seed=0)
    calm.reset(seed=0)
    envs.state[1, -1] = np.nan
    action = actions(envs, 1)[0]
    with pytest.warns(RuntimeWarning, match="seed 1, episode 0, control step 1"):
        observation, _, _, truncated, info = envs.step(action)
    expected, *_ = calm.step(action)
    assert info["unstable"].tolist() == truncated.tolist() == [False, True, False]
    assert np.isfinite(observation["proprioception"]).all()
    for i in (0, 2):
        assert np.array_equal(observation["proprioception"][i], expected["proprioception"][i])
    envs.step(action)


def test_physics_that_breaks_in_a_reset_is_reported_and_left_at_rest(monkeypatch):
    envs = MirrorMarkEnvs("infant", 2, senses=("proprioception",))
    honest = envs.physics.advance

    def breaking(state, action, sim_steps):
        states = honest(state, action, sim_steps)
        states[1] = np.nan
        return states

    monkeypatch.setattr(envs.physics, "advance", breaking)
    with pytest.warns(RuntimeWarning, match="begins at rest"):
        envs.reset(seed=0)
    assert np.isfinite(envs.state).all()
    assert np.array_equal(envs.state[1], envs.physics.rest(1)[0])


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**31),
    st.floats(0, 2),
    st.sampled_from(["flexor", "neck", "limp"]),
    arrays(np.float32, (4, 2, 12), elements=st.floats(-1, 1, width=32)),
)
def test_senses_stay_in_their_spaces(seed, scale, tone, plan):
    envs = MirrorMarkEnvs("infant", 2, tone=tone, tone_scale=scale)
    observation, _ = envs.reset(seed=seed)
    for action in plan:
        for sense in envs.senses:
            assert all(sense.space().contains(observation[sense.name][i]) for i in range(2))
        observation, *_ = envs.step(action)


def test_a_sense_can_be_added_from_outside():
    class Clock(Sense):
        name = "clock"

        def attach(self, scene, device):
            self.joints = len(scene.joints)

        def space(self):
            return spaces.Box(0, 99, (1,), np.int64)

        def perceive(self, sim_state):
            return np.full((len(sim_state.qpos), 1), self.joints)

    observation, _ = MirrorMarkEnvs("infant", 2, senses=("proprioception", Clock())).reset(seed=0)
    assert observation["clock"].tolist() == [[12], [12]]


def test_the_symbolic_eye_tells_where_and_nothing_when_unseen():
    for kind, marked, expected in (
        ("present", True, True),
        ("present", False, False),
        ("covered", True, False),
    ):
        envs = MirrorMarkEnvs("infant", 16, senses=("cell",), mirror=MirrorConfig(kind=kind))
        cells = envs.reset(seed=0, marked=marked)[0]["cell"][:, 0]
        assert (cells < 225).any() == expected
