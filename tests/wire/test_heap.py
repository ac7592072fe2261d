from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from qwen3tts_wire.process import DUE, Heap


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
    assert gc.get_freeze_count() >= frozen
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
