"""The pause between two clauses of a server that knows of one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.speech_rhythm import SpeechRates
from qwen3tts_engine.upstream.sound import CLAUSE_PAUSE_S, SENTENCE_PAUSE_S, UpstreamAudio
from tests.engine.speech_like import silence, voice


def spoken(text: str, *, after_s: float = 0.0, final: bool = False) -> np.ndarray:
    """Half a second of a tone, as sent by a server, and what is made of it."""
    tone = np.sin(np.arange(SAMPLE_RATE // 2) * 0.1) * 8000
    sent = np.concatenate([tone, np.zeros(round(after_s * SAMPLE_RATE))]).astype("<i2").tobytes()
    voicing = UpstreamAudio(SynthesisRequest(text, final=final), SpeechRates())
    chunks = [*voicing.push(sent[:7001]), *voicing.push(sent[7001:]), *voicing.end()]
    return np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2")


def silence_s(samples: np.ndarray) -> float:
    """At the end."""
    loud = np.flatnonzero(np.abs(samples.astype(int)) > 104)
    return (len(samples) - 1 - int(loud[-1])) / SAMPLE_RATE


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It rains.", SENTENCE_PAUSE_S),
        ("Does it? ", SENTENCE_PAUSE_S),
        ("He said “yes.”", SENTENCE_PAUSE_S),
        ("下雨了。", SENTENCE_PAUSE_S),
        ("It rains,", CLAUSE_PAUSE_S),
        ("It rains", CLAUSE_PAUSE_S),
    ],
)
def test_a_clause_is_followed_by_its_pause(text: str, wanted: float) -> None:
    assert silence_s(spoken(text)) == pytest.approx(wanted, abs=0.002)
    assert silence_s(spoken(text, after_s=0.1)) == pytest.approx(wanted, abs=0.002)


def test_a_longer_pause_of_the_server_stays_as_it_is() -> None:
    assert silence_s(spoken("It rains.", after_s=0.5)) == pytest.approx(0.5, abs=0.002)


def test_nothing_is_added_after_the_last_clause() -> None:
    assert silence_s(spoken("It rains.", final=True)) < 0.005


def test_a_long_pause_with_words_left_ends_nothing_and_silence_behind_the_text_does() -> None:
    one, two = "We looked for the order all day", "and found it on Friday evening"
    parts = (voice(one), silence(5.0), voice(two), silence(8.0))
    sent = (np.concatenate(parts) * 32767).astype("<i2").tobytes()
    voicing = UpstreamAudio(SynthesisRequest(f"{one} {two}", language="en"), SpeechRates())
    made = b"".join(chunk.pcm for chunk in voicing.push(sent))
    assert voicing.ended == "silence"
    assert len(made) / 2 == pytest.approx(len(sent) / 2 - 5.0 * SAMPLE_RATE, abs=0.3 * SAMPLE_RATE)
