"""Offer and answer (RFC 3264) for one G.711 stream.

:class:`SdpSession` is our side of one call: it writes offers and answers, counts the version up and
keeps the order of the media lines; :class:`Negotiated` is what both ends will do. All is pure; a
description that cannot be used is BadSdp, a codec that we lack NoCommonCodec.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qwen3tts_phone.description import (
    Direction,
    Media,
    PayloadOffer,
    SessionDescription,
    parse,
)
from qwen3tts_phone.errors import NoCommonCodec, WrongState

__all__ = [
    "Direction",
    "Media",
    "Negotiated",
    "PayloadOffer",
    "SdpSession",
    "SessionDescription",
    "answering",
    "parse",
]

PTIMES_MS = (10, 20, 30, 40, 60)
"""Packet times that we send on request; any other gets 20 ms."""
DEFAULT_EVENT_PT = 101
"""Payload type that our offers give to telephone-event (RFC 4733 has no fixed one)."""
CODECS: dict[str, int] = {"PCMU": 0, "PCMA": 8}
"""What we can speak, best known first, with the static payload type."""


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What both ends agreed on, as our sender and receiver need it."""

    host: str
    """Where to send to."""
    port: int
    payload_type: int
    """What we send with."""
    payload_name: str
    """PCMU or PCMA."""
    ptime_ms: int
    """Length of the packets we send."""
    telephone_event_pt: int | None
    """What we send DTMF with; None = the far end takes none."""
    send: bool
    """Whether we may send (False while the far end holds us)."""
    receive: bool
    """Whether the far end may send."""


def _settle(remote: Media, codecs: Sequence[str], wanted: Direction) -> Negotiated:
    """What we send and expect, given what they describe and what we want."""
    for payload in remote.payloads:
        if payload.name in codecs and payload.clock_hz == 8000 and payload.channels == 1:
            chosen = payload
            break
    else:
        theirs = ", ".join(p.name or str(p.payload_type) for p in remote.payloads) or "none"
        raise NoCommonCodec(
            f"No common codec: the far end has {theirs[:120]}, this end {', '.join(codecs)}.",
            remedy="Allow PCMU (G.711 mu-law) or PCMA (G.711 A-law) on the other side.",
        )
    return Negotiated(
        host=remote.host,
        port=remote.port,
        payload_type=chosen.payload_type,
        payload_name=chosen.name,
        ptime_ms=remote.ptime_ms if remote.ptime_ms in PTIMES_MS else 20,
        telephone_event_pt=remote.telephone_event_pt,
        send=remote.receives and wanted in ("sendrecv", "sendonly"),
        receive=remote.sends and wanted in ("sendrecv", "recvonly"),
    )


def answering(offered: Media, wanted: Direction = "sendrecv") -> Direction:
    """The direction of an answer (RFC 3264 section 6.1): what both ends can and want."""
    # A hold by 0.0.0.0 still sends, as far as its direction says.
    send = offered.receives and wanted in ("sendrecv", "sendonly")
    receive = offered.sends and wanted in ("sendrecv", "recvonly")
    if send:
        return "sendrecv" if receive else "sendonly"
    return "recvonly" if receive else "inactive"


@dataclass(frozen=True, slots=True)
class _Line:
    """One media line of ours: the audio, or the refusal of something else."""

    kind: str
    protocol: str
    formats: tuple[str, ...]


