"""Child processes get what they need to run, and no key."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qwen3tts_agent.recognition.whisper_process as whisper
import qwen3tts_phone.media.process as media
import qwen3tts_wire.child.process as child
from qwen3tts_phone.media.types import MediaSettings
from qwen3tts_wire.process import (
    ALLOWED,
    DUE,
    PLAYING,
    SWITCH_INTERVAL_S,
    Heap,
    child_environment,
    short_switches,
)
from qwen3tts_wire.whisper.models import FETCHING


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_there_is_out_of_the_collectors_sight_until_the_last_holder_leaves() -> None:
    heap = Heap()
    heap.hold(collect=False)
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    heap.hold(collect=False)
    heap.release()
    assert gc.get_freeze_count() > frozen / 2  # what was frozen may end meanwhile
    heap.release()
    assert (heap.held, gc.get_freeze_count()) == (False, 0)


def test_a_release_too_many_changes_nothing() -> None:
    heap = Heap()
    heap.release()
    heap.sweep()
    assert (gc.get_freeze_count(), heap.held) == (0, False)


def test_garbage_of_before_goes_when_it_is_held_and_later_garbage_at_a_sweep() -> None:
    heap, early, late = Heap(), Ring(), Ring()
    first, second = weakref.ref(early), weakref.ref(late)
    del early
    heap.hold()
    assert first() is None
    del late
    gc.collect()
    assert second() is not None, "it is out of sight"
    heap.sweep()
    assert second() is None
    assert gc.get_freeze_count() > 1000
    heap.release()


def test_a_due_sweep_waits_until_no_holder_of_the_process_plays_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heap, collections, calls, late = Heap(), {"collections": 0}, {"phone": 1, "page": 1}, Ring()
    monkeypatch.setattr(gc, "get_stats", lambda: [{}, {}, collections])
    gone = weakref.ref(late)
    found = []
    with (
        heap.held_by(lambda: calls["phone"] > 0),
        heap.held_by(lambda: calls["page"] > 0),
    ):
        del late
        for name in ("phone", "page"):
            calls[name] = 0
            heap.sweep_if_idle()
            found.append(gone() is None)
        collections["collections"] += DUE
        for name in calls:
            calls[name] = 1
            heap.sweep_if_idle()
            found.append(gone() is None)
            calls[name] = 0
        heap.sweep_if_idle()
        found.append(gone() is None)
    assert found == [False, False, False, False, True]
    assert not heap.held


def test_who_plays_sound_without_holding_the_heap_is_left_alone_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heap, busy, swept = Heap(), [True], []
    monkeypatch.setattr(Heap, "due", True)
    monkeypatch.setattr(heap, "sweep", lambda: swept.append(True))
    with heap.heeds(lambda: busy[0]):
        heap.sweep_if_idle()
        assert not swept
        busy[0] = False
        heap.sweep_if_idle()
    assert swept == [True]


def test_a_sweep_is_due_after_some_full_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    heap, seen = Heap(), {"collections": 5}
    monkeypatch.setattr(gc, "get_stats", lambda: [{}, {}, seen])
    found = [heap.due]
    heap.hold(collect=False)
    for more in (0, DUE - 1, 1):
        seen["collections"] += more
        found.append(heap.due)
    heap.sweep()
    found.append(heap.due)
    heap.release()
    assert found == [False, False, False, True, False]


NAMES = (
    *("MR_QWEN3TTS_LLM_KEY", "QWEN3TTS_API_KEYS", "QWEN3TTS_STT_KEY", "TWILIO_AUTH_TOKEN"),
    *("OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MR_QWEN3TTS_SIP_PASSWORD"),
    *("DATABASE_URL", "SOMETHING_OF_THE_HOST"),
)
SECRETS = dict.fromkeys(NAMES, "not-for-children")


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=5)))
def test_nothing_passes_that_is_not_on_the_list(parent: dict[str, str]) -> None:
    parent |= SECRETS | {"PATH": "/bin", "LC_TIME": "C"}
    found = child_environment(also=("HF_HOME",), environ=parent)
    assert {name.upper() for name in found} - ALLOWED - {"HF_HOME"} <= {
        name.upper() for name in parent if name.upper().startswith("LC_")
    }
    assert found.items() <= parent.items()
    assert (found["PATH"], found["LC_TIME"]) == ("/bin", "C")
    assert "not-for-children" not in found.values()


def test_no_allowed_name_is_that_of_a_secret() -> None:
    secret = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
    for name in (*ALLOWED, *PLAYING, *FETCHING):
        assert not any(each in name for each in secret), name


def test_folders_of_packages_stand_before_the_path_of_imports() -> None:
    parent = {"PYTHONPATH": "/theirs"}
    found = child_environment(roots=("/ours", "/ours", "/more"), environ=parent)
    assert found == {"PYTHONPATH": os.pathsep.join(("/ours", "/more", "/theirs"))}
    assert child_environment(environ={}) == {}


@pytest.fixture
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HF_HOME", "/models")


@pytest.mark.usefixtures("_secrets")
def test_no_worker_is_given_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []

    def popen(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        given.append(env)

    monkeypatch.setattr(subprocess, "Popen", popen)
    media._spawn(MediaSettings(), 0, 0)
    voice = child.environment("qwen3tts_engine.embedded.worker")
    workers = [*given, voice, whisper._environment("auto")]
    for each in workers:
        assert not SECRETS.keys() & each.keys()
        assert "not-for-children" not in each.values()
        assert each["PATH"] == os.environ["PATH"]
        assert each["PYTHONPATH"]
    assert workers[-1]["HF_HOME"] == "/models"


@pytest.mark.network
@pytest.mark.usefixtures("_secrets")
async def test_the_media_process_runs_without_a_key() -> None:
    process = await media.MediaProcess.start(MediaSettings())
    try:
        assert b"not-for-children" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    finally:
        await process.close()


def test_threads_switch_sooner_and_only_within_the_block() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        with short_switches():
            assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S, abs=2e-6)
        assert sys.getswitchinterval() == pytest.approx(0.005, abs=2e-6)
        sys.setswitchinterval(0.00005)
        with short_switches():
            assert sys.getswitchinterval() == pytest.approx(0.00005, abs=2e-6)
    finally:
        sys.setswitchinterval(before)
