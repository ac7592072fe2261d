"""Cutting samples into frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_codecs import BadSamples, Framer
from tests.codecs.signals import cut, noise, places


@given(samples=st.integers(0, 700), frame_samples=st.sampled_from([1, 7, 80, 160]), where=places())
def test_frames_do_not_depend_on_the_cut(
    samples: int, frame_samples: int, where: list[int]
) -> None:
    pcm = noise(samples)
    framer = Framer(frame_samples)
    frames = [frame for portion in cut(pcm, where) for frame in framer.push(portion)]
    assert [len(frame) for frame in frames] == [frame_samples] * (samples // frame_samples)
    assert framer.waiting == samples % frame_samples
    last = framer.flush()
    assert (last.real if last else 0) == samples % frame_samples
    joined = np.concatenate([*frames, last.samples if last else pcm[:0], pcm[:0]])
    assert joined[:samples].tolist() == pcm.tolist()
    assert not joined[samples:].any()
    assert framer.flush() is None


def test_frames_do_not_change_with_the_callers_array() -> None:
    framer = Framer(2)
    pcm = np.array([1, 2, 3], np.int16)
    frames = framer.push(pcm)
    pcm[:] = 9
    frames += framer.push(np.array([4], np.int16))
    assert [frame.tolist() for frame in frames] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("frame_samples", [0, -1, 1.5, None, True])
def test_a_frame_of_no_samples_is_refused(frame_samples: Any) -> None:
    with pytest.raises(BadSamples, match="frame"):
        Framer(frame_samples)


@pytest.mark.parametrize("pcm", [b"\0\0", np.zeros(2), np.zeros((2, 2), np.int16)])
def test_wrong_samples_are_refused(pcm: Any) -> None:
    with pytest.raises(BadSamples, match="Framer"):
        Framer(160).push(pcm)
