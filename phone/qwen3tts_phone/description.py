"""Session descriptions as they come from outside: RFC 8866, read within bounds.

Only what a call needs is looked into; garbage is BadSdp with the line at fault.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qwen3tts_phone.errors import BadSdp, NoCommonCodec

MAX_CHARS = 32_768
MAX_LINES = 1000
MAX_MEDIA = 16
MAX_FORMATS = 64

Direction = Literal["sendrecv", "sendonly", "recvonly", "inactive"]

# RFC 3551 table 4: payload types that need no rtpmap, as far as phones use them.
_STATIC = {0: "PCMU", 3: "GSM", 4: "G723", 8: "PCMA", 9: "G722", 15: "G728", 18: "G729"}

_PROTOCOLS = ("RTP/AVP", "RTP/AVPF")
_NUMBER = re.compile(r"[0-9]{1,20}")
_PORT = re.compile(r"[0-9]{1,5}")
_RTPMAP = re.compile(r"(\d{1,3}) +([A-Za-z0-9!#$%&'*+.^_`{|}~-]{1,64})/(\d{1,7})(?:/(\d{1,3}))?")


@dataclass(frozen=True, slots=True)
class PayloadOffer:
    """One format of a media line."""

    payload_type: int
    """0 to 127."""
    name: str
    """Encoding name in capitals, e.g. PCMU, TELEPHONE-EVENT; empty when it was not said."""
    clock_hz: int
    channels: int = 1


@dataclass(frozen=True, slots=True)
class Media:
    """One media line with what belongs to it."""

    kind: str
    """``audio``, ``video``, ..."""
    host: str
    """Where the describer wants to receive; ``0.0.0.0`` = nowhere (hold of RFC 2543)."""
    port: int
    """0 = this stream is refused or over."""
    protocol: str
    payloads: tuple[PayloadOffer, ...]
    formats: tuple[str, ...]
    """The formats as written."""
    direction: Direction
    """As seen by the describer."""
    ptime_ms: int | None

    @property
    def telephone_event_pt(self) -> int | None:
        """Payload type of DTMF events at 8 kHz (RFC 4733), or None."""
        for payload in self.payloads:
            if payload.name == "TELEPHONE-EVENT" and payload.clock_hz == 8000:
                return payload.payload_type
        return None

    @property
    def sends(self) -> bool:
        """Whether the describer sends."""
        return self.direction in ("sendrecv", "sendonly")

    @property
    def receives(self) -> bool:
        """Whether the describer receives."""
        nowhere = self.host in ("0.0.0.0", "::")
        return self.direction in ("sendrecv", "recvonly") and not nowhere


@dataclass(frozen=True, slots=True)
class SessionDescription:
    """A whole description."""

    session_id: str
    version: int
    media: tuple[Media, ...]

    @property
    def audio_index(self) -> int:
        """Which media line is the audio that can be used; raises BadSdp or NoCommonCodec."""
        lines = [index for index, media in enumerate(self.media) if media.kind == "audio"]
        if not lines:
            raise BadSdp("The session description has no audio.", remedy="Offer a stream m=audio.")
        open_lines = [index for index in lines if self.media[index].port]
        if not open_lines:
            raise NoCommonCodec(
                "Every audio stream of the description is refused (port 0).",
                remedy="The far end wants no audio, or no codec that was offered.",
            )
        for index in open_lines:
            if self.media[index].protocol in _PROTOCOLS:
                return index
        raise NoCommonCodec(
            f"The audio is {self.media[open_lines[0]].protocol}; only plain RTP is spoken here.",
            remedy="Turn media encryption off or to optional on the other side.",
        )

    @property
    def audio(self) -> Media:
        """The audio that can be used; raises BadSdp or NoCommonCodec."""
        return self.media[self.audio_index]


def parse(text: str) -> SessionDescription:
    """Read a description; raises BadSdp with the line at fault."""
    if len(text) > MAX_CHARS:
        raise BadSdp(f"A description of {len(text)} characters is over the bound of {MAX_CHARS}.")
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    if len(lines) > MAX_LINES:
        raise BadSdp(f"A description of {len(lines)} lines is over the bound of {MAX_LINES}.")
    if lines[0].strip() != "v=0":
        raise BadSdp(f"Line 1 is {lines[0][:20]!r}; a description begins with v=0.")
    session: list[tuple[int, str, str]] = []
    sections: list[list[tuple[int, str, str]]] = []
    for number, line in enumerate(lines, 1):
        kind, equals, value = line.partition("=")
        if not equals or len(kind) != 1 or not kind.isalpha():
            raise BadSdp(f"Line {number} is {line[:40]!r}; lines look like a=value.")
        entry = (number, kind, value.strip())
        if kind == "m":
            if len(sections) >= MAX_MEDIA:
                raise BadSdp(f"More than {MAX_MEDIA} media lines.")
            sections.append([entry])
        else:
            (sections[-1] if sections else session).append(entry)
    session_id, version = _origin(session)
    host = _connection(session)
    direction = _direction(session)
    media = tuple(_media(section, host, direction) for section in sections)
    return SessionDescription(session_id, version, media)


def _origin(lines: Sequence[tuple[int, str, str]]) -> tuple[str, int]:
    for number, kind, value in lines:
        if kind == "o":
            words = value.split()
            if len(words) != 6 or not _NUMBER.fullmatch(words[2]):
                raise BadSdp(f"Line {number}: o= needs six fields with a number for its version.")
            return words[1], int(words[2])
    raise BadSdp("The description has no o= line.")


def _connection(lines: Sequence[tuple[int, str, str]]) -> str | None:
    for number, kind, value in lines:
        if kind != "c":
            continue
        words = value.split()
        if len(words) != 3 or words[0].upper() != "IN" or words[1].upper() not in ("IP4", "IP6"):
            raise BadSdp(f"Line {number}: c= should be IN IP4 ADDRESS.")
        host = words[2].partition("/")[0]
        try:
            # RFC 4007 section 11.2: a zone means nothing to another machine.
            address = ipaddress.ip_address(host.replace("%", " "))
        except ValueError:
            raise BadSdp(
                f"Line {number}: {host[:40]!r} is not an IP address.",
                remedy="Names are not looked up for media; describe the address itself.",
            ) from None
        if address.is_multicast or str(address) == "255.255.255.255":
            raise BadSdp(f"Line {number}: {host} is a group's address, not a phone's.")
        return str(address)
    return None


def _direction(lines: Sequence[tuple[int, str, str]]) -> Direction | None:
    for _, kind, value in lines:
        if kind != "a":
            continue
        for direction in ("sendrecv", "sendonly", "recvonly", "inactive"):
            if value == direction:
                return _as_direction(direction)
    return None


def _as_direction(text: str) -> Direction:
    known: tuple[Direction, ...] = ("sendrecv", "sendonly", "recvonly", "inactive")
    return next(direction for direction in known if direction == text)


def _media(
    lines: Sequence[tuple[int, str, str]], session_host: str | None, session: Direction | None
) -> Media:
    number, _, value = lines[0]
    words = value.split()
    if len(words) < 4:
        raise BadSdp(f"Line {number}: m= needs a kind, a port, a protocol and a format.")
    kind, port_text, protocol, *formats = words
    port_text = port_text.partition("/")[0]
    if not _PORT.fullmatch(port_text) or int(port_text) > 65535:
        raise BadSdp(f"Line {number}: {port_text[:20]!r} is not a port.")
    if len(formats) > MAX_FORMATS:
        raise BadSdp(f"Line {number}: {len(formats)} formats are over the bound of {MAX_FORMATS}.")
    host = _connection(lines) or session_host
    if host is None and int(port_text):
        raise BadSdp(f"Line {number}: the stream has no c= line, nor has the session.")
    return Media(
        kind=kind.lower(),
        host=host or "0.0.0.0",
        port=int(port_text),
        protocol=protocol.upper(),
        payloads=_payloads(formats, lines) if "RTP" in protocol.upper() else (),
        formats=tuple(formats),
        direction=_direction(lines) or session or "sendrecv",
        ptime_ms=_ptime(lines),
    )


def _payloads(
    formats: Sequence[str], lines: Sequence[tuple[int, str, str]]
) -> tuple[PayloadOffer, ...]:
    maps: dict[int, tuple[str, int, int]] = {}
    for _, kind, value in lines:
        if kind == "a" and value.startswith("rtpmap:"):
            match = _RTPMAP.match(value[7:].strip())
            if match:
                channels = int(match[4] or 1)
                maps.setdefault(int(match[1]), (match[2].upper(), int(match[3]), channels))
    payloads = []
    for text in formats:
        if not (text.isascii() and text.isdigit()) or len(text) > 3 or int(text) > 127:
            # One format that is not a payload type spoils itself, not the others.
            continue
        number = int(text)
        name, clock, channels = maps.get(number, (_STATIC.get(number, ""), 8000, 1))
        payloads.append(PayloadOffer(number, name, clock, channels))
    return tuple(payloads)


def _ptime(lines: Sequence[tuple[int, str, str]]) -> int | None:
    found: dict[str, int] = {}
    for _, kind, value in lines:
        name, colon, text = value.partition(":")
        whole = text.strip().partition(".")[0]
        if kind == "a" and colon and name in ("ptime", "maxptime") and _NUMBER.fullmatch(whole):
            found.setdefault(name, int(whole))
    ptime, most = found.get("ptime"), found.get("maxptime")
    if most and (ptime or 20) > most:
        return most
    return ptime
