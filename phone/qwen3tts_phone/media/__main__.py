"""Entry point of the media process: ``python -m qwen3tts_phone.media CONTROL NOTICE SETTINGS``."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import traceback

from qwen3tts_phone.media import srtp
from qwen3tts_phone.media.loop import MediaLoop

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29


def schedule(wanted: str, priority: int) -> str:
    """Request the exact scheduler; return the one granted (fifo, nice, plain)."""
    if wanted in ("auto", "fifo"):
        try:
            # RESET_ON_FORK: no thread or child may inherit the real-time class.
            policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(0, policy, os.sched_param(priority))
            return "fifo"
        except OSError:
            pass
    if wanted in ("auto", "fifo", "nice"):
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -15)
            return "nice"
        except OSError:
            pass
    return "plain"


def main(argv: list[str]) -> int:
    control_fd, notice = int(argv[1]), int(argv[2])
    settings = json.loads(argv[3])
    libc = ctypes.CDLL(None, use_errno=True)
    if settings["parent"]:
        # The signal comes when the parent's main thread ends; it may have ended before the call.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != settings["parent"]:
            return 0
    # Ctrl-C goes to the whole group; the parent ends its calls and then this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    suites = srtp.load(settings["libraries"])
    granted = schedule(settings["scheduling"], settings["priority"])
    libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    loop = MediaLoop(
        control,
        notice,
        settings["groups"],
        settings["receive_every_s"],
        settings["report_every_s"],
    )
    loop.tell({"type": "ready", "rt": granted, "srtp": suites, "numpy": "numpy" in sys.modules})
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        loop.run()
    except BaseException:
        loop.tell({"type": "fatal", "cause": traceback.format_exc()})
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
