"""On a GPU: all layers of the self-prior in one kernel."""

import pytest
import torch

from mirrormark.agent.tokens import TokenSpec
from mirrormark.config import SelfPriorConfig
from mirrormark.swift.self_prior import PerTokenSelfPrior

pytestmark = pytest.mark.gpu


@torch.no_grad()
def test_all_layers_in_one_kernel():
    spec = TokenSpec((64,) * 12 + (125,) * 17)
    prior = PerTokenSelfPrior(spec, SelfPriorConfig(128, 3, 4, 512)).cuda()
    for parameter in prior.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.05)
    tokens = torch.stack([torch.randint(c, (1030,), device="cuda") for c in spec.classes], -1)
    exact = prior.log_prob(tokens)
    with torch.autocast("cuda", torch.bfloat16):
        assert prior._fits_kernel(tokens[:, :-1])
        rough, quick = prior._states(tokens[:, :-1]).float(), prior._states_at_once(tokens[:, :-1])
        in_half = prior.log_prob(tokens)
    assert ((quick - rough).norm() / rough.norm()) < 1e-2
    torch.testing.assert_close(in_half, exact, rtol=2e-2, atol=0.5)  # nats of 29 tokens, some 120
