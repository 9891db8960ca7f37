import pytest
import torch
from torch import nn

from mirrormark.agent.transformer import Block, BlockStyle, Cache, look_back

STYLES = pytest.mark.parametrize(
    "style",
    [BlockStyle(), BlockStyle(attention_bias=False, norm_eps=1e-6), BlockStyle(pre_norm=True, gelu=True)],
    ids=["self-prior", "world model", "swift"],
)


def caches(length: int) -> Cache:
    return Cache(torch.zeros(3, 2, length, 8), torch.zeros(3, 2, length, 8))


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("gelu", [False, True])
def test_a_block_is_torchs_encoder_layer(pre_norm, gelu):
    block = Block(16, 2, 32, 0.0, BlockStyle(pre_norm, gelu))
    activation = nn.functional.gelu if gelu else nn.functional.relu
    theirs = nn.TransformerEncoderLayer(16, 2, 32, 0.0, activation, batch_first=True, norm_first=pre_norm)
    names = {
        "self_attn.in_proj_weight": "project.weight",
        "self_attn.in_proj_bias": "project.bias",
        "self_attn.out_proj.weight": "out.weight",
        "self_attn.out_proj.bias": "out.bias",
        "linear1": "up",
        "linear2": "down",
        "norm1": "norm_attention",
        "norm2": "norm_ffn",
    }
    ours = dict(block.named_parameters())
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            for their, our in names.items():
                name = name.replace(their, our)
            ours[name].add_(0.1 * torch.randn_like(parameter))
            parameter.copy_(ours[name])
    x, mask = torch.randn(3, 7, 16), nn.Transformer.generate_square_subsequent_mask(7)
    torch.testing.assert_close(block(x), theirs(x, mask, is_causal=True), rtol=1e-4, atol=1e-5)


@STYLES
@torch.no_grad()
def test_with_a_cache_it_says_what_it_says_of_the_whole(style):
    block, x = Block(16, 2, 32, 0.1, style), torch.randn(3, 7, 16)
    whole, cache = block(x), caches(9)
    parts = [block(x[:, :4], False, cache)]
    for t in range(4, 7):
        parts.append(block(x[:, t : t + 1], False, cache, torch.tensor([t])))
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_what_lies_ahead_in_a_cache_is_not_seen():
    q, cache = torch.randn(3, 2, 1, 8), Cache(torch.randn(3, 2, 9, 8), torch.randn(3, 2, 9, 8))
    seen = look_back(q, cache, torch.tensor([4]), 0.0)
    for part in cache:
        part[:, :, 5:] = 1e6
    assert torch.equal(look_back(q, cache, torch.tensor([4]), 0.0), seen)
    cache.values[:, :, 4] += 1
    assert not torch.equal(look_back(q, cache, torch.tensor([4]), 0.0), seen)


@STYLES
@torch.no_grad()
def test_dropout_only_where_asked(style):
    block, x = Block(16, 2, 32, 0.5, style), torch.randn(3, 7, 16)
    assert torch.equal(block(x), block(x)) and not torch.equal(block(x, True), block(x, True))


@pytest.mark.parametrize("inner", [False, True])
@torch.no_grad()
def test_dropout_between_the_two_layers_is_the_self_priors_alone(inner):
    """S5."""
    block, x = Block(16, 2, 32, 0.5, BlockStyle(inner_dropout=inner)), torch.randn(3, 7, 16)
    assert torch.equal(block._ffn(x, 0.5), block._ffn(x, 0.5)) is not inner
