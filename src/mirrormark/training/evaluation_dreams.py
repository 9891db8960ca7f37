"""Does imagination contain removal? And how well does it predict, under babbling and the policy?"""

from typing import NamedTuple

import torch
from torch import Tensor

from mirrormark.agent.agent import Agent
from mirrormark.agent.tokens import gather_log_prob
from mirrormark.agent.world_model import predict
from mirrormark.training.held_out import HeldOut, efe

_BEFORE_REMOVAL_CONTROL_STEPS = 10
DREAM_CONTROL_STEPS = 20
_DREAMED_REMOVAL = (
    "real_fall_nats",
    "dreamed_fall_nats",
    "dreamed_fall_ratio",
    "dreamed_fall_contrast",
    "dreamed_gone_where_removed",
    "dreamed_gone_where_kept",
    "seen_gone_where_removed",
    "seen_gone_where_kept",
)


class Removals(NamedTuple):
    """Stretches of episodes around a removal, and stretches of the same times where the mark stayed on."""

    tokens: Tensor  # (N, context + 20, K)
    action: Tensor  # (N, context + 19, A)
    efe: Tensor  # (N, context + 20)


def stretches(
    tokens: Tensor, action: Tensor, cost: Tensor, rows: Tensor, present: Tensor, context: int
) -> Removals:
    """Real frames from `context` - 1 before the present frame to 20 after it."""
    steps = present[:, None] + torch.arange(1 - context, DREAM_CONTROL_STEPS + 1, device=present.device)
    return Removals(
        tokens[rows[:, None], steps], action[rows[:, None], steps[:, :-1]], cost[rows[:, None], steps]
    )


def find_removals(mark: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Rows and present frames (ten control steps before the mark came off) with room for context and
    dream."""
    worn = mark.sum(1)  # the mark is on from the start until it comes off: its frames are the first ones
    removed = (worn > 0) & (worn < mark.shape[1])
    present = worn - _BEFORE_REMOVAL_CONTROL_STEPS
    fits = (present >= context - 1) & (present + DREAM_CONTROL_STEPS < mark.shape[1])
    rows = (removed & fits).nonzero().flatten()
    return rows, present[rows]


@torch.no_grad()
def dreamed_removal(
    agent: Agent, held: HeldOut, tokens: Tensor, cost: Tensor, gap_nats: float | None
) -> dict[str, float | None]:
    """With the real actions, does the mark go in imagination where it really went, and only there? If
    imagined marks fade of themselves there is a ratio, too: the contrast is what G falls
    more where the mark came off than where it stayed on, in shares of the real one. None: cannot be measured,
    because no removal was found, G did not fall in the world either, or no mark is ever seen (then there is
    no gap)."""
    context = agent.config.imagination.context
    mark, action = held.episodes.mark.to(tokens.device), held.episodes.action.to(tokens.device)
    rows, present = find_removals(mark, context)
    found: dict[str, float | None] = {"removals_found": len(rows), **dict.fromkeys(_DREAMED_REMOVAL)}
    if not len(rows) or gap_nats is None:
        return found
    gone = _fall(agent, stretches(tokens, action, cost, rows, present, context), gap_nats)
    found["real_fall_nats"], found["dreamed_fall_nats"] = gone.real_nats, gone.dreamed_nats
    found["seen_gone_where_removed"], found["dreamed_gone_where_removed"] = gone.seen_gone, gone.dreamed_gone
    if gone.real_nats > 0:
        found["dreamed_fall_ratio"] = gone.dreamed_nats / gone.real_nats
    kept_rows = mark.all(1).nonzero().flatten()
    if len(kept_rows):
        # The same present frames, in turn, so that time in the episode tells nothing apart.
        again = torch.arange(len(kept_rows), device=rows.device) % len(present)
        kept = _fall(agent, stretches(tokens, action, cost, kept_rows, present[again], context), gap_nats)
        found["seen_gone_where_kept"], found["dreamed_gone_where_kept"] = kept.seen_gone, kept.dreamed_gone
        if gone.real_nats > kept.real_nats:
            more = gone.dreamed_nats - kept.dreamed_nats
            found["dreamed_fall_contrast"] = more / (gone.real_nats - kept.real_nats)
    return found


class _Fall(NamedTuple):
    """How far G falls in 20 steps, and in what share of the stretches the mark is gone then: in the world, in
    dreams."""

    real_nats: float
    dreamed_nats: float
    seen_gone: float
    dreamed_gone: float


def _fall(agent: Agent, real: Removals, gap_nats: float) -> _Fall:
    context = agent.config.imagination.context
    past, ahead = real.action[:, : context - 1], real.action[:, context - 1 :]
    dreamed = predict(agent.world_model, real.tokens[:, :context], past, ahead)[:, -1]
    before = real.efe[:, context - 1]
    return _Fall(
        float((before - real.efe[:, -1]).mean()),
        float((before - efe(agent, dreamed)).mean()),
        _share_gone(agent, real.tokens[:, -1], before, gap_nats),
        _share_gone(agent, dreamed, before, gap_nats),
    )


def _share_gone(agent: Agent, end: Tensor, before: Tensor, gap_nats: float) -> float:
    """Symbolic eye: no cell is seen. Pixels: G fell by more than half of the gap that a mark makes."""
    place = agent.tokenizer.slices.get("cell")
    if place is not None:
        return float((end[:, place] == agent.spec.classes[place][0] - 1).float().mean())
    return float((before - efe(agent, end) > gap_nats / 2).float().mean())


@torch.no_grad()
def foresight_nats(agent: Agent, tokens: Tensor, action: Tensor) -> float:
    """What the next frame of an unknown motor babbling costs the sequence model (E9 on held-out episodes):
    far above the training loss, it has learned its memories by heart. tokens (N, L, K), action (N, L, A)."""
    frames = agent.config.imagination.context + DREAM_CONTROL_STEPS
    costs = []
    for seen, acted in zip(tokens[:, :frames].split(32), action[:, : frames - 1].split(32)):
        hidden = agent.world_model(seen[:, :-1], acted)
        log_probs = agent.world_model.log_probs(hidden)
        costs.append(-gather_log_prob(log_probs, seen[:, 1:]).sum(-1).flatten())
    return float(torch.cat(costs).mean())


@torch.no_grad()
def dream_optimism_nats(agent: Agent, tokens: Tensor, action: Tensor, cost: Tensor) -> float:
    """the dreamed removal where the policy goes: from the middle of its own episodes on (later, if a dream
    needs more past than that), with the actions that it took, by how much the dreamed G of the next second
    lies below the real one. tokens (N, L, K), action (N, L, A), cost (N, L)."""
    context = agent.config.imagination.context
    now = max(tokens.shape[1] // 2, context - 1)
    past, ahead = slice(now - context + 1, now), slice(now, now + DREAM_CONTROL_STEPS)
    seen = tokens[:, past.start : now + 1]
    dreamed = predict(agent.world_model, seen, action[:, past], action[:, ahead])[:, 1:]
    return float((cost[:, ahead.start + 1 : ahead.stop + 1] - efe(agent, dreamed)).mean())
