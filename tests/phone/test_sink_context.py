"""When what was said went out: by the slots of the wire, not by how late the machine was."""

from __future__ import annotations

from typing import cast

import pytest

from qwen3tts_pacer.memory import ContextSent
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.rtp_sink import SinkContext
from qwen3tts_phone.media.leg import MediaLeg


class FakeLeg:
    """A leg of which the test says what it has sent."""

    def __init__(self) -> None:
        self.told: ContextSent | None = None

    def begin(self, part: int, *, key: str) -> None:
        pass

    def write(self, frames: list[Frame]) -> int:
        return len(frames)

    def sent(self, part: int) -> ContextSent | None:
        return self.told


def said(*looks: tuple[int, float, int]) -> list[tuple[int, float]]:
    """Frame and time, of looks at a context: frames out, when the last left (s), slots starved."""
    leg = FakeLeg()
    context = SinkContext(1, "", cast(MediaLeg, leg), 20)
    context.begin(1, 20)
    context.write([Frame(bytes([n]), None, None, 1, n, n + 1) for n in range(100)])
    gone = []
    for frames, last, starved in looks:
        leg.told = ContextSent(
            1, frames, 0, frames, 10**9, round(last * 1e9), 0, starved > 0, starved, starved
        )
        gone += context.follow()
    return [(payload[0], at) for payload, at in gone]


def test_a_packet_that_left_late_lies_in_its_slot() -> None:
    gone = said((5, 1.08, 0), (10, 1.195, 0), (15, 1.28, 0))
    assert [number for number, _ in gone] == list(range(15))
    assert [at for _, at in gone] == pytest.approx([1.0 + 0.02 * n for n in range(15)])


def test_a_dry_spell_lies_between_the_frames_that_it_parted() -> None:
    gone = said((5, 1.08, 0), (6, 1.163, 3), (7, 1.18, 3))
    assert [at for _, at in gone[4:]] == pytest.approx([1.08, 1.16, 1.18])


def test_after_a_hold_it_goes_on_when_it_goes_on() -> None:
    gone = said((5, 1.08, 0), (6, 3.5, 0), (8, 3.54, 0))
    assert [at for _, at in gone[4:]] == pytest.approx([1.08, 3.5, 3.52, 3.54])
