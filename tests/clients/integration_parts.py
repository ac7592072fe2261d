"""What in our Pipecat service and LiveKit plugin needs no server; what it said, as JSON."""

from __future__ import annotations

import json

from livekit.agents.types import TimedString
from livekit.plugins import qwen3tts
from livekit.plugins.qwen3tts.faults import api_error
from livekit.plugins.qwen3tts.output import text_heard
from livekit.plugins.qwen3tts.timed import TimedText
from pipecat_qwen3tts.faults import category
from pipecat_qwen3tts.utterance import SECOND_NS, Utterance

from qwen3tts_wire import errors
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.heard import Word

TEXT = 'He said: "No," and went. 你好世界 '
RATE = 8000
SPANS = ((0, 2), (3, 7), (10, 12), (15, 18), (19, 23), (25, 27), (27, 29))


class Said:
    """A context of the client as far as an utterance looks at it."""

    format = AudioFormat("pcm_s16le", RATE)
    over = True
    received = 2 * RATE

    def __init__(self, text: str) -> None:
        self.text = text


WORDS = [
    Word(TEXT[begin:end], RATE * number, RATE * number + RATE // 2, begin, end)
    for number, (begin, end) in enumerate(SPANS)
]


def pieces() -> dict[str, object]:
    timed = TimedText(RATE)
    out = timed.pieces(TEXT, WORDS[:3])
    # Another server tells words again that were told before the connection was lost.
    out += timed.pieces(TEXT, WORDS[1:])
    times = [[each.start_time, each.end_time] for each in out]
    out += timed.rest(TEXT)
    early = TimedText(RATE)
    # The comma is not written yet when its word is told.
    late = early.pieces('He said: "No', WORDS[:3]) + early.pieces(TEXT, WORDS[3:4])
    return {
        "text": TEXT,
        "pieces": out,
        "times": times,
        "late": late,
        "untold": TimedText(RATE).rest(TEXT),
        "heard": [text_heard(out, seconds) for seconds in (0.0, 0.2, 0.25, 2.2, 2.25, 9.0)],
        "no_times": text_heard([TimedString("One "), TimedString("two")], 0.0),
    }


def utterance() -> dict[str, object]:
    one = Utterance(Said(TEXT))
    words = one.spoken(WORDS[:3], 0) + one.spoken(WORDS, 0)
    one.given(RATE, 5 * SECOND_NS)
    one.given(RATE, 6 * SECOND_NS)
    moments = (0, 4, 4.5, 5.25, 6, 9)
    played = [one.played(int(moment * SECOND_NS)) for moment in moments]
    over = [one.over(int(moment * SECOND_NS)) for moment in moments]
    part = Utterance(Said(TEXT))
    part.given(RATE, SECOND_NS)
    waited = Utterance(Said(TEXT))
    waited.given(RATE, 1 * SECOND_NS)
    # The text stops; the next second of sound is told at 2.5 s and begins at 3 s.
    told = waited.heard_s(1.5 * RATE, int(2.5 * SECOND_NS))
    waited.given(RATE, 4 * SECOND_NS)
    waited.given(RATE, 5 * SECOND_NS)
    later = [waited.heard_s(second * RATE, 0) for second in (0.5, 1, 2.5)]
    waited.restart()
    again = [waited.heard_s(3.5 * RATE, 9 * SECOND_NS)]
    waited.given(RATE, 10 * SECOND_NS)
    again.append(waited.heard_s(3.75 * RATE, 0))
    return {
        "again": again,
        "told": told,
        "later": later,
        "words": words,
        "played": played,
        "over": over,
        "part": part.over(9 * SECOND_NS),
    }


def faults() -> dict[str, list[object]]:
    out = {}
    for kind in errors.BY_CODE.values():
        error = kind("What is wrong.", remedy="What helps.")
        theirs = api_error(error)
        status = getattr(theirs, "status_code", None)
        out[kind.__name__] = [
            type(theirs).__name__,
            status,
            theirs.retryable,
            "What is wrong. What helps." in str(theirs),
            category(error).value,
            category(error).is_permanent,
        ]
    return out


def rates() -> list[str]:
    refused = []
    for rate in (8000, 11025, 16000, 24000, 48000):
        try:
            qwen3tts.TTS(sample_rate=rate)
        except errors.BadRequest as error:
            refused.append(f"{rate}: {error}")
    return refused


print(
    json.dumps({"timed": pieces(), "utterance": utterance(), "faults": faults(), "rates": rates()})
)
