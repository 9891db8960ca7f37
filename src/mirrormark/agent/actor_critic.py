"""E4: the policy a ~ π(a | s, h), a normal squashed by tanh, and the value v = V(s, h), a two-hot."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.agent.numerics import TwoHot, full_precision
from mirrormark.agent.tokens import TokenSpec

LAYERS = 3
"""Linear layers of policy and value (paper, Table II)."""
ENTROPY_SAMPLES = 100
"""Behind the policy's entropy (public code, P7)."""
_FULL = 1 - 2**-11
"""The largest action below 1 in half precision, in which the replay buffer may keep them."""
_BEYOND = math.atanh(1 - 1.5 * 2**-11)
"""Raw samples above this become it, or 1."""


class TanhNormal(NamedTuple):
    """A diagonal normal; the action is tanh of its sample. Methods take the sample *before* tanh, save
    `log_prob_of`."""

    mean: Tensor  # (..., A)
    std: Tensor

    def sample(self) -> Tensor:
        return self.mean + self.std * torch.randn_like(self.mean)

    def log_prob(self, raw: Tensor) -> Tensor:
        """Log-density of the action tanh(raw): (..., A) -> (...)."""
        return self._log_densities(raw).sum(-1)

    def _log_densities(self, raw: Tensor) -> Tensor:
        normal = -0.5 * ((raw - self.mean) / self.std).square() - self.std.log() - 0.5 * math.log(2 * math.pi)
        return normal - _log_slope(raw)

    def log_prob_of(self, action: Tensor) -> Tensor:
        """The same of an action in [-1, 1]. At its very ends, tanh no longer says how far beyond the sample
        was: there it is the probability of all that lies beyond."""
        action = action.float()
        raw, end = action.clamp(-_FULL, _FULL).atanh(), action.abs() >= _FULL
        beyond = torch.special.log_ndtr((self.mean * action.sign() - _BEYOND) / self.std)
        return torch.where(end, beyond, self._log_densities(raw)).sum(-1)

    def entropy(self, samples: int = 1) -> Tensor:
        """Entropy of the action by reparametrised samples (P7). Of one, the normal's part is exact and only
        tanh's is sampled: the same expectation with less noise."""
        if samples > 1:
            many = TanhNormal(*(x.expand(samples, *x.shape) for x in self))
            return -many.log_prob(many.sample()).mean(0)
        normal = 0.5 * math.log(2 * math.pi * math.e) + self.std.log()
        return (normal + _log_slope(self.sample())).sum(-1)


def _log_slope(raw: Tensor) -> Tensor:
    """log of tanh's derivative, log(1 - tanh²), without cancellation."""
    return 2 * (math.log(2) - raw - F.softplus(-2 * raw))


def mlp(
    inputs: int,
    hidden: int,
    outputs: int,
    norm_eps: float = 1e-5,
    bias: bool = False,
    activation: type[nn.Module] = nn.ELU,
) -> nn.Sequential:
    """LAYERS linear layers; all but the last with layer norm and activation (paper-code: no biases, ELU)."""
    parts: list[nn.Module] = []
    for layer in range(LAYERS - 1):
        linear = nn.Linear(hidden if layer else inputs, hidden, bias=bias)
        parts += [linear, nn.LayerNorm(hidden, eps=norm_eps), activation()]
    return nn.Sequential(*parts, nn.Linear(hidden, outputs))


class Policy(nn.Module):
    """(tokens, hidden) -> TanhNormal over actions."""

    def __init__(
        self,
        spec: TokenSpec,
        network: nn.Sequential,
        std: Callable[[Tensor], Tensor],
        bounded_mean: bool,
    ):
        """std: what makes a standard deviation of any number. bounded_mean: tanh on the mean before the tanh
        normal, so that the mode stays within ±.76 (public code, D20)."""
        super().__init__()
        self.spec, self.network, self.std, self.bounded_mean = spec, network, std, bounded_mean

    def forward(self, tokens: Tensor, hidden: Tensor) -> TanhNormal:
        """tokens (..., K) or one-hot vectors, hidden (..., D)."""
        mean, spread = _last_in_full(self.network, self.spec, tokens, hidden).chunk(2, -1)
        return TanhNormal(mean.tanh() if self.bounded_mean else mean, self.std(spread))


class TwoHotHead(nn.Module):
    """(tokens, hidden) -> a number, as a distribution over bins."""

    def __init__(self, spec: TokenSpec, network: nn.Sequential, two_hot: TwoHot):
        super().__init__()
        self.spec, self.network, self.two_hot = spec, network, two_hot

    def logits(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """(..., bins), fp32."""
        return _last_in_full(self.network, self.spec, tokens, hidden)

    def forward(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """The number itself, (...)."""
        return self.two_hot.decode(self.logits(tokens, hidden))


def value_head(spec: TokenSpec, network: nn.Sequential, two_hot: TwoHot) -> TwoHotHead:
    """The value: starts at 0."""
    nn.init.zeros_(network[-1].weight)  # pyright: ignore[reportArgumentType]
    nn.init.zeros_(network[-1].bias)  # pyright: ignore[reportArgumentType]
    return TwoHotHead(spec, network, two_hot)


def _last_in_full(network: nn.Sequential, spec: TokenSpec, tokens: Tensor, hidden: Tensor) -> Tensor:
    """The network of both, its last layer in fp32."""
    x = network[:-1](torch.cat((spec.one_hot(tokens), hidden), -1))
    with full_precision(x):
        return network[-1](x.float())


# The paper's -------------------------------------------------------------------------------------------

MIN_STD, INITIAL_STD = 1e-4, 0.5
"""Of the policy, before tanh; there is no ceiling (public code, P1)."""


def softplus_std(spread: Tensor) -> Tensor:
    """P1."""
    return F.softplus(spread + math.log(math.expm1(INITIAL_STD))) + MIN_STD


def paper_policy(spec: TokenSpec, width: int, actions: int, hidden: int) -> Policy:
    """Its last layer starts a hundredth as large (P2)."""
    network = mlp(spec.total + width, hidden, 2 * actions, norm_eps=1e-3)  # eps: P5
    with torch.no_grad():
        network[-1].weight.mul_(0.01)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        network[-1].bias.zero_()  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    return Policy(spec, network, softplus_std, bounded_mean=True)


def paper_value(spec: TokenSpec, width: int, hidden: int, bins: int) -> TwoHotHead:
    """Bins even in symlog space (paper, Table II)."""
    return value_head(spec, mlp(spec.total + width, hidden, bins), TwoHot(bins))
