"""Run a command that dies with whoever started it: `python leash.py STARTER-PID COMMAND…`.

A driver or a Ray worker may be killed without a chance to end what it started. A train command that went on
by itself would then write into the same folder as its successor. Linux ends it for us; elsewhere the driver
waits until such a command has ended by itself. This file imports nothing of mirrormark: it must cost nothing.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    starter, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter:  # it was gone before we asked to be told
            sys.exit(137)
    os.execv(command[0], command)
