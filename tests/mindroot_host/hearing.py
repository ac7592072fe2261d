"""Is what the caller heard what the engine said, whole, once, and nothing else?"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw
from tests.audio import FRAME, Comparison, aligned, compare, lag_of, reference_8k
from tests.mindroot_host.playout import Playout
from tests.mindroot_host.speech_server import Said

Samples = NDArray[np.int16]
EDGE = 4 * FRAME
"""Samples by which a place in a recording may be off: each utterance ends with a padded frame and
the resampler's delay."""


def by_voice(said: Sequence[Said], voice: str) -> list[Said]:
    """Of this voice."""
    return [each for each in said if each.voice == voice]


def words(text: str) -> list[str]:
    """The words, without marks and case."""
    return re.findall(r"\w+", text.lower())


def segments_of(said: Sequence[Said], *texts: str) -> list[Said]:
    """What the engine was asked for of these texts, in order. Tests say texts of their own."""
    return [
        each
        for each in said
        if words(each.text) and any(_within(each.text, text) for text in texts)
    ]


def _within(part: str, text: str) -> bool:
    return f" {' '.join(words(part))} " in f" {' '.join(words(text))} "


def reference_of(segments: Sequence[Said]) -> Samples:
    """What should be heard, 8 kHz."""
    return reference_8k(np.concatenate([each.pcm for each in segments]))


def heard_whole(heard: Playout | Samples, said: Sequence[Said], *texts: str) -> None:
    """Each of ``texts`` was said once, in this order, and the caller heard all of it and nothing
    else."""
    samples = heard.samples() if isinstance(heard, Playout) else heard
    end = 0
    for text in texts:
        segments = segments_of(said, text)
        asked = [word for each in segments for word in words(each.text)]
        assert asked == words(text), [each.text for each in said]
        reference = reference_of(segments)
        start = lag_of(reference, np.concatenate([samples, np.zeros(len(reference), np.int16)]))
        _no_hole(reference, samples)
        assert abs(start - end) <= EDGE, f"at sample {start} in place of {end}"
        end = start + len(reference)
    assert abs(len(samples) - end) <= EDGE, f"{len(samples) - end} samples after the end"


def heard_start(playout: Playout, said: Sequence[Said], text: str) -> None:
    """The caller heard the beginning of ``text`` without a hole, and it was cut."""
    segments = segments_of(said, text)
    asked = [word for each in segments for word in words(each.text)]
    assert asked == words(text)[: len(asked)], [each.text for each in said]
    samples = playout.samples()
    # The last frames may be a fade.
    kept = len(samples) - 3 * FRAME
    reference = reference_of(segments)[:kept]
    assert len(reference) == kept, "more was heard than was said"
    _no_hole(reference, samples)


def heard_end(playout: Playout, said: Sequence[Said], text: str) -> None:
    """The caller heard the end of ``text``: the last thing that the engine was asked for of it.

    What goes before may have been joined to it anywhere, in mid-sample of the line's rate, too.
    """
    last = segments_of(said, text)[-1]
    assert words(text)[-len(words(last.text)) :] == words(last.text), [each.text for each in said]
    samples = playout.samples()
    half = len(last.pcm) // 2
    tails = [reference_8k(last.pcm[half + shift :]) for shift in range(3)]
    best = min(tails, key=lambda tail: _compared(tail, samples).missing)
    _no_hole(best, samples)
    end = lag_of(best, samples) + len(best)
    assert abs(len(samples) - end) <= EDGE, f"{len(samples) - end} samples after the end"


def decoded(ulaw: bytes) -> Samples:
    """Linear samples, 8 kHz, shape [n]."""
    return decode_ulaw(ulaw)


def _compared(reference: Samples, samples: Samples) -> Comparison:
    with np.errstate(invalid="ignore", divide="ignore"):  # of a piece without a joint
        return compare(reference, aligned(reference, samples))


def _no_hole(reference: Samples, samples: Samples) -> None:
    result = _compared(reference, samples)
    where = f"{len(reference)} samples at {lag_of(reference, samples)} of {len(samples)}"
    assert result.missing == 0, f"{result}, {where}"
