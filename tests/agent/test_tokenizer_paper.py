"""What parity cannot see: shapes, the other choices of the auxiliary loss (D4), what is refused."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from mirrormark.agent.losses import Loss
from mirrormark.agent.senses import SenseSpec
from mirrormark.agent.tokenizer_paper import PaperTokenizer
from mirrormark.config import CategoricalTokenizerConfig
from tests.agent.tiny import SENSES, TOKENIZER, observe


def tiny(auxiliary: Any = "tokens", senses=SENSES) -> PaperTokenizer:
    torch.manual_seed(0)
    config = CategoricalTokenizerConfig(**TOKENIZER, auxiliary=auxiliary)
    return PaperTokenizer(senses, config)


def gradients(module: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    module.zero_grad(set_to_none=True)
    loss.backward()
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def loss_of(tokenizer: PaperTokenizer) -> Loss:
    torch.manual_seed(1)
    return tokenizer.loss(observe(SENSES, 6))[1]


@pytest.mark.parametrize("lead", [(2,), (2, 3), ()])
def test_shapes(lead):
    tokenizer, seen = tiny(), observe(SENSES, *lead)
    encoding = tokenizer.encode(seen)
    assert encoding.tokens.shape == (*lead, 4) and encoding.tokens.dtype == torch.int64
    assert encoding.one_hot is not None and encoding.one_hot.shape == (*lead, 20)
    assert encoding.inputs is encoding.one_hot and encoding.inputs.requires_grad
    assert encoding.log_probs is not None
    torch.testing.assert_close(encoding.log_probs.exp().sum(-1), torch.ones(*lead, 4))
    for name, value in tokenizer.decode(encoding.tokens).items():
        assert value.shape == tokenizer.targets(seen)[name].shape


def test_the_mode_is_the_likeliest_class():
    tokenizer, seen = tiny(), observe(SENSES, 5)
    encoding = tokenizer.encode(seen, sample=False)
    assert encoding.log_probs is not None
    assert torch.equal(encoding.tokens, encoding.log_probs.argmax(-1))


def test_bytes_and_shares_of_one_are_the_same_image():
    tokenizer, seen = tiny(), observe(SENSES, 3)
    as_float = {**seen, "vision": seen["vision"].float() / 255}
    one, other = (tokenizer.encode(x, sample=False).log_probs for x in (seen, as_float))
    torch.testing.assert_close(one, other)


def test_the_auxiliary_loss_on_tokens_teaches_the_decoders_once_more_and_nothing_else():
    """The paper's: the same prediction twice, the second time stopped before the decoders."""
    twice, once = tiny("tokens"), tiny("off")
    double, plain = loss_of(twice), loss_of(once)
    assert double.value.item() == pytest.approx(2 * plain.value.item())
    both = gradients(twice, double.value)
    for name, alone in gradients(once, plain.value).items():
        times = 2.0 if name.startswith("decoders") else 1.0
        torch.testing.assert_close(both[name], times * alone, rtol=1e-4, atol=1e-5)


def test_the_auxiliary_loss_on_the_embedding_reaches_the_decoders_only():
    """The public code's: past the inverse mixers."""
    with_it, without = tiny("embedding"), tiny("off")
    full, plain = loss_of(with_it), loss_of(without)
    assert set(full.metrics) - set(plain.metrics) == {"auxiliary_vision", "auxiliary_proprioception"}
    extra = sum(full.metrics[name] for name in set(full.metrics) - set(plain.metrics))
    torch.testing.assert_close(full.value, plain.value + extra)
    both, alone = gradients(with_it, full.value), gradients(without, plain.value)
    changed = {name.split(".")[0] for name in both if not torch.equal(both[name], alone[name])}
    assert changed == {"decoders"}


def test_a_third_sense_is_one_more_entry():
    senses = {**SENSES, "touch": SenseSpec("vector", 4)}
    tokenizer = tiny(senses=senses)
    encoding, loss = tokenizer.loss(observe(senses, 2))
    assert "touch" in loss.metrics and tokenizer.decode(encoding.tokens)["touch"].shape == (2, 4)


def test_vectors_come_before_images_in_the_mixer():
    tokenizer, seen, got = tiny(), observe(SENSES, 2), []
    tokenizer.mixer[0].register_forward_pre_hook(lambda _, inputs: got.append(inputs[0]))
    tokenizer.encode(seen)
    torch.testing.assert_close(got[0][:, :64], tokenizer.encoders["proprioception"](seen["proprioception"]))


def test_tokens_are_drawn_from_the_posterior_and_pass_its_gradient_on():
    tokenizer, seen = tiny(), observe(SENSES, 1)
    with mock.patch.object(torch, "rand_like", lambda like: torch.full_like(like, 0.5)):
        drawn = tokenizer.encode(seen).tokens  # the same noise for every class: the likeliest
    assert torch.equal(drawn, tokenizer.encode(seen, sample=False).tokens)
    inputs = tokenizer.encode(seen).inputs
    reached = gradients(tokenizer, (inputs * torch.randn_like(inputs)).sum())
    assert {name.split(".")[0] for name in reached} == {"encoders", "mixer", "posterior"}


@pytest.mark.parametrize(
    ("senses", "sentence"),
    [
        ({"cell": SenseSpec("symbol", 7)}, "no symbols"),
        ({"vision": SenseSpec("image", 16)}, "64×64"),
        ({}, "at least one sense"),
    ],
)
def test_clear_sentences(senses, sentence):
    with pytest.raises(ValueError, match=sentence):
        tiny(senses=senses)


def test_a_wrong_embedding_is_refused():
    with pytest.raises(ValueError, match=r"tokenizer\.embedding must be 32"):
        CategoricalTokenizerConfig(channels=16)
