"""docs/paper.md and the configuration say the same, field by field."""

import ast
import dataclasses
import importlib
import re
from pathlib import Path

import pytest
import torch
from mirrormark.agent.configs import AGENTS, PAPER, PAPER_CODE

from mirrormark.agent.agent import Agent
from mirrormark.agent.senses import SenseSpec

DOC = Path(__file__).parents[2] / "docs" / "paper.md"
ROW = re.compile(r"^\| `(?P<field>[a-z_.]+)` \| `(?P<value>[^`]+)` \|", re.MULTILINE)


def rows(section: str) -> dict[str, object]:
    """The `field | value` rows of the section whose heading contains `section`."""
    (body,) = (part for part in DOC.read_text().split("\n## ") if section in part.split("\n")[0])
    return {row["field"]: ast.literal_eval(row["value"]) for row in ROW.finditer(body)}


def leaves(config, path: str = "agent") -> dict[str, object]:
    """Dotted path -> value."""
    if not dataclasses.is_dataclass(config):
        return {path: config}
    found = {}
    for field in dataclasses.fields(config):
        found |= leaves(getattr(config, field.name), f"{path}.{field.name}")
    return found


def test_preset_paper_is_the_table():
    documented = {
        field: value for field, value in rows("preset `paper`, field").items() if field.startswith("agent.")
    }
    assert documented == leaves(PAPER)


def test_numbers_in_the_code_are_the_list():
    found = re.findall(r"^\| `([a-z_.]+[A-Z][A-Za-z_.]*)` \| `([^`]+)` \|", DOC.read_text(), re.MULTILINE)
    assert len(found) > 30
    for path, value in found:
        room, module, *names = path.split(".")
        here = importlib.import_module(f"mirrormark.{room}.{module}")
        for name in names:
            here = here[name] if isinstance(here, dict) else getattr(here, name)
        assert here == ast.literal_eval(value), path


def test_preset_paper_code_differs_only_where_the_table_says():
    here, there = leaves(PAPER), leaves(PAPER_CODE)
    differs = {field: there[field] for field in here if here[field] != there[field]}
    documented = {f: v for f, v in rows("Preset `paper-code`").items() if f.startswith("agent.")}
    assert differs == documented and differs


def test_every_equation_and_disagreement_is_there():
    text = DOC.read_text()
    for name in [f"E{i}" for i in range(1, 12)] + [f"D{i}" for i in range(1, 24)]:
        assert f"\n| {name} |" in text, name


def test_links_lead_somewhere():
    for link in re.findall(r"\]\((\.\./[^)]+)\)", DOC.read_text()):
        assert (DOC.parent / link).exists(), link


def test_functions_named_beside_the_equations_exist():
    (equations,) = (part for part in DOC.read_text().split("\n## ") if part.startswith("Equations"))
    encoding = "".join(path.read_text() for path in (DOC.parents[1] / "src/mirrormark/agent").glob("*.py"))
    names = re.findall(r"`([A-Za-z_]+)`", equations)
    assert len(names) > 10
    for name in names:
        assert re.search(rf"^(def|class) {name}\b", encoding, re.MULTILINE), name


@pytest.mark.parametrize("name", AGENTS)
def test_every_presets_agent_can_be_built_and_dreams(name):
    eye = SenseSpec("symbol", 226) if name == "symbolic" else SenseSpec("image", 64)
    senses = {"proprioception": SenseSpec("vector", 12), "cell" if name == "symbolic" else "vision": eye}
    agent = Agent(AGENTS[name], senses, 12)
    context = AGENTS[name].imagination.context
    tokens = torch.zeros(1, context, agent.spec.K, dtype=torch.int64)
    dreamed = agent.dream(tokens, torch.zeros(1, context - 1, 12))
    assert dreamed.action.shape == (1, AGENTS[name].imagination.horizon, 12)
