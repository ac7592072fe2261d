"""Session descriptions (RFC 8866) and offer/answer (RFC 3264) for one G.711 stream.

``parse`` reads what came; :class:`SdpSession` is our side of one call: it writes offers and
answers, counts the version up and keeps the order of the media lines; :class:`Negotiated` is what
both ends will do. All is pure; garbage is BadSdp, a codec that we lack NoCommonCodec.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from qwen3tts_phone.errors import BadSdp, NoCommonCodec, WrongState

MAX_CHARS = 32_768
MAX_LINES = 1000
MAX_MEDIA = 16
MAX_FORMATS = 64
PTIMES_MS = (10, 20, 30, 40, 60)
"""Packet times that we send on request; any other gets 20 ms."""
DEFAULT_EVENT_PT = 101
"""Payload type that our offers give to telephone-event (RFC 4733 has no fixed one)."""

Direction = Literal["sendrecv", "sendonly", "recvonly", "inactive"]

# RFC 3551 table 4: payload types that need no rtpmap, as far as phones use them.
_STATIC = {0: "PCMU", 3: "GSM", 4: "G723", 8: "PCMA", 9: "G722", 15: "G728", 18: "G729"}
CODECS: dict[str, int] = {"PCMU": 0, "PCMA": 8}
"""What we can speak, best known first, with the static payload type."""

_PROTOCOLS = ("RTP/AVP", "RTP/AVPF")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
_NUMBER = re.compile(r"[0-9]{1,20}")
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
            address = ipaddress.ip_address(host)
        except ValueError:
            if not _HOST.fullmatch(host):
                raise BadSdp(f"Line {number}: {host[:40]!r} is not an address.") from None
            return host
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
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text[:9]) > 65535:
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


def offer(
    host: str,
    port: int,
    *,
    codecs: Sequence[str] = ("PCMU", "PCMA"),
    ptime_ms: int = 20,
    direction: Direction = "sendrecv",
) -> str:
    """A first offer; use :class:`SdpSession` where the call goes on."""
    return SdpSession(host, port, codecs=codecs, ptime_ms=ptime_ms).offer(direction)


def answer(
    offered: str | SessionDescription,
    host: str,
    port: int,
    *,
    codecs: Sequence[str] = ("PCMU", "PCMA"),
    ptime_ms: int = 20,
    direction: Direction = "sendrecv",
) -> tuple[str, Negotiated]:
    """The answer to a first offer, and what was agreed; raises BadSdp or NoCommonCodec."""
    return SdpSession(host, port, codecs=codecs, ptime_ms=ptime_ms).answer(offered, direction)


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

    def hold(self) -> str:
        """An offer that puts the far end on hold."""
        return self.offer(self.holding)

    def resume(self) -> str:
        """An offer that takes the far end back."""
        return self.offer("sendrecv")

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
