"""The voices in memory: bounded in bytes, the least recently used go, none that is pinned."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
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

from qwen3tts_engine.qwen3.model.prompt import Reference
from qwen3tts_engine.qwen3.voices.content import ClonedVoice, Snapshot, VoiceContent
from qwen3tts_wire.errors import EngineUnavailable, LimitExceeded, ServerBusy


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


log = logging.getLogger(__name__)

_ID = re.compile(r"[0-9a-f]{64}")
_FILE_MAX = 64 << 20
"""Bytes; a voice of the longest recording has a hundredth of it."""


def is_voice_id(text: str) -> bool:
    """Whether a text could be a voice's id."""
    return _ID.fullmatch(text) is not None


class VoiceFiles:
    """A folder of voices. Thread-safe, and safe between processes."""

    def __init__(self, folder: Path, *, bound_bytes: int = 1 << 30) -> None:
        """Make the folder if there is none.

        Beyond ``bound_bytes`` in all, further voices are not kept here, which the log tells.

        Raises:
            EngineUnavailable: it cannot be made.
        """
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
        """The voice of that id; None if there is none, or its file is damaged (the log tells)."""
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
            log.warning("the voice file %s is damaged; the voice is computed anew", file.name)
            return None

    def has_reference(self, voice_id: str) -> bool | None:
        """Whether the voice of that id has words and codes; None if there is no such voice."""
        try:
            with self._file(voice_id).open("rb") as opened:
                # A safetensors file begins with the length of its header.
                header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
            return "codes" in header
        except (OSError, ValueError, TypeError, OverflowError, MemoryError):
            return None

    def save(self, voice_id: str, content: VoiceContent) -> bool:
        """Keep a voice; False, and a line in the log, if that cannot be."""
        data = _pack(content)
        try:
            with os.scandir(self.folder) as entries:
                kept = sum(one.stat().st_size for one in entries if one.is_file())
            if kept + len(data) > self.bound_bytes:
                log.warning("the voice folder is full (%d bytes); a voice is not kept", kept)
                return False
            _write(self._file(voice_id), data)
        except OSError as error:
            log.warning("a voice could not be written: %s", error.strerror)
            return False
        return True

    def forget(self, voice_id: str) -> bool:
        """Remove a voice and its names; False if there is none."""
        for name, named in self.names().items():
            if named == voice_id:
                self._name_file(name).unlink(missing_ok=True)
        try:
            self._file(voice_id).unlink()
        except FileNotFoundError:
            return False
        return True

    def names(self) -> dict[str, str]:
        """The id that each name stands for; damaged entries are left out."""
        found = {}
        for file in sorted(self._names.glob("*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                entry = json.loads(file.read_bytes()[:4096])
                name, voice_id = str(entry["name"]), str(entry["id"])
                if is_voice_id(voice_id) and self._name_file(name) == file:
                    found[name] = voice_id
        return found

    def set_name(self, name: str, voice_id: str) -> None:
        """Let a name stand for a voice; a line in the log if that cannot be written."""
        data = json.dumps({"name": name, "id": voice_id}).encode()
        try:
            _write(self._name_file(name), data)
        except OSError as error:
            log.warning("a voice's name could not be written: %s", error.strerror)

    def _file(self, voice_id: str) -> Path:
        if not is_voice_id(voice_id):
            raise ValueError("a voice's id has 64 hexadecimal digits")
        return self.folder / f"{voice_id}.safetensors"

    def _name_file(self, name: str) -> Path:
        """Names may hold what file names may not."""
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        return self._names / f"{digest[:32]}.json"


def _write(file: Path, data: bytes) -> None:
    # Made with mode 0600.
    handle, beside = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
        Path(beside).replace(file)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


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
    """Hash over names, shapes and values, shape [32], uint8."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)
