"""Anyone's agent: what it gets, what is said of its mistakes, and the wrappers."""

import random

import numpy as np
import pytest
import torch

from mirrormark.exam.agents import (
    AgentError,
    CheckedAgent,
    OneByOne,
    StableBaselines3Agent,
    separate_random_numbers,
)
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.protocol import RunKey, run_condition
from mirrormark.training.env_config import EnvConfig

KEYS = RunKey("r", "c", "infant", EXAM, 0, "flexor", "pixels")
N, A = 3, 12


class Agent:
    """Keeps what it gets, and returns what it is given."""

    privileged = ()

    def __init__(self, returned=None, at_step=0):
        self.returned, self.at_step, self.seen = returned, at_step, []

    def reset(self, n):
        self.n, self.seen = n, []

    def act(self, observations):
        self.seen.append(observations)
        good = np.zeros((self.n, A))
        return good if self.returned is None or len(self.seen) <= self.at_step else self.returned


class WithG(Agent):
    def free_energy(self, observations):
        assert observations is self.seen[-1]
        return len(self.seen) + np.arange(self.n)


def take(agent, n=N):
    envs = EnvConfig().make_envs(n)
    return run_condition(envs, CheckedAgent(agent, "mine", "no mirror"), range(n), KEYS, view_every=0)[0]


def test_an_agent_gets_copies_of_its_senses_and_nothing_else():
    agent = Agent()
    take(agent)
    assert len(agent.seen) == 100 and agent.n == N
    first, last = agent.seen[0], agent.seen[-1]
    assert set(first) == {"vision", "proprioception"}
    assert first["vision"].shape == (N, 64, 64, 3) and first["vision"].dtype == np.uint8
    assert first["proprioception"].shape == (N, A) and first["proprioception"].dtype == np.float32
    assert not np.shares_memory(first["vision"], last["vision"])
    assert (first["vision"] != last["vision"]).any()


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (np.zeros((N, 5)), r"act returned the shape \(3, 5\), where \(3, 12\) is needed"),
        (np.full((N, A), np.nan), "not finite"),
        (np.full((N, A), 1.5), r"act returned 1.5, but actions lie in \[-1, 1\]"),
        ("left", "act returned a str"),
        ([[0.0] * A, [0.0]], "act returned a list"),
    ],
)
def test_a_mistake_is_one_sentence_with_agent_condition_and_step(returned, problem):
    with pytest.raises(AgentError, match=f"agent mine, “no mirror”, step 7: .*{problem}") as error:
        take(Agent(returned, at_step=7))
    assert "\n" not in str(error.value)


def test_an_agent_that_raises_is_named_with_its_own_words():
    class Broken(Agent):
        def act(self, observations):
            raise KeyError("sight")

    with pytest.raises(AgentError, match="step 0: act raised KeyError: 'sight'"):
        take(Broken())


def test_any_agent_may_have_g_and_need_not():
    steps = take(WithG()).steps.pivot(index="exam_seed", columns="t_s", values="expected_free_energy_nats")
    assert (steps.to_numpy() == 1 + np.arange(N)[:, None] + np.arange(100)).all()
    assert take(Agent()).steps["expected_free_energy_nats"].isna().all()

    class Wrong(WithG):
        def free_energy(self, observations):
            return np.zeros((self.n, 1))

    with pytest.raises(AgentError, match=r"free_energy returned the shape \(3, 1\), where \(3,\) is needed"):
        take(Wrong())


def test_agents_that_draw_global_random_numbers_repeat_themselves_and_disturb_nobody():
    class Random(Agent):
        def act(self, observations):
            draws = [random.random(), np.random.rand(), torch.rand(()).item()]  # noqa: NPY002
            return np.resize(draws, (self.n, A))

    random.seed(5), np.random.seed(5), torch.manual_seed(5)  # noqa: NPY002
    expected = random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002
    random.seed(5), np.random.seed(5), torch.manual_seed(5)  # noqa: NPY002
    found = []
    for _ in range(2):
        with separate_random_numbers():
            found.append(take(Random()).steps["distance_m"].to_numpy())
    assert np.array_equal(*found)
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == expected  # noqa: NPY002


def test_single_agents_act_each_in_a_body_of_its_own():
    class Single:
        made = 0

        def __init__(self):
            Single.made += 1
            self.number = Single.made

        def reset(self):
            self.steps = 0

        def act(self, observation):
            assert observation["vision"].shape == (64, 64, 3)
            self.steps += 1
            return np.full(A, 0.1 * self.number + 0.001 * self.steps)

    agent = OneByOne(Single, ("reward",))
    observations = {"vision": np.zeros((N, 64, 64, 3), np.uint8), "proprioception": np.zeros((N, A))}
    for _ in range(2):
        agent.reset(N)
        agent.act(observations)
        assert agent.act(observations)[:, 0] == pytest.approx([0.102, 0.202, 0.302])
    agent.reset(2)
    assert agent.act({name: values[:2] for name, values in observations.items()}).shape == (2, A)
    assert Single.made == N and agent.privileged == ("reward",)
    take(agent)


def test_a_model_of_stable_baselines3_keeps_its_state_within_an_episode():
    class Model:
        def __init__(self):
            self.calls = []

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            self.calls.append((state, episode_start.copy(), deterministic))
            return np.zeros((len(observation["vision"]), A)), (state or 0) + 1

    model = Model()
    agent = StableBaselines3Agent(model, ("reward",))
    take(agent)
    assert [state for state, *_ in model.calls] == [None, *range(1, 100)]
    assert model.calls[0][1].all() and not model.calls[1][1].any() and model.calls[0][2]
    agent.reset(N)
    agent.act({"vision": np.zeros((N, 64, 64, 3), np.uint8)})
    assert model.calls[-1][0] is None
