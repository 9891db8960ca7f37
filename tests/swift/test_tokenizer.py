from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mirrormark.agent.senses import SenseSpec
from mirrormark.config import GridTokenizerConfig, SymbolicTokenizerConfig
from mirrormark.swift.fsq import bin_index
from mirrormark.swift.tokenizer import GridTokenizer, SymbolicTokenizer, rate_loss
from tests.agent.tiny import observe
from tests.swift.tiny import PIXELS, SMALL, SYMBOLS, TOKENIZERS

ROOM = {"vision": SenseSpec("image", 16), "proprioception": SenseSpec("vector", 1)}
EVERY = pytest.mark.parametrize("kind", TOKENIZERS)


def make(kind: str = "grid", **fields) -> SymbolicTokenizer:
    config, senses = TOKENIZERS[kind]
    torch.manual_seed(0)
    if not isinstance(config, GridTokenizerConfig):
        return SymbolicTokenizer(senses, config)
    tokenizer = GridTokenizer(senses, replace(config, **fields))
    nn.init.normal_(tokenizer.image_decoder.last.weight)  # else it paints grey
    return tokenizer


@EVERY
@pytest.mark.parametrize("lead", [(2,), (2, 3)])
def test_shapes(kind, lead):
    tokenizer, seen = make(kind), observe(TOKENIZERS[kind][1], *lead)
    encoding, loss = tokenizer.loss(seen)
    assert encoding.tokens.shape == (*lead, tokenizer.spec.K) and encoding.tokens.dtype == torch.int64
    assert (encoding.tokens < torch.tensor(tokenizer.spec.classes)).all()
    assert encoding.inputs is encoding.tokens and encoding.log_probs is None
    assert loss.value.shape == ()
    for name, target in tokenizer.targets(seen).items():
        assert tokenizer.decode(encoding.tokens)[name].shape == target.shape


@EVERY
def test_every_sense_has_its_own_tokens_joints_first_and_they_can_be_read_back(kind):
    tokenizer, seen = make(kind), observe(TOKENIZERS[kind][1], 5)
    tokens = tokenizer.encode(seen).tokens
    assert tokenizer.slices["proprioception"] == slice(0, 3)
    places = [k for place in tokenizer.slices.values() for k in range(tokenizer.spec.K)[place]]
    assert places == list(range(tokenizer.spec.K))
    assert torch.equal(tokens[:, :3], bin_index(seen["proprioception"], 6))
    prediction = tokenizer.decode(tokens)
    assert (prediction["proprioception"] - seen["proprioception"]).abs().max() <= 1 / 6 + 1e-6
    if kind == "symbolic":
        assert torch.equal(prediction["cell"], seen["cell"])


def test_sizes_of_the_preset():
    """12 joint bins, one token for the scene, 16 for cells."""
    senses = {"vision": SenseSpec("image", 64), "proprioception": SenseSpec("vector", 12)}
    assert GridTokenizer(senses, GridTokenizerConfig()).spec.classes == (64,) * 12 + (125,) * 17


def test_a_third_sense_is_one_more_entry():
    senses = {**PIXELS, "touch": SenseSpec("vector", 4)}
    tokenizer = GridTokenizer(senses, GridTokenizerConfig(**SMALL))
    tokens = tokenizer.encode(observe(senses, 2)).tokens
    assert tokenizer.decode(tokens)["touch"].shape == (2, 4) and tokenizer.slices["touch"] == slice(3, 7)


