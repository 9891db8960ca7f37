"""One job as a Ray Tune trainable: its train command, then its exam command, each a process with its own log.

Tune decides what runs where, and tries a failed trial again. It keeps no checkpoints: the train command's
own are what a new try goes on from.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from ray import tune

from mirrormark.sweep.folder import Folder, Job, Step, last_words, threads

LOOK_S = 1.0
"""How often a trial tells Tune where it stands."""
FAILED = "$ failed: "
"""How the log's last line begins after a failure that the worker could still write down."""

# A worker may be killed without a chance to end what it started. Linux then ends the command for it: one that
# went on by itself would write into the same folder as its successor.
_COMMAND = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):  # it was gone before we asked to be signalled
    sys.exit(137)
sys.argv[:2] = ["mirrormark"]
from mirrormark.cli import main
main()
"""


class Trial(tune.Trainable):
    """`step` starts the job's next command, or looks at it for LOOK_S."""

    def setup(self, config: dict[str, Any]) -> None:
        self.job, self.folder = Job(**config["run"]["job"]), Folder(Path(config["run"]["folder"]))
        self.directory: str = config["run"]["directory"]
        self.process: subprocess.Popen[bytes] | None = None
        self.now: Step | None = None
        self.log: TextIO | None = None
        self.seconds: dict[str, float] = {}
        self.began_s = 0.0

    def step(self) -> dict[str, Any]:
        stopping = self.folder.stop.exists()
        if self.process is None:
            self.now = self.folder.next_step(self.job.name)
            if stopping or self.now is None:
                return {"stage": "stopped" if self.now else "finished", "seconds": self.seconds, "done": True}
            if not self._take_log():
                time.sleep(LOOK_S)
                return {"stage": "waiting for an earlier process of this job to end"}
            self._start(self.now)
        elif stopping and self.process.poll() is None:
            self.process.terminate()  # the train command finishes its iteration and saves
        return self._look()

    def cleanup(self) -> None:
        """Only a command that Tune does not wait for is still alive here."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _take_log(self) -> bool:
        """The command inherits the lock with its output: while it lives, no other starts for this job."""
        path = self.folder.log(self.job.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.log = open(path, "a")  # noqa: SIM115 (kept until the command has ended)
        try:
            fcntl.flock(self.log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.log.close()
            return False
        except OSError:
            pass  # a file system without locks
        return True

    def _start(self, step: Step) -> None:
        run, exam = self.folder.run(self.job.name), self.folder.exam(self.job.name)
        place, proof = (run, run / "config.json") if step == "train" else (exam, exam / "exam.json")
        words = self.folder.words(self.job, step)
        if not proof.exists():
            shutil.rmtree(
                place, ignore_errors=True
            )  # killed before it had written what it is: nothing is lost
        elif step == "train":
            words.append("--resume")
        assert self.log
        self.log.write(f"$ mirrormark {' '.join(words)}\n")
        self.log.flush()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, str(os.getpid()), *words],
            env=os.environ | threads(self.job.threads),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the driver alone, which then asks each job to stop
        )
        self.began_s = time.monotonic()

    def _look(self) -> dict[str, Any]:
        assert self.process and self.log and self.now
        try:
            code = self.process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            return {"stage": "training" if self.now == "train" else "being examined"}
        self.process = None
        step, self.seconds[self.now] = self.now, time.monotonic() - self.began_s
        # Judged by what is on disk: a command that was asked to stop ends with 0 too.
        if self.folder.next_step(self.job.name) != step:
            self.log.close()
            return {"stage": "trained", "seconds": self.seconds, "done": step == "exam"}
        how = f"exit {code}" if code >= 0 else f"killed by signal {-code}"
        reason = f"{step}: {how}; {last_words(self.folder.log(self.job.name))}"
        if self.folder.stop.exists():
            self.log.close()
            return {"stage": "saved"}
        self.log.write(f"{FAILED}{reason}\n")
        self.log.close()
        raise RuntimeError(reason)
