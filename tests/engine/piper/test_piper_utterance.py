"""Sound and words of one request of the engine piper, without a worker."""

from __future__ import annotations

import numpy as np

from qwen3tts_engine.base import SAMPLE_RATE, PcmChunk, SynthesisRequest
from qwen3tts_engine.piper.engine import PRE_ROLL_S, PiperAudio
from qwen3tts_engine.request_text import TextPiece

RATE = 16_000
QUIET = np.zeros(800, np.int16)
LOUD = np.full(1600, 5000, np.int16)
WORD = (0, 5, 800, 2400, 1)


def spoken(request: SynthesisRequest, *said: tuple[bytes, tuple[tuple[int, ...], ...]]) -> PcmChunk:
    utterance = PiperAudio(request, RATE)
    utterance.begin(TextPiece(0, request.text, False))
    chunks = [utterance.sound(pcm, words) for pcm, words in said]
    chunks += [utterance.end(), utterance.finish()]
    found = [chunk for chunk in chunks if chunk is not None]
    return PcmChunk(
        b"".join(chunk.pcm for chunk in found),
        tuple(word for chunk in found for word in chunk.words),
    )


def test_the_silence_before_the_first_sound_is_left_out_and_words_stay_where_they_sound() -> None:
    request = SynthesisRequest("Hello")
    # The words come while it is not known yet how much is left out.
    whole = spoken(request, (QUIET.tobytes(), (WORD,)), (LOUD.tobytes(), ()))
    kept = round(PRE_ROLL_S * SAMPLE_RATE)
    assert whole.samples == kept + 2400
    assert [(word.start, word.end) for word in whole.words] == [(kept, kept + 2400)]


def test_where_sound_goes_before_the_silence_is_a_pause() -> None:
    request = SynthesisRequest("Hello", continued=True)
    whole = spoken(request, (QUIET.tobytes(), (WORD,)), (LOUD.tobytes(), ()))
    assert whole.samples == 1200 + 2400
    assert [(word.start, word.end) for word in whole.words] == [(1200, 3600)]


def test_what_is_said_again_is_left_out_up_to_where_the_first_saying_ended() -> None:
    utterance = PiperAudio(SynthesisRequest("Hello"), RATE)
    utterance.begin(TextPiece(0, "Hello", False))
    sound = np.arange(4000, dtype=np.int16) + 1000
    parts = [utterance.sound(sound[:1500].tobytes(), (WORD,))]
    utterance.again()
    parts += [
        utterance.sound(sound[at : at + 1000].tobytes(), (WORD,) if not at else ())
        for at in range(0, 4000, 1000)
    ]
    parts += [utterance.end(), utterance.finish()]
    found = [part for part in parts if part is not None]
    assert sum(part.samples for part in found) == 6000
    assert len([word for part in found for word in part.words]) == 1
    pcm = np.frombuffer(b"".join(part.pcm for part in found), np.int16).astype(int)
    assert np.abs(np.diff(pcm[200:-200])).max() <= 2
