from __future__ import annotations

from qwen3tts_phone.sip.gate import (
    BEHIND_WINDOWS,
    CALM_WINDOWS,
    WAIT_MOST_S,
    WINDOW_S,
    OverloadControl,
    OverloadState,
)

LATE = WAIT_MOST_S + 0.05


class Queue:
    """Messages every 5 ms that wait as they are said to."""

    def __init__(self) -> None:
        self.control = OverloadControl()
        self.now = 1000.0

    def windows(self, count: float, *waits_s: float, lost: int = 0) -> list[bool]:
        """Let so many windows pass; whether the state changed at each message.

        ``lost``: datagrams dropped before each message.
        """
        changes = []
        until = self.now + count * WINDOW_S
        number = 0
        while self.now < until:
            changes.append(self.control.waited(waits_s[number % len(waits_s)], self.now, lost))
            self.now += 0.005
            number += 1
        return changes


def shedding() -> Queue:
    queue = Queue()
    assert queue.windows(BEHIND_WINDOWS + 2, LATE).count(True) == 1
    assert queue.control.state is OverloadState.SHEDDING
    return queue


def test_calls_are_set_up_while_messages_are_read_soon() -> None:
    queue = Queue()
    assert not any(queue.windows(100, 0.05, 0.001))
    assert queue.control.admits(queue.now)


def test_stalls_that_come_and_go_refuse_no_call() -> None:
    queue = Queue()
    assert not any(queue.windows(100, 2.0, 1.0, 0.5, 0.25, 0.01))  # the queue empties each time
    assert queue.control.admits(queue.now)


def test_one_stall_of_the_process_refuses_no_call_where_few_come() -> None:
    control = OverloadControl()
    for number in range(20):  # what came during a stall of 2 s, read in one go
        assert not control.waited(2.0 - number / 20, 10.0 + number * 0.001)
    assert control.admits(10.02)
    assert not control.waited(0.001, 15.0)
    assert control.admits(15.0)


def test_a_queue_that_does_not_empty_refuses_calls_and_counts_them() -> None:
    queue = shedding()
    assert [queue.control.admits(queue.now) for _ in range(3)] == [False] * 3
    assert queue.control.shed == 3


def test_calls_are_taken_again_once_the_queue_empties_for_a_time() -> None:
    queue = shedding()
    assert not any(queue.windows(20, 0.05, 0.3))  # shorter, and never empty: no back and forth
    assert not queue.control.admits(queue.now)
    assert not any(queue.windows(CALM_WINDOWS - 2, 0.3, 0.001))
    assert not queue.control.admits(queue.now)
    assert queue.windows(4, 0.3, 0.001).count(True) == 1  # it empties between stalls
    assert queue.control.admits(queue.now)


def test_when_no_message_comes_any_more_the_next_call_is_taken() -> None:
    queue = shedding()
    assert queue.control.admits(queue.now + (CALM_WINDOWS + 2) * WINDOW_S)


def test_a_full_socket_buffer_that_drops_messages_refuses_calls_however_short_their_wait() -> None:
    queue = Queue()
    assert queue.windows(BEHIND_WINDOWS + 2, WAIT_MOST_S / 2, lost=1).count(True) == 1
    assert not queue.control.admits(queue.now)


def test_messages_dropped_in_bursts_between_which_the_queue_empties_refuse_no_call() -> None:
    queue = Queue()
    assert not any(queue.windows(100, WAIT_MOST_S / 2, 0.001, lost=1))
    assert queue.control.admits(queue.now)


def test_one_burst_that_overflows_the_buffer_refuses_no_call() -> None:
    queue = Queue()
    assert not any(queue.windows(2, WAIT_MOST_S / 2, lost=50))
    assert not any(queue.windows(20, 0.001))
    assert queue.control.admits(queue.now)
