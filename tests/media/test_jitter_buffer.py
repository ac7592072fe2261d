from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.media.jitter_buffer import CONCEAL_MOST, JitterBuffer

PTIME_S = 0.02
FIRST = 70_000  # an extended sequence number


class Line:
    """A sender of 20 ms frames, each of its own byte, and the buffer that hears it."""

    def __init__(self, **settings: float) -> None:
        self.buffer = JitterBuffer(**settings)
        self.heard: list[InboundFrame] = []

    def arrive(self, index: int, at: float, jitter_s: float = 0.0) -> None:
        self.heard += self.buffer.push(
            FIRST + index,
            (2**32 - 320 + index * 160) % 2**32,
            bytes([index % 256]) * 160,
            0,
            False,
            at,
            jitter_s,
        )

    def wait(self, now: float) -> None:
        self.heard += self.buffer.due(now)

    @property
    def order(self) -> list[int]:
        return [frame.payload[0] for frame in self.heard if not frame.concealed]


def test_what_comes_in_order_is_handed_on_at_once() -> None:
    line = Line()
    for index in range(50):
        line.arrive(index, index * PTIME_S)
        assert len(line.heard) == index + 1
    assert line.order == list(range(50))


def test_timestamps_go_on_across_the_wrap() -> None:
    line = Line()
    for index in range(5):
        line.arrive(index, index * PTIME_S)
    times = [frame.timestamp for frame in line.heard]
    assert [later - times[0] for later in times] == [0, 160, 320, 480, 640]


def test_packets_out_of_order_are_put_in_order() -> None:
    line = Line()
    for index, at in ((0, 0.0), (2, 0.02), (1, 0.025), (3, 0.06)):
        line.arrive(index, at)
    assert line.order == [0, 1, 2, 3]
    assert line.buffer.concealed == line.buffer.late == 0


def test_a_lost_packet_is_waited_for_then_told_as_a_hole() -> None:
    line = Line(min_wait_s=0.03)
    line.arrive(0, 0.0)
    line.arrive(2, 0.04)
    assert line.buffer.next_deadline() == 0.07
    line.wait(0.06)
    assert line.order == [0]
    line.wait(0.07)
    assert [(frame.payload[:1], frame.concealed) for frame in line.heard] == [
        (b"\x00", False),
        (b"", True),
        (b"\x02", False),
    ]
    spaces = [b.timestamp - a.timestamp for a, b in zip(line.heard, line.heard[1:], strict=False)]
    assert spaces == [160, 160]


def test_every_missing_packet_is_told_but_not_for_ever() -> None:
    line = Line()
    line.arrive(0, 0.0)
    line.arrive(20, 0.4)
    line.wait(1.0)
    holes = [frame for frame in line.heard if frame.concealed]
    assert [hole.payload for hole in holes] == [b""] * 19
    first = line.heard[0].timestamp
    assert [hole.timestamp - first for hole in holes] == [160 * n for n in range(1, 20)]
    line.arrive(20 + 2 * CONCEAL_MOST, 3.0)
    line.wait(4.0)
    assert sum(frame.concealed for frame in line.heard) == 19 + CONCEAL_MOST
    assert (line.buffer.bursts, line.buffer.burst_lost) == (2, 19 + 2 * CONCEAL_MOST - 1)


def test_holes_are_as_long_as_the_packets_before_them_whatever_the_codec() -> None:
    buffer = JitterBuffer()
    buffer.clock_hz = 48_000
    heard: list[InboundFrame] = []
    for index, size in ((0, 40), (1, 90), (3, 3), (4, 70)):  # Opus: the size says nothing
        heard += buffer.push(FIRST + index, index * 960, bytes(size), 111, False, index * PTIME_S)
        heard += buffer.due(index * PTIME_S + 0.2)
    assert [frame.timestamp for frame in heard] == [n * 960 for n in range(5)]
    assert [frame.concealed for frame in heard] == [False, False, True, False, False]
    assert heard[2].payload_type == 111


def test_what_is_missed_while_nobody_listens_is_no_hole() -> None:
    line = Line()
    line.arrive(0, 0.0)
    line.heard += line.buffer.pause()
    line.arrive(30, 0.6)
    assert line.order == [0, 30]
    assert (line.buffer.concealed, line.buffer.bursts) == (0, 0)
    times = [frame.timestamp for frame in line.heard]
    assert times[1] - times[0] == 30 * 160