def test_the_image_is_painted_from_exact_angles_while_learning_and_from_bins_otherwise():
    tokenizer, painted = make(vision_token_dropout=0.0), []
    assert isinstance(tokenizer, GridTokenizer)
    tokenizer.image_decoder.register_forward_hook(lambda _, inputs, output: painted.append(output.detach()))
    seen = observe(PIXELS, 1)
    tokens = tokenizer.encode(seen).tokens
    felt = tokenizer.decode(tokens)["proprioception"]
    bins = painted[-1]
    torch.testing.assert_close(tokenizer.decode(tokens)["vision"], bins)
    moved = tokens.clone()
    moved[:, 0] = (moved[:, 0] + 3) % 6
    assert not torch.equal(tokenizer.decode(moved)["vision"], bins)
    for exact in (felt, felt + 0.1):  # the same bins
        there = {**seen, "proprioception": exact}
        assert torch.equal(tokenizer.encode(there).tokens[:, :3], tokens[:, :3])
        tokenizer.loss(there)
        again = tokenizer.decode(tokenizer.encode(there).tokens)["vision"]
        assert torch.allclose(painted[-3], again) is (exact is felt)


def test_surprise_is_the_image_less_what_posture_paints():
    """What the encoder is shown beside the image is 0 where the image is as posture would have it."""
    tokenizer = make(levels=(3, 3), scene_tokens=0)
    assert isinstance(tokenizer, GridTokenizer)
    shown, angles = [], torch.rand(4, 3) * 2 - 1
    tokenizer.encoder.first.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0]))
    painted = []
    hook = tokenizer.image_decoder.register_forward_hook(lambda _, i, output: painted.append(output))
    image = torch.rand(4, 16, 16, 3)
    tokenizer.encode({"vision": image, "proprioception": angles})
    hook.remove()

    def surprise() -> Tensor:
        return nn.functional.pixel_shuffle(shown[-1], 2)[:, 3:]

    assert surprise().abs().mean() > 0.1
    tokenizer.encode({"vision": painted[0] + 0.5, "proprioception": angles})
    assert surprise().abs().max() < 1e-5


def test_token_dropout_is_for_learning_only_and_a_frozen_tokenizer_has_none():
    tokenizer = make(vision_token_dropout=1.0)
    assert isinstance(tokenizer, GridTokenizer)
    nn.init.constant_(tokenizer.encoder.out.bias, 2.0)  # every cell is active
    seen, cells = observe(PIXELS, 2), []
    tokenizer.image_decoder.register_forward_pre_hook(lambda _, inputs: cells.append(inputs[1]))
    assert tokenizer.training
    tokenizer.loss(seen)
    assert not cells[-1].any()
    tokenizer.requires_grad_(False).train()
    tokenizer.loss(seen)
    assert not tokenizer.training and cells[-1].any()


def test_the_rate_term_is_least_at_the_centre_and_linear_far_from_it():
    rate = [rate_loss(torch.full((1, 4), a)).item() for a in (0.0, 0.5, -0.5, 1.0)]
    assert rate[0] == 0 and rate[1] == rate[2] and rate[3] == pytest.approx(2 * rate[1], rel=0.06)


def test_the_rate_term_grows_over_a_share_of_the_phase():
    tokenizer, seen, found = make(rate=2.0, rate_ramp=0.5, vision_token_dropout=0.0), observe(PIXELS, 3), []
    for progress in (0.0, 0.25, 0.5, 1.0):
        tokenizer.set_progress(progress)
        loss = tokenizer.loss(seen)[1]
        found.append(((loss.value - loss.metrics["vision"]) / loss.metrics["rate"]).item())
    assert found == pytest.approx([0, 1, 2, 2], abs=1e-2)


# What it learns


def learn(tokenizer: GridTokenizer, data: dict[str, Tensor], steps: int) -> None:
    optimizer = torch.optim.Adam(tokenizer.parameters(), 3e-3)
    for _ in range(steps):
        chosen = torch.randint(len(data["vision"]), (64,))
        loss = tokenizer.loss({name: x[chosen] for name, x in data.items()})[1].value
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def room(**fields) -> GridTokenizer:
    sizes: dict[str, Any] = {"levels": (5,), "channels": 8, "posture_width": 32, "bins": 8, "scene_tokens": 0}
    torch.manual_seed(0)
    return GridTokenizer(ROOM, GridTokenizerConfig(**(sizes | fields)))


INACTIVE = 2
"""Of a token's 5 classes."""


