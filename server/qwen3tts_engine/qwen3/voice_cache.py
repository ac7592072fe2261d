"""The voices in memory: bounded in bytes, the least recently used go, none that is pinned."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from qwen3tts_engine.qwen3.voice_content import ClonedVoice, Snapshot
from qwen3tts_wire.errors import LimitExceeded, ServerBusy


@dataclass(slots=True)
class _Entry:
    voice: ClonedVoice
    bytes: int
    pins: int = 0


class VoiceCache:
    """Voices by id. Thread-safe."""

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        """Memory of all voices with their snapshots, wherever these lie."""
        self.bytes = 0
        """Memory of the voices that are kept."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, voice_id: str) -> bool:
        return voice_id in self._entries

    def get(self, voice_id: str) -> ClonedVoice | None:
        """The voice of that id, which is used now; None if it is not kept."""
        with self._lock:
            entry = self._entries.get(voice_id)
            if entry is None:
                return None
            self._entries.move_to_end(voice_id)
            return entry.voice

    def admit(self, voice: ClonedVoice) -> ClonedVoice:
        """Keep a voice; gives the one that is kept under its id, which may be an older one.

        Raises:
            LimitExceeded: it is larger than the bound.
            ServerBusy: the pinned ones leave no room.
        """
        with self._lock:
            return self._admit(voice).voice

    def pin(self, voice: ClonedVoice) -> ClonedVoice:
        """As ``admit``, and hold what it gives until ``unpin`` of that, as often as pinned."""
        with self._lock:
            entry = self._admit(voice)
            entry.pins += 1
            return entry.voice

    def unpin(self, voice: ClonedVoice) -> None:
        """Take back one ``pin``; nothing for a voice that was forgotten meanwhile."""
        with self._lock:
            entry = self._entries.get(voice.id)
            if entry is not None and entry.voice is voice and entry.pins:
                entry.pins -= 1

    def keep_kv(self, voice: ClonedVoice, key: Hashable, snapshot: Snapshot) -> bool:
        """Let a voice keep the computed beginning of a prompt, if there is room for it."""
        with self._lock:
            if key in voice.kv:
                return True
            fits = self._grow(voice, snapshot.bytes)
            if fits:
                voice.kv[key] = snapshot
            return fits

    def keep_codec(self, voice: ClonedVoice, snapshot: Snapshot) -> bool:
        """Let a voice keep the codec's state after its reference, if there is room for it."""
        with self._lock:
            if voice.codec is not None:
                return True
            fits = self._grow(voice, snapshot.bytes)
            if fits:
                voice.codec = snapshot
            return fits

    def forget(self, voice_id: str) -> bool:
        """Remove a voice, pinned or not; False if it is not kept."""
        with self._lock:
            entry = self._entries.pop(voice_id, None)
            if entry is None:
                return False
            self.bytes -= entry.bytes
            return True

    def _admit(self, voice: ClonedVoice) -> _Entry:
        entry = self._entries.get(voice.id)
        if entry is None:
            size = voice.bytes
            if size > self.bound_bytes:
                raise LimitExceeded(
                    f"The voice takes {size} bytes; all voices together may take "
                    f"{self.bound_bytes}.",
                    remedy="Give a shorter recording, or raise voices_bytes in the settings.",
                )
            if not self._make_room(size):
                raise ServerBusy(
                    "There is no room for another voice: those in memory are in use.",
                    remedy="Ask again later, or raise voices_bytes in the settings.",
                )
            entry = self._entries[voice.id] = _Entry(voice, size)
            self.bytes += size
        self._entries.move_to_end(voice.id)
        return entry

    def _grow(self, voice: ClonedVoice, size: int) -> bool:
        entry = self._entries.get(voice.id)
        # One that is not kept does not count, nor may it grow.
        if entry is None or entry.voice is not voice:
            return False
        # It must not go to make room for itself.
        entry.pins += 1
        fits = self._make_room(size)
        entry.pins -= 1
        if fits:
            entry.bytes += size
            self.bytes += size
        return fits

    def _make_room(self, size: int) -> bool:
        """Let the least recently used go until there is room; nothing goes if that cannot be."""
        idle = [entry for entry in self._entries.values() if not entry.pins]
        if self.bytes + size - sum(entry.bytes for entry in idle) > self.bound_bytes:
            return False
        for entry in idle:
            if self.bytes + size <= self.bound_bytes:
                break
            del self._entries[entry.voice.id]
            self.bytes -= entry.bytes
        return True