def test_a_packet_lost_between_two_codecs_or_beside_comfort_noise_is_not_guessed() -> None:
    for types in ((0, 8), (0, 13), (13, 13)):
        buffer = JitterBuffer()
        buffer.noise_type = 13
        heard = buffer.push(FIRST, 0, b"\x01", types[0], False, 0.0)
        heard += buffer.push(FIRST + 2, 320, b"\x01", types[1], False, 0.04)
        heard += buffer.due(1.0)
        assert [frame.payload_type for frame in heard] == list(types)


def test_a_pause_of_the_sender_is_no_loss() -> None:
    line = Line()
    line.arrive(0, 0.0)
    line.heard += line.buffer.push(FIRST + 1, 160 * 100, b"\x07" * 160, 0, True, 2.0)
    assert [frame.concealed for frame in line.heard] == [False, False]


def test_a_packet_that_comes_after_it_was_given_up_is_late_and_the_wait_grows() -> None:
    line = Line()
    line.arrive(0, 0.0)
    line.arrive(2, 0.04)
    line.wait(0.06)
    before = line.buffer.wait_s
    line.arrive(1, 0.1)
    line.arrive(3, 0.1)
    assert line.order == [0, 2, 3]
    assert line.buffer.late == 1
    assert line.buffer.wait_s > before
    assert line.buffer.wait_s >= 0.06  # it would have been in time


def test_the_wait_follows_the_jitter_within_its_bounds() -> None:
    line = Line(min_wait_s=0.02, max_wait_s=0.2)
    line.arrive(0, 0.0, jitter_s=0.0)
    assert line.buffer.wait_s == 0.02
    line.arrive(1, 0.02, jitter_s=0.01)
    assert abs(line.buffer.wait_s - 0.06) < 1e-9
    line.arrive(2, 0.04, jitter_s=3.0)
    assert line.buffer.wait_s == 0.2


def test_doubled_packets_are_dropped_and_counted() -> None:
    line = Line()
    for index in (0, 0, 1, 3, 3, 1):
        line.arrive(index, 0.02)
    assert line.order == [0, 1]
    assert line.buffer.duplicates == 3


def test_packets_that_are_no_audio_leave_no_hole() -> None:
    line = Line()
    line.arrive(0, 0.0)
    for index in range(1, 6):
        line.heard += line.buffer.skip(FIRST + index, index * PTIME_S)
    line.arrive(6, 0.12)
    assert line.order == [0, 6]
    assert line.buffer.concealed == 0


def test_another_stream_gets_what_was_held_back_out_first() -> None:
    line = Line()
    line.arrive(0, 0.0)
    line.arrive(2, 0.04)
    line.heard += line.buffer.reset()
    assert line.order == [0, 2]
    line.arrive(200, 0.1)
    assert line.order == [0, 2, 200]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.floats(0.0, 0.3)), min_size=1, max_size=120),
    st.floats(0.0, 0.05),
)
def test_frames_come_out_in_order_each_at_most_once_whatever_the_network_does(
    arrivals: list[tuple[int, float]], jitter_s: float
) -> None:
    line = Line()
    now = 0.0
    for index, step in arrivals:
        now += step
        line.wait(now)
        line.arrive(index, now, jitter_s)
    line.wait(now + 10.0)
    assert not line.buffer.pending
    order = line.order
    assert order == sorted(set(order))
    assert set(order) <= {index for index, _ in arrivals}
    times = [frame.timestamp for frame in line.heard]
    assert times == sorted(set(times))
    counted = len(order) + line.buffer.duplicates + line.buffer.late
    assert counted == len(arrivals)


@given(st.permutations(range(12)))
def test_nothing_is_lost_when_the_wait_outlasts_the_disorder(order: list[int]) -> None:
    line = Line(min_wait_s=0.2, max_wait_s=0.2)
    line.arrive(0, 0.0)
    for step, index in enumerate(order):
        line.arrive(index + 1, 0.01 + step * 0.001)
    assert line.order == list(range(13))
