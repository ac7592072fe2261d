from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from qwen3tts_phone.softphone.server import NICE, raise_thread_priority


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def in_a_thread() -> tuple[bool, int, int]:
    """What was granted, what came of it, and what a thread started from there has."""
    granted = raise_thread_priority()
    found: list[int] = []
    child = threading.Thread(target=lambda: found.append(niceness()))
    child.start()
    child.join()
    return granted, niceness(), found[0]


def test_only_the_thread_that_asks_is_preferred() -> None:
    before = niceness()
    with ThreadPoolExecutor(1) as pool:
        granted, own, childs = pool.submit(in_a_thread).result()
    assert own == (NICE if granted else before)
    assert childs >= 0
    assert niceness() == before


def test_without_the_right_it_is_not_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refused)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(raise_thread_priority).result() is False
