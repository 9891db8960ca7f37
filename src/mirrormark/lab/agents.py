"""Which minds the lab may show: those named when it was started, those shipped, and new ones."""

from collections.abc import Callable, Sequence
from pathlib import Path

from mirrormark.envs import bodies
from mirrormark.exam import candidates
from mirrormark.exam.candidates import Subject
from mirrormark.training import weights

SHIPPED, UNTRAINED = "shipped", "untrained"


class Minds:
    """Minds by name. The page gets names only: nothing that it sends is ever used as a path."""

    def __init__(
        self,
        paths: Sequence[Path] = (),
        preset: str = "swift",
        shipped: Callable[[str], Path | None] = weights.shipped,
    ) -> None:
        self._preset, self._shipped = preset, shipped
        self._named: dict[str, Subject] = {}
        self._others: dict[tuple[str, str], Subject] = {}  # by name and body, as soon as somebody asks
        for path in paths:
            self._add(candidates.load(path))

    def _add(self, subject: Subject) -> None:
        same = sum(known.partition(" (")[0] == subject.name for known in self._named)
        self._named[f"{subject.name} ({same + 1})" if same else subject.name] = subject

    def names(self, body: str) -> tuple[str, ...]:
        """Minds that fit a body, the one to begin with first."""
        fitting = (name for name, subject in self._named.items() if subject.setup.body == body)
        return (*fitting, *((SHIPPED,) if self._shipped(body) else ()), UNTRAINED)

    @property
    def first_body(self) -> str:
        """The body of the first mind named, else of the first shipped one, else the infant."""
        named = [subject.setup.body for subject in self._named.values()]
        shipped = [body for body in ("infant", *bodies.names()) if self._shipped(body)]
        return (*named, *shipped, "infant")[0]

    def get(self, name: str, body: str) -> Subject:
        """The mind of that name for that body."""
        bodies.get(body)
        if name not in self.names(body):
            raise ValueError(f"mind {name!r} does not fit the {body}: choose {', '.join(self.names(body))}.")
        if name in self._named:
            return self._named[name]
        if (name, body) not in self._others:
            place = self._shipped(body) if name == SHIPPED else None
            found = candidates.load(place) if place else candidates.untrained(self._preset, body)
            self._others[name, body] = found
        return self._others[name, body]
