"""Other processes that work beside the exam while its minds are on a GPU.

On a GPU a condition is a chain of small kernels and of Python between them: one process leaves GPU and cores
idle most of the time. What the crew does lands on disk, where the exam looks first; what it could not do, the
exam does itself. With minds on the CPU there is no crew: one process keeps the cores busy.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import numba
import torch

if TYPE_CHECKING:
    from mirrormark.exam.candidates import Subject

Summon = Callable[[], "list[Subject]"]
"""Gets the exam's minds: every process loads its own."""

MOST = 5
"""Processes beside the first; more would mostly wait for the one GPU (ours)."""
CORES_EACH = 3
THREADS = 4
"""Threads of a helper's numba: all of the machine's, in every process, would be in one another's way."""

_summon: Summon | None = None


@contextmanager
def crew(summon: Summon, device: str) -> Iterator[Executor | None]:
    """Processes that are already loading the minds; None where they would not help or cannot be had.

    They are forked, so that they import nothing anew: it must be before CUDA and OpenMP have started here.
    """
    gpu = device == "cuda" or (device == "auto" and os.path.exists("/dev/nvidia0"))
    size = min(MOST, len(os.sched_getaffinity(0)) // CORES_EACH) if gpu and _can_fork() else 0
    if not size:
        yield None
        return
    before = multiprocessing.active_children()
    pool = ProcessPoolExecutor(size, multiprocessing.get_context("fork"), _begin, (summon,))
    try:
        for _ in range(size):
            pool.submit(_arrive)
        yield pool
    finally:  # all they did that counts is on disk
        for child in multiprocessing.active_children():
            if child not in before:
                child.kill()
        pool.shutdown(cancel_futures=True)


def minds() -> "list[Subject]":
    """In a helper: its own copy of the exam's minds."""
    assert _summon is not None
    return _loaded(_summon)


_loaded = cache(lambda summon: summon())


def _can_fork() -> bool:
    if "fork" not in multiprocessing.get_all_start_methods() or not hasattr(os, "sched_getaffinity"):
        return False
    try:
        numba.threading_layer()
    except ValueError:  # not started yet
        return not torch.cuda.is_initialized()
    return False


def _begin(summon: Summon) -> None:
    """A helper leaves Ctrl-C to the exam, and ends with it."""
    global _summon
    _summon = summon
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    numba.set_num_threads(min(THREADS, numba.config.NUMBA_NUM_THREADS))  # pyright: ignore[reportAttributeAccessIssue]
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _arrive() -> None:
    minds()
