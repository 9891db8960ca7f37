import pytest
import torch
from tiny_minds import CODECS, FAST, PIXELS, SYMBOLS, observe, tiny_mind
from torch import nn

from mirrormark.mind.codec import CodecConfig
from mirrormark.mind.codec_categorical import ImageDecoder, ImageEncoder
from mirrormark.mind.codec_senses import SensesCodec
from mirrormark.mind.latent import LatentSpec
from mirrormark.mind.losses import LossConfig
from mirrormark.mind.mind import build_codec
from mirrormark.mind.objective import codec_objective
from mirrormark.mind.prediction import GridFollowing
from mirrormark.mind.quantise import ScalarQuantiser, bin_centre, bin_index
from mirrormark.mind.senses import SenseSpec

PAPER = {"vision": SenseSpec("image", 64), "proprioception": SenseSpec("vector", 12)}


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("lead", [(2,), (2, 3)])
def test_shapes(kind, lead):
    config, senses = CODECS[kind]
    codec = build_codec(config, senses)
    observation = observe(senses, *lead)
    code = codec.encode(observation)
    assert code.latent.shape == (*lead, codec.spec.K) and code.latent.dtype == torch.int64
    assert torch.equal(code.straight_through.detach().round(), codec.spec.one_hot(code.latent))
    assert (code.latent < torch.tensor(codec.spec.classes)).all()
    for name, target in codec.targets(observation).items():
        assert codec.decode(code.latent)[name].shape == target.shape
    if code.logits is not None:
        assert torch.allclose(code.logits.exp().sum(-1), torch.ones(*lead, codec.spec.K))


@pytest.mark.parametrize("kind", ["categorical", "senses", "senses, scene"])
def test_a_third_sense_is_one_more_entry(kind):
    senses = {**CODECS[kind][1], "touch": SenseSpec("vector", 4)}
    mind = tiny_mind(kind, senses)
    objective, code = codec_objective(mind, observe(senses, 2))
    objective.loss.backward()
    assert mind.decode(code.latent)["touch"].shape == (2, 4)


def test_the_papers_sizes():
    """Table II: 4 convolutions to 1024, mixer 1024, 32 variables of 32 classes."""
    codec = build_codec(CodecConfig(), PAPER)
    assert codec.spec.classes == (32,) * 32
    assert codec.encoders["vision"](observe(PAPER, 2)["vision"]).shape == (2, 1024)
    assert codec.encode(observe(PAPER, 2)).embedding.shape == (2, 1024)


def test_fast_convolutions_are_the_classic_ones():
    """The same networks of strided and transposed convolutions: Table II's, as torch has them."""
    encoder, decoder = ImageEncoder(2, 64), ImageDecoder(2, 64)
    image = torch.rand(3, 64, 64, 3)
    x = (image - 0.5).permute(0, 3, 1, 2)
    squares = encoder.first.weight.reshape(2, 3, 2, 2, 2, 2)  # out, colour, dy, dx, y, x
    weight = squares.permute(0, 1, 4, 2, 5, 3).reshape(2, 3, 4, 4)
    x = nn.functional.conv2d(x, weight, encoder.first.bias, 2).relu()
    for conv in encoder.rest:
        x = conv(x).relu()
    assert torch.allclose(encoder(image), x.flatten(1), atol=1e-6)

    embedding = torch.randn(3, 64)
    x = decoder.first(decoder.linear(embedding)).relu().reshape(3, 8, 5, 5)
    x = decoder.third(decoder.second(x).relu()).relu()
    x = nn.functional.pixel_shuffle(decoder.last(x), 2).permute(0, 2, 3, 1)
    assert torch.allclose(decoder(embedding), x, atol=1e-6)

    transposed = nn.ConvTranspose2d(2, 3, 6, 2, bias=False)  # what `last` and the shuffle stand for
    features = torch.rand(2, 2, 5, 5)
    weight = decoder.last.weight.flip(2, 3).reshape(3, 2, 2, 2, 3, 3)
    transposed.weight.data = weight.permute(3, 0, 4, 1, 5, 2).reshape(2, 3, 6, 6).detach().clone()
    shuffled = nn.functional.pixel_shuffle(decoder.last(features) - decoder.last.bias.view(1, -1, 1, 1), 2)
    assert torch.allclose(transposed(features), shuffled, atol=1e-5)


