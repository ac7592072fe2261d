"""The pacer's clock before other work: a call in the browser shares its thread with all else.

Over SIP a process of its own, in the real-time class, sends the packets. Here they leave from the
event loop, so its thread is the one to prefer; in the real-time class it could starve the machine.
"""

from __future__ import annotations

import os

NICE = -10
"""About ten times the share of a thread that asks for nothing."""


def prefer_this_thread() -> bool:
    """Have the kernel prefer the calling thread; whether it does.

    Linux has a niceness for each thread. Threads and processes that it starts from now on are as
    any other. Not granted without the right to it (CAP_SYS_NICE, or RLIMIT_NICE).
    """
    try:
        plain = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, plain, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    except (OSError, AttributeError):
        return False
    return True
