"""Text on its way to the loop of the Python API, and its sound on the way back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import numpy as np

from qwen3tts_engine.base import SAMPLE_RATE
from qwen3tts_engine.qwen3.api_checks import no_text
from qwen3tts_engine.qwen3.reference_audio import Samples
from qwen3tts_engine.qwen3.speech import Speech
from qwen3tts_wire.errors import BadRequest


class Reader(threading.Thread):
    """Reads a text that somebody writes. Ends with it, or at its next piece when nobody listens;
    its errors are the listener's."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, speech: Speech, pieces: Iterable[str]
    ) -> None:
        super().__init__(name="qwen3 text", daemon=True)
        self._loop = loop
        self._speech = speech
        self._pieces = pieces

    def run(self) -> None:
        """Read all of it."""
        try:
            for piece in self._pieces:
                if self._speech.closed:
                    return
                if not isinstance(piece, str):
                    raise no_text("A piece of the text", piece)
                self._tell(self._speech.append, piece)
        except Exception as error:
            self._tell(self._speech.fail, error)
        except BaseException as error:
            # It would end the loop that raised it for the listener, who must not wait for ever.
            broken = BadRequest(
                f"The text broke off with {type(error).__name__}.",
                remedy="See to it that what writes the text ends it.",
            )
            broken.__cause__ = error
            self._tell(self._speech.fail, broken)
        else:
            self._tell(self._speech.end)

    def _tell(self, what: Callable[..., None], *given: object) -> None:
        # The loop is closed where the model was, while the text was still being written.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *given)


def all_of(speech: Speech, text: str) -> None:
    """Say a whole text; on the loop."""
    speech.append(text)
    speech.end()


def floats(pcm: bytes) -> Samples:
    """Return 16-bit samples as floats in ±1."""
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


def evenly(pieces: Iterator[tuple[Samples, int]], samples: int) -> Iterator[tuple[Samples, int]]:
    """The same sound in pieces of so many samples; the last may be shorter."""
    held = np.zeros(0, np.float32)
    for pcm, _ in pieces:
        held = np.concatenate((held, pcm))
        while len(held) >= samples:
            yield held[:samples], SAMPLE_RATE
            held = held[samples:]
    if len(held):
        yield held, SAMPLE_RATE