def test_bins_round_trip():
    angles = torch.rand(1000) * 2 - 1
    assert (bin_centre(bin_index(angles, 32), 32) - angles).abs().max() <= 1 / 32 + 1e-6
    assert bin_index(torch.tensor([-1.0, 1.0, -3.0, 3.0]), 32).tolist() == [0, 31, 0, 31]


@pytest.mark.parametrize("levels", [(8, 4), (5, 5), (3,), (2, 3, 4)])
def test_fsq_classes_are_all_reachable_and_decode_to_what_was_rounded(levels):
    quantise = ScalarQuantiser(levels)
    raw = torch.atanh(quantise.codebook.clamp(-0.999, 0.999)).unsqueeze(0)
    index, one_hot, _ = quantise(raw)
    assert index.flatten().tolist() == list(range(quantise.classes))
    assert torch.allclose(quantise.scalars(one_hot), quantise.codebook.unsqueeze(0), atol=1e-5)


@pytest.mark.parametrize("levels", [(5, 5, 5), (3,), (4,), (2, 3, 4), (6, 8)])
def test_there_is_one_silent_token_and_a_hushed_one_is_it(levels):
    quantise = ScalarQuantiser(levels, hush=0.5).eval()
    said = quantise(torch.full((1, 2, len(levels)), -0.01))[0]
    cells = LatentSpec((4, *[quantise.classes] * 4), ((4,), *[levels] * 4))
    following = GridFollowing(cells.part(slice(0, 1)), cells.part(slice(1, None)), 8, 2, 3, False)
    assert set(said.flatten().tolist()) == set(following.silent.tolist()) == {quantise.centre_class}
    least = quantise.codebook.square().sum(-1)
    assert least[quantise.centre_class] == pytest.approx(float(least.min()))


def test_fsq_gradient_goes_straight_through_the_rounding():
    quantise, raw = ScalarQuantiser((5, 4)), torch.randn(6, 3, 2, requires_grad=True)
    _, one_hot, activation = quantise(raw)
    weight = torch.randn(6, 3, 2)
    got = torch.autograd.grad((quantise.scalars(one_hot) * weight).sum(), raw, retain_graph=True)[0]
    expected = torch.autograd.grad((activation * weight).sum(), raw)[0]
    assert torch.allclose(got, expected, atol=1e-5)


def test_senses_puts_joints_first_and_reads_them_back():
    codec = build_codec(*CODECS["senses"])
    observation = observe(PIXELS, 5)
    latent = codec.encode(observation).latent
    assert codec.tokens["proprioception"] == slice(0, 3) and codec.tokens["vision"] == slice(3, codec.spec.K)
    assert torch.equal(latent[:, :3], bin_index(observation["proprioception"], 6))
    felt = codec.decode(latent)["proprioception"]
    assert (felt - observation["proprioception"]).abs().max() <= 1 / 6 + 1e-6


def test_the_vision_decoder_sees_exact_angles_while_learning_and_bins_otherwise():
    torch.manual_seed(0)
    codec = build_codec(CodecConfig(kind="senses", bins=6, **FAST), PIXELS)
    nn.init.normal_(codec.image_decoder.last.weight)
    latent = codec.encode(observe(PIXELS, 1)).latent
    centre = codec.decode(latent)["proprioception"]
    inside = {**observe(PIXELS, 1), "proprioception": centre + 0.1}  # same bin, other angle
    assert codec.encode(inside).latent[0, :3].tolist() == latent[0, :3].tolist()
    blind = codec.decode(latent)["vision"]
    assert not torch.equal(codec.decode(latent, inside)["vision"], blind)
    moved = latent.clone()
    moved[:, 0] = (moved[:, 0] + 3) % 6
    assert not torch.equal(codec.decode(moved)["vision"], blind)


