"""Cloned voices: LRU cache in memory, files in a shared folder."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.step_runner import Snapshot
from qwen3tts_engine.qwen3.model.prompt import Reference
from qwen3tts_engine.qwen3.voices.catalogue import is_voice_id
from qwen3tts_engine.qwen3.voices.content import ClonedVoice, VoiceContent
from qwen3tts_wire.errors import EngineUnavailable, LimitExceeded, ServerBusy
from qwen3tts_wire.process import replace_file


@dataclass(slots=True)
class _Entry:
    voice: ClonedVoice
    bytes: int
    pins: int = 0


class VoiceCache:
    """Voices by id, bounded in bytes; evicts by LRU unless pinned."""

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        """Memory of all voices with their snapshots, on any device."""
        self.bytes = 0
        """Memory of the cached voices."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, voice_id: str) -> bool:
        return voice_id in self._entries

    def get(self, voice_id: str) -> ClonedVoice | None:
        with self._lock:
            entry = self._entries.get(voice_id)
            if entry is None:
                return None
            self._entries.move_to_end(voice_id)
            return entry.voice

    def admit(self, voice: ClonedVoice) -> ClonedVoice:
        """Cache a voice; return the one under its id. LimitExceeded, ServerBusy."""
        with self._lock:
            return self._admit(voice).voice

    def pin(self, voice: ClonedVoice) -> ClonedVoice:
        """As ``admit``, and protect it until a matching ``unpin``."""
        with self._lock:
            entry = self._admit(voice)
            entry.pins += 1
            return entry.voice

    def unpin(self, voice: ClonedVoice) -> None:
        with self._lock:
            entry = self._entries.get(voice.id)
            if entry is not None and entry.voice is voice and entry.pins:
                entry.pins -= 1

    def keep_kv(self, voice: ClonedVoice, key: Hashable, snapshot: Snapshot) -> bool:
        """Store a prompt prefix with a voice, if there is room."""
        with self._lock:
            if key in voice.kv:
                return True
            fits = self._grow(voice, snapshot.bytes)
            if fits:
                voice.kv[key] = snapshot
            return fits

    def keep_codec(self, voice: ClonedVoice, snapshot: Snapshot) -> bool:
        """Store the codec state behind the reference, if there is room."""
        with self._lock:
            if voice.codec is not None:
                return True
            fits = self._grow(voice, snapshot.bytes)
            if fits:
                voice.codec = snapshot
            return fits

    def forget(self, voice_id: str) -> bool:
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
        # A voice that is not cached is not counted and must not grow.
        if entry is None or entry.voice is not voice:
            return False
        # It must not be evicted for itself.
        entry.pins += 1
        fits = self._make_room(size)
        entry.pins -= 1
        if fits:
            entry.bytes += size
            self.bytes += size
        return fits

    def _make_room(self, size: int) -> bool:
        idle = [entry for entry in self._entries.values() if not entry.pins]
        if self.bytes + size - sum(entry.bytes for entry in idle) > self.bound_bytes:
            return False
        for entry in idle:
            if self.bytes + size <= self.bound_bytes:
                break
            del self._entries[entry.voice.id]
            self.bytes -= entry.bytes
        return True


log = logging.getLogger(__name__)

_FILE_MAX = 64 << 20
"""Bytes; a voice of the longest recording takes a hundredth."""


class VoiceFiles:
    """Folder of voices, a file an id. Thread- and process-safe."""

    def __init__(self, folder: Path, *, bound_bytes: int = 1 << 30) -> None:
        self.folder = folder
        self.bound_bytes = bound_bytes
        self._names = folder / "names"
        try:
            for one in (folder, self._names):
                one.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EngineUnavailable(
                f"The folder of cloned voices {folder} cannot be used: {error.strerror}.",
                remedy="Name another folder in the settings, or none.",
            ) from None

    def load(self, voice_id: str) -> VoiceContent | None:
        """Read a voice; None if it is missing, or damaged (logged)."""
        file = self._file(voice_id)
        try:
            with file.open("rb") as opened:
                data = opened.read(_FILE_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the voice file %s cannot be read: %s", file.name, error.strerror)
            return None
        try:
            return _unpack(data)
        except (SafetensorError, ValueError, KeyError, TypeError):
            log.warning("the voice file %s is damaged; the voice is computed again", file.name)
            return None

    def has_reference(self, voice_id: str) -> bool | None:
        """Return whether the voice has words and codes; None if absent."""
        try:
            with self._file(voice_id).open("rb") as opened:
                # A safetensors file begins with the length of its header.
                header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
            return "codes" in header
        except (OSError, ValueError, TypeError, OverflowError, MemoryError):
            return None

    def save(self, voice_id: str, content: VoiceContent) -> bool:
        data = _pack(content)
        try:
            with os.scandir(self.folder) as entries:
                kept = sum(one.stat().st_size for one in entries if one.is_file())
            if kept + len(data) > self.bound_bytes:
                log.warning("the voice folder is full (%d bytes); a voice is not kept", kept)
                return False
            replace_file(self._file(voice_id), data)
        except OSError as error:
            log.warning("a voice could not be written: %s", error.strerror)
            return False
        return True

    def forget(self, voice_id: str) -> bool:
        for name, named in self.names().items():
            if named == voice_id:
                self._name_file(name).unlink(missing_ok=True)
        try:
            self._file(voice_id).unlink()
        except FileNotFoundError:
            return False
        return True

    def names(self) -> dict[str, str]:
        found = {}
        for file in sorted(self._names.glob("*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                entry = json.loads(file.read_bytes()[:4096])
                name, voice_id = str(entry["name"]), str(entry["id"])
                if is_voice_id(voice_id) and self._name_file(name) == file:
                    found[name] = voice_id
        return found

    def set_name(self, name: str, voice_id: str) -> None:
        data = json.dumps({"name": name, "id": voice_id}).encode()
        try:
            replace_file(self._name_file(name), data)
        except OSError as error:
            log.warning("a voice's name could not be written: %s", error.strerror)

    def _file(self, voice_id: str) -> Path:
        if not is_voice_id(voice_id):
            raise ValueError("a voice's id has 64 hexadecimal digits")
        return self.folder / f"{voice_id}.safetensors"

    def _name_file(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        return self._names / f"{digest[:32]}.json"


def _pack(content: VoiceContent) -> bytes:
    tensors = {"x_vector": content.x_vector.contiguous()}
    if content.reference is not None:
        tensors["codes"] = torch.tensor(content.reference.codes, dtype=torch.int32)
        tensors["text_ids"] = torch.tensor(content.reference.text_ids, dtype=torch.int32)
        words = (content.transcript or "").encode("utf-8", "surrogatepass")
        tensors["transcript"] = torch.tensor(list(words), dtype=torch.uint8)
    tensors["digest"] = _digest(tensors)
    return save(tensors)


def _unpack(data: bytes) -> VoiceContent:
    tensors = load(data)
    found = tensors.pop("digest")
    if not torch.equal(found, _digest(tensors)):
        raise ValueError("digest")
    reference = transcript = None
    if "codes" in tensors:
        reference = Reference(
            text_ids=tuple(tensors["text_ids"].tolist()),
            codes=tuple(tuple(frame) for frame in tensors["codes"].tolist()),
        )
        transcript = bytes(tensors["transcript"].tolist()).decode("utf-8", "surrogatepass")
    return VoiceContent(tensors["x_vector"], reference, transcript)


def _digest(tensors: dict[str, Tensor]) -> Tensor:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)
