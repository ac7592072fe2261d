"""What was sent of each utterance, slot by slot, written down where the parent can read it."""

from __future__ import annotations

from qwen3tts_pacer.frame import Frame
from qwen3tts_pacer.memory import CallMemory, ContextTable


class _Live:
    """A context that is being sent."""

    __slots__ = ("audible_ns", "entry", "first_ns", "frames", "longest", "starvations", "starved")

    def __init__(self, entry: int) -> None:
        self.entry = entry
        self.frames = 0
        self.first_ns = 0
        self.audible_ns = 0
        self.starvations = 0
        self.starved = 0
        self.longest = 0


class Ledger:
    """The contexts that are open, and their entries in the table; times in nanoseconds."""

    def __init__(self, memory: CallMemory) -> None:
        self._table = ContextTable(memory)
        self.live: dict[int, _Live] = {}
        """By the context's number."""
        self._starved_slots = 0

    def begin(self, context: int, entry: int) -> None:
        """A context was begun; ``entry`` is its place in the table."""
        self.live[context] = _Live(entry)
        self._table.store(entry, context, 0, 0, 0, 0, 0)
        self._table.store_seldom(entry, 0, 0, 0, 0)

    def sent(self, frame: Frame, now_ns: int, starved_slots: int) -> None:
        """A frame went out; so many slots were starved so far, in all contexts."""
        live = self.live[frame.context]
        live.frames += 1
        if live.first_ns == 0:
            live.first_ns = now_ns
        self._table.store(
            live.entry, frame.context, live.frames, frame.start, frame.end, live.first_ns, now_ns
        )
        audible = live.audible_ns == 0 and not frame.silent
        if audible or starved_slots != self._starved_slots:
            if audible:
                live.audible_ns = now_ns
            self._hole(live, starved_slots - self._starved_slots)
            self._starved_slots = starved_slots

    def hole(self, context: int, slots: int) -> None:
        """So many slots in the middle of a context passed: we were late."""
        live = self.live.get(context)
        if live is not None:
            self._hole(live, slots)

    def _hole(self, live: _Live, slots: int) -> None:
        if slots:
            live.starvations += 1
            live.starved += slots
            live.longest = max(live.longest, slots)
        self._table.store_seldom(
            live.entry, live.audible_ns, live.starvations, live.starved, live.longest
        )
