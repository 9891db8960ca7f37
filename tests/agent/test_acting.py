import numpy as np
import pytest
import torch

from mirrormark.agent.acting import Actor, to_tensors
from mirrormark.agent.world_model import imagine
from mirrormark.config import ActionNoiseConfig
from tests.agent.tiny import SENSES, disturb, observe, paper_agent, random_tokens
from tests.swift.tiny import swift_agent

PAPER = lambda: disturb(paper_agent())  # noqa: E731
PAPER_CODE = lambda: disturb(paper_agent("embedding", as_public_code=True))  # noqa: E731


@pytest.mark.parametrize(("make", "sees"), [(PAPER, True), (PAPER_CODE, False)], ids=["paper", "paper-code"])
def test_the_paper_sees_the_present_frame_and_the_public_code_does_not(make, sees):
    """D10, De: π(a | s_t, h_t), or a prediction of s_t after as many past pairs."""
    agent, actions = make(), []
    path, others = random_tokens(agent, 11, 2), random_tokens(agent, 2)
    for last in (path[10], others):
        actor = Actor(agent, 2)
        actor.begin(seed=1)
        actions.append([actor.act_on(tokens) for tokens in (*path[:10], last)])
    assert all(np.array_equal(*pair) for pair in zip(*(found[:10] for found in actions)))
    assert np.array_equal(actions[0][10], actions[1][10]) is not sees


@pytest.mark.parametrize("make", [PAPER, PAPER_CODE], ids=["paper", "paper-code"])
def test_it_stands_where_imagination_starts(make):
    """At every step, of the last 3 pairs (paper) or 4 (public code), at positions from 0 on."""
    agent = make()
    actor, seen, acted = Actor(agent, 2), [], []
    pairs = 3 if agent.start == "posterior" else 4
    for _ in range(9):
        seen.append(random_tokens(agent, 2))
        past = [torch.stack(x[-pairs:], 1) for x in (seen[:-1], acted) if acted]
        if past:
            wanted = agent.world_model(*past)[:, -1].detach()
            torch.testing.assert_close(actor.hidden, wanted, rtol=1e-4, atol=1e-5)
        else:
            assert not actor.hidden.any()
        acted.append(torch.from_numpy(actor.act_on(seen[-1])))
    if agent.start == "posterior":
        hidden = actor.hidden
        tokens = torch.stack([*seen[-3:], random_tokens(agent, 2)], 1)
        path = imagine(agent.world_model, agent.policy, tokens, torch.stack(acted[-3:], 1), 1)
        torch.testing.assert_close(path.hidden[:, 0], hidden, rtol=1e-4, atol=1e-5)


def test_with_a_longer_past_it_is_cut_back_to_imaginations_and_grows_again():
    """acting_context 8, context 4: 3 pairs at least, 8 at most."""
    agent = disturb(swift_agent(acting_context=10))
    actor, seen, acted, lengths = Actor(agent, 2), [], [], []
    for _ in range(30):
        seen.append(random_tokens(agent, 2))
        if lengths and lengths[-1]:
            past = [torch.stack(x[-lengths[-1] :], 1) for x in (seen[:-1], acted)]
            wanted = agent.world_model(*past)[:, -1].detach()
            torch.testing.assert_close(actor.hidden, wanted, rtol=1e-4, atol=1e-5)
        acted.append(torch.from_numpy(actor.act_on(seen[-1])))
        lengths.append(actor._steps)
    assert lengths[:12] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 3, 4] and max(lengths) == 10


def test_the_public_codes_first_action_is_even_over_all():
    agent = PAPER_CODE()
    actor = Actor(agent, 4000)
    first = actor.act_on(random_tokens(agent, 4000))
    assert first.min() < -0.99 and first.max() > 0.99 and abs(first.mean()) < 0.03
    assert np.histogram(first, 4, (-1, 1))[0] / first.size == pytest.approx(0.25, abs=0.02)


def test_equal_seeds_act_alike_and_an_episode_forgets_the_last():
    agent = PAPER()
    actor, path = Actor(agent, 2), random_tokens(agent, 6, 2)

    def episode(seed: int) -> np.ndarray:
        actor.begin(seed)
        return np.stack([actor.act_on(tokens) for tokens in path])

    first, other = episode(1), episode(2)
    assert np.array_equal(first, episode(1)) and not np.array_equal(first, other)


def test_the_mean_draws_nothing():
    agent = PAPER()
    seen, actor = observe(SENSES, 2), Actor(agent, 2, "mean")
    actions = []
    for seed in (1, 2):
        actor.begin(seed)
        torch.manual_seed(seed)
        actions.append(actor.act(seen))
    assert np.array_equal(*actions)
    choice = agent.policy(agent.encode(seen, sample=False).tokens, torch.zeros(2, 16))
    np.testing.assert_allclose(actions[0], choice.mean.tanh().detach(), rtol=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_noise_lasts_as_long_as_asked_and_keeps_its_size(rho):
    agent = swift_agent()
    actor = Actor(agent, 3000, noise_rho=rho)
    noise = torch.stack([actor._next_noise() for _ in range(4)]).flatten(1)
    torch.testing.assert_close(noise.std(1), torch.ones(4), rtol=0.03, atol=0)
    for t in range(3):
        assert (noise[t] * noise[t + 1]).mean() == pytest.approx(rho, abs=0.03)


def test_a_trained_agent_acts_with_the_noise_of_trainings_end():
    assert Actor(swift_agent(action_noise=ActionNoiseConfig(0.9, 0.25)), 1).noise_rho == 0.25
    assert Actor(swift_agent(action_noise=ActionNoiseConfig(0.9, None)), 1).noise_rho == 0.9
    assert Actor(paper_agent(), 1).noise_rho == 0


def test_g_is_of_the_frame_last_acted_on():
    agent = PAPER()
    actor, seen = Actor(agent, 2), observe(SENSES, 2)
    with pytest.raises(ValueError, match="after the first act"):
        _ = actor.expected_free_energy
    actor.act(to_tensors({n: x.numpy() for n, x in seen.items()}, "cpu"))
    assert actor.tokens is not None
    wanted = agent.expected_free_energy(actor.tokens).detach()
    np.testing.assert_allclose(actor.expected_free_energy, wanted, rtol=1e-6)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="choose sample or mean"):
        Actor(paper_agent(), 1, "mode")  # type: ignore[arg-type]
