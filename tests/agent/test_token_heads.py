"""Our additions to E2 and E7: reading by levels, drifting bins, chained and recalled tokens, precision."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_agents import ACTIONS, CELLS, observe, random_tokens, tiny_agent

from mirrormark.agent.actor_critic import PolicyConfig
from mirrormark.agent.agent import AgentConfig, ImaginationConfig
from mirrormark.agent.fsq import FSQ
from mirrormark.agent.numerics import WideLinear
from mirrormark.agent.token_features import TokenFeatures
from mirrormark.agent.token_heads import GridNextTokenHead
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.world_model import WorldModel, WorldModelConfig

OURS = WorldModelConfig(
    width=16, layers=2, heads=2, ffn=32, max_length=16, dropout=0.0, keeps=True, drifts=True, chained=True,
    token_features="levels", memory_trace=0.8,
)  # fmt: skip


def grid_agent(**fields):
    return tiny_agent("grid", tokenizer=CELLS, world_model=replace(OURS, **fields))


@given(st.lists(st.sampled_from([(64,), (5, 5, 3), (3, 3), ()]), min_size=1, max_size=5))
def test_a_reading_by_levels_tells_every_class_of_every_token_apart(levels):
    classes = tuple(int(torch.tensor(n).prod()) if n else 7 for n in levels)
    spec = TokenSpec(classes, tuple(levels))
    features = TokenFeatures(spec, "levels")
    for token, count in enumerate(classes):
        tokens = torch.zeros(count, spec.K, dtype=torch.int64)
        tokens[:, token] = torch.arange(count)
        rows = features(tokens)
        assert rows.shape == (count, features.size)
        assert torch.cdist(rows, rows).fill_diagonal_(9.0).min() > 0.05


def test_neighbouring_bins_read_alike_and_names_do_not():
    spec = TokenSpec((64,), ((64,),))
    bins = torch.tensor([[10], [11], [50]])
    near, far = TokenFeatures(spec, "levels")(bins)[1:] - TokenFeatures(spec, "levels")(bins)[0]
    assert near.norm() < 0.6 * far.norm()
    hot = TokenFeatures(spec)(bins)
    assert torch.equal((hot[1] - hot[0]).norm(), (hot[2] - hot[0]).norm())


def test_levels_must_make_up_the_classes():
    with pytest.raises(ValueError, match="must multiply"):
        TokenSpec((10,), ((3, 3),))


@torch.no_grad()
def test_a_drifting_joint_moves_from_where_it_is():
    spec = TokenSpec((64, 64), ((64,), (64,)))
    model = WorldModel(spec, 2, replace(OURS, chained=False, memory_trace=0.0, unimix=0.0)).eval()
    drift = model.first.drift
    assert drift is not None
    drift.weight.zero_()
    drift.bias.copy_(torch.tensor([3.0, -2.0, 9.0, 9.0]))  # moves, then how surely
    present = torch.tensor([[20, 30], [40, 10]])
    log_probs = model.logits(torch.zeros(2, 16), present)
    assert torch.equal(log_probs.argmax(-1), present + torch.tensor([3, -2]))


@torch.no_grad()
def test_what_is_seen_follows_where_the_body_will_be():
    agent = grid_agent()
    split = agent.world_model.split
    assert split == agent.tokenizer.slices["proprioception"].stop
    present, hidden = random_tokens(agent, 4), torch.randn(4, agent.world_model.width)
    here, there = random_tokens(agent, 4), random_tokens(agent, 4)
    one, other = (agent.world_model.logits(hidden, present, goal) for goal in (here, there))
    assert torch.equal(one[:, :split], other[:, :split])
    assert not torch.allclose(one[:, split:], other[:, split:])
    later = torch.cat((here[:, :split], there[:, split:]), -1)  # tokens that are to be predicted tell nothing
    assert torch.equal(agent.world_model.logits(hidden, present, later), one)
    with pytest.raises(ValueError, match="chained"):
        agent.world_model.logits(hidden, present)


@torch.no_grad()
def test_draws_follow_the_chained_prediction():
    """Frequencies of a later token, given the posture that was drawn with it, are those of the table."""
    agent = grid_agent(unimix=0.0)
    present, hidden = random_tokens(agent, 1), torch.randn(1, agent.world_model.width)
    many = 20_000
    drawn = agent.world_model.sample(hidden.expand(many, -1), present.expand(many, -1))
    log_probs = agent.world_model.logits(hidden.expand(many, -1), present.expand(many, -1), drawn).exp()
    for token in (0, agent.world_model.split, agent.spec.K - 1):
        seen = torch.bincount(drawn[:, token], minlength=agent.spec.widest) / many
        assert torch.allclose(seen, log_probs[:, token].mean(0), atol=0.02)


@torch.no_grad()
def test_one_set_of_weights_serves_all_cells():
    """Where place says nothing, moving all tokens and the painted body by one cell moves the prediction."""
    agent = grid_agent()
    rest = agent.world_model.rest
    assert isinstance(rest, GridNextTokenHead)
    present, body = random_tokens(agent, 2), random_tokens(agent, 2)
    tokens = present[:, agent.world_model.split :].clone()
    tokens[:, 1:] = rest.inactive
    tokens[:, 1 + 5] = 3  # something in the cell of row 1, column 1
    moved = tokens.clone()
    moved[:, 1 + 5], moved[:, 1 + 6] = tokens[:, 1 + 6], 3
    rest.tell.weight.zero_()
    rest.tell.bias.zero_()
    rendered_posture, trace = (
        torch.zeros(2, 16, rest.take.in_features - 2 * 8),
        torch.zeros(2, rest.features.size),
    )
    first = body[:, : agent.world_model.split]
    before = rest(torch.zeros(2, 16), tokens, first, rendered_posture, trace)[:, 15:].unflatten(-1, (16, 15))
    after = rest(torch.zeros(2, 16), moved, first, rendered_posture, trace)[:, 15:].unflatten(-1, (16, 15))
    assert torch.allclose(before[:, 5], after[:, 6], atol=1e-6) and not torch.allclose(
        before[:, 5], before[:, 6]
    )


@pytest.mark.parametrize("known", [1, 5])
@torch.no_grad()
def test_what_is_recalled_is_the_same_step_by_step(known):
    agent = grid_agent()
    model, tokens, action = agent.world_model, random_tokens(agent, 3, 9), torch.rand(3, 9, ACTIONS) * 2 - 1
    full = model(tokens, action)
    assert full.shape[-1] == model.width == 16 + model.trace_size
    hidden, cache = model.prefill(tokens[:, :known], action[:, :known], model.init_cache(3, 9))
    assert torch.allclose(hidden, full[:, :known], atol=1e-5)
    for t in range(known, 9):
        hidden, cache = model.step(tokens[:, t], action[:, t], cache, t)
        assert torch.allclose(hidden, full[:, t], atol=1e-5)


@torch.no_grad()
def test_silence_leaves_no_trace_and_what_was_said_fades():
    agent = grid_agent()
    rest, model = agent.world_model.rest, agent.world_model
    assert isinstance(rest, GridNextTokenHead)
    tokens = random_tokens(agent, 1, 4)
    tokens[:, :, -16:] = rest.inactive
    tokens[:, 0, -1] = 0
    trace = model(tokens, torch.zeros(1, 4, ACTIONS))[0, :, 16:]
    assert trace[0].abs().sum() > 0 and torch.equal(
        trace[:, : -trace.shape[1] // 16].abs().sum(), torch.tensor(0.0)
    )
    assert torch.allclose(trace[3], trace[0] * 0.8**3, atol=1e-6)


@torch.no_grad()
def test_policy_and_value_see_what_is_recalled_where_asked_to():
    for memory_trace in (False, True):
        agent = tiny_agent(
            "grid",
            tokenizer=CELLS,
            world_model=OURS,
            policy=PolicyConfig(hidden=16, reads_memory_trace=memory_trace),
        )
        torch.nn.init.normal_(agent.value.head.weight)
        tokens, hidden = random_tokens(agent, 4), torch.randn(4, agent.world_model.width)
        other = hidden.clone()
        other[:, 16:] += 1.0  # another past, the same h
        same = torch.equal(agent.policy(tokens, hidden).mean, agent.policy(tokens, other).mean)
        assert same is not memory_trace
        assert torch.equal(agent.value(tokens, hidden), agent.value(tokens, other)) is not memory_trace


def test_a_layer_refuses_a_row_whose_end_it_would_not_see():
    with pytest.raises(ValueError, match="24 numbers for a layer of 16"):
        WideLinear(16, 8)(torch.zeros(2, 24))


@torch.no_grad()
def test_the_painted_body_is_what_the_decoder_starts_from():
    agent = grid_agent()
    tokens = random_tokens(agent, 2, 3)
    rendered_posture = agent.tokenizer.posture_renderer
    assert rendered_posture is not None and rendered_posture(tokens).shape == (
        2,
        3,
        16,
        rendered_posture.channels,
    )
    other = tokens.clone()
    other[..., -16:] = 0  # what the cells say is no part of it
    assert torch.equal(rendered_posture(tokens), rendered_posture(other))
    other[..., 0] = (other[..., 0] + 4) % 8
    assert not torch.allclose(rendered_posture(tokens), rendered_posture(other))


@torch.no_grad()
def test_precision_weighs_posture_and_nothing_else():
    whole, half = (
        tiny_agent("grid", imagination=ImaginationConfig(horizon=5, context=4, posture_precision=weight))
        for weight in (1.0, 0.25)
    )
    tokens = random_tokens(whole, 6)
    joints = whole.tokenizer.slices["proprioception"]
    parts = -whole.self_prior.per_token_log_prob(tokens)
    assert torch.allclose(whole.expected_free_energy(tokens), parts.sum(-1), rtol=1e-5)
    expected = parts.sum(-1) - 0.75 * parts[:, joints].sum(-1)
    assert torch.allclose(half.expected_free_energy(tokens), expected, rtol=1e-5)


def test_precision_needs_tokens_of_their_own():
    mixed = AgentConfig(imagination=ImaginationConfig(posture_precision=0.5)).imagination
    with pytest.raises(ValueError, match="posture_precision"):
        tiny_agent("categorical", imagination=replace(mixed, horizon=5, context=4))
    with pytest.raises(ValueError, match="not be negative"):
        ImaginationConfig(posture_precision=-1.0)


def test_a_memory_that_grows_and_a_negative_length_are_refused():
    with pytest.raises(ValueError, match="memory_trace"):
        replace(OURS, memory_trace=1.0)
    with pytest.raises(ValueError, match="dead_zone"):
        replace(CELLS, dead_zone=-0.1)


def test_a_policy_that_acts_on_the_prior_goes_with_the_public_codes_predictor():
    with pytest.raises(ValueError, match="acts_on"):
        tiny_agent("grid", world_model=OURS, policy=PolicyConfig(hidden=16, acts_on="prior"))


def test_a_in_dead_zone_token_says_nothing_once_learned():
    quantise = FSQ((5, 5), dead_zone=0.5)
    raw = torch.tensor([[[0.3, 0.0], [0.3, 0.45], [2.0, 0.0]]])
    loud = quantise.train()(raw)[0]
    heard = quantise.eval()(raw)[0]
    assert heard[0, 0] == quantise.centre_class and loud[0, 0] != quantise.centre_class
    assert torch.equal(heard[0, 1:], loud[0, 1:])


@torch.no_grad()
def test_dead_zone_changes_what_is_said_and_not_what_is_read():
    plain, in_dead_zone = (
        tiny_agent("grid", tokenizer=replace(CELLS, dead_zone=h)).eval() for h in (0.0, 1.2)
    )
    plain.tokenizer.encoder.out.weight.mul_(20)  # a new tokenizer hardly speaks
    in_dead_zone.load_state_dict(plain.state_dict())
    seen = observe(plain.tokenizer.senses, 8)
    one, other = (agent.encode(seen).tokens for agent in (plain, in_dead_zone))
    joints = plain.tokenizer.slices["proprioception"]
    assert torch.equal(one[:, joints], other[:, joints])
    inactive = plain.tokenizer.inactive_token
    assert (other == inactive).sum() > (one == inactive).sum()
