"""Voices by content hash, shared by replicas.

Files are immutable: recordings by hash, names beside them. A crash leaves a recording without a
name, or an old name beside a new one, never half a voice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from qwen3tts_server.keys import EVERYTHING
from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.files import Files
from qwen3tts_server.voices.names import key_of
from qwen3tts_server.voices.stored import (
    ENTRY_MAX,
    HEADER_MAX,
    NameFile,
    RecordingFile,
    StoredVoice,
    VoiceContent,
    VoiceExists,
    entry_file,
    file_name,
    id_hash,
    key_hash,
    named_as,
    pack,
    pack_entry,
    recording_file,
    unpack,
    unpack_entry,
)
from qwen3tts_wire.errors import LimitExceeded, UnknownVoice

log = logging.getLogger(__name__)

DAY_S = 86400.0
Manages = Callable[[StoredVoice], bool]
"""Right to replace and delete a voice."""


@dataclass(frozen=True)
class Index:
    names: Mapping[str, StoredVoice] = field(default_factory=dict)
    """By ``key_of``, oldest first."""
    contents: Mapping[str, RecordingFile] = field(default_factory=dict)
    """By hash."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Content by ``id_hash``."""
    files: Mapping[str, StoredVoice] = field(default_factory=dict)
    """Entries by file."""
    bytes: int = 0
    """All recordings."""

    def content_of(self, voice_id: str) -> str | None:
        return voice_id if voice_id in self.contents else self.ids.get(id_hash(voice_id))


