"""The answers of a transcription route, bytes in, texts and errors out (pure)."""

from __future__ import annotations

import json
import math
from typing import Any

from qwen3tts_phone.agent.chat_stream import refusal_words
from qwen3tts_phone.recognise.base import Transcript
from qwen3tts_phone.recognise.errors import RecogniserUnavailable, RecognitionFailed
from qwen3tts_phone.recognise.socket_protocol import MOST_TEXT
from qwen3tts_wire.errors import ProtocolError, SpeechError
from qwen3tts_wire.whisper.guards import Answer, believable

MOST_BYTES = 1 << 20
"""Of an answer."""
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""


def read_text(body: bytes, kind: str, *, plain: bool, seconds: float) -> Transcript:
    """The words in the body of an answer with status 200.

    Args:
        body: of the answer.
        kind: its Content-Type.
        plain: whether text was asked for, not JSON.
        seconds: length of the sound, which bounds the text that is believed.

    Raises:
        RecogniserUnavailable: a web page answers.
        ProtocolError: there is no text in it.
    """
    kind = kind.partition(";")[0].strip().lower()
    if kind == "text/html":
        raise RecogniserUnavailable(
            "a web page, no recogniser, answers there.", remedy="The address usually ends in /v1."
        )
    if len(body) > MOST_BYTES:
        raise ProtocolError("the recogniser's answer is too long for a turn.")
    if plain and kind != "application/json":
        return _believed(Answer(_clean(body.decode("utf-8", "replace"))), seconds)
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError(
            "the recogniser's answer is no JSON.",
            remedy="Check that its address is one of OpenAI's interface; it usually ends in /v1.",
        ) from None
    if not isinstance(raw, dict) or not isinstance(raw.get("text"), str):
        raise ProtocolError("the recogniser's answer holds no text.")
    return _believed(_answer(raw), seconds)


def refusal(status: int, body: bytes, model: str, variable: str) -> SpeechError:
    """The typed error for another status than 200.

    ``variable``: the environment's variable for this server's key.
    """
    said = refusal_words(body)
    because = f": {said}" if said else "."
    if status in (401, 403):
        return RecogniserUnavailable(
            f"it asks for a key, or for another one ({status}){because}",
            remedy=f"Put it into the environment's {variable}.",
        )
    if status == 402:
        return RecogniserUnavailable(f"it wants to be paid first ({status}){because}")
    if 300 <= status < 400:
        return RecogniserUnavailable(
            f"it points elsewhere ({status}).",
            remedy="Give the final address; the key is not sent on.",
        )
    if status in AGAIN or status > 500:
        return RecognitionFailed(
            f"it is overloaded or broken ({status}){because}", remedy="Try again later."
        )
    if status in (404, 405, 501):
        return RecogniserUnavailable(
            f"it knows no such path or model ({status}){because}",
            remedy="Check the address, which usually ends in /v1 and is followed by"
            f" /audio/transcriptions there, and the model's name ({model}).",
        )
    return RecogniserUnavailable(
        f"it refused the request ({status}){because}",
        remedy=f"Check model ({model}), language and response_format.",
    )


def _answer(raw: dict[str, Any]) -> Answer:
    """The text with what ``verbose_json`` says of its likelihood: the likeliest stretch counts."""
    language = raw.get("language")
    code = language if isinstance(language, str) and language.isprintable() else ""
    text = _clean(raw["text"])
    segments = raw.get("segments")
    known = [_doubt(each) for each in segments] if isinstance(segments, list) else []
    sure = [each for each in known if each is not None]
    if not sure or len(sure) != len(known):
        return Answer(text, code[:64])
    logprob, no_speech = max(sure, key=lambda each: each[0] - each[1])
    return Answer(text, code[:64], logprob, no_speech)


def _doubt(segment: object) -> tuple[float, float] | None:
    if not isinstance(segment, dict):
        return None
    values = [segment.get("avg_logprob"), segment.get("no_speech_prob")]
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in values):
        return None
    try:
        logprob, no_speech = (float(each) for each in values if each is not None)
    except OverflowError:
        return None
    if not (math.isfinite(logprob) and math.isfinite(no_speech)):
        return None
    return min(0.0, logprob), min(1.0, max(0.0, no_speech))


def _believed(answer: Answer, seconds: float) -> Transcript:
    if not believable(answer, seconds):
        return Transcript("")
    # Where nothing is told of its likelihood there is no confidence to tell.
    sure = answer.confidence if answer.logprob else None
    return Transcript(answer.text.strip(), answer.language, sure)


def _clean(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text[:MOST_TEXT])
    return " ".join(shown.split())
