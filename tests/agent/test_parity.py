"""The paper's agent against its public code: same weights, inputs and noise, fp32, dropout off, full sizes
(parity/README.md). Outputs, losses, the gradient of every parameter, one optimiser step, imagination, acting,
ZClip and percentiles agree to a relative L2 of 1e-3 or better; docs/paper.md has the table."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from mirrormark.agent.self_prior import PaperSelfPrior
from tests.agent.parity import formula as F
from tests.agent.parity import ours

PUBLIC = dict(np.load(Path(__file__).parent / "parity" / "public.npz"))
NAMES = [name for name in PUBLIC if not name.startswith(("made/", "fresh/")) and name != "zclip/norms"]
TOLERANCE = 1e-3

# The gradient of an attention's key bias is 0 but for rounding, and Adam's step is its sign: in a third of
# the bias of queries, keys and values, noise.
TOLERANCES = {f"step/self_prior.blocks.{i}.project.bias": 1e-2 for i in (0, 1)}


def group(name: str) -> str:
    """grad/dynamics/world_model.position -> grad/dynamics/world_model: what is tested together."""
    kind, *rest = name.split("/")
    if kind in ("step", "ema"):
        return f"{kind}/{rest[0].removeprefix('ema.').split('.')[0]}"
    return f"{kind}/{rest[0]}/{rest[1].split('.')[0]}" if kind == "grad" else name


GROUPS = list(dict.fromkeys(map(group, NAMES)))


@cache
def measured() -> dict[str, np.ndarray]:
    return ours.measure()


def error(name: str) -> float:
    """Relative L2 of what differs."""
    return F.relative_error(measured()[name], PUBLIC[name])


@pytest.mark.parametrize("which", GROUPS)
def test_parity_with_the_public_code(which: str):
    for name in (n for n in NAMES if group(n) == which):
        assert name in measured(), f"ours have no {name}"
        found = measured()[name]
        assert found.shape == PUBLIC[name].shape, name
        if name == "cached_against_full":
            assert found < 1e-5
        elif found.dtype.kind in "iu":
            np.testing.assert_array_equal(found, PUBLIC[name], name)
        else:
            assert error(name) < TOLERANCES.get(name, TOLERANCE), f"{name}: {error(name):.1e}"


def test_no_gradient_reaches_more_than_in_the_public_code():
    assert not [name for name in measured() if name not in NAMES]


def test_a_sketch_measures_a_difference_to_a_tenth():
    for i in range(20):
        x = F.even(f"vector/{i}", (50_000,))
        y = x + np.float32(1e-3) * F.even(f"difference/{i}", (50_000,))
        estimate = F.relative_error(F.sketch(y), F.sketch(x))
        assert estimate == pytest.approx(F.relative_error(y, x), rel=0.25)


def test_networks_start_as_the_public_codes():
    """Standard deviation and mean of each parameter; small ones vary by chance."""
    torch.manual_seed(0)
    agent = ours.fresh()
    found = {ours.tag(name): p.detach().double() for name, p in agent.named_parameters()}
    assert sorted(n for n in found if not n.startswith("ema.")) == sorted(PUBLIC["fresh/parameters"])
    rows = zip(PUBLIC["fresh/parameters"], PUBLIC["fresh/deviations"], PUBLIC["fresh/means"], strict=True)
    for name, deviation, mean in rows:
        x, chance = found[name], 5 / found[name].numel() ** 0.5
        assert x.std(correction=0).item() == pytest.approx(float(deviation), rel=chance), name
        assert x.mean().item() == pytest.approx(float(mean), abs=2 * chance * float(deviation) + 1e-9), name
    assert isinstance(agent.self_prior, PaperSelfPrior)
    blocks = agent.self_prior.blocks
    first, second = (dict(block.named_parameters()) for block in blocks)
    assert all(torch.equal(first[name], second[name]) for name in first)
    slow = {name: found[f"ema.{name}"] for name in found if f"ema.{name}" in found}
    assert len(slow) == sum(n.startswith(("self_prior.", "value.")) for n in PUBLIC["fresh/parameters"])
    assert all(torch.equal(x, found[name]) for name, x in slow.items())


def test_eps_of_every_layer_norm_is_the_public_codes():
    norms = {n: m.eps for n, m in ours.fresh().named_modules() if isinstance(m, torch.nn.LayerNorm)}
    found = {ours.tag(name): eps for name, eps in norms.items() if not name.startswith("ema.")}
    assert found == dict(zip(PUBLIC["fresh/norms"].tolist(), PUBLIC["fresh/eps"].tolist(), strict=True))


def test_dropout_makes_outputs_vary_as_much_as_in_the_public_code():
    torch.manual_seed(0)
    agent = ours.build().train()
    tokens = torch.from_numpy(PUBLIC["out/tokens"].astype(np.int64))
    action = torch.from_numpy(F.even("world/action", (F.SEQUENCES, F.FRAMES, F.ACTIONS)))
    with torch.no_grad():
        hidden = torch.stack([agent.world_model(tokens, action) for _ in range(400)])
        table = torch.stack([agent.self_prior.log_probs(tokens[0, :4]) for _ in range(400)])
    for name, x in (("hidden", hidden), ("self_prior", table)):
        found, public = x.var(0).mean().item(), float(PUBLIC[f"fresh/{name}_variance"])
        assert found == pytest.approx(public, rel=0.03), name
