"""A sentence of the voice as a telephone carries it: its first sound, and its samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from qwen3tts_cli.voices import shown_voice
from qwen3tts_codecs.g711 import decode_ulaw
from qwen3tts_wire.errors import EngineFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qwen3tts_cli.manner import Manner
    from qwen3tts_wire.client import SpeechClient

RATE_HZ = 8000
"""Of G.711."""
AUDIBLE = 300
"""Peak of 16-bit samples above which a frame is sound (-41 dBFS)."""
FRAME = 160
"""Samples of 20 ms."""
OPENING = "Yes."
SENTENCE = "Good morning, how can I help you today?"
DIGITS = "1, 2, 3, 4, 5, 6."
"""Read in any language."""


@dataclass(frozen=True, slots=True)
class OwnVoice:
    """A sentence that the voice spoke."""

    sentence: str
    first_sound_s: float
    """From the text to the first audible samples."""
    shown: str
    """Engine and voice, for people."""
    samples: NDArray[np.int16] = field(repr=False)
    """All of it after µ-law, 8 kHz, int16 [n], without the silence at its ends."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / RATE_HZ


async def speak(client: SpeechClient, manner: Manner) -> OwnVoice:
    """Let the voice say a word, so that all is loaded, and then a sentence.

    Raises:
        SpeechError: it cannot speak.
    """
    english = manner.language is None or manner.language.lower().startswith("en")
    sentence = SENTENCE if english else DIGITS
    await _said(client, manner, OPENING if english else DIGITS)
    samples, first_s = await _said(client, manner, sentence)
    if first_s is None:
        raise EngineFailed(
            "the voice makes no sound.", remedy="Try another one: mr-qwen3tts voices lists them."
        )
    return OwnVoice(sentence, first_s, shown_voice(client.session, manner.voice), trimmed(samples))


def trimmed(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return samples [n] from the first audible frame to the last."""
    frames = len(samples) // FRAME
    peaks = np.abs(samples[: frames * FRAME].astype(np.int32)).reshape(frames, FRAME).max(axis=1)
    loud = np.flatnonzero(peaks > AUDIBLE)
    if not len(loud):
        return samples[:0]
    return samples[loud[0] * FRAME : (loud[-1] + 1) * FRAME]


async def _said(
    client: SpeechClient, manner: Manner, text: str
) -> tuple[NDArray[np.int16], float | None]:
    """The samples of a text, and the seconds to the first audible one."""
    from qwen3tts_wire.client import Audio
    from qwen3tts_wire.formats import AudioFormat

    began = perf_counter()
    context = await client.open(
        voice=manner.voice,
        language=manner.language,
        format=AudioFormat("mulaw", RATE_HZ),
        **manner.options,
    )
    await context.append(text)
    await context.end()
    parts: list[NDArray[np.int16]] = []
    taken = 0
    first_s: float | None = None
    async for event in context:
        if isinstance(event, Audio):
            parts.append(decode_ulaw(event.pcm))
            taken += len(parts[-1])
            if first_s is None and np.abs(parts[-1].astype(np.int32)).max(initial=0) > AUDIBLE:
                first_s = perf_counter() - began
            await context.report(taken)
    return np.concatenate(parts) if parts else np.zeros(0, np.int16), first_s
