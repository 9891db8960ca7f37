"""Other processes that run conditions beside the exam while its agents are on a GPU.

On a GPU a condition is a chain of small kernels and of Python between them: one process leaves GPU and cores
idle most of the time. What helpers finish is on disk, where the exam looks first; what they could not do,
the exam does itself. With agents on the CPU there are none: one process keeps the cores busy.
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
    from mirrormark.exam.candidates import Examinee

LoadCandidates = Callable[[], "list[Examinee]"]
"""Gets the exam's agents: every process loads its own."""

MOST_HELPERS = 5
"""Processes beside the first; more would mostly wait for the one GPU (ours)."""
CORES_EACH = 3
THREADS = 4
"""Threads of a helper's numba: all of the machine's, in every process, would slow one another down."""

_load_candidates: LoadCandidates | None = None


@contextmanager
def worker_pool(load_candidates: LoadCandidates, device: str) -> Iterator[Executor | None]:
    """Processes that are already loading the agents; None where they would not help or cannot be had.

    They are forked, so that they import nothing anew: it must be before CUDA and OpenMP have started here.
    """
    gpu = device == "cuda" or (device == "auto" and os.path.exists("/dev/nvidia0"))
    size = min(MOST_HELPERS, len(os.sched_getaffinity(0)) // CORES_EACH) if gpu and _can_fork() else 0
    if not size:
        yield None
        return
    before = multiprocessing.active_children()
    pool = ProcessPoolExecutor(size, multiprocessing.get_context("fork"), _begin, (load_candidates,))
    try:
        for _ in range(size):
            pool.submit(_preload)
        yield pool
    finally:  # finished parts are on disk
        for child in multiprocessing.active_children():
            if child not in before:
                child.kill()
        pool.shutdown(cancel_futures=True)


def agents() -> "list[Examinee]":
    """In a helper: its own copy of the exam's agents."""
    assert _load_candidates is not None
    return _loaded(_load_candidates)


_loaded = cache(lambda load_candidates: load_candidates())


def _can_fork() -> bool:
    if "fork" not in multiprocessing.get_all_start_methods() or not hasattr(os, "sched_getaffinity"):
        return False
    try:
        numba.threading_layer()
    except ValueError:  # not started yet
        return not torch.cuda.is_initialized()
    return False


def _begin(load_candidates: LoadCandidates) -> None:
    """A helper ignores Ctrl-C, which is the exam's, and ends with it."""
    global _load_candidates
    _load_candidates = load_candidates
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    numba.set_num_threads(min(THREADS, numba.config.NUMBA_NUM_THREADS))  # pyright: ignore[reportAttributeAccessIssue]
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _preload() -> None:
    agents()
