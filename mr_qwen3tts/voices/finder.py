"""How a server is brought to know a voice: by its name, or by its recording.

A recording is sent once for each server: at another connection the voice is asked for by the id
that it had, and its recording is sent only where that is unknown.
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
"""Each is one message to the server at most: 2 MB."""
IDS_KEPT = 256
LOADS_AT_ONCE = 2
"""Of one connection; the server takes four, and a new voice shall not wait for a whole warm-up."""
ENVELOPE_BYTES = 40_960
"""What a message with a recording has beside it: its words, escaped."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class VoiceFinder:
    """Makes voices ready."""

    def __init__(self) -> None:
        self._recordings: OrderedDict[tuple[str, Access], Recording] = OrderedDict()
        """By path or address, and what allowed to read it."""
        self._ids: OrderedDict[tuple[str, str | None], str] = OrderedDict()
        """The server's id of a voice, by its recording's content and words."""
        self._turns: WeakValueDictionary[tuple[str, str | None], asyncio.Lock] = (
            WeakValueDictionary()
        )
        """Whoever wants a voice that is being made waits for it."""
        self._loads: WeakKeyDictionary[ClientProtocol, asyncio.Semaphore] = WeakKeyDictionary()

    def stamp_of(self, wish: VoiceRequest) -> Stamp | None:
        """The state that a wish's file had when it was read; None for what is no file."""
        recording = self._recordings.get((wish.name or "", wish.access))
        return None if recording is None else recording.stamp

    async def find(self, client: SpeechClient, wish: VoiceRequest) -> str:
        """The server's id of a voice that is wished for alone, made ready.

        Raises:
            RecordingError: its recording cannot be had.
            SpeechError: the server has no such voice, or cannot make it.
        """
        try:
            return await self._find(client, wish)
        except ConnectionLost:
            if client.closed:
                raise
            # It connects again by itself, and another server may not know the voice.
            return await self._find(client, wish)

    async def _find(self, client: SpeechClient, wish: VoiceRequest) -> str:
        name = wish.name or ""
        if is_recording(name):
            try:
                return await self._cloned(client, wish)
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

    async def _cloned(self, client: SpeechClient, wish: VoiceRequest) -> str:
        if "voice_loading" not in client.session.features:
            raise BadRequest(
                f"The server's engine ({client.session.engine}) makes no voices of recordings.",
                remedy="Serve a Qwen3-TTS Base checkpoint, or name one of its voices.",
            )
        where = wish.name or ""
        recording = await self._recording(client, wish)
        words = wish.ref_text or recording.words
        try:
            async with self._turns.setdefault((recording.content, words), asyncio.Lock()):
                return await self._load(client, recording, words)
        except SpeechError:
            if recording.stamp is None:
                self._recordings.pop(
                    (where, wish.access), None
                )  # another one may lie there by the next time
            raise

    async def _load(self, client: SpeechClient, recording: Recording, words: str | None) -> str:
        key = (recording.content, words)
        async with self._room(client):
            if (made := self._ids.get(key)) is not None:
                try:
                    return (await client.load_voice(voice_id=made)).voice_id
                except BadRequest:
                    pass  # another server, or one that has started anew
            try:
                ready = await client.load_voice(recording.data, words)
            except BadRequest:
                if words is not None:
                    raise
                # Nothing there can find out the words: the colour of the voice is had without.
                ready = await client.load_voice(recording.data, x_vector_only=True)
        keep(self._ids, key, ready.voice_id, IDS_KEPT)
        return ready.voice_id

    async def _recording(self, client: SpeechClient, wish: VoiceRequest) -> Recording:
        """Read it as the server can take it, unless it is here and its file is the same."""
        where, words, access = wish.name or "", wish.ref_text, wish.access
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
    """Raise BadRequest unless the server would speak so; nothing is said."""
    context = await client.open(voice=voice, language=language)
    try:
        await anext(context)
    finally:
        context.cancel(0)


def keep(kept: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Put it in last; what was used longest ago goes."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