class SdpSession:
    """Our side of a call's offers and answers.

    ``host`` and ``port`` are where our RTP is received (port even, RTCP one above).
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        codecs: Sequence[str] = ("PCMU", "PCMA"),
        ptime_ms: int = 20,
        telephone_event: bool = True,
    ) -> None:
        unknown = set(codecs) - set(CODECS)
        if unknown or not codecs:
            raise ValueError(f"codecs={tuple(codecs)!r}: known are {tuple(CODECS)}")
        if not 0 < port < 65536:
            raise ValueError(f"port={port} is not between 1 and 65535")
        self.host = host
        self.port = port
        self.negotiated: Negotiated | None = None
        """What was agreed last."""
        self.direction: Direction = "sendrecv"
        """What our last description says."""
        self._codecs = tuple(codecs)
        self._ptime_ms = ptime_ms
        self._event_pt: int | None = DEFAULT_EVENT_PT if telephone_event else None
        self._id = secrets.randbits(31)
        self._version = secrets.randbits(24)
        self._body = ""
        self._lines = [_Line("audio", "RTP/AVP", ())]
        self._audio_index = 0
        self._payloads: tuple[tuple[int, str], ...] = tuple((CODECS[n], n) for n in codecs)
        self.direction_wanted: Direction = "sendrecv"
        """What we want, whatever the far end lets us have."""

    def offer(self, direction: Direction | None = None) -> str:
        """An offer; the version counts up when it says something else than the last one."""
        self.direction_wanted = direction or self.direction_wanted
        return self._write(self.direction_wanted)

    @property
    def holding(self) -> Direction:
        """The direction that puts the far end on hold (RFC 3264 section 8.4)."""
        # Whoever is held already must not be told that we still send.
        return (
            "inactive" if self.negotiated is not None and not self.negotiated.send else "sendonly"
        )

    def accept(self, text: str | SessionDescription) -> Negotiated:
        """The far end's answer to our offer; raises BadSdp or NoCommonCodec."""
        if not self._body:
            raise WrongState("There is an answer, and no offer was made.")
        description = parse(text) if isinstance(text, str) else text
        self.negotiated = _settle(description.audio, self._codecs, self.direction_wanted)
        return self.negotiated

    def answer(
        self, offered: str | SessionDescription, direction: Direction | None = None
    ) -> tuple[str, Negotiated]:
        """Our answer to the far end's offer, and what was agreed."""
        description = parse(offered) if isinstance(offered, str) else offered
        index = description.audio_index
        remote = description.media[index]
        self.direction_wanted = direction or self.direction_wanted
        negotiated = _settle(remote, self._codecs, self.direction_wanted)
        # RFC 3264 section 6: as many media lines as the offer has, in its order.
        self._lines = [_Line(m.kind, m.protocol, m.formats) for m in description.media]
        self._audio_index = index
        # RFC 3264 section 6.1: the payload numbers of the offer are used.
        self._payloads = ((negotiated.payload_type, negotiated.payload_name),)
        if self._event_pt is not None:
            self._event_pt = negotiated.telephone_event_pt or self._event_pt
        body = self._write(
            answering(remote, self.direction_wanted),
            events=negotiated.telephone_event_pt is not None,
        )
        if self._event_pt is None:
            negotiated = replace(negotiated, telephone_event_pt=None)
        self.negotiated = negotiated
        return body, negotiated

    def _write(self, direction: Direction, *, events: bool = True) -> str:
        self.direction = direction
        lines = ["s=-", f"c=IN {_family(self.host)} {self.host}", "t=0 0"]
        for index, line in enumerate(self._lines):
            if index != self._audio_index:
                lines.append(f"m={line.kind} 0 {line.protocol} {' '.join(line.formats) or '0'}")
                continue
            event_pt = self._event_pt if events else None
            numbers = [str(number) for number, _ in self._payloads]
            numbers += [] if event_pt is None else [str(event_pt)]
            lines.append(f"m=audio {self.port} {line.protocol} {' '.join(numbers)}")
            lines += [f"a=rtpmap:{number} {name}/8000" for number, name in self._payloads]
            if event_pt is not None:
                lines += [f"a=rtpmap:{event_pt} telephone-event/8000", f"a=fmtp:{event_pt} 0-15"]
            lines += [f"a=ptime:{self._ptime_ms}", f"a={direction}"]
        body = "".join(f"{line}\r\n" for line in lines)
        if body != self._body:
            # RFC 3264 section 8: the version rises by one with each change, and with changes only.
            self._version += 1
            self._body = body
        origin = f"o=- {self._id} {self._version} IN {_family(self.host)} {self.host}"
        return f"v=0\r\n{origin}\r\n{body}"


def _family(host: str) -> str:
    return "IP6" if ":" in host else "IP4"
