"""One optimiser with its gradient clipping and its guard against non-finite steps, all on the device."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mirrormark.agent.numerics import ZClip
from mirrormark.config import OptimizerConfig


class Rule(NamedTuple):
    """What else belongs to an optimiser: AdamW with a weight decay, Adam without one."""

    weight_decay: float | None
    betas: tuple[float, float] = (0.9, 0.999)  # not in the paper; torch's default
    norm_cap: float = 1.0  # the gradient norm is also capped here (public code, D8)


ADAMW, ADAM = Rule(weight_decay=0.01), Rule(weight_decay=None)  # decay: not in the paper; torch's default
RULES = {
    "world_model": ADAMW,  # paper, Table III, as the next three
    "self_prior": ADAMW,
    "policy": ADAM,
    "value": ADAM,
    "drive": ADAM,  # ours, as policy and value
    "tokenizer": Rule(0.01, (0.9, 0.99), 1e9),  # in a phase of its own, never clipped (ours; learning.md)
}
CLIP_ALPHA = 0.97
"""Decay of ZClip's averages of the gradient norm (public code, D8)."""
CLIP_Z = 2.5
"""ZClip tames norms so many standard deviations above their mean (public code, D8)."""
CLIP_WARMUP_STEPS = 25
"""Steps in which ZClip only looks (public code, D8)."""


def clip_factor(zclip: ZClip, norm: Tensor, loss: Tensor, skipped: Tensor) -> Tensor:
    """Decide on a step from its gradients' norm and its loss: the factor for the gradients, and in place
    whether the step is skipped. Only numbers, but many: compiled they are one kernel."""
    finite = norm.isfinite() & loss.isfinite()
    skipped.copy_(~finite)
    # Where there was nothing to learn there is nothing to compare with: averages of zeros clip for good.
    return zclip.factor(norm, finite & (norm > 0))


class Optimizer:
    """A group of parameters and its rule. A step whose loss or gradient is not finite changes nothing and is
    counted.

    The skip is `found_inf` of torch's fused optimisers: decided on the device, so a captured graph can
    hold it, and the same code runs on the CPU.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[nn.Parameter],
        config: OptimizerConfig,
        wrap: Callable = lambda function: function,
    ) -> None:
        """name: the group's, whose rule is in RULES. wrap: compiles, or does nothing."""
        self.config, rule = config, RULES[name]
        self._clip_factor = wrap(clip_factor)
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self.rate = torch.tensor(config.learning_rate, device=device)
        self.zclip = ZClip(CLIP_ALPHA, CLIP_Z, CLIP_WARMUP_STEPS, rule.norm_cap).to(device)
        shared = {"lr": self.rate, "betas": rule.betas, "eps": config.eps, "fused": True, "capturable": True}
        if rule.weight_decay is None:
            self.optimizer = torch.optim.Adam(self.parameters, **shared)
        else:
            self.optimizer = torch.optim.AdamW(self.parameters, weight_decay=rule.weight_decay, **shared)
        self.skipped = torch.zeros((), device=device)
        self.optimizer.found_inf = self.skipped  # type: ignore[attr-defined]

    def set_progress(self, progress: float) -> None:
        """Move along the learning-rate schedule, 0..1 of the phase; outside any captured graph."""
        c = self.config
        if c.final_learning_rate is not None:
            cosine = 0.5 + 0.5 * float(torch.cos(torch.tensor(torch.pi * progress)))
            self.rate.fill_(c.final_learning_rate + (c.learning_rate - c.final_learning_rate) * cosine)

    def zero_grad(self) -> None:
        """Drop the gradients of the step before."""
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, loss: Tensor) -> Tensor:
        """Clip the gradients that `loss` left and take the step; gives their norm before clipping."""
        grads, norm = self.zclip.norm(self.parameters)
        torch._foreach_mul_(grads, self._clip_factor(self.zclip, norm, loss.detach(), self.skipped))
        self.optimizer.step()
        return norm

    def state(self) -> dict:
        """Averages, step counts, clipping statistics."""
        moments = [self.optimizer.state.get(p, {}) for p in self.parameters]
        return {
            "moments": [dict(moment) for moment in moments],
            "zclip": dict(self.zclip.named_buffers()),
            "rate": self.rate,
        }

    def load_state(self, state: dict) -> None:
        """Put back what `state` returned; before any graph is captured."""
        for parameter, moment in zip(self.parameters, state["moments"], strict=True):
            if moment:
                placed = {name: value.to(parameter.device) for name, value in moment.items()}
                self.optimizer.state[parameter] = placed
        for name, buffer in self.zclip.named_buffers():
            buffer.copy_(state["zclip"][name])
        self.rate.copy_(state["rate"])
