"""A voice made of a recording that a page uploads."""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass, field

from qwen3tts_phone.softphone.engines import SpeechEngine
from qwen3tts_phone.softphone.protocol import VoiceEntry
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError

MOST_TEXT_CHARS = 4096


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


async def made_voice(engine: SpeechEngine, voice: ReferenceVoice, most_s: float) -> VoiceEntry:
    """Have the engine make it.

    Raises:
        CannotClone: the engine makes no voices.
        LimitExceeded: the recording is too large or too long.
        SpeechError: what else the engine says of it.
    """
    await engine.ask()
    if engine.session is not None and not engine.can_clone:
        raise CannotClone(engine.name)
    check(voice, engine.most_audio_bytes, most_s)
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


def check(voice: ReferenceVoice, most_bytes: int, most_s: float) -> None:
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
