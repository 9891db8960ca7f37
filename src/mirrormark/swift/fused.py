"""A small transformer over short sequences in one Triton kernel, where no gradient is needed: some sequences
to a program, the residual stream in registers from the embedding to the last layer (the self-prior rates
16,384 dreamed tokens a train step: layer by layer, memory traffic costs more than the arithmetic).

Linear layers take bf16 and sum in fp32; residuals, layer norms and softmax are fp32. The width is worked on
in chunks of 64 columns, kept as tuples: Triton's tensors have sides that are powers of two, networks need
not.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

if TYPE_CHECKING:
    from mirrormark.agent.transformer import Block

CHUNK = 64
ROWS, WARPS, STAGES = 64, 4, 3  # H200: 1.38 ms; 1.46 with 2 stages, 2.1 with 128 rows and 8 warps; 1 fails
FEWEST = 512


@triton.jit
def _norm(x, gain, CHUNK: tl.constexpr):
    """Layer norm; its shift lies behind its gain."""
    WIDTH: tl.constexpr = len(x) * CHUNK
    total = tl.sum(x[0], 1)
    for c in tl.static_range(1, len(x)):
        total += tl.sum(x[c], 1)
    mean = (total / WIDTH)[:, None]
    square = tl.sum((x[0] - mean) * (x[0] - mean), 1)
    for c in tl.static_range(1, len(x)):
        square += tl.sum((x[c] - mean) * (x[c] - mean), 1)
    scale = tl.rsqrt(square / WIDTH + 1e-5)[:, None]
    out = ()
    for c in tl.static_range(len(x)):
        place = gain + c * CHUNK + tl.arange(0, CHUNK)
        out = out + ((x[c] - mean) * scale * tl.load(place)[None, :] + tl.load(place + WIDTH)[None, :],)
    return out


@triton.jit
def _half(x, like):
    out = ()
    for c in tl.static_range(len(x)):
        out = out + (x[c].to(like.dtype.element_ty),)
    return out


@triton.jit
def _linear(x, weight, bias, first, N: tl.constexpr, CHUNK: tl.constexpr):
    """Rows first .. first + N of a linear layer, whose weight is (out, width)."""
    rows, columns = tl.arange(0, CHUNK), first + tl.arange(0, N)
    place = weight + columns[None, :] * (len(x) * CHUNK) + rows[:, None]
    out = tl.dot(x[0], tl.load(place))
    for c in tl.static_range(1, len(x)):
        out = tl.dot(x[c], tl.load(place + c * CHUNK), out)
    return out + tl.load(bias + columns)[None, :].to(tl.float32)


@triton.jit
def _add_linear(x, y, weight, first, N: tl.constexpr, INSIDE: tl.constexpr, CHUNK: tl.constexpr):
    """x and what columns first .. first + N of a linear layer, whose weight is (width, INSIDE), make of y."""
    rows, columns = first + tl.arange(0, N), tl.arange(0, CHUNK)
    place = weight + columns[None, :] * INSIDE + rows[:, None]
    out = ()
    for c in tl.static_range(len(x)):
        out = out + (tl.dot(y, tl.load(place + c * CHUNK * INSIDE), x[c]),)
    return out


@triton.jit
def _biased(x, bias, CHUNK: tl.constexpr):
    out = ()
    for c in tl.static_range(len(x)):
        out = out + (x[c] + tl.load(bias + c * CHUNK + tl.arange(0, CHUNK))[None, :].to(tl.float32),)
    return out


@triton.jit
def _attention(x, h, seen, weight, bias, scale, HEADS: tl.constexpr, CHUNK: tl.constexpr):
    """x + attention(h): projection and output layer lie one behind the other."""
    WIDTH: tl.constexpr = len(x) * CHUNK
    SIZE: tl.constexpr = WIDTH // HEADS
    x = _biased(x, bias + 3 * WIDTH, CHUNK)
    for head in tl.range(HEADS):
        q = _linear(h, weight, bias, head * SIZE, SIZE, CHUNK).to(weight.dtype.element_ty)
        k = _linear(h, weight, bias, WIDTH + head * SIZE, SIZE, CHUNK).to(weight.dtype.element_ty)
        v = _linear(h, weight, bias, 2 * WIDTH + head * SIZE, SIZE, CHUNK).to(weight.dtype.element_ty)
        scores = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        weights = tl.exp(scores - tl.max(scores, 1)[:, None])
        mixed = tl.dot(weights.to(v.dtype), v) / tl.sum(weights, 1)[:, None]
        x = _add_linear(x, mixed.to(v.dtype), weight + 3 * WIDTH * WIDTH, head * SIZE, SIZE, WIDTH, CHUNK)
    return x


@triton.jit
def _ffn(x, h, weight, bias, INSIDE: tl.constexpr, GELU: tl.constexpr, CHUNK: tl.constexpr):
    """x + ffn(h): its two layers lie one behind the other."""
    WIDTH: tl.constexpr = len(x) * CHUNK
    x = _biased(x, bias + INSIDE, CHUNK)
    for first in tl.range(0, INSIDE, CHUNK):
        inner = _linear(h, weight, bias, first, CHUNK, CHUNK)
        inner = 0.5 * inner * (1 + tl.erf(inner * 0.7071067811865476)) if GELU else tl.maximum(inner, 0)
        inner = inner.to(weight.dtype.element_ty)
        x = _add_linear(x, inner, weight + WIDTH * INSIDE, first, CHUNK, INSIDE, CHUNK)
    return x


@triton.jit
def _run(before, table, position, norms, weights, out, count, tokens, words, classes, scale,
         LAYERS: tl.constexpr, CHUNKS: tl.constexpr, HEADS: tl.constexpr, INSIDE: tl.constexpr,
         PRE: tl.constexpr, GELU: tl.constexpr, SLOT: tl.constexpr, ROWS: tl.constexpr,
         CHUNK: tl.constexpr):  # fmt: skip
    WIDTH: tl.constexpr = CHUNKS * CHUNK
    rows, columns = tl.arange(0, ROWS), tl.arange(0, CHUNK)[None, :]
    sequence, token = tl.program_id(0) * (ROWS // SLOT) + rows // SLOT, rows % SLOT
    there = (sequence < count) & (token < tokens)
    row = sequence.to(tl.int64) * tokens + token
    token_before = tl.load(before + row - sequence - 1, there & (token > 0), 0)
    token_before = tl.where(
        token > 0, (token - 1) % words * classes + token_before, words * classes
    )  # BOS is the last one
    seen = (rows[:, None] // SLOT == rows[None, :] // SLOT) & (rows[:, None] >= rows[None, :])
    x = ()
    for c in tl.static_range(CHUNKS):
        word = tl.load(table + token_before[:, None] * WIDTH + c * CHUNK + columns).to(tl.float32)
        place = tl.load(position + token[:, None] * WIDTH + c * CHUNK + columns, there[:, None], 0.0)
        x = x + (word + place,)
    x = _norm(x, norms, CHUNK)
    SIZE: tl.constexpr = 4 * WIDTH * WIDTH + 2 * WIDTH * INSIDE
    BIASES: tl.constexpr = 5 * WIDTH + INSIDE
    for layer in tl.range(LAYERS, num_stages=1):
        attention, gain = weights + layer * (SIZE + BIASES), norms + (4 * layer + 2) * WIDTH
        bias, ffn = attention + SIZE, attention + 4 * WIDTH * WIDTH
        if PRE:
            h = _half(_norm(x, gain, CHUNK), weights)
            x = _attention(x, h, seen, attention, bias, scale, HEADS, CHUNK)
            h = _half(_norm(x, gain + 2 * WIDTH, CHUNK), weights)
            x = _ffn(x, h, ffn, bias + 4 * WIDTH, INSIDE, GELU, CHUNK)
        else:
            x = _attention(x, _half(x, weights), seen, attention, bias, scale, HEADS, CHUNK)
            x = _norm(x, gain, CHUNK)
            x = _ffn(x, _half(x, weights), ffn, bias + 4 * WIDTH, INSIDE, GELU, CHUNK)
            x = _norm(x, gain + 2 * WIDTH, CHUNK)
    if PRE:
        x = _norm(x, norms + (4 * LAYERS + 2) * WIDTH, CHUNK)
    for c in tl.static_range(CHUNKS):
        tl.store(out + row[:, None] * WIDTH + c * CHUNK + columns, x[c], there[:, None])


@torch.library.custom_op("mirrormark::small_transformer", mutates_args=())
def small_transformer(
    before: Tensor, table: Tensor, position: Tensor, norms: Tensor, weights: Tensor, words: int, heads: int,
    layers: int, inside: int, pre: bool, gelu: bool,
) -> Tensor:  # fmt: skip
    """before (n, k) class indices; table (words x classes + BOS, width); position (K, width); norms and
    weights from `pack` -> the states (n, k + 1, width) that the last layer makes of BOS and them, fp32."""
    count, tokens, (longest, width) = before.shape[0], before.shape[1] + 1, position.shape
    before = before.contiguous()
    out = torch.empty(count, tokens, width, device=before.device)
    slot = max(16, triton.next_power_of_2(longest))
    _run[(triton.cdiv(count, ROWS // slot),)](
        before, table, position, norms, weights, out, count, tokens, words, (table.shape[0] - 1) // words,
        (width // heads) ** -0.5, LAYERS=layers, CHUNKS=width // CHUNK, HEADS=heads, INSIDE=inside, PRE=pre,
        GELU=gelu, SLOT=slot, ROWS=ROWS, CHUNK=CHUNK, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out


@small_transformer.register_fake
def _(before, table, position, norms, weights, words, heads, layers, inside, pre, gelu):
    return position.new_empty(before.shape[0], before.shape[1] + 1, position.shape[1])


def pack(
    layers: Iterable[nn.Module], first: nn.Module, last: nn.Module, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Norms (fp32, with the first and, where there is one, the last) and weights (dtype) of transformer
    blocks, in the order in which the kernel reads them."""
    blocks = [cast("Block", layer) for layer in layers]
    norms = [first, *(norm for b in blocks for norm in (b.norm_attention, b.norm_ffn)), last]
    linear = [(b.project, b.out, b.up, b.down) for b in blocks]
    flat = [p.flatten() for four in linear for p in (*(m.weight for m in four), *(m.bias for m in four))]
    return torch.cat([p for norm in norms for p in norm.parameters()]), torch.cat(flat).to(dtype)


def fit(width: int, heads: int, inside: int, tokens: int, before: Tensor) -> bool:
    """Whether the kernel takes such a network, and enough sequences to be worth its compilation."""
    sizes = (
        width % CHUNK == 0 and width <= 3 * CHUNK and width // heads in (16, 32, 64) and inside % CHUNK == 0
    )
    return before.is_cuda and sizes and tokens <= ROWS and before.shape[0] >= FEWEST
