"""Speech servers of the page, their voices, and cloning."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from qwen3tts_codecs.wav import DamagedWav, NotWav, WavFile
from qwen3tts_phone.softphone.entries import EngineEntry, VoiceEntry
from qwen3tts_phone.softphone.settings import EngineSettings
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError
from qwen3tts_wire.messages import MAX_MESSAGE_BYTES, SessionCreated

logger = logging.getLogger(__name__)

QUERY_TIMEOUT_S = 4.0
MAX_SHOWN_VOICES = 2_000
MAX_CLONED_VOICES = 64


class NoSuchEngine(SpeechError):
    code = "no_such_engine"

    def __init__(self, known: str) -> None:
        super().__init__(
            "There is no such engine.", remedy=f"Choose one of: {known}." if known else ""
        )


@dataclass(slots=True)
class SpeechEngine:
    id: str
    settings: EngineSettings
    link: SpeechLink
    session: SessionCreated | None = None
    """Its last ``session.created``; None = it has never answered."""
    trouble: str = ""
    """Error of the last query; empty = it answers."""
    made: list[VoiceEntry] = field(default_factory=list)

    @property
    def name(self) -> str:
        if self.settings.name:
            return self.settings.name
        return self.session.model if self.session is not None else server_address(self.settings.url)

    @property
    def can_clone(self) -> bool:
        return self.session is not None and "voice_loading" in self.session.features

    @property
    def most_audio_bytes(self) -> int:
        """Largest reference: base64 makes four bytes of three."""
        most = MAX_MESSAGE_BYTES
        if self.session is not None:
            most = min(most, self.session.limits.max_message_bytes)
        return max(0, (most - 8192) * 3 // 4)

    async def query(self) -> None:
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                client = await self.link.client()
            self.session, self.trouble = client.session, ""
        except TimeoutError:
            self.trouble = "It does not answer."
        except SpeechError as error:
            self.trouble = str(error)

    def entry(self) -> EngineEntry:
        session = self.session
        if session is None:
            return EngineEntry(self.id, self.name, "", self.trouble)
        voices = [VoiceEntry(each.id, each.name, each.language) for each in session.voices]
        known = {each.id for each in voices}
        made = [each for each in self.made if each.id not in known]
        return EngineEntry(
            self.id,
            self.name,
            session.engine,
            self.trouble,
            self.can_clone,
            voices[0].id if voices else "",
            tuple(made + voices[:MAX_SHOWN_VOICES]),
        )

    def add(self, voice: VoiceEntry) -> None:
        self.made = [voice, *(each for each in self.made if each.id != voice.id)][
            :MAX_CLONED_VOICES
        ]


class SpeechEngines:
    def __init__(self, settings: Iterable[EngineSettings]) -> None:
        self.all: list[SpeechEngine] = []
        for each in settings:
            taken = {engine.id for engine in self.all}
            self.all.append(
                SpeechEngine(_id_of(each, len(self.all) + 1, taken), each, SpeechLink(each.url))
            )

    async def open(self) -> None:
        await self.query()
        if all(each.trouble for each in self.all):
            await self.all[0].link.client()
        for each in self.all:
            if each.trouble:
                logger.warning("the engine %s does not answer: %s", each.name, each.trouble)

    async def query(self) -> None:
        await asyncio.gather(*(each.query() for each in self.all))

    def chosen(self, engine_id: str | None) -> SpeechEngine:
        if engine_id is None:
            return self.all[0]
        for each in self.all:
            if each.id == engine_id:
                return each
        raise NoSuchEngine(", ".join(each.id for each in self.all))

    def entries(self) -> tuple[EngineEntry, ...]:
        return tuple(each.entry() for each in self.all)

    async def close(self) -> None:
        for each in self.all:
            await each.link.close()


def server_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.hostname or 'server'}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "server"


def _id_of(settings: EngineSettings, number: int, taken: set[str]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", settings.name.lower()).strip("-")[:40]
    return plain if plain and plain not in taken else f"engine-{number}"


MAX_TEXT_CHARS = 4096


class CannotClone(SpeechError):
    code = "cannot_clone"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} makes no voices of recordings.",
            remedy="Choose an engine that does, such as Qwen3-TTS: mr-qwen3tts serve --engine"
            " qwen3.",
        )


@dataclass(frozen=True, slots=True)
class ReferenceVoice:
    audio: bytes = field(repr=False)
    ref_text: str | None = field(default=None, repr=False)
    """Its transcript; None = the server transcribes it, or uses the speaker embedding only."""
    name: str = ""


async def clone_voice(engine: SpeechEngine, voice: ReferenceVoice, max_s: float) -> VoiceEntry:
    await engine.query()
    if engine.session is not None and not engine.can_clone:
        raise CannotClone(engine.name)
    check_reference(voice, engine.most_audio_bytes, max_s)
    client = await engine.link.client()
    try:
        ready = await client.load_voice(voice.audio, voice.ref_text)
    except BadRequest:
        if voice.ref_text is not None:
            raise
        # No recogniser there: the speaker embedding (x-vector) alone makes a voice, too.
        ready = await client.load_voice(voice.audio, x_vector_only=True)
    entry = VoiceEntry(ready.voice_id, voice.name or ready.voice_id, "")
    engine.add(entry)
    return entry


def check_reference(voice: ReferenceVoice, max_bytes: int, max_s: float) -> None:
    if not voice.audio:
        raise BadRequest("The recording is empty.", remedy="Choose or record another one.")
    if len(voice.audio) > max_bytes:
        raise LimitExceeded(
            f"The recording has {len(voice.audio):,} bytes; at most {max_bytes:,} are taken.",
            remedy="Take a shorter one: five to fifteen seconds of clear speech are best.",
        )
    seconds = wav_seconds(voice.audio)
    if seconds is not None and seconds > max_s:
        raise LimitExceeded(
            f"The recording lasts {seconds:.0f} s; at most {max_s:.0f} s are taken.",
            remedy="Take a shorter one: five to fifteen seconds of clear speech are best.",
        )


def wav_seconds(audio: bytes) -> float | None:
    try:
        return WavFile.parse(audio).seconds
    except (NotWav, DamagedWav):
        return None