def test_a_scene_token_tells_rooms_apart_and_leaves_the_cells_inactive():
    """Two rooms, a third of the frames in the darker one: one token says which, no cell needs to."""
    tokenizer = room(scene_tokens=1, rate=0.2, rate_ramp=0.0)
    angle = torch.rand(512, 1) * 2 - 1
    shade = (0.6 + 0.2 * angle)[:, None, None].expand(-1, 16, 16, 3).clone()
    dark = torch.arange(512) % 3 == 0
    shade[dark, :12] = 0.1
    data = {"vision": shade, "proprioception": angle}
    learn(tokenizer, data, 200)
    vision = tokenizer.encode(data).tokens[:, tokenizer.slices["vision"]]
    likeliest = [int(vision[rows, 0].mode().values) for rows in (dark, ~dark)]
    assert likeliest[0] != likeliest[1]
    assert (vision[dark, 0] == likeliest[0]).float().mean() > 0.95
    assert (vision[:, 1:] == INACTIVE).float().mean() > 0.95


def rarely_patched() -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Frames painted by the angle alone, the same with a patch in cell (1, 2) of the 4×4 grid, and a mixture
    with the patch in a quarter of them."""
    angle = torch.rand(512, 1) * 2 - 1
    shade = (0.5 + 0.3 * angle)[:, None, None].expand(-1, 16, 16, 3)
    plain = {"vision": shade.clone(), "proprioception": angle}
    patched = {"vision": shade.clone(), "proprioception": angle}
    patched["vision"][:, 4:8, 8:12] = 1.0
    return plain, patched, {k: torch.cat((plain[k][:384], patched[k][384:])) for k in plain}


PATCHED_CELL = 6


def test_cells_fall_inactive_and_are_active_where_posture_does_not_tell():
    tokenizer = room(rate=0.2, rate_ramp=0.0, encoder_sees="image", vision_token_dropout=0.0)
    plain, patched, data = rarely_patched()
    learn(tokenizer, data, 150)
    vision = tokenizer.slices["vision"]
    without, with_it = (tokenizer.encode(x).tokens[:, vision] for x in (plain, patched))
    assert (without == INACTIVE).float().mean() > 0.95
    assert (with_it != without)[:, PATCHED_CELL].float().mean() > 0.9


@pytest.mark.parametrize("ramp", [0.0, 0.5])
def test_a_cell_that_falls_inactive_too_soon_stays_so(ramp):
    """A rate term that is strong from the first step silences the cell before its token means anything; one
    that grows leaves it what it says, and silences the others all the same."""
    tokenizer = room(rate=2.0, rate_ramp=ramp, encoder_sees="image", vision_token_dropout=0.0)
    plain, patched, data = rarely_patched()
    for tenth in range(10):
        tokenizer.set_progress(tenth / 10)
        learn(tokenizer, data, 20)
    vision = tokenizer.slices["vision"]
    without, with_it = (tokenizer.encode(x).tokens[:, vision] for x in (plain, patched))
    told = with_it[:, PATCHED_CELL] != INACTIVE
    assert (without == INACTIVE).float().mean() > 0.95
    assert told.float().mean() > 0.7 if ramp else not told.any()


@pytest.mark.parametrize(
    ("make_it", "sentence"),
    [
        (lambda: SymbolicTokenizer(PIXELS, SymbolicTokenizerConfig()), "cannot see images"),
        (lambda: GridTokenizer(SYMBOLS, GridTokenizerConfig()), "one image and at least one vector"),
        (lambda: GridTokenizer({**ROOM, "vision": SenseSpec("image", 20)}, GridTokenizerConfig()), "16, 32"),
        (lambda: SymbolicTokenizer({}, SymbolicTokenizerConfig()), "at least one sense"),
        (lambda: SymbolicTokenizerConfig(bins=1), r"tokenizer\.bins"),
        (lambda: GridTokenizerConfig(vision_token_dropout=2.0), r"tokenizer\.vision_token_dropout"),
        (lambda: GridTokenizerConfig(rate=-1.0), r"tokenizer\.rate"),
    ],
)
def test_clear_sentences(make_it, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_it()