class VoiceStore:
    """Thread-safe store; all but ``index`` blocks and raises ServerBusy."""

    def __init__(
        self, files: Files, settings: VoiceSettings, clock: Callable[[], float] = time.time
    ) -> None:
        self.shared = files.shared
        """True if other replicas may write."""
        self._files = files
        self._settings = settings
        self._clock = clock
        self._index = Index()
        self._lock = threading.RLock()
        self._damaged: set[str] = set()

    @property
    def index(self) -> Index:
        return self._index

    def refresh(self) -> Index:
        with self._lock:
            recordings = self._recordings()
            # Of one content there may be several: of other engines, or kept once more.
            kept = {each.content: each for each in recordings}
            old = self._index
            named: dict[str, NameFile] = {}
            for each in filter(None, map(named_as, self._files.listed("names"))):
                other = named.get(each.key_hash)
                if each.content in kept and (other is None or other.order < each.order):
                    named[each.key_hash] = each
            files: dict[str, StoredVoice] = {}
            for each in named.values():
                voice = old.files.get(each.file) or self._read(each.file)
                if voice is not None:
                    files[each.file] = voice
            self._index = _indexed(recordings, files)
            return self._index

    def _recordings(self) -> list[RecordingFile]:
        found = (recording_file(*each) for each in self._files.listed("voices").items())
        return sorted(filter(None, found), key=lambda each: (each.created, each.file))

    def _read(self, file: str) -> StoredVoice | None:
        data = self._files.read("names", file, ENTRY_MAX)
        voice = None if data is None else unpack_entry(data, file)
        if voice is None and data is not None and file not in self._damaged:
            # Perhaps it is being written: it is read again next time.
            self._damaged.add(file)
            log.warning("the entry %s of the voice store is damaged", file)
        return voice

    # --- recordings ---

    def fetch(self, content: str) -> VoiceContent | None:
        """Return a recording; None: missing or damaged (logged)."""
        kept = self._index.contents.get(content) or self.refresh().contents.get(content)
        if kept is None:
            return None
        data = self._files.read("voices", kept.file, self._settings.max_bytes + HEADER_MAX)
        found = None if data is None else unpack(data, content)
        if found is None and data is not None:
            log.warning("the recording %s of the voice store is damaged", kept.file)
        return found

    def keep(self, content: VoiceContent, voice_id: str) -> bool:
        """Store an unnamed recording; False: full."""
        now = self._clock()
        kept = self._index.contents.get(content.hash)
        young = kept is not None and now - kept.created < self._age / 2
        if kept is not None and young and kept.id_hash == id_hash(voice_id):
            return True
        with self._lock, self._files.locked():
            self._expire(self.refresh(), now)
            data = pack(content)
            if not self._make_room(len(data)):
                return False
            self._put(content, voice_id, data, now)
            return True

    def _put(self, content: VoiceContent, voice_id: str, data: bytes, now: float) -> None:
        file = file_name(content.hash, voice_id, now)
        self._files.write("voices", file, data)
        for each in self._files_of(content.hash):
            # Others for other engines stay.
            if each.id_hash == id_hash(voice_id) and each.file != file:
                self._files.remove("voices", each.file)
        self.refresh()

    def _files_of(self, content: str) -> list[RecordingFile]:
        return [each for each in self._recordings() if each.content == content]

    @property
    def _age(self) -> float:
        return self._settings.reference_days * DAY_S

    def _expire(self, index: Index, now: float) -> None:
        for each in self._nameless(index):
            if now - each.created > self._age:
                self._drop(each.content)

    def _make_room(self, size: int) -> bool:
        index = self.refresh()
        free = self._settings.max_store_bytes - index.bytes
        nameless = self._nameless(index)
        if free + sum(each.bytes for each in nameless) < size:
            return False
        for each in nameless:
            if free >= size:
                break
            self._drop(each.content)
            free += each.bytes
        return True

    @staticmethod
    def _nameless(index: Index) -> list[RecordingFile]:
        named = {each.content for each in index.names.values()}
        found = [each for each in index.contents.values() if each.content not in named]
        return sorted(found, key=lambda each: each.created)

    def _drop(self, content: str) -> None:
        for each in self._files_of(content):
            self._files.remove("voices", each.file)

    # --- names ---

    def add(
        self,
        voice: StoredVoice,
        content: VoiceContent,
        may_manage: Manages = EVERYTHING.may_manage,
        *,
        replace_old: bool,
    ) -> StoredVoice:
        with self._lock, self._files.locked():
            index = self.refresh()
            old = index.names.get(key_of(voice.name))
            self._may_add(index, voice.name, may_manage, replace_old=replace_old)
            # A clock that was set back must not hide it behind the one it replaces.
            now = max(self._clock(), old.created + 0.001 if old else 0.0)
            voice = replace(voice, created=round(now, 3), content=content.hash)
            data = pack(content)
            if not self._make_room(len(data)):
                raise LimitExceeded(
                    "The voice store has no room for this recording.",
                    remedy="Delete voices that are no longer used, or raise"
                    " voices.max_store_bytes.",
                )
            self._put(content, voice.voice_id, data, now)
            self._files.write("names", entry_file(voice), pack_entry(voice))
            mine = named_as(entry_file(voice))
            self._unname(key_hash(voice.name), before=mine)
            self._drop_unnamed(old)
            # Where there are no locks, another replica may have been there at the same time.
            won = self.refresh().names.get(key_of(voice.name), voice)
            if won.content != voice.content and not replace_old:
                raise _exists(voice.name)
            return voice

    def may_add(
        self, name: str, may_manage: Manages = EVERYTHING.may_manage, *, replace_old: bool
    ) -> None:
        """Raise early as ``add``."""
        self._may_add(self.refresh(), name, may_manage, replace_old=replace_old)

    def _may_add(self, index: Index, name: str, may_manage: Manages, *, replace_old: bool) -> None:
        old = index.names.get(key_of(name))
        if old is not None:
            if not replace_old or not may_manage(old):
                raise _exists(name, mine=may_manage(old))
        elif len(index.names) >= self._settings.max_voices:
            raise LimitExceeded(
                f"There are {len(index.names)} uploaded voices; no more are kept.",
                remedy="Delete voices that are no longer used, or raise voices.max_voices.",
            )

    def remove(self, name: str, may_manage: Manages = EVERYTHING.may_manage) -> StoredVoice:
        with self._lock, self._files.locked():
            voice = self.refresh().names.get(key_of(name))
            if voice is None or not may_manage(voice):
                raise UnknownVoice(
                    "There is no uploaded voice of that name.",
                    remedy="GET /v1/audio/voices lists them; the engine's own cannot be deleted.",
                )
            self._unname(key_hash(name))
            self._drop_unnamed(voice)
            self.refresh()
            return voice

    def _unname(self, hashed: str, before: NameFile | None = None) -> None:
        for each in filter(None, map(named_as, self._files.listed("names"))):
            if each.key_hash == hashed and (before is None or each.order < before.order):
                self._files.remove("names", each.file)

    def _drop_unnamed(self, voice: StoredVoice | None) -> None:
        if voice is not None and all(
            each.content != voice.content for each in self.refresh().names.values()
        ):
            self._drop(voice.content)


def _exists(name: str, *, mine: bool = True) -> VoiceExists:
    remedy = "Choose another name, or delete it first."
    if not mine:
        remedy = "Choose another name; only its owner, or a key of the role voices, replaces it."
    return VoiceExists(f"There is a voice {name!r} already.", remedy=remedy)


def _indexed(recordings: list[RecordingFile], files: dict[str, StoredVoice]) -> Index:
    voices = sorted(files.values(), key=lambda each: (each.created, each.name))
    return Index(
        names={key_of(each.name): each for each in voices},
        contents={each.content: each for each in recordings},
        ids={each.id_hash: each.content for each in recordings},
        files=files,
        bytes=sum(each.bytes for each in recordings),
    )
