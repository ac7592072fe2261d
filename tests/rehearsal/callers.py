"""Callers of the tests: sounds without a voice, a detector of loudness, frames by their times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_rehearsal.caller import ScriptedCaller
from qwen3tts_rehearsal.script import Action
from qwen3tts_rehearsal.sounds import Utterance

RATE_HZ = 8000
FRAME = 160
ANSWERED_AT = 100.0
SILENCE = np.zeros(FRAME, np.int16)


def tone(seconds: float, level: int = 8000, rate_hz: int = RATE_HZ) -> NDArray[np.int16]:
    at = np.arange(round(seconds * rate_hz)) / rate_hz
    made: NDArray[np.int16] = np.rint(level * np.sin(2 * np.pi * 440 * at)).astype(np.int16)
    return made


def utterance(seconds: float, text: str = "hello") -> Utterance:
    """A tone that is voiced from its first to its last sample."""
    samples = tone(seconds)
    return Utterance(samples, (0, len(samples)), text)


class LoudDetector:
    """What is loud is speech."""

    window = FRAME

    def __init__(self) -> None:
        self._held = np.zeros(0, np.int16)

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        held = np.concatenate((self._held, samples))
        count = len(held) // FRAME
        self._held = held[count * FRAME :]
        frames = held[: count * FRAME].reshape(count, FRAME)
        return [float(np.abs(each.astype(np.int32)).max(initial=0) > 500) for each in frames]

    def reset(self) -> None:
        self._held = np.zeros(0, np.int16)


def heard(samples: NDArray[np.int16], at: float, *, concealed: bool = False) -> HeardFrame:
    return HeardFrame(samples, at, concealed, RATE_HZ)


class Talk:
    """A scripted caller and an agent that speaks at given times, in steps of one frame."""

    def __init__(self, *actions: Action, background: NDArray[np.int16] | None = None) -> None:
        noise = np.zeros(0, np.int16) if background is None else background
        self.caller = ScriptedCaller(actions, RATE_HZ, ANSWERED_AT, LoudDetector(), noise)
        self.now = ANSWERED_AT
        self.said: list[tuple[float, bool]] = []
        """Times of the caller's frames since the answer, and whether they sound."""

    def run(self, seconds: float, *speech: tuple[float, float]) -> None:
        """Go on; the agent speaks between these times since the answer."""
        for _ in range(round(seconds * 50)):
            since = self.now - ANSWERED_AT
            speaks = any(begin - 1e-6 <= since < end - 1e-6 for begin, end in speech)
            self.caller.heard(heard(tone(0.02) if speaks else SILENCE, self.now))
            frame = self.caller.frame(self.now)
            self.caller.sent(SentFrame(frame, RATE_HZ, self.now))
            self.said.append((round(since, 3), bool(np.abs(frame.astype(int)).max() > 100)))
            self.now += 0.02

    @property
    def spoken(self) -> list[tuple[float, float]]:
        """Times of the caller's sound since the answer."""
        found: list[list[float]] = []
        for at, loud in self.said:
            if loud and found and abs(found[-1][1] - at) < 1e-6:
                found[-1][1] = round(at + 0.02, 3)
            elif loud:
                found.append([at, round(at + 0.02, 3)])
        return [(begin, end) for begin, end in found]
