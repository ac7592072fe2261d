"""Stages of an utterance, and headline times."""

from __future__ import annotations

from typing import Final

from qwen3tts_speech.latency import SERVER_MARKS, Mark

CHAIN: Final = (
    Mark.SPEECH_END,
    Mark.TRANSCRIBED,
    Mark.TURN_END,
    Mark.TEXT_IN,
    Mark.FIRST_DELTA,
    Mark.REQUEST_SENT,
    Mark.REQUEST_RECEIVED,
    Mark.SEGMENT_READY,
    Mark.SLOT,
    Mark.PREFILL,
    Mark.FIRST_CODES,
    Mark.FIRST_PCM,
    Mark.RECEIVED,
    Mark.RESAMPLED,
    Mark.QUEUED,
    Mark.FIRST_FRAME_WIRE,
    Mark.FIRST_AUDIBLE_WIRE,
)
"""Marks up to the first sound, in order; missing ones are skipped."""

WAIT: Final = "caller's last sound → first sound"
"""Caller's wait; needs a recogniser."""
FIRST_SOUND: Final = "first delta → first sound"
GREETING: Final = "greeting: asked → first sound"
HEADLINES: Final = {
    WAIT: (Mark.SPEECH_END, Mark.FIRST_AUDIBLE_WIRE),
    FIRST_SOUND: (Mark.FIRST_DELTA, Mark.FIRST_AUDIBLE_WIRE),
    "asked → first sound": (Mark.TEXT_IN, Mark.FIRST_AUDIBLE_WIRE),
    "silence before the sound": (Mark.FIRST_FRAME_WIRE, Mark.FIRST_AUDIBLE_WIRE),
}
"""Headline times, without greetings; sound counts when its frame is sent."""
SILENCE: Final = "interrupted → silence"

OF_SERVER: Final = frozenset(SERVER_MARKS.values())
"""Marks by the server's clock, ± ``clock_error_ms`` to the client's."""


def crosses_clocks(first: Mark | str, last: Mark | str) -> bool:
    return (first in OF_SERVER) != (last in OF_SERVER)


def stage_name(first: Mark | str, last: Mark | str) -> str:
    return f"{first} → {last}"
