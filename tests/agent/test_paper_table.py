"""docs/paper.md says what the configuration, the constants and the parity test say."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from mirrormark.presets import PAPER, PAPER_CODE, PAPER_QUICK, SWIFT
from mirrormark.training.optim import RULES, Optimizer
from tests.agent.test_parity import NAMES, error, measured
from tests.agent.tiny import paper_agent

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "paper.md").read_text()
GROUPS = ("world_model", "self_prior", "policy", "value", "drive")
FIDELITY = [
    "C1",
    "C2",
    "C3",
    "O1",
    "O2",
    "O3",
    "Da",
    "Db",
    "Dc",
    "Dd",
    "De",
    "T1",
    "T2",
    "L1",
    "L2",
    "B1",
    "E10'",
]
FIDELITY += [f"S{i}" for i in range(1, 7)] + [f"P{i}" for i in range(1, 8)]


def section(heading: str) -> str:
    """The one with these words in its heading."""
    (body,) = (part for part in DOC.split("\n## ") if heading in part.split("\n")[0])
    return body


def cells(heading: str) -> dict[str, list[str]]:
    """First cell -> the others, of every row of the section's tables; no first cell stands twice."""
    lines = re.findall(r"^\| (.*) \|$", section(heading), re.MULTILINE)
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
    found = {row[0].strip("`"): row[1:] for row in rows}
    assert len(found) == len(rows), "a first cell stands twice"
    return found


def fields(heading: str) -> dict[str, list[str]]:
    return {name: row for name, row in cells(heading).items() if re.match(r"(env|agent|training)\.", name)}


def value(cell: str) -> object:
    return ast.literal_eval(cell.strip("`"))


def leaves(config, path: str = "") -> dict[str, object]:
    """Dotted path -> value."""
    if not dataclasses.is_dataclass(config):
        return {path.lstrip("."): config}
    found = {}
    for field in dataclasses.fields(config):
        found |= leaves(getattr(config, field.name), f"{path}.{field.name}")
    return found


def test_preset_paper_is_the_table():
    documented = {}
    for name, row in fields("preset `paper`, field").items():
        documented |= {name.replace("*", group): value(row[0]) for group in GROUPS}
    real = leaves(PAPER)
    assert {name: real.get(name, "no such field") for name in documented} == documented
    left_out = {
        name for name in set(real) - set(documented) if not name.startswith("training.optim.tokenizer")
    }
    assert left_out and all(name.startswith("env.") for name in left_out)


@pytest.mark.parametrize(("name", "other"), [("paper-code", PAPER_CODE), ("paper-quick", PAPER_QUICK)])
def test_other_presets_of_the_paper_differ_where_the_tables_say_and_nowhere_else(name, other):
    paper, its = leaves(PAPER), leaves(other)
    differs = {field: its[field] for field in paper if paper[field] != its[field]}
    assert {field: value(row[0]) for field, row in fields(f"Preset `{name}`").items()} == differs


def test_swift_leaves_the_paper_where_the_table_says_and_nowhere_else():
    paper, swift = leaves(PAPER), leaves(SWIFT)
    rows = fields("Where `swift`")
    assert set(rows) == {name for name in swift if name not in paper or paper[name] != swift[name]}
    for name, (its, ours, _, run) in rows.items():
        assert value(ours) == swift[name] and run, name
        assert its == "–" if name not in paper else value(its) == paper[name], name


def test_numbers_in_the_code_are_the_list():
    found = {name: row for name, row in cells("Numbers in the code").items() if "." in name}
    assert len(found) > 30
    for path, row in found.items():
        package, module, *names = path.split(".")
        here = importlib.import_module(f"mirrormark.{package}.{module}")
        for name in names:
            here = here[name] if isinstance(here, dict) else getattr(here, name)
        assert here == value(row[0]), path


@pytest.mark.parametrize("preset", [PAPER, PAPER_CODE], ids=["paper", "paper-code"])
@pytest.mark.parametrize("group", ["world_model", "self_prior", "policy", "value"])
def test_optimisers_are_made_as_the_tables_say(preset, group):
    """AdamW and Adam, eps (O1), ZClip (D8)."""
    optimizer = Optimizer(group, paper_agent().groups()[group], getattr(preset.training.optim, group))
    (found,), clip = optimizer.optimizer.param_groups, optimizer.zclip
    decays = group in ("world_model", "self_prior")
    assert type(optimizer.optimizer).__name__ == ("AdamW" if decays else "Adam")
    assert found["weight_decay"] == (0.01 if decays else 0) == (RULES[group].weight_decay or 0)
    assert found["eps"] == (1e-8 if preset is PAPER_CODE and decays else 1e-5)
    assert found["betas"] == (0.9, 0.999) and optimizer.rate.item() == pytest.approx(3e-5)
    assert (clip.alpha, clip.z, clip.warmup_steps, clip.cap) == (0.97, 2.5, 25, 1.0)


def test_every_equation_and_disagreement_is_a_row():
    assert set(cells("Equations")) >= {f"E{i}" for i in range(1, 12)}
    rows = cells("Where the sources disagree")
    assert set(rows) == {"id", *(f"D{i}" for i in range(1, 24)), *FIDELITY}
    assert all(len(row) == 3 and row[2] for row in rows.values())


def test_functions_named_beside_the_equations_exist():
    code = "".join(path.read_text() for path in (ROOT / "src/mirrormark/agent").glob("*.py"))
    names = re.findall(r"`([A-Za-z_]+)`", section("Equations"))
    assert len(names) > 15
    for name in names:
        assert re.search(rf"^(def|class) {name}\b", code, re.MULTILINE), name


PARITY = {
    "outputs": r"out/(?!acting|dream|context)",
    "losses": "loss/",
    "gradients, for each loss and parameter": "grad/",
    "gradient norms": "norm/",
    "one optimiser step, for each parameter": "step/",
    "slow copies, one step, for each parameter": "ema/",
    "ZClip over 80 norms": "zclip/",
    "percentiles of 12 batches, and S": "percentile/|range",
    "imagination, 16 steps": "out/(dream|context)",
    "acting, 12 steps of two bodies": "out/acting",
    "imagination with a cache against one pass": "cached",
}
"""Rows of the table of parity -> the quantities that they sum up."""


def test_the_table_of_parity_is_what_is_measured():
    """To a factor of 3: rounding differs between processors. Every quantity stands in one row."""
    rows, left = cells("Parity with the public code"), set(NAMES)
    assert set(rows) == {"quantity", *PARITY}
    for title, pattern in PARITY.items():
        names = [name for name in NAMES if re.match(pattern, name)]
        n, worst = rows[title]
        assert int(n) == len(names), title
        found = measured()["cached_against_full"] if pattern == "cached" else max(map(error, names))
        assert found < 3 * float(worst), f"{title}: {found:.1e}"
        left -= set(names)
    assert not left
