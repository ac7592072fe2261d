"""Sound for recognisers, without an engine."""

from __future__ import annotations

import numpy as np

from qwen3tts_phone.detection.recogniser import Recognition, Samples

RATE = 16_000
FRAME = RATE // 50


def tone(seconds: float, *, peak: int = 8000, hz: float = 300.0) -> Samples:
    """A tone, int16 [n] at 16 kHz."""
    time = np.arange(round(seconds * RATE)) / RATE
    samples: Samples = np.rint(peak * np.sin(2 * np.pi * hz * time)).astype(np.int16)
    return samples


def quiet(seconds: float) -> Samples:
    """Nothing at all."""
    return np.zeros(round(seconds * RATE), np.int16)


class Talk:
    """Speaks into a recognition, frame by frame, on a clock of its own."""

    def __init__(self, recognition: Recognition, at: float = 100.0) -> None:
        self.recognition = recognition
        self.at = at

    def say(self, samples: Samples) -> None:
        """Push samples in frames of 20 ms."""
        for start in range(0, len(samples), FRAME):
            frame = samples[start : start + FRAME]
            self.at += len(frame) / RATE
            self.recognition.push(frame, self.at)

    def turn(self, samples: Samples, *, known_after_s: float = 0.1, pause_s: float = 0.4) -> float:
        """A quiet line, then speech, then a pause; returns when the last voiced sample was."""
        self.say(quiet(0.5))
        began = self.at
        known = round(known_after_s * RATE)
        self.say(samples[:known])
        self.recognition.begin_turn(began)
        self.say(samples[known:])
        last = self.at
        self.say(quiet(pause_s))
        return last
