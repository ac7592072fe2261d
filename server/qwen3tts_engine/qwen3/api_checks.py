"""Checks of what the Python API is given, each with a typed error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_engine.qwen3.reference_audio import Source
from qwen3tts_engine.request_text import check_text
from qwen3tts_wire.errors import BadRequest, BadText
from qwen3tts_wire.messages import Sampling

SAMPLING_RANGES = {
    "temperature": (0, 2, False),
    "top_p": (0, 1, False),
    "top_k": (0, 10_000, True),
    "repetition_penalty": (0.5, 2, False),
}
"""Least, most, and whether it is a whole number: those of the wire's ``Sampling``."""
TEXT_MAX = 1_000_000
"""Code points in a whole text, some 18 hours of speech."""


def check_kinds(**given: object) -> None:
    """Refuse what is no str, and for ``voice`` no LoadedVoice either; None is right."""
    for name, value in given.items():
        if value is None or isinstance(value, str):
            continue
        if name == "voice" and isinstance(value, LoadedVoice):
            continue
        kinds = "a str, a LoadedVoice or None" if name == "voice" else "a str or None"
        raise BadRequest(f"{name}={value!r:.80} is not {kinds}.", remedy=f"Give {kinds}.")


def each_own(how: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return what each of ``count`` texts has of its own, where an argument is a list.

    Raises:
        BadRequest: a list has another number of entries.
    """
    own: list[dict[str, Any]] = [{} for _ in range(count)]
    for name in ("voice", "language", "instructions"):
        values = how.get(name)
        if not isinstance(values, list | tuple):
            continue
        if len(values) != count:
            raise BadRequest(
                f"{name} has {len(values)} entries for {count} texts.",
                remedy="Give one for each text, or a single one for all.",
            )
        for each, value in zip(own, values, strict=True):
            check_kinds(**{name: value})
            each[name] = value
    return own


def voice_name(voice: str | LoadedVoice | None) -> str | None:
    """Return what a request names a voice."""
    return voice.voice_id if isinstance(voice, LoadedVoice) else voice


def audio_source(audio: NDArray[Any] | Source, sample_rate: int | None) -> Source:
    """Return samples with their rate, or a file as it is.

    Raises:
        BadRequest: samples without a rate, or another thing with one.
    """
    if not isinstance(audio, np.ndarray):
        if sample_rate is not None:
            raise BadRequest(
                f"sample_rate={sample_rate!r:.80} is given with {type(audio).__name__}.",
                remedy="Give it with a NumPy array; a file says its own rate.",
            )
        return audio
    if sample_rate is None:
        raise BadRequest(
            "The samples come without sample_rate.", remedy="Give their rate in hertz."
        )
    return audio, sample_rate


def check_sampling(sampling: Sampling) -> None:
    """Refuse what is no sampling.

    Raises:
        BadRequest: a field is of another type or out of range; it says which and what is expected.
    """
    if not isinstance(sampling, Sampling):
        raise BadRequest(
            f"sampling={sampling!r:.80} is not a Sampling.",
            remedy="Give qwen3tts_wire.messages.Sampling(...) or None.",
        )
    for name, (low, high, whole) in SAMPLING_RANGES.items():
        value = getattr(sampling, name)
        if value is None:
            continue
        right = type(value) is int if whole else type(value) in (int, float)
        if not right or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise BadRequest(
                f"{name}={value!r:.80} is not {kind} from {low:g} to {high:g}.",
                remedy=f"Give {kind} from {low:g} to {high:g}, or None.",
            )


def check_whole_text(text: object) -> None:
    """Refuse what is no text, is empty or too long; BadText, BadRequest, LimitExceeded."""
    if isinstance(text, str):
        check_text(text, TEXT_MAX)
        if not text.strip():
            raise BadText("The text is empty.", remedy="Give some words to say.")
    elif isinstance(text, bytes | bytearray) or not isinstance(text, Iterable):
        raise no_text("The text", text)


def no_text(what: str, found: object) -> BadRequest:
    """Return the error for something that is no ``str``."""
    return BadRequest(
        f"{what} is {type(found).__name__}, not str.",
        remedy="Give a str, or what gives one after the other; decode bytes first.",
    )
