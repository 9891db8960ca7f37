"""Our additions to E2 and E7: reading by levels, drifting bins, chained and recalled tokens, precision."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_minds import ACTIONS, CELLS, observe, random_latent, tiny_mind

from mirrormark.mind.dynamics import Dynamics, DynamicsConfig
from mirrormark.mind.latent import LatentSpec
from mirrormark.mind.mind import ImaginationConfig, MindConfig
from mirrormark.mind.numerics import WideLinear
from mirrormark.mind.policy import PolicyConfig
from mirrormark.mind.prediction import GridFollowing
from mirrormark.mind.quantise import ScalarQuantiser
from mirrormark.mind.reading import Reading

OURS = DynamicsConfig(
    width=16, layers=2, heads=2, ffn=32, max_length=16, dropout=0.0, keeps=True, drifts=True, chained=True,
    reads="levels", recalls=0.8,
)  # fmt: skip


def grid_mind(**fields):
    return tiny_mind("senses", codec=CELLS, dynamics=replace(OURS, **fields))


@given(st.lists(st.sampled_from([(64,), (5, 5, 3), (3, 3), ()]), min_size=1, max_size=5))
def test_a_reading_by_levels_tells_every_class_of_every_token_apart(levels):
    classes = tuple(int(torch.tensor(n).prod()) if n else 7 for n in levels)
    spec = LatentSpec(classes, tuple(levels))
    reading = Reading(spec, "levels")
    for token, count in enumerate(classes):
        latent = torch.zeros(count, spec.K, dtype=torch.int64)
        latent[:, token] = torch.arange(count)
        rows = reading(latent)
        assert rows.shape == (count, reading.size)
        assert torch.cdist(rows, rows).fill_diagonal_(9.0).min() > 0.05


def test_neighbouring_bins_read_alike_and_names_do_not():
    spec = LatentSpec((64,), ((64,),))
    bins = torch.tensor([[10], [11], [50]])
    near, far = Reading(spec, "levels")(bins)[1:] - Reading(spec, "levels")(bins)[0]
    assert near.norm() < 0.6 * far.norm()
    hot = Reading(spec)(bins)
    assert torch.equal((hot[1] - hot[0]).norm(), (hot[2] - hot[0]).norm())


def test_levels_must_make_up_the_classes():
    with pytest.raises(ValueError, match="must multiply"):
        LatentSpec((10,), ((3, 3),))


@torch.no_grad()
def test_a_drifting_joint_moves_from_where_it_is():
    spec = LatentSpec((64, 64), ((64,), (64,)))
    model = Dynamics(spec, 2, replace(OURS, chained=False, recalls=0.0, unimix=0.0)).eval()
    drift = model.first.drift
    assert drift is not None
    drift.weight.zero_()
    drift.bias.copy_(torch.tensor([3.0, -2.0, 9.0, 9.0]))  # moves, then how surely
    present = torch.tensor([[20, 30], [40, 10]])
    table = model.logits(torch.zeros(2, 16), present)
    assert torch.equal(table.argmax(-1), present + torch.tensor([3, -2]))


@torch.no_grad()
def test_what_is_seen_follows_where_the_body_will_be():
    mind = grid_mind()
    split = mind.dynamics.split
    assert split == mind.codec.tokens["proprioception"].stop
    present, hidden = random_latent(mind, 4), torch.randn(4, mind.dynamics.width)
    here, there = random_latent(mind, 4), random_latent(mind, 4)
    one, other = (mind.dynamics.logits(hidden, present, goal) for goal in (here, there))
    assert torch.equal(one[:, :split], other[:, :split])
    assert not torch.allclose(one[:, split:], other[:, split:])
    later = torch.cat((here[:, :split], there[:, split:]), -1)  # tokens that are to be predicted tell nothing
    assert torch.equal(mind.dynamics.logits(hidden, present, later), one)
    with pytest.raises(ValueError, match="chained"):
        mind.dynamics.logits(hidden, present)


@torch.no_grad()
def test_draws_follow_the_chained_prediction():
    """Frequencies of a later token, given the posture that was drawn with it, are those of the table."""
    mind = grid_mind(unimix=0.0)
    present, hidden = random_latent(mind, 1), torch.randn(1, mind.dynamics.width)
    many = 20_000
    drawn = mind.dynamics.draw(hidden.expand(many, -1), present.expand(many, -1))
    table = mind.dynamics.logits(hidden.expand(many, -1), present.expand(many, -1), drawn).exp()
    for token in (0, mind.dynamics.split, mind.spec.K - 1):
        seen = torch.bincount(drawn[:, token], minlength=mind.spec.widest) / many
        assert torch.allclose(seen, table[:, token].mean(0), atol=0.02)


@torch.no_grad()
def test_one_set_of_weights_serves_all_cells():
    """Where place says nothing, moving all tokens and the painted body by one cell moves the prediction."""
    mind = grid_mind()
    rest = mind.dynamics.rest
    assert isinstance(rest, GridFollowing)
    present, body = random_latent(mind, 2), random_latent(mind, 2)
    tokens = present[:, mind.dynamics.split :].clone()
    tokens[:, 1:] = rest.silent
    tokens[:, 1 + 5] = 3  # something in the cell of row 1, column 1
    moved = tokens.clone()
    moved[:, 1 + 5], moved[:, 1 + 6] = tokens[:, 1 + 6], 3
    rest.tell.weight.zero_()
    rest.tell.bias.zero_()
    look, trace = torch.zeros(2, 16, rest.take.in_features - 2 * 8), torch.zeros(2, rest.reading.size)
    first = body[:, : mind.dynamics.split]
    before = rest(torch.zeros(2, 16), tokens, first, look, trace)[:, 15:].unflatten(-1, (16, 15))
    after = rest(torch.zeros(2, 16), moved, first, look, trace)[:, 15:].unflatten(-1, (16, 15))
    assert torch.allclose(before[:, 5], after[:, 6], atol=1e-6) and not torch.allclose(
        before[:, 5], before[:, 6]
    )


@pytest.mark.parametrize("known", [1, 5])
@torch.no_grad()
def test_what_is_recalled_is_the_same_step_by_step(known):
    mind = grid_mind()
    model, latent, action = mind.dynamics, random_latent(mind, 3, 9), torch.rand(3, 9, ACTIONS) * 2 - 1
    full = model(latent, action)
    assert full.shape[-1] == model.width == 16 + model.traces
    hidden, cache = model.prefill(latent[:, :known], action[:, :known], model.init_cache(3, 9))
    assert torch.allclose(hidden, full[:, :known], atol=1e-5)
    for t in range(known, 9):
        hidden, cache = model.step(latent[:, t], action[:, t], cache, t)
        assert torch.allclose(hidden, full[:, t], atol=1e-5)


@torch.no_grad()
def test_silence_leaves_no_trace_and_what_was_said_fades():
    mind = grid_mind()
    rest, model = mind.dynamics.rest, mind.dynamics
    assert isinstance(rest, GridFollowing)
    latent = random_latent(mind, 1, 4)
    latent[:, :, -16:] = rest.silent
    latent[:, 0, -1] = 0
    trace = model(latent, torch.zeros(1, 4, ACTIONS))[0, :, 16:]
    assert trace[0].abs().sum() > 0 and torch.equal(
        trace[:, : -trace.shape[1] // 16].abs().sum(), torch.tensor(0.0)
    )
    assert torch.allclose(trace[3], trace[0] * 0.8**3, atol=1e-6)


@torch.no_grad()
def test_policy_and_value_see_what_is_recalled_where_asked_to():
    for recalls in (False, True):
        mind = tiny_mind(
            "senses",
            codec=CELLS,
            dynamics=OURS,
            policy=PolicyConfig(hidden=16, recalls=recalls),
        )
        torch.nn.init.normal_(mind.value.head.weight)
        latent, hidden = random_latent(mind, 4), torch.randn(4, mind.dynamics.width)
        other = hidden.clone()
        other[:, 16:] += 1.0  # another past, the same h
        same = torch.equal(mind.policy(latent, hidden).mean, mind.policy(latent, other).mean)
        assert same is not recalls
        assert torch.equal(mind.value(latent, hidden), mind.value(latent, other)) is not recalls


def test_a_layer_refuses_a_row_whose_end_it_would_not_see():
    with pytest.raises(ValueError, match="24 numbers for a layer of 16"):
        WideLinear(16, 8)(torch.zeros(2, 24))


@torch.no_grad()
def test_the_painted_body_is_what_the_decoder_starts_from():
    mind = grid_mind()
    latent = random_latent(mind, 2, 3)
    look = mind.codec.look
    assert look is not None and look(latent).shape == (2, 3, 16, look.channels)
    other = latent.clone()
    other[..., -16:] = 0  # what the cells say is no part of it
    assert torch.equal(look(latent), look(other))
    other[..., 0] = (other[..., 0] + 4) % 8
    assert not torch.allclose(look(latent), look(other))


@torch.no_grad()
def test_precision_weighs_posture_and_nothing_else():
    whole, half = (
        tiny_mind("senses", imagination=ImaginationConfig(horizon=5, context=4, posture_precision=weight))
        for weight in (1.0, 0.25)
    )
    latent = random_latent(whole, 6)
    joints = whole.codec.tokens["proprioception"]
    parts = -whole.self_prior.per_token_log_prob(latent)
    assert torch.allclose(whole.expected_free_energy(latent), parts.sum(-1), rtol=1e-5)
    expected = parts.sum(-1) - 0.75 * parts[:, joints].sum(-1)
    assert torch.allclose(half.expected_free_energy(latent), expected, rtol=1e-5)


def test_precision_needs_tokens_of_their_own():
    mixed = MindConfig(imagination=ImaginationConfig(posture_precision=0.5)).imagination
    with pytest.raises(ValueError, match="posture_precision"):
        tiny_mind("categorical", imagination=replace(mixed, horizon=5, context=4))
    with pytest.raises(ValueError, match="not be negative"):
        ImaginationConfig(posture_precision=-1.0)


def test_a_memory_that_grows_and_a_negative_length_are_refused():
    with pytest.raises(ValueError, match="recalls"):
        replace(OURS, recalls=1.0)
    with pytest.raises(ValueError, match="hush"):
        replace(CELLS, hush=-0.1)


def test_a_policy_that_acts_on_the_prior_goes_with_the_public_codes_predictor():
    with pytest.raises(ValueError, match="acts_on"):
        tiny_mind("senses", dynamics=OURS, policy=PolicyConfig(hidden=16, acts_on="prior"))


def test_a_hushed_token_says_nothing_once_learned():
    quantise = ScalarQuantiser((5, 5), hush=0.5)
    raw = torch.tensor([[[0.3, 0.0], [0.3, 0.45], [2.0, 0.0]]])
    loud = quantise.train()(raw)[0]
    heard = quantise.eval()(raw)[0]
    assert heard[0, 0] == quantise.centre_class and loud[0, 0] != quantise.centre_class
    assert torch.equal(heard[0, 1:], loud[0, 1:])


@torch.no_grad()
def test_hush_changes_what_is_said_and_not_what_is_read():
    plain, hushed = (tiny_mind("senses", codec=replace(CELLS, hush=h)).eval() for h in (0.0, 1.2))
    plain.codec.encoder.out.weight.mul_(20)  # a new codec hardly speaks
    hushed.load_state_dict(plain.state_dict())
    seen = observe(plain.codec.senses, 8)
    one, other = (mind.encode(seen).latent for mind in (plain, hushed))
    joints = plain.codec.tokens["proprioception"]
    assert torch.equal(one[:, joints], other[:, joints])
    silent = plain.codec.silent_token
    assert (other == silent).sum() > (one == silent).sum()
