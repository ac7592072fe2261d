"""Blank-line keepalives over a connection (RFC 5626 section 4.4.1), by the clock of a test."""

from __future__ import annotations

import pytest

from qwen3tts_phone.sip.account import Account
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.registration.keepalive import PONG_S, Keepalive
from tests.sip.wire import Phone, Wire

PERIOD_S = 30.0


class Pinged:
    """A keepalive over connections that answer as a test says."""

    def __init__(self, transport: str) -> None:
        self.now = 1000.0
        self.answers = True
        self.broken: list[Hop] = []
        self.pings = 0
        self.hop = Hop(transport, "10.0.0.5", 5060)
        account = Account(
            "sip:10.0.0.5", "alice", keepalive_s=PERIOD_S, keepalive="crlf", name="line"
        )
        self.keepalive = Keepalive(
            Phone(Wire(), "10.0.0.1").agent,
            account,
            lambda found: found([self.hop], None, self.now),
            self,
        )
        self.returned: list[float] = []
        self.keepalive.returned = self.returned.append
        self.keepalive.start(self.now)

    @property
    def reachable(self) -> bool | None:
        return self.keepalive.reachable

    def ping(self, hop: Hop) -> bool:
        self.pings += 1
        return True

    def heard_at(self, hop: Hop) -> float | None:
        return self.now if self.answers else None

    def abort(self, hop: Hop) -> None:
        self.broken.append(hop)

    def rounds(self, count: int) -> None:
        """Let so many pings and their answers, or want of answers, pass."""
        for _ in range(count):
            self.keepalive.tick(self.now)
            self.now += PONG_S
            self.keepalive.tick(self.now)
            self.now += PERIOD_S


@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_a_server_that_answers_pings_again_over_a_connection_is_told_as_returned(
    transport: str,
) -> None:
    line = Pinged(transport)
    line.rounds(2)
    assert (line.reachable, line.returned) == (True, [])
    line.answers = False
    line.rounds(2)
    away = line.reachable
    line.answers = True
    line.rounds(2)
    assert (away, line.reachable, len(line.returned)) == (False, True, 1)


def test_over_udp_blank_lines_tell_neither_that_a_server_is_away_nor_that_it_is_back() -> None:
    line = Pinged("udp")
    line.answers = False
    line.rounds(3)
    line.answers = True
    line.rounds(3)
    assert line.pings == 6
    assert line.reachable is None
    assert not line.returned
