"""Plain processes on this machine: the engine where Ray is not installed."""

import os
import subprocess
import time
from collections import deque

from mirrormark.sweep import work as works
from mirrormark.sweep.spec import Resources
from mirrormark.sweep.work import Ended, Work

_LOOK_S = 0.05


class Processes:
    """As many commands at a time as cores and GPUs allow; each slot keeps its own GPUs."""

    name = "processes"

    def __init__(self, resources: Resources) -> None:
        self._gpus = resources.gpus
        self.workers = fitting(resources, os.cpu_count() or 1, gpus_here(), "this machine has")
        self._free = deque(range(self.workers))
        self._waiting: deque[Work] = deque()
        self._running: dict[int, tuple[Work, subprocess.Popen[bytes], float]] = {}

    def submit(self, work: Work) -> None:
        self._waiting.append(work)
        self._fill()

    def wait(self, timeout_s: float) -> list[Ended]:
        deadline = time.monotonic() + timeout_s
        while True:
            ended = []
            for slot, (work, process, began) in list(self._running.items()):
                code = process.poll()
                if code is not None:
                    del self._running[slot]
                    self._free.append(slot)
                    ended.append(Ended(work, works.how(code), time.monotonic() - began))
            self._fill()
            if ended or time.monotonic() >= deadline:
                return ended
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        self._waiting.clear()
        works.end([process for _, process, _ in self._running.values()])
        self._running.clear()

    def close(self) -> None:
        for _, process, _ in self._running.values():
            process.kill()
            process.wait()

    def _fill(self) -> None:
        while self._free and self._waiting:
            slot, work = self._free.popleft(), self._waiting.popleft()
            self._running[slot] = work, works.start(work, self._devices(slot)), time.monotonic()

    def _devices(self, slot: int) -> str:
        """The slot's GPUs, of those that this process may see; a share below one means that neighbours use
        the same."""
        if not self._gpus:
            return ""
        seen = [
            name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()
        ]
        first = int(slot / int(1 / self._gpus)) if self._gpus < 1 else slot * int(self._gpus)
        numbers = range(first, first + max(1, int(self._gpus)))
        return ",".join(seen[number] if seen else str(number) for number in numbers)


def fitting(resources: Resources, cpus: int, gpus: int, whose: str) -> int:
    """How many runs fit at a time; a run that can never fit is one clear sentence."""
    if resources.cpus > cpus:
        raise ValueError(
            f"resources.cpus is {resources.cpus}, but {whose} {cpus}: ask for less, or add machines."
        )
    if resources.gpus > gpus:
        raise ValueError(
            f"resources.gpus is {resources.gpus:g}, but {whose} {gpus}: ask for less, or add machines."
        )
    fit = cpus // resources.cpus
    if resources.gpus:
        share = int(1 / resources.gpus) * gpus if resources.gpus < 1 else gpus // int(resources.gpus)
        fit = min(fit, share)
    if resources.workers > fit:
        raise ValueError(
            f"resources.workers is {resources.workers}, but only {fit} runs of {resources.cpus} cpus and "
            f"{resources.gpus:g} gpus fit at a time: ask for less, or give 0 for as many as fit."
        )
    return resources.workers or fit


def gpus_here() -> int:
    import torch  # here, because Ray's workers import this file and need none

    return torch.cuda.device_count()