def test_surprise_is_the_image_less_what_posture_paints():
    """Two images that differ from the expectation alike are encoded alike only if the expectation is used."""
    torch.manual_seed(0)
    codec = build_codec(CodecConfig(kind="senses", bins=6, encoder_sees="surprise", **FAST), PIXELS)
    assert isinstance(codec, SensesCodec)
    nn.init.normal_(codec.image_decoder.last.weight)
    angles = torch.rand(4, 3) * 2 - 1
    seen = []
    codec.encoder.first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    silent = torch.cat((bin_index(angles, 6), torch.full((4, codec.spec.K - 3), codec.silent_token)), -1)
    image = torch.rand(4, 16, 16, 3)
    painted = codec.decode(silent, {"vision": image, "proprioception": angles})["vision"]
    codec.encode({"vision": painted + 0.5, "proprioception": angles})
    surprise = nn.functional.pixel_shuffle(seen[-1], 2)[:, 3:]
    assert torch.allclose(surprise, torch.zeros_like(surprise), atol=1e-5)
    codec.encode({"vision": image, "proprioception": angles})
    assert nn.functional.pixel_shuffle(seen[-1], 2)[:, 3:].abs().mean() > 0.1


def test_silence_is_for_learning_only():
    torch.manual_seed(0)
    codec = build_codec(CodecConfig(kind="senses", bins=6, silence=1.0, **FAST), PIXELS)
    nn.init.normal_(codec.image_decoder.last.weight)
    observation = observe(PIXELS, 2)
    latent = codec.encode(observation).latent
    other = latent.clone()
    other[:, 3:] = (other[:, 3:] + 4) % 9

    def differs(seen) -> bool:
        return not torch.equal(codec.decode(latent, seen)["vision"], codec.decode(other, seen)["vision"])

    assert not differs(observation) and differs(None)
    codec.eval()
    assert differs(observation)


def learn(mind, data: dict[str, torch.Tensor], steps: int) -> None:
    optimiser = torch.optim.Adam(mind.codec.parameters(), 3e-3)
    for _ in range(steps):
        chosen = torch.randint(len(data["vision"]), (64,))
        objective, _ = codec_objective(mind, {k: v[chosen] for k, v in data.items()})
        optimiser.zero_grad()
        objective.loss.backward()
        optimiser.step()


def test_a_scene_token_tells_rooms_apart_and_leaves_the_cells_silent():
    """Two rooms, a third of the frames in the darker one: one token says which, no cell needs to."""
    torch.manual_seed(0)
    senses = {"vision": SenseSpec("image", 16), "proprioception": SenseSpec("vector", 1)}
    sizes = {"levels": (5,), "tokens_per_cell": 1, "channels": 8, "posture_width": 32, "bins": 8}
    config = CodecConfig(kind="senses", scene_tokens=1, encoder_sees="surprise", silence=0.1, **sizes)
    mind = tiny_mind("senses", senses, codec=config, losses=LossConfig(quiet=0.2))
    codec = mind.codec
    assert isinstance(codec, SensesCodec)
    angle = torch.rand(512, 1) * 2 - 1
    shade = (0.6 + 0.2 * angle)[:, None, None].expand(-1, 16, 16, 3).clone()
    dark = torch.arange(512) % 3 == 0
    shade[dark, :12] = 0.1
    data = {"vision": shade, "proprioception": angle}
    learn(mind, data, 200)
    vision = codec.encode(data).latent[:, codec.tokens["vision"]]
    likeliest = [int(vision[rows, 0].mode().values) for rows in (dark, ~dark)]
    assert likeliest[0] != likeliest[1]
    assert (vision[dark, 0] == likeliest[0]).float().mean() > 0.95
    assert (vision[:, 1:] == codec.silent_token).float().mean() > 0.95


