"""Attention over short sequences on a GPU, in Triton. Both kernels read the projection (B, T, 3·D) as the
linear layer left it, one head of one sequence to a program: nothing is permuted, and no table of scores is
written to memory. transformer.py says where they are used; everywhere else the same is done in torch."""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from mirrormark.agent.transformer import Cache

LONGEST = 64
SHORT = 32
"""Steps up to which flash kernels waste their tiles even where heads are wide."""
HEAD_SIZES = (16, 32, 64)
STEP = {"ROWS": 8, "num_warps": 1}  # a head's sums stay within a warp: no thread waits for another


@triton.jit
def _weights(q, k, rows, scale):
    """Causal softmax of the scores, fp32. Rows past the end of the sequence come last: no one sees them."""
    scores = tl.dot(q, tl.trans(k)) * scale
    scores = tl.where(rows[:, None] >= rows[None, :], scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _forward(qkv, out, scale, steps, HEADS: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr):
    width: tl.constexpr = HEADS * SIZE
    sequence, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    rows, columns = tl.arange(0, ROWS), tl.arange(0, SIZE)
    row = sequence.to(tl.int64) * steps + rows[:, None]
    column, there = head * SIZE + columns[None, :], rows[:, None] < steps
    place = qkv + row * (3 * width) + column
    q = tl.load(place, there, 0.0)
    k = tl.load(place + width, there, 0.0)
    v = tl.load(place + 2 * width, there, 0.0)
    mixed = tl.dot(_weights(q, k, rows, scale).to(v.dtype), v)
    tl.store(out + row * width + column, mixed.to(v.dtype), there)


@triton.jit
def _backward(grad, qkv, out, scale, steps, HEADS: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr):
    width: tl.constexpr = HEADS * SIZE
    sequence, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    rows, columns = tl.arange(0, ROWS), tl.arange(0, SIZE)
    row = sequence.to(tl.int64) * steps + rows[:, None]
    column, there = head * SIZE + columns[None, :], rows[:, None] < steps
    place = row * (3 * width) + column
    q = tl.load(qkv + place, there, 0.0)
    k = tl.load(qkv + place + width, there, 0.0)
    v = tl.load(qkv + place + 2 * width, there, 0.0)
    g = tl.load(grad + row * width + column, there, 0.0)
    weights = _weights(q, k, rows, scale)
    dv = tl.dot(tl.trans(weights).to(g.dtype), g)
    pull = tl.dot(g, tl.trans(v))
    pull = (weights * (pull - tl.sum(weights * pull, 1)[:, None]) * scale).to(q.dtype)
    tl.store(out + place, tl.dot(pull, k).to(q.dtype), there)
    tl.store(out + place + width, tl.dot(tl.trans(pull), q).to(q.dtype), there)
    tl.store(out + place + 2 * width, dv.to(q.dtype), there)


@triton.jit
def _step(qkv, keys, values, position, out, scale, length, HEADS: tl.constexpr, SIZE: tl.constexpr,
          ROWS: tl.constexpr):  # fmt: skip
    """The past is walked through in blocks of ROWS, as far as it goes, with a running softmax."""
    width: tl.constexpr = HEADS * SIZE
    program, columns = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    column = program % HEADS * SIZE + columns
    at = tl.load(position).to(tl.int32)
    place = qkv + program // HEADS * (3 * width) + column
    q, k, v = tl.load(place).to(tl.float32), tl.load(place + width), tl.load(place + 2 * width)
    start = program * length * SIZE
    tl.store(keys + start + at * SIZE + columns, k)
    tl.store(values + start + at * SIZE + columns, v)
    highest = tl.sum(k.to(tl.float32) * q, 0) * scale
    mixed, total = v.to(tl.float32), 1.0
    for first in range(0, at, ROWS):
        rows = first + tl.arange(0, ROWS)
        past = start + rows[:, None] * SIZE + columns[None, :]
        old_keys = tl.load(keys + past, rows[:, None] < at, 0.0)
        old_values = tl.load(values + past, rows[:, None] < at, 0.0)
        scores = tl.sum(old_keys.to(tl.float32) * q[None, :], 1) * scale
        scores = tl.where(rows < at, scores, float("-inf"))
        above = tl.maximum(highest, tl.max(scores, 0))
        weights, fade = tl.exp(scores - above), tl.exp(highest - above)
        mixed = mixed * fade + tl.sum(weights[:, None] * old_values.to(tl.float32), 0)
        total, highest = total * fade + tl.sum(weights, 0), above
    tl.store(out + program // HEADS * width + column, (mixed / total).to(k.dtype))


def _sizes(qkv: Tensor, heads: int, longest: int) -> dict[str, int]:
    rows = max(16, triton.next_power_of_2(longest))
    return {
        "HEADS": heads,
        "SIZE": qkv.shape[-1] // (3 * heads),
        "ROWS": rows,
        "num_warps": 1 if rows <= 32 else 4,
    }


@torch.library.custom_op("mirrormark::short_attention", mutates_args=())
def short_attention(qkv: Tensor, heads: int) -> Tensor:
    """Causal attention within each sequence: queries, keys, values (B, T, 3·D) -> (B, T, D)."""
    qkv, (batch, steps, thrice) = qkv.contiguous(), qkv.shape
    out = qkv.new_empty(batch, steps, thrice // 3)
    sizes = _sizes(qkv, heads, steps)
    _forward[(batch * heads,)](qkv, out, sizes["SIZE"] ** -0.5, steps, **sizes)
    return out


@short_attention.register_fake
def _(qkv: Tensor, heads: int) -> Tensor:
    return qkv.new_empty(*qkv.shape[:-1], qkv.shape[-1] // 3)


@torch.library.custom_op("mirrormark::short_attention_backward", mutates_args=())
def short_attention_backward(grad: Tensor, qkv: Tensor, heads: int) -> Tensor:
    """Gradient of `short_attention` for queries, keys, values; the weights are computed again."""
    grad, qkv = grad.contiguous(), qkv.contiguous()
    out, sizes = torch.empty_like(qkv), _sizes(qkv, heads, qkv.shape[1])
    grid = (qkv.shape[0] * heads,)
    _backward[grid](grad, qkv, out, sizes["SIZE"] ** -0.5, qkv.shape[1], **sizes)
    return out


@short_attention_backward.register_fake
def _(grad: Tensor, qkv: Tensor, heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _keep(ctx, inputs, output) -> None:
    qkv, ctx.heads = inputs
    ctx.save_for_backward(qkv)


def _back(ctx, grad: Tensor) -> tuple[Tensor, None]:
    return short_attention_backward(grad, *ctx.saved_tensors, ctx.heads), None


short_attention.register_autograd(_back, setup_context=_keep)


@torch.library.custom_op("mirrormark::step_attention", mutates_args=("keys", "values"))
def step_attention(qkv: Tensor, keys: Tensor, values: Tensor, position: Tensor, heads: int) -> Tensor:
    """One more step of each sequence, qkv (B, 1, 3·D), looks back over keys and values (B, heads, L, D/heads)
    up to `position` (1,), where its own are written -> (B, 1, D). No gradient."""
    qkv = qkv.contiguous()
    out = qkv.new_empty(*qkv.shape[:-1], qkv.shape[-1] // 3)
    length = keys.shape[2]
    sizes = _sizes(qkv, heads, length) | STEP
    grid = (qkv.shape[0] * heads,)
    _step[grid](qkv, keys, values, position, out, sizes["SIZE"] ** -0.5, length, **sizes)
    return out


@step_attention.register_fake
def _(qkv: Tensor, keys: Tensor, values: Tensor, position: Tensor, heads: int) -> Tensor:
    return qkv.new_empty(*qkv.shape[:-1], qkv.shape[-1] // 3)


def serve(qkv: Tensor, heads: int, cache: Cache | None, position: Tensor | None) -> bool:
    """Whether the kernels take this projection: half precision, on a GPU, and short."""
    size, half = qkv.shape[-1] // (3 * heads), qkv.dtype in (torch.bfloat16, torch.float16)
    longest = qkv.shape[1] if cache is None or position is None else cache.keys.shape[2]
    writes = cache is not None and position is None
    short = longest <= (LONGEST if size < 32 or position is not None else SHORT)
    return qkv.is_cuda and half and size in HEAD_SIZES and short and not writes


def attend(qkv: Tensor, heads: int, cache: Cache | None, position: Tensor | None) -> Tensor:
    """Causal attention, or one step's to the cache: qkv (B, T, 3·D) -> (B, T, D)."""
    if cache is not None and position is not None:
        return step_attention(qkv, *cache, position, heads)
    return short_attention(qkv, heads)
