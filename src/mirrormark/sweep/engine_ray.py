"""Ray: on this machine, or on a cluster whose machines share the sweep's folder.

One task a try. Ray's own retries are off: the driver counts tries, whether a command failed or its worker
died.
"""

import importlib.util
import os
import time
from typing import Any

from mirrormark.sweep import work as works
from mirrormark.sweep.engine_processes import fitting, gpus_here
from mirrormark.sweep.spec import Resources
from mirrormark.sweep.work import Ended, Work

_LOOK_S = 0.1
_STORE_BYTES = 80 * 2**20
"""Ray's object store: nothing of ours goes through it, and this is about the least that Ray takes (ours)."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anyone
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the coming default, without the warning
}


def installed() -> bool:
    return importlib.util.find_spec("ray") is not None


class Ray:
    """Ray, started here or joined at an address."""

    name = "ray"

    def __init__(self, resources: Resources, address: str | None = None) -> None:
        if not installed():
            raise ValueError(
                'Ray is not installed: pip install "mirrormark[sweep]", or use --engine processes.'
            )
        here = (os.cpu_count() or 1, gpus_here())
        if address is None:
            self.workers = fitting(resources, *here, "this machine has")  # before seconds go into Ray's start
        os.environ.update({name: os.environ.get(name, value) for name, value in _QUIET.items()})
        import ray

        self._ray = ray
        self._join(address, *here)
        if address is not None:
            try:
                self.workers = fit_on_nodes(
                    resources, [node["Resources"] for node in ray.nodes() if node["Alive"]]
                )
            except ValueError:
                self.close()
                raise
        self._limit = resources.workers
        options: dict[str, Any] = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_retries": 0}
        self._task = ray.remote(**options)(perform)
        self._waiting: list[Work] = []
        self._running: dict[Any, Work] = {}

    def _join(self, address: str | None, cpus: int, gpus: int) -> None:
        options: dict[str, Any] = {
            "logging_level": "ERROR",
            "log_to_driver": False,
            "configure_logging": False,
        }
        if address is None:
            options |= {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": _STORE_BYTES}
            options |= {"include_dashboard": False}
        try:
            self._ray.init(address=address or "local", **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = (
                f"--address {address}: no Ray cluster answers there" if address else "Ray does not start here"
            )
            raise ValueError(f"{where} ({error}).") from error

    def submit(self, work: Work) -> None:
        self._waiting.append(work)
        self._fill()

    def wait(self, timeout_s: float) -> list[Ended]:
        if not self._running:
            time.sleep(timeout_s)
            return []
        refs = list(self._running)
        # The number of machines may change while we wait, so Ray itself decides what runs when.
        done, _ = self._ray.wait(refs, num_returns=1, timeout=timeout_s)
        if done:
            done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        ended = [Ended(self._running.pop(ref), *self._how(ref)) for ref in done]
        self._fill()
        return ended

    def _how(self, ref: Any) -> tuple[str, float]:
        from ray.exceptions import RayError

        try:
            code, seconds = self._ray.get(ref)
        except RayError as error:
            return f"its worker died: {str(error).strip().splitlines()[0]}", 0.0
        return works.how(code), seconds

    def stop(self) -> None:
        self._waiting.clear()
        for ref in self._running:
            self._ray.cancel(ref, force=False)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running), timeout=works.STOP_S)
        self._running.clear()

    def close(self) -> None:
        self._ray.shutdown()

    def _fill(self) -> None:
        while self._waiting and (not self._limit or len(self._running) < self._limit):
            work = self._waiting.pop(0)
            self._running[self._task.remote(work)] = work


def fit_on_nodes(resources: Resources, nodes: list[dict[str, float]]) -> int:
    """Runs that fit on all machines of a cluster together; each must fit on one of them."""
    one = Resources(resources.cpus, resources.gpus)
    fit, complaint = 0, "the cluster has no machine that lives."
    for cpus, gpus in sorted((int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in nodes):
        try:
            fit += fitting(one, cpus, gpus, "the cluster's largest machine has")
        except ValueError as error:
            complaint = str(error)
    if not fit:
        raise ValueError(complaint)
    return min(fit, resources.workers) if resources.workers else fit


def perform(work: Work) -> tuple[int, float]:
    """The task: run the command to its end. Cancelled, it asks the command to save first."""
    began = time.monotonic()
    process = works.start(work)
    try:
        while process.poll() is None:
            time.sleep(_LOOK_S)  # short sleeps, because Ray's cancel does not wake a blocking wait
    except BaseException:
        works.end([process])
        raise
    return process.returncode, time.monotonic() - began
