"""Source lock against strangers, and permission to send to an unconfirmed host (pure)."""

from __future__ import annotations

from enum import Enum

from qwen3tts_phone.media.rtp import SEQUENCE_MODULO

Address = tuple[str, int]
PAUSE_S = 1.0
"""Silence of the locked source after which another address may replace it."""
SAME_ADDRESS_PAUSE_S = 0.1
"""The same for a new stream (SSRC) of the locked address (a PBX that joins another party), and for
an unannounced address after a renegotiation."""

NOWHERE = ("", "0.0.0.0", "::")
"""Addresses of no host (hold by RFC 2543)."""
CANDIDATES_MOST = 64
"""Sources remembered after one packet: a flood of single packets must not hide a
repeated one."""


class Verdict(Enum):
    """Decision about a packet."""

    ACCEPTED = "accepted"
    LOCKED = "locked"
    """Of a source locked just now: a new stream begins."""
    PROBATION = "probation"
    """Of a candidate, which must send a second packet in sequence (RFC 3550 section A.1)."""
    REJECTED = "rejected"


class SourceLock:
    """Latches on the first valid stream and keeps to it.

    The address of SDP is believed immediately; any other needs two packets in sequence. It outranks
    another that was latched before. A new source is taken only after `update` or a pause of the old
    one; if the old one returns soon, it is taken back. Each `update` lets the locked address begin
    one new stream without a pause.

    A source that takes over must be of the locked or the announced host. Another host is taken
    while nothing was heard of the announced one (NAT), and then once after each `update`. The host
    of the signalling outranks any other that was not announced. ``authenticated`` packets (SRTP)
    prove their sender, so any host may take over after the pause. ``strict``: only the announced
    host, on any port.
    """

    def __init__(
        self,
        announced: Address | None = None,
        *,
        strict: bool = False,
        signalling: str = "",
        authenticated: bool = False,
    ) -> None:
        self.announced = announced
        self._strict = strict
        self._signalling = signalling
        self._authenticated = authenticated
        self.announced_heard = False
        self._elsewhere = False  # a host that was not announced has been locked since `update`
        self.address: Address | None = None
        """Of the locked source; None while open."""
        self.ssrc = -1
        self.heard_at = 0.0
        """Last packet of the locked source, seconds; settable."""
        self.rejected = 0
        self.last_rejected: Address = ("", 0)
        self.open = True
        """Whether another source may be taken now."""
        self._renewable = False  # the locked address has had no new stream since `update`
        self._candidates: dict[
            Address, tuple[int, int]
        ] = {}  # SSRC, the sequence that would follow
        self._first: tuple[Address, int] | None = None  # latched since `update`, without a pause

    def update(
        self, announced: Address | None, *, signalling: str = "", authenticated: bool = False
    ) -> None:
        """Apply a renegotiation: the next valid source may be another one."""
        before = self.announced
        if before is not None and announced is not None and announced[0] in NOWHERE:
            announced = before  # a hold: who is at the other end is the same
        self.announced = announced
        if announced is None or before is None or announced[0] != before[0]:
            self.announced_heard = announced is not None and self._is_locked_host(announced[0])
        self._signalling = signalling
        self._authenticated = authenticated
        self._elsewhere = False
        self.open = self._renewable = True
        self._candidates.clear()
        self._first = None
        host = announced[0] if self._strict and announced is not None else None
        if self.address is not None and host not in (None, self.address[0]):
            self.address, self.ssrc = None, -1

    def offer(self, address: Address, ssrc: int, sequence: int, now: float) -> Verdict:
        if address == self.address and ssrc == self.ssrc:
            # After an update the old source is the best candidate for the new one.
            if self.open:
                self.open = False
                self._first = (address, ssrc)
                self._heard_from(address[0])
            self.heard_at = now
            return Verdict.ACCEPTED
        if not self._may_change(address, ssrc, now):
            self.reject(address)
            return Verdict.REJECTED
        known = address in (self.announced, self.address) or (address, ssrc) == self._first
        if not known:
            candidates = self._candidates
            in_sequence = candidates.pop(address, None) == (ssrc, sequence)
            if not in_sequence:
                if len(candidates) >= CANDIDATES_MOST:
                    del candidates[next(iter(candidates))]  # the oldest
                candidates[address] = ssrc, (sequence + 1) % SEQUENCE_MODULO
                return Verdict.PROBATION
        if self.open or address in (self.announced, self.address) or self._outranks(address[0]):
            self._first = (address, ssrc)
        self._heard_from(address[0])
        self.address = address
        self.ssrc = ssrc
        self.heard_at = now
        self.open = self._renewable = False
        self._candidates.clear()
        return Verdict.LOCKED

    def reject(self, address: Address) -> None:
        self.rejected += 1
        self.last_rejected = address

    def _may_change(self, address: Address, ssrc: int, now: float) -> bool:
        if self._strict and self.announced is not None and address[0] != self.announced[0]:
            return False
        if self.address is None or (address, ssrc) == self._first:
            return True
        if not self._is_host_allowed(address[0]):
            return False
        if self._outranks(address[0]):
            return True
        pause = now - self.heard_at
        if self.open:
            # A session refresh must not admit a stranger that sends faster than the source.
            known = address in (self.announced, self.address)
            return known or pause >= SAME_ADDRESS_PAUSE_S
        if address == self.address:
            # A codec of another clock is another stream (RFC 3550 section 5.2), which follows
            # immediately upon packets of the old one that were on their way.
            return self._renewable or pause >= SAME_ADDRESS_PAUSE_S
        if address == self.announced:
            return True
        return pause >= PAUSE_S

    def _is_host_allowed(self, host: str) -> bool:
        if self._authenticated or self._is_locked_host(host) or self._is_announced(host):
            return True
        if self.announced_heard:
            return False
        return host == self._signalling or not self._elsewhere

    def _outranks(self, host: str) -> bool:
        """Return whether it is the signalling's host and the locked one is unknown."""
        if self.address is None or self._authenticated or host != self._signalling:
            return False
        return self.address[0] != host and not self._is_announced(self.address[0])

    def _heard_from(self, host: str) -> None:
        if self._is_announced(host):
            self.announced_heard = True
        else:
            self._elsewhere = True

    def _is_announced(self, host: str) -> bool:
        return self.announced is not None and host == self.announced[0]

    def _is_locked_host(self, host: str) -> bool:
        return self.address is not None and host == self.address[0]


