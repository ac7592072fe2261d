"""A recogniser that hears one turn as a call gives it: frame by frame, then the pause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from qwen3tts_cli.readiness.own_voice import RATE_HZ
from qwen3tts_codecs.resample import Resampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qwen3tts_pacer.clock import Clock
    from qwen3tts_phone.detection.recogniser import Recogniser
    from qwen3tts_phone.detection.settings import ListenSettings

FRAME_S = 0.02


@dataclass(frozen=True, slots=True)
class Heard:
    """One turn as it was recognised."""

    wait_s: float
    """From the end of the pause to the text: so long the caller waits for the recogniser alone."""
    text: str = field(repr=False)


async def hear_turn(
    recogniser: Recogniser, samples: NDArray[np.int16], listen: ListenSettings, clock: Clock
) -> Heard:
    """Give a turn of speech in real time, and the pause after it.

    Args:
        recogniser: warm.
        samples: speech of 8 kHz, int16 [n], from its first voiced sample to its last.
        listen: length of the pause, and when the recogniser learns of it.
        clock: real time; another one in tests.

    Raises:
        SpeechError: it cannot be recognised.
    """
    resampler = Resampler(RATE_HZ, recogniser.rate_hz) if recogniser.rate_hz != RATE_HZ else None
    recognition = await recogniser.open()
    began = clock.now()
    spoken_s = len(samples) / RATE_HZ
    pause = np.zeros(round(listen.pause_ms / 1000 * RATE_HZ), np.int16)
    sound = np.concatenate((samples, pause))
    size = round(FRAME_S * RATE_HZ)
    noticed = False
    try:
        recognition.begin_turn(began)
        for start in range(0, len(sound), size):
            frame = sound[start : start + size]
            at = began + (start + len(frame)) / RATE_HZ
            await clock.sleep_until(at)
            recognition.push(frame if resampler is None else resampler.push(frame), at)
            if not noticed and at - began - spoken_s >= listen.notice_ms / 1000 - FRAME_S / 2:
                noticed = True
                recognition.pause(began + spoken_s)
        ended = clock.now()
        transcript = await recognition.end_turn(began + spoken_s)
        return Heard(clock.now() - ended, transcript.text)
    finally:
        await recognition.close()
