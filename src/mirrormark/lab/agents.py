"""Which agents the lab may show: those named when it was started, those shipped, and new ones."""

from collections.abc import Callable, Sequence
from pathlib import Path

from mirrormark.envs import bodies
from mirrormark.exam import candidates
from mirrormark.exam.candidates import Candidate
from mirrormark.training import weights

SHIPPED, UNTRAINED = "shipped", "untrained"


class Agents:
    """Agents by name. The page gets names only: nothing that it sends is ever used as a path."""

    def __init__(
        self,
        paths: Sequence[Path] = (),
        preset: str = "swift",
        shipped: Callable[[str], Path | None] = weights.shipped,
    ) -> None:
        self._preset, self._shipped = preset, shipped
        self._named: dict[str, Candidate] = {}
        self._others: dict[tuple[str, str], Candidate] = {}  # by name and body, as soon as somebody asks
        for path in paths:
            self._add(candidates.load(path))

    def _add(self, candidate: Candidate) -> None:
        same = sum(known.partition(" (")[0] == candidate.name for known in self._named)
        self._named[f"{candidate.name} ({same + 1})" if same else candidate.name] = candidate

    def names(self, body: str) -> tuple[str, ...]:
        """Agents that fit a body, the one to begin with first."""
        fitting = (name for name, candidate in self._named.items() if candidate.setup.body == body)
        return (*fitting, *((SHIPPED,) if self._shipped(body) else ()), UNTRAINED)

    @property
    def first_body(self) -> str:
        """The body of the first agent named, else of the first shipped one, else the infant."""
        named = [candidate.setup.body for candidate in self._named.values()]
        shipped = [body for body in ("infant", *bodies.names()) if self._shipped(body)]
        return (*named, *shipped, "infant")[0]

    def get(self, name: str, body: str) -> Candidate:
        """The agent of that name for that body."""
        bodies.get(body)
        if name not in self.names(body):
            raise ValueError(f"agent {name!r} does not fit the {body}: choose {', '.join(self.names(body))}.")
        if name in self._named:
            return self._named[name]
        if (name, body) not in self._others:
            place = self._shipped(body) if name == SHIPPED else None
            found = candidates.load(place) if place else candidates.untrained(self._preset, body)
            self._others[name, body] = found
        return self._others[name, body]