LEG_S = 20.0
"""Seconds that one call may send to hosts that never answered."""
HOSTS_MOST = 64


class SendPermission:
    """Permission of one call to send to a host that was only announced; monotonic seconds.

    SDP may name the address of a victim. Sending to a host from which nothing came ends after a
    short time.
    """

    def __init__(self) -> None:
        self._host = ""
        self._since: float | None = None
        self._limit_s = 0.0
        self._used_s = 0.0
        self._confirmed: set[str] = set()

    def update(self, host: str, within_s: float, now: float) -> None:
        """Set the destination: ``within_s`` seconds without an answer, 0 = unlimited."""
        self._stop(now)
        self._host = host
        if within_s > 0 and host not in self._confirmed:
            self._since = now
            self._limit_s = min(within_s, LEG_S - self._used_s)

    def heard(self, host: str, now: float) -> None:
        if len(self._confirmed) < HOSTS_MOST or host == self._host:
            self._confirmed.add(host)
        if host == self._host:
            self._stop(now)

    def aimed(self, host: str, now: float) -> None:
        """Note that packets go to the host that media came from."""
        self._host = host
        self.heard(host, now)

    def is_given(self, now: float) -> bool:
        return self._since is None or now - self._since < self._limit_s

    def _stop(self, now: float) -> None:
        if self._since is not None:
            self._used_s = min(LEG_S, self._used_s + min(now - self._since, self._limit_s))
        self._since = None
