"""What the exam keeps as arrays, for NumPy as old as pyproject.toml allows."""

from pathlib import Path

import numpy as np
import pytest

from mirrormark.exam import candidates, commands
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.run import Settings


def test_arrays_are_all_that_is_saved_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Before NumPy 2.2 savez_compressed had no options: whatever was given by name became an array."""
    real, named = np.savez_compressed, []

    def save(path: Path, **arrays: np.ndarray) -> None:
        named.append({name: type(value) for name, value in arrays.items()})
        real(path, **arrays)

    monkeypatch.setattr(np, "savez_compressed", save)
    settings = Settings(runs=1, chance_runs=1, conditions=(EXAM,))
    commands.examine([candidates.untrained("smoke")], tmp_path / "exam", settings)
    assert len(named) == 2 and {kind for one in named for kind in one.values()} == {np.ndarray}
