"""How long a recording is. Blocks: for a thread."""

from __future__ import annotations

from qwen3tts_engine.qwen3.voices.audio_files import Damaged, NotThisKind, WavFile, decode_foreign
from qwen3tts_engine.qwen3.voices.audio_worker import TooLong
from qwen3tts_wire.errors import BadRequest, LimitExceeded


def seconds_of(audio: bytes, most: float) -> float | None:
    """Seconds of a sound file; None where it cannot be read here: its engine may yet read it.

    Raises:
        LimitExceeded: it has more than ``most``.
    """
    try:
        seconds = _seconds(audio, most)
    except TooLong:
        seconds = None
    except (Damaged, BadRequest):
        return None
    if seconds is None or seconds > most:
        raise LimitExceeded(
            f"The recording has more than {most:g} s.",
            remedy="Cut out a part in which the voice speaks; 10 s are a good length.",
        )
    return seconds


def _seconds(audio: bytes, most: float) -> float:
    try:
        file = WavFile.parse(audio)
    except NotThisKind:
        # A decoder of its own process: what strangers send is not decoded in this one.
        samples, rate = decode_foreign(audio, most)
        return round(len(samples) / rate, 3)
    return round(file.frames / max(1, file.rate), 3)