def rarely_patched() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Frames painted by the angle alone, the same with a patch in cell (1, 2) of the 4×4 grid, and a mixture
    with the patch in a quarter of them."""
    angle = torch.rand(512, 1) * 2 - 1
    shade = (0.5 + 0.3 * angle)[:, None, None].expand(-1, 16, 16, 3)
    plain = {"vision": shade.clone(), "proprioception": angle}
    patched = {"vision": shade.clone(), "proprioception": angle}
    patched["vision"][:, 4:8, 8:12] = 1.0
    return plain, patched, {k: torch.cat((plain[k][:384], patched[k][384:])) for k in plain}


PATCHED_CELL = 6


def quiet_mind(losses: LossConfig):
    senses = {"vision": SenseSpec("image", 16), "proprioception": SenseSpec("vector", 1)}
    config = CodecConfig(kind="senses", levels=(5,), tokens_per_cell=1, channels=8, posture_width=32, bins=8)
    mind = tiny_mind("senses", senses, codec=config, losses=losses)
    assert isinstance(mind.codec, SensesCodec)
    return mind, mind.codec


def test_quiet_tokens_fall_silent_and_speak_where_posture_does_not_tell():
    torch.manual_seed(0)
    mind, codec = quiet_mind(LossConfig(quiet=0.2))
    plain, patched, data = rarely_patched()
    learn(mind, data, 150)
    vision = codec.tokens["vision"]
    silent = codec.encode(plain).latent[:, vision] == codec.silent_token
    assert silent.float().mean() > 0.95
    told = codec.encode(patched).latent[:, vision] != codec.encode(plain).latent[:, vision]
    assert told.float().sum(-1).mean() >= 0.9
    assert told[:, PATCHED_CELL].float().mean() > 0.9


@pytest.mark.parametrize("ramp", [0.0, 0.5])
def test_a_cell_that_falls_silent_too_soon_never_wakes(ramp):
    """A rate term that is strong from the first step silences the cell before its token means anything; one
    that grows leaves it its voice, and silences the others all the same."""
    torch.manual_seed(0)
    mind, codec = quiet_mind(LossConfig(quiet=2.0, quiet_ramp=ramp))
    plain, patched, data = rarely_patched()
    for tenth in range(10):
        mind.let_quiet_grow(tenth / 10)
        learn(mind, data, 20)
    vision = codec.tokens["vision"]
    silent = codec.encode(plain).latent[:, vision] == codec.silent_token
    told = codec.encode(patched).latent[:, vision][:, PATCHED_CELL] != codec.silent_token
    assert silent.float().mean() > 0.95
    assert told.float().mean() > 0.7 if ramp else not told.any()


@pytest.mark.parametrize(
    ("config", "senses", "sentence"),
    [
        (CodecConfig(kind="symbolic"), PIXELS, "cannot see images"),
        (CodecConfig(), SYMBOLS, "cannot read symbols"),
        (CodecConfig(), PIXELS, "64×64"),
        (CodecConfig(channels=2), PAPER, "codec.embedding"),
        (CodecConfig(kind="senses", levels=(1,)), PIXELS, "codec.levels"),
        (CodecConfig(kind="ear"), PIXELS, "unknown codec.kind"),  # type: ignore[arg-type]
        (CodecConfig(), {}, "at least one sense"),
    ],
)
def test_clear_sentences_for_impossible_codecs(config, senses, sentence):
    with pytest.raises(ValueError, match=sentence):
        build_codec(config, senses)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"vision": torch.zeros(2, 16, 16, 4)}, "must end in"),
        ({"vision": torch.zeros(2, 16, 16, 3, dtype=torch.int64)}, "wrong dtype"),
        ({"proprioception": torch.zeros(3, 3)}, "leading axes"),
        ({"proprioception": torch.zeros(2, 3, dtype=torch.int64)}, "wrong dtype"),
        ({"proprioception": None}, "lacks the senses"),
        ({"smell": torch.zeros(2, 3)}, r"\['smell'\] unknown to this mind"),
    ],
)
def test_clear_sentences_for_impossible_observations(change, sentence):
    codec = build_codec(*CODECS["senses"])
    observation = {k: v for k, v in {**observe(PIXELS, 2), **change}.items() if v is not None}
    with pytest.raises(ValueError, match=sentence):
        codec.encode(observation)
