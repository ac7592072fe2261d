"""Voices at a server, by name or recording.

A recording is sent once a server; elsewhere its id is tried first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.errors import BadRequest, ConnectionLost, SpeechError

from ..threads import in_thread
from .recordings import Access, Recording, RecordingError, Stamp, fitting, is_recording, read, stamp
from .request import VoiceRequest

RECORDINGS_KEPT = 32
"""Recordings of up to 2 MB."""
IDS_KEPT = 256
LOADS_AT_ONCE = 2
"""A connection; the server takes four."""
ENVELOPE_BYTES = 40_960
"""Message besides a recording."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class VoiceFinder:
    """Prepares voices."""

    def __init__(self) -> None:
        self._recordings: OrderedDict[tuple[str, Access], Recording] = OrderedDict()
        """By place and access."""
        self._ids: OrderedDict[tuple[str, str | None], str] = OrderedDict()
        """By content and text."""
        self._turns: WeakValueDictionary[tuple[str, str | None], asyncio.Lock] = (
            WeakValueDictionary()
        )
        """Locks of preparations."""
        self._loads: WeakKeyDictionary[ClientProtocol, asyncio.Semaphore] = WeakKeyDictionary()

    def stamp_of(self, request: VoiceRequest) -> Stamp | None:
        """Return the file's state when read, or None."""
        recording = self._recordings.get((request.name or "", request.access))
        return None if recording is None else recording.stamp

    async def find(self, client: SpeechClient, request: VoiceRequest) -> str:
        """Prepare a voice; return the server's id.

        Raises:
            RecordingError: no recording.
            SpeechError: the server cannot.
        """
        try:
            return await self._find(client, request)
        except ConnectionLost:
            if client.closed:
                raise
            # It connects again by itself, and another server may not know the voice.
            return await self._find(client, request)

    async def _find(self, client: SpeechClient, request: VoiceRequest) -> str:
        name = request.name or ""
        if is_recording(name):
            try:
                return await self._cloned(client, request)
            except RecordingError:
                # The older plugin's names of voices that lie at the server.
                if not name.startswith("/voice/"):
                    raise
                name = PurePosixPath(name).stem
        if "voice_loading" in client.session.features:
            try:
                async with self._room(client):
                    return (await client.load_voice(voice_id=name)).voice_id
            except BadRequest:
                pass  # not every voice is one that is loaded
        await ask(client, name, None)
        return name

    async def _cloned(self, client: SpeechClient, request: VoiceRequest) -> str:
        if "voice_loading" not in client.session.features:
            raise BadRequest(
                f"The server's engine ({client.session.engine}) makes no voices of recordings.",
                remedy="Serve a Qwen3-TTS Base checkpoint, or name one of its voices.",
            )
        where = request.name or ""
        recording = await self._recording(client, request)
        words = request.ref_text or recording.words
        try:
            async with self._turns.setdefault((recording.content, words), asyncio.Lock()):
                return await self._load(client, recording, words)
        except SpeechError:
            if recording.stamp is None:
                self._recordings.pop(
                    (where, request.access), None
                )  # another one may lie there by the next time
            raise

    async def _load(self, client: SpeechClient, recording: Recording, words: str | None) -> str:
        key = (recording.content, words)
        async with self._room(client):
            if (made := self._ids.get(key)) is not None:
                try:
                    return (await client.load_voice(voice_id=made)).voice_id
                except BadRequest:
                    pass  # another server, or a restarted one
            try:
                ready = await client.load_voice(recording.data, words)
            except BadRequest:
                if words is not None:
                    raise
                # Nothing there can find out the words: the speaker embedding needs none.
                ready = await client.load_voice(recording.data, x_vector_only=True)
        keep(self._ids, key, ready.voice_id, IDS_KEPT)
        return ready.voice_id

    async def _recording(self, client: SpeechClient, request: VoiceRequest) -> Recording:
        where, words, access = request.name or "", request.ref_text, request.access
        most = (client.session.limits.max_message_bytes - ENVELOPE_BYTES) // 4 * 3

        def look() -> Recording:
            if kept is not None and (kept.stamp is None or stamp(where, access) == kept.stamp):
                recording = kept
            else:
                recording = read(where, access)
            cut = words is None and recording.words is None
            return replace(recording, data=fitting(recording.data, most, cut=cut))

        kept = self._recordings.get((where, access))
        recording = await in_thread(look)
        keep(self._recordings, (where, access), recording, RECORDINGS_KEPT)
        return recording

    def _room(self, client: SpeechClient) -> asyncio.Semaphore:
        return self._loads.setdefault(client.protocol, asyncio.Semaphore(LOADS_AT_ONCE))


async def ask(client: SpeechClient, voice: str | None, language: str | None) -> None:
    """Raise BadRequest for unusable options, saying nothing."""
    context = await client.open(voice=voice, language=language)
    try:
        await anext(context)
    finally:
        context.cancel(0)


def keep(kept: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Insert as recent; evict the oldest."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
