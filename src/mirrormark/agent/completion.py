"""What one sense makes the self-prior expect of the others (D18, Fig. 5b)."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from mirrormark.agent.agent import Agent
from mirrormark.agent.self_prior import Method
from mirrormark.agent.senses import Observation


@torch.no_grad()
def complete_senses(
    agent: Agent,
    observation: Observation,
    known: Collection[str],
    method: Method = "ancestral",
    sweeps: int = 5,
) -> Tensor:
    """Tokens (..., K) in which only the `known` senses come from the observation; decode them to look at
    them.

    Tokenizers with tokens for each sense condition on the known senses' tokens (gibbs where they do not come
    first). Mixed codes: the other senses are blanked before encoding (vision mid-grey, vectors 0), then every
    token is redrawn given the original ones before it, whatever the method: a mixed code has no token that is
    known.
    """
    if unknown := set(known) - set(agent.tokenizer.senses):
        raise ValueError(
            f"no such senses: {sorted(unknown)}; this agent has {sorted(agent.tokenizer.senses)}"
        )
    places = agent.tokenizer.slices
    if places:
        tokens = agent.encode(observation, sample=False).tokens
        kept = torch.zeros(agent.spec.K, dtype=torch.bool, device=tokens.device)
        for name in known:
            kept[places[name]] = True
        return agent.self_prior.complete(tokens, kept, method, sweeps)
    blanked = {
        name: observation[name] if name in known else _blank(observation[name], sense.kind)
        for name, sense in agent.tokenizer.senses.items()
    }
    tokens = agent.encode(blanked, sample=False).tokens
    nothing = torch.zeros(agent.spec.K, dtype=torch.bool, device=tokens.device)
    return agent.self_prior.complete(tokens, nothing, "teacher_forced")


def _blank(value: Tensor, kind: str) -> Tensor:
    """A sense that says nothing: an image of .5 is 0 once centred."""
    return torch.full(value.shape, 0.5 if kind == "image" else 0.0, device=value.device)
