"""The speech servers that a page may choose, with their voices."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import wave
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from qwen3tts_phone.softphone.entries import EngineEntry, VoiceEntry
from qwen3tts_phone.softphone.settings import EngineSettings
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError
from qwen3tts_wire.messages import MAX_MESSAGE_BYTES, SessionCreated

logger = logging.getLogger(__name__)

QUERY_TIMEOUT_S = 4.0
"""Longest wait for one server's list; the page shows the others meanwhile."""
MAX_SHOWN_VOICES = 2_000
MAX_CLONED_VOICES = 64
"""Voices made by pages that are shown; the server keeps the others."""


class NoSuchEngine(SpeechError):
    """No speech server of that name is known."""

    code = "no_such_engine"

    def __init__(self, known: str) -> None:
        super().__init__(
            "There is no such engine.", remedy=f"Choose one of: {known}." if known else ""
        )


@dataclass(slots=True)
class SpeechEngine:
    """One of them."""

    id: str
    settings: EngineSettings
    link: SpeechLink
    session: SessionCreated | None = None
    """What it said of itself last; None = it has never answered."""
    trouble: str = ""
    """Why it does not answer now; empty = it does."""
    made: list[VoiceEntry] = field(default_factory=list)
    """Voices that pages had made of recordings."""

    @property
    def name(self) -> str:
        """What people are shown."""
        if self.settings.name:
            return self.settings.name
        return self.session.model if self.session is not None else server_address(self.settings.url)

    @property
    def can_clone(self) -> bool:
        """Whether it makes voices of recordings."""
        return self.session is not None and "voice_loading" in self.session.features

    @property
    def most_audio_bytes(self) -> int:
        """The largest recording that it takes: base64 makes four bytes of three."""
        most = MAX_MESSAGE_BYTES
        if self.session is not None:
            most = min(most, self.session.limits.max_message_bytes)
        return max(0, (most - 8192) * 3 // 4)

    async def ask(self) -> None:
        """Learn what it offers now; never raises: ``trouble`` says why it does not answer."""
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                client = await self.link.client()
            self.session, self.trouble = client.session, ""
        except TimeoutError:
            self.trouble = "It does not answer."
        except SpeechError as error:
            self.trouble = str(error)

    def entry(self) -> EngineEntry:
        """For the page."""
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
        """A page had a voice made."""
        self.made = [voice, *(each for each in self.made if each.id != voice.id)][
            :MAX_CLONED_VOICES
        ]


class SpeechEngines:
    """All of them; the first is the one that speaks where a page says nothing."""

    def __init__(self, settings: Iterable[EngineSettings]) -> None:
        self.all: list[SpeechEngine] = []
        for each in settings:
            taken = {engine.id for engine in self.all}
            self.all.append(
                SpeechEngine(_id_of(each, len(self.all) + 1, taken), each, SpeechLink(each.url))
            )

    async def open(self) -> None:
        """Ask all; raises ConnectionLost, or what else it is, where none of them answers."""
        await self.ask()
        if all(each.trouble for each in self.all):
            await self.all[0].link.client()
        for each in self.all:
            if each.trouble:
                logger.warning("the engine %s does not answer: %s", each.name, each.trouble)

    async def ask(self) -> None:
        """Learn what all offer now."""
        await asyncio.gather(*(each.ask() for each in self.all))

    def chosen(self, engine_id: str | None) -> SpeechEngine:
        """The one of that id; None = the first. Raises NoSuchEngine."""
        if engine_id is None:
            return self.all[0]
        for each in self.all:
            if each.id == engine_id:
                return each
        raise NoSuchEngine(", ".join(each.id for each in self.all))

    def entries(self) -> tuple[EngineEntry, ...]:
        """For the page."""
        return tuple(each.entry() for each in self.all)

    async def close(self) -> None:
        """Close the connections."""
        for each in self.all:
            await each.link.close()


def server_address(url: str) -> str:
    """Host and port of a speech server, for people; nothing secret of its address."""
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
    """The engine makes no voices of recordings."""

    code = "cannot_clone"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} makes no voices of recordings.",
            remedy="Choose an engine that does, such as Qwen3-TTS: mr-qwen3tts serve --engine"
            " qwen3.",
        )


@dataclass(frozen=True, slots=True)
class ReferenceVoice:
    """What a page sends of it."""

    audio: bytes = field(repr=False)
    """A sound file of any kind that the speech server reads."""
    ref_text: str | None = field(default=None, repr=False)
    """What is said in it; None = the server finds out, or takes only the voice's colour."""
    name: str = ""
    """What people are shown."""


async def clone_voice(engine: SpeechEngine, voice: ReferenceVoice, most_s: float) -> VoiceEntry:
    """Have the engine make it.

    Raises:
        CannotClone: the engine makes no voices.
        LimitExceeded: the recording is too large or too long.
        SpeechError: what else the engine says of it.
    """
    await engine.ask()
    if engine.session is not None and not engine.can_clone:
        raise CannotClone(engine.name)
    check_reference(voice, engine.most_audio_bytes, most_s)
    client = await engine.link.client()
    try:
        ready = await client.load_voice(voice.audio, voice.ref_text)
    except BadRequest:
        if voice.ref_text is not None:
            raise
        # Nobody there hears what it says: its colour alone makes a voice, too.
        ready = await client.load_voice(voice.audio, x_vector_only=True)
    entry = VoiceEntry(ready.voice_id, voice.name or ready.voice_id, "")
    engine.add(entry)
    return entry


def check_reference(voice: ReferenceVoice, most_bytes: int, most_s: float) -> None:
    """Refuse what is empty, too large or, where that is seen at once, too long.

    Raises BadRequest, LimitExceeded.
    """
    if not voice.audio:
        raise BadRequest("The recording is empty.", remedy="Choose or record another one.")
    if len(voice.audio) > most_bytes:
        raise LimitExceeded(
            f"The recording has {len(voice.audio):,} bytes; at most {most_bytes:,} are taken.",
            remedy="Take a shorter one: five to fifteen seconds of clear speech are best.",
        )
    seconds = wav_seconds(voice.audio)
    if seconds is not None and seconds > most_s:
        raise LimitExceeded(
            f"The recording lasts {seconds:.0f} s; at most {most_s:.0f} s are taken.",
            remedy="Take a shorter one: five to fifteen seconds of clear speech are best.",
        )


def wav_seconds(audio: bytes) -> float | None:
    """How long a WAV lasts; None = it is another kind of file, or damaged."""
    try:
        with wave.open(io.BytesIO(audio)) as file:
            return float(file.getnframes() / file.getframerate())
    except (wave.Error, EOFError, ZeroDivisionError, ValueError):
        return None
