"""Admission of streams by address, token, number of calls and load."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import ipaddress
import logging
from collections import Counter
from urllib.parse import parse_qs

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.media.admission import Pacing, PacingAdmission
from qwen3tts_phone.media.reports import LoadMeter, MediaLoad
from qwen3tts_phone.streams.carriers.adapter import Handshake, Refused
from qwen3tts_phone.streams.settings import StreamSettings

MIN_CALLS = 20
"""Fewer streams are never refused by load: 46 to 69 a core were measured with agents."""
MAX_LATE_SHARE = 0.1
"""Share of late ticks in a second above which no stream is admitted: 5 of 50. Far ends have a few
frames queued, so single late ticks delay nothing."""


class StreamAdmission:
    def __init__(self, settings: StreamSettings) -> None:
        self.draining = False
        self.pacing = PacingAdmission(MIN_CALLS, MAX_LATE_SHARE)
        self.open = 0
        self._settings = settings
        self._networks = [ipaddress.ip_network(each) for each in settings.allow]
        self._by_host: Counter[str] = Counter()

    def check(self, handshake: Handshake, *, token: bool = True) -> None:
        """Raise Refused unless admitted; ``token``: it must show one."""
        settings, host = self._settings, handshake.peer
        if self._networks and not self._allowed(host):
            raise Refused(403, f"{host} is not among the addresses of allow")
        if token and settings.token and not _has_token(handshake, settings.token):
            raise Refused(401, f"{host} shows no token, or a wrong one")
        self.check_room(host)

    def check_room(self, host: str) -> None:
        settings = self._settings
        if self.draining:
            raise Refused(503, "this server is being stopped")
        if self.open >= settings.max_calls:
            raise Refused(503, f"{self.open} calls are running, which is the limit")
        if not self.pacing.admits(self.open):
            raise Refused(503, f"this process cannot pace another call ({self.pacing.figures})")
        if settings.max_per_address and self._by_host[host] >= settings.max_per_address:
            raise Refused(429, f"{host} has too many calls")

    def enter(self, host: str) -> None:
        self.open += 1
        self._by_host[host] += 1

    def leave(self, host: str) -> None:
        self.open -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _allowed(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _has_token(handshake: Handshake, token: str) -> bool:
    shown = parse_qs(handshake.query).get("token", [])
    scheme, _, value = handshake.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        shown.append(value.strip())
    elif scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, ValueError):
            shown.append(base64.b64decode(value, validate=True).decode().partition(":")[2])
    return any(
        hmac.compare_digest(each.encode("utf-8", "replace"), token.encode()) for each in shown
    )


logger = logging.getLogger(__name__)

TICK_S = 0.02
SKIPPED_S = 0.1
"""Later ticks count as skipped: no far end is certain to have more queued."""
REPORT_S = 1.0


async def watch_event_loop(gate: StreamAdmission, clock: Clock) -> None:
    meter = LoadMeter(_ns(clock.now()))
    skipped = 0
    at = clock.now()
    report_at = at + REPORT_S
    while True:
        at += TICK_S
        await clock.sleep_until(at)
        now = clock.now()
        late_s = now - at
        if late_s > TICK_S:
            at = now
        if late_s > SKIPPED_S:
            skipped += int(late_s / TICK_S)
        meter.served(1, _ns(max(0.0, late_s - TICK_S)), skipped)
        if now >= report_at:
            report_at = now + REPORT_S
            _report(gate, MediaLoad(**meter.report(_ns(now), gate.open)))


def _report(gate: StreamAdmission, load: MediaLoad) -> None:
    if not gate.pacing.report(load):
        return
    if gate.pacing.state is Pacing.FULL:
        logger.warning("no further stream is taken: %s", gate.pacing.figures)
    else:
        logger.info("streams are taken again: %s", gate.pacing.figures)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
