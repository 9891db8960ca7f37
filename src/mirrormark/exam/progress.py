"""How far an exam is: a bar in a terminal, and a line for each finished part where output goes to a file."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class ExamProgress:
    def __init__(self, console: Console) -> None:
        self.console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("getting ready")
        self._last: tuple[str, float] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, what: str, done: int, of: int) -> None:
        """A part begins, so the one before it has ended."""
        self._bar.update(self._task, description=what, completed=done, total=of)
        if self._last and not self.console.is_terminal:
            name, began = self._last
            took_s = time.perf_counter() - began
            self.console.print(f"{done}/{of} {name} ({took_s:.0f} s)", highlight=False, soft_wrap=True)
        self._last = what, time.perf_counter()
