"""The measures of tests/audio.py see what they are there for."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_codecs.frames import FrameEncoder
from qwen3tts_codecs.g711 import PCMU, decode_ulaw
from tests.audio import FRAME, JOINT, Samples, aligned, compare, reference_8k


def speech_24k() -> Samples:
    """Four seconds of a buzz with moving loudness: voiced, and never quite the same."""
    rng = np.random.default_rng(7)
    time = np.arange(4 * 24_000) / 24_000
    buzz = sum(np.sin(2 * np.pi * n * 131.3 * time + n) / n for n in range(1, 24))
    loudness = 1 + 0.5 * np.sin(2 * np.pi * 3.1 * time)
    mixed = 4000 * loudness * (buzz + 0.05 * rng.standard_normal(len(time)))
    return np.clip(mixed, -32_000, 32_000).astype(np.int16)


def through_the_line(pcm: Samples) -> Samples:
    """What a peer hears of it, after some silence."""
    encoder = FrameEncoder(24_000, PCMU)
    frames = [*encoder.push(pcm.tobytes()), *encoder.flush()]
    sound = np.concatenate([decode_ulaw(frame.payload) for frame in frames])
    return np.concatenate([np.zeros(5 * FRAME, np.int16), sound])


def test_clean_sound_has_no_fault() -> None:
    pcm = speech_24k()
    reference = reference_8k(pcm)
    found = compare(reference, aligned(reference, through_the_line(pcm)))
    assert found.frames > 150
    assert found.missing == 0
    assert found.joint_step < 1.3


def test_a_small_click_at_every_joint_is_seen() -> None:
    pcm = speech_24k()
    reference = reference_8k(pcm)
    clicking = through_the_line(pcm)
    clicking[::FRAME] += 3000  # the first sample of each frame of the wire
    found = compare(reference, aligned(reference, clicking))
    assert found.joint_step > 1.3
    assert compare(reference, aligned(reference, clicking), 0).joint_step < found.joint_step


@pytest.mark.parametrize("lost", [1, 3])
def test_a_frame_that_is_not_there_is_seen(lost: int) -> None:
    pcm = speech_24k()
    reference = reference_8k(pcm)
    heard = aligned(reference, through_the_line(pcm))
    for number in range(lost):
        at = JOINT + (40 + 20 * number) * FRAME
        heard[at : at + FRAME] = 0
    assert compare(reference, heard).missing >= lost
