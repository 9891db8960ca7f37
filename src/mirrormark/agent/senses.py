"""The agent's senses: a name, a kind and a size for each. A new sense is one more entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Observation = Mapping[str, Tensor]


@dataclass(frozen=True)
class SenseSpec:
    """One sense. image: (..., size, size, 3) uint8, or float in [0, 1]; vector: (..., size) float in [-1, 1];
    symbol: (..., 1) integer in 0..size-1."""

    kind: Literal["image", "vector", "symbol"]
    size: int

    @property
    def shape(self) -> tuple[int, ...]:
        return {"image": (self.size, self.size, 3), "vector": (self.size,), "symbol": (1,)}[self.kind]


Senses = Mapping[str, SenseSpec]


def of_kind(senses: Senses, kind: str) -> tuple[str, ...]:
    """Names of the senses of one kind, in the order given."""
    return tuple(name for name, sense in senses.items() if sense.kind == kind)


def lead_shape(observation: Observation, senses: Senses) -> torch.Size:
    """The axes before the senses' own (B, or B and T), after checking names, shapes and dtypes."""
    if missing := [name for name in senses if name not in observation]:
        raise ValueError(f"the observation lacks the senses {missing}; it has {sorted(observation)}")
    if extra := sorted(set(observation) - set(senses)):
        raise ValueError(
            f"the observation has senses {extra} unknown to this agent; give {list(senses)} only"
        )
    lead: torch.Size | None = None
    for name, sense in senses.items():
        value, own = observation[name], len(sense.shape)
        if tuple(value.shape[-own:]) != sense.shape:
            raise ValueError(f"sense {name!r} must end in {sense.shape}, got shape {tuple(value.shape)}")
        wrong_dtype = value.is_floating_point() if sense.kind == "symbol" else False
        if sense.kind == "vector" and not value.is_floating_point():
            wrong_dtype = True
        if sense.kind == "image" and not (value.is_floating_point() or value.dtype == torch.uint8):
            wrong_dtype = True
        if wrong_dtype:
            raise ValueError(f"sense {name!r} ({sense.kind}) has the wrong dtype {value.dtype}")
        if lead is not None and value.shape[:-own] != lead:
            raise ValueError(
                f"sense {name!r} has leading axes {tuple(value.shape[:-own])}, others {tuple(lead)}"
            )
        lead = value.shape[:-own]
    assert lead is not None
    return lead


def restore(flat: Tensor, lead: torch.Size) -> Tensor:
    """(N, ...) -> (*lead, ...); lead may be empty."""
    return flat.reshape(lead + flat.shape[1:])


def centred_image(image: Tensor) -> Tensor:
    """(..., S, S, 3) uint8 or float in [0, 1] -> float in [-.5, .5]."""
    return image.float() / 255 - 0.5 if image.dtype == torch.uint8 else image.float() - 0.5
