"""The messages of Deepgram's streaming interface (pure).

We send samples as binary messages and three texts; what comes are texts with a ``type``:
``Results`` (words of a stretch of the sound, not yet or at last fixed), ``Metadata``,
``SpeechStarted``, ``UtteranceEnd``, ``Warning`` and ``Error``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from qwen3tts_phone.recognise.base import Transcript
from qwen3tts_phone.recognise.socket_protocol import MOST_MESSAGE, MOST_TEXT, Failed, one_line
from qwen3tts_wire.errors import ProtocolError

FINALIZE = '{"type": "Finalize"}'
"""Fix the words of all that was sent."""
KEEP_ALIVE = '{"type": "KeepAlive"}'
CLOSE_STREAM = '{"type": "CloseStream"}'
LONGEST_S = 7 * 24 * 3600.0
"""Of a connection; a time beyond that is none."""
_REMEDY = "Check that its address is one of Deepgram's streaming interface, /v1/listen."


@dataclass(frozen=True, slots=True)
class Results:
    """Words of a stretch of the sound; times are seconds from the connection's first sample."""

    start_s: float
    end_s: float
    fixed: bool
    """Whether they will not change any more (``is_final``)."""
    flushed: bool
    """Whether they answer a ``Finalize`` (``from_finalize``)."""
    transcript: Transcript


def read_message(message: str | bytes) -> Results | Failed | None:
    """A message of Deepgram's; None for one that tells nothing of the words.

    Raises:
        ProtocolError: it is none of the interface.
    """
    if not isinstance(message, str):
        raise ProtocolError("The recogniser sent a binary message.", remedy=_REMEDY)
    if len(message) > MOST_MESSAGE:
        raise ProtocolError("The recogniser sent a message that is too long.", remedy=_REMEDY)
    try:
        raw = json.loads(message)
    except (ValueError, RecursionError):
        raise ProtocolError("The recogniser sent what is no JSON.", remedy=_REMEDY) from None
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise ProtocolError("The recogniser sent no object with a type.", remedy=_REMEDY)
    if raw["type"] == "Results":
        return _results(raw)
    if raw["type"] == "Error":
        said = raw.get("description") or raw.get("message") or raw.get("variant")
        return Failed(None, one_line(said))
    return None


def _results(raw: dict[str, Any]) -> Results:
    start, duration = _seconds(raw, "start"), _seconds(raw, "duration")
    best = _best(raw.get("channel"))
    text, sure, languages = best.get("transcript"), best.get("confidence"), best.get("languages")
    if not isinstance(text, str):
        raise ProtocolError("The recogniser's results have no transcript.", remedy=_REMEDY)
    if len(text) > MOST_TEXT:
        raise ProtocolError("The recogniser's text is too long for a turn.", remedy=_REMEDY)
    clean = "".join(char if char.isprintable() else " " for char in text)
    code = languages[0] if isinstance(languages, list) and languages else ""
    code = code if isinstance(code, str) and code.isprintable() and len(code) <= 64 else ""
    confidence = None
    if isinstance(sure, int | float) and not isinstance(sure, bool) and 0 <= sure <= 1:
        confidence = float(sure)
    return Results(
        start,
        start + duration,
        raw.get("is_final") is True,
        raw.get("from_finalize") is True,
        Transcript(" ".join(clean.split()), code, confidence),
    )


def _best(channel: object) -> dict[str, Any]:
    alternatives = channel.get("alternatives") if isinstance(channel, dict) else None
    if isinstance(alternatives, list) and alternatives and isinstance(alternatives[0], dict):
        return alternatives[0]
    raise ProtocolError("The recogniser's results have no alternatives.", remedy=_REMEDY)


def _seconds(raw: dict[str, Any], name: str) -> float:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"The recogniser's results have no {name}.", remedy=_REMEDY)
    if not 0 <= value <= LONGEST_S:  # nor is NaN
        raise ProtocolError(f"The recogniser's {name} is no time.", remedy=_REMEDY)
    return float(value)
