"""Which minds the lab may show: those named when it was started, those shipped, and new ones."""

from collections.abc import Sequence
from pathlib import Path

import mirrormark
from mirrormark.exam import subjects
from mirrormark.exam.sitting import Subject
from mirrormark.world import bodies

SHIPPED = Path(mirrormark.__file__).parent / "shipped"
"""Folder of the snapshots that come with the package, one folder each; it may be missing."""
UNTRAINED = "untrained"


class Minds:
    """Minds by name. The page gets names only: nothing that it sends is ever used as a path."""

    def __init__(self, paths: Sequence[Path] = (), preset: str = "swift", shipped: Path = SHIPPED) -> None:
        self._preset = preset
        self._trained: dict[str, Subject] = {}
        self._untrained: dict[str, Subject] = {}
        for path in paths:
            subject = subjects.load(path)
            self._add(subject.name, subject)
        for path in sorted(shipped.iterdir()) if shipped.is_dir() else ():
            if path.is_dir():
                self._add(f"shipped: {path.name}", subjects.load(path))

    def _add(self, name: str, subject: Subject) -> None:
        same = sum(known.partition(" (")[0] == name for known in self._trained)
        self._trained[f"{name} ({same + 1})" if same else name] = subject

    def names(self, body: str) -> tuple[str, ...]:
        """Minds that fit a body, the one to begin with first."""
        fitting = (name for name, subject in self._trained.items() if subject.setup.body == body)
        return (*fitting, UNTRAINED)

    @property
    def first_body(self) -> str:
        """The body of the first trained mind, else the infant."""
        return next((subject.setup.body for subject in self._trained.values()), "infant")

    def get(self, name: str, body: str) -> Subject:
        """The mind of that name for that body."""
        bodies.get(body)
        if name not in self.names(body):
            raise ValueError(f"mind {name!r} does not fit the {body}: choose {', '.join(self.names(body))}.")
        if name != UNTRAINED:
            return self._trained[name]
        if body not in self._untrained:
            self._untrained[body] = subjects.untrained(self._preset, body)
        return self._untrained[body]
