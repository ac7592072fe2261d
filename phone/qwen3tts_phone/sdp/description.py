"""Bounded parser of session descriptions (RFC 8866); BadSdp names the line."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qwen3tts_codecs.table import SDP_CODECS
from qwen3tts_phone.errors import BadSdp, NoCommonCodec
from qwen3tts_phone.sdp.addresses import Endpoint, alternatives
from qwen3tts_phone.sdp.crypto import MAX_LINES as MAX_CRYPTO
from qwen3tts_phone.sdp.crypto import CryptoAttribute, parse_crypto

MAX_CHARS = 32_768
MAX_LINES = 1000
MAX_MEDIA = 16
MAX_FORMATS = 64

MAX_ADDRESSES = 8
"""Most c= lines of one stream that are kept."""

Direction = Literal["sendrecv", "sendonly", "recvonly", "inactive"]

# RFC 3551 table 4: payload types that need no rtpmap, as far as phones use them.
_STATIC = {3: "GSM", 4: "G723", 13: "CN", 15: "G728", 18: "G729"}
_STATIC |= {codec.payload_type: codec.name for codec in SDP_CODECS.values() if codec.static}

PLAIN = ("RTP/AVP", "RTP/AVPF")
ENCRYPTED = ("RTP/SAVP", "RTP/SAVPF")
"""Protocols of SRTP whose keys come with the description (RFC 4568), or else are of no use here."""
MAX_PARAMETERS = 500
"""Characters of a fmtp that are kept."""
_NUMBER = re.compile(r"[0-9]{1,20}")
_PAYLOAD_TYPE = re.compile(r"[0-9]{1,3}")
_PORT = re.compile(r"[0-9]{1,5}")
_RTPMAP = re.compile(r"(\d{1,3}) +([A-Za-z0-9!#$%&'*+.^_`{|}~-]{1,64})/(\d{1,7})(?:/(\d{1,3}))?")


@dataclass(frozen=True, slots=True)
class PayloadOffer:
    payload_type: int
    """0 to 127."""
    name: str
    """Encoding name in capitals, e.g. PCMU, TELEPHONE-EVENT; empty when it was not said."""
    clock_hz: int
    channels: int = 1
    parameters: str = ""
    """Its fmtp, as written."""


@dataclass(frozen=True, slots=True)
class Media:
    kind: str
    """``audio``, ``video``, ..."""
    host: str
    """Describer's receiving address; ``0.0.0.0`` = nowhere (hold of RFC 2543)."""
    port: int
    """0 = this stream is refused or over."""
    protocol: str
    payloads: tuple[PayloadOffer, ...]
    formats: tuple[str, ...]
    """The formats as written."""
    direction: Direction
    """As seen by the describer."""
    ptime_ms: int | None
    """Requested packet time, within its maxptime."""
    maxptime_ms: int | None = None
    hosts: tuple[str, ...] = ()
    """All addresses where there are several c= lines; ``host`` is the first."""
    others: tuple[Endpoint, ...] = ()
    """Further addresses with their ports (RFC 6947, RFC 8839), best first."""
    crypto: tuple[CryptoAttribute, ...] = ()
    """The keys that can be used here, in its order."""
    rtcp_mux: bool = False
    """RTCP on the RTP port (RFC 5761)."""
    rtcp_port: int | None = None
    """RTCP port if not the one above (RFC 3605)."""

    @property
    def telephone_event_pt(self) -> int | None:
        """Payload type of telephone events at 8 kHz (RFC 4733)."""
        return self.payload_type_of("TELEPHONE-EVENT", 8000)

    def payload_type_of(self, name: str, clock_hz: int) -> int | None:
        for payload in self.payloads:
            if payload.name == name and payload.clock_hz == clock_hz:
                return payload.payload_type
        return None

    @property
    def encrypted(self) -> bool:
        return self.protocol in ENCRYPTED or bool(self.crypto)

    def endpoint(self, family_of: str, peer: str = "") -> Endpoint:
        """Return address and port of ``family_of``'s family, or else the first.

        Among further addresses that of ``peer``, the signalling's source, comes first.
        """
        found = self._of_family(family_of)
        near = [each for each in found if each[0] == peer and each[0] not in self.hosts]
        own = [each for each in found if each[0] in self.hosts]
        return next(iter((*own, *near, *found)), (self.host, self.port))

    def has_family(self, family_of: str) -> bool:
        return bool(self._of_family(family_of))

    def _of_family(self, family_of: str) -> list[Endpoint]:
        own = [(host, self.port) for host in self.hosts or (self.host,)]
        return [each for each in (*own, *self.others) if (":" in each[0]) == (":" in family_of)]

    @property
    def sends(self) -> bool:
        return self.direction in ("sendrecv", "sendonly")

    @property
    def receives(self) -> bool:
        nowhere = self.host in ("0.0.0.0", "::")
        return self.direction in ("sendrecv", "recvonly") and not nowhere


@dataclass(frozen=True, slots=True)
class SessionDescription:
    session_id: str
    version: int
    media: tuple[Media, ...]

    @property
    def audio_index(self) -> int:
        """Index of the plain RTP audio line; raises BadSdp, NoCommonCodec."""
        return self.audio_line("off")

    @property
    def audio(self) -> Media:
        return self.media[self.audio_index]

    def audio_line(self, srtp: str, family_of: str = "") -> int:
        """Return the index of the audio line to use.

        Args:
            srtp: ``off`` = plain RTP alone, ``accept`` = encrypted lines first, ``require`` = those
                alone.
            family_of: an address of ours; among several lines (ANAT, RFC 4091) one of its family
                wins.

        Raises BadSdp or NoCommonCodec.
        """
        lines = [index for index, media in enumerate(self.media) if media.kind == "audio"]
        if not lines:
            raise BadSdp("The session description has no audio.", remedy="Offer a stream m=audio.")
        open_lines = [index for index in lines if self.media[index].port]
        if not open_lines:
            raise NoCommonCodec(
                "Every audio stream of the description is refused (port 0).",
                remedy="The far end wants no audio, or no codec that was offered.",
            )
        plain = [index for index in open_lines if self.media[index].protocol in PLAIN]
        if srtp == "off":
            usable = plain
        else:
            keyed = [index for index in open_lines if self._keyed(index)]
            usable = keyed + (plain if srtp == "accept" else [])
        if usable:
            usable.sort(key=lambda i: bool(family_of) and not self.media[i].has_family(family_of))
            return usable[0]
        raise _unusable([self.media[index] for index in open_lines], srtp)

    def _keyed(self, index: int) -> bool:
        media = self.media[index]
        return bool(media.crypto) and media.protocol in (*PLAIN, *ENCRYPTED)


def _unusable(streams: Sequence[Media], srtp: str) -> NoCommonCodec:
    first = streams[0]
    if any("TLS" in media.protocol for media in streams):
        return NoCommonCodec(
            f"The audio is {first.protocol}; keys by DTLS are not spoken here.",
            remedy="Let the other side encrypt by SDES (a=crypto), or not at all.",
        )
    if srtp == "off":
        return NoCommonCodec(
            f"The audio is {first.protocol}; only plain RTP is spoken here.",
            remedy="Turn media encryption off or to optional on the other side, or allow SRTP here "
            "(srtp).",
        )
    if any(media.protocol in ENCRYPTED for media in streams):
        return NoCommonCodec(
            f"The audio is {first.protocol} without a key (a=crypto) that can be used here.",
            remedy="Let the other side offer AES_CM_128_HMAC_SHA1_80 by SDES.",
        )
    return NoCommonCodec(
        f"The audio is {first.protocol}, and this end takes encrypted calls alone.",
        remedy="Turn SRTP with SDES keys on at the other side, or let this end take plain calls "
        "(srtp).",
    )


def parse(text: str) -> SessionDescription:
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
    hosts = _connections(session)
    direction = _direction(session)
    media = tuple(_media(section, hosts, direction) for section in sections)
    return SessionDescription(session_id, version, media)


def _origin(lines: Sequence[tuple[int, str, str]]) -> tuple[str, int]:
    for number, kind, value in lines:
        if kind == "o":
            words = value.split()
            if len(words) != 6 or not _NUMBER.fullmatch(words[2]):
                raise BadSdp(f"Line {number}: o= needs six fields with a number for its version.")
            return words[1], int(words[2])
    raise BadSdp("The description has no o= line.")


def _connections(lines: Sequence[tuple[int, str, str]]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for number, kind, value in lines:
        if kind != "c":
            continue
        try:
            found[_address(number, value)] = None
        except BadSdp:
            if not found:
                raise
        if len(found) >= MAX_ADDRESSES:
            break
    return tuple(found)


def _address(number: int, value: str) -> str:
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
    lines: Sequence[tuple[int, str, str]],
    session_hosts: tuple[str, ...],
    session: Direction | None,
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
    hosts = _connections(lines) or session_hosts
    if not hosts and int(port_text):
        raise BadSdp(f"Line {number}: the stream has no c= line, nor has the session.")
    rtp = "RTP" in protocol.upper()
    wanted, most = _packet_times(lines)
    return Media(
        kind=kind.lower(),
        host=hosts[0] if hosts else "0.0.0.0",
        port=int(port_text),
        protocol=protocol.upper(),
        payloads=_payloads(formats, lines) if rtp else (),
        formats=tuple(formats),
        direction=_direction(lines) or session or "sendrecv",
        ptime_ms=most if most and (wanted or 20) > most else wanted,
        maxptime_ms=most,
        hosts=hosts,
        others=alternatives(lines) if rtp else (),
        crypto=_cryptos(lines) if rtp else (),
        rtcp_mux=("a", "rtcp-mux") in ((kind, value) for _, kind, value in lines),
        rtcp_port=_rtcp_port(lines),
    )


def _payloads(
    formats: Sequence[str], lines: Sequence[tuple[int, str, str]]
) -> tuple[PayloadOffer, ...]:
    maps: dict[int, tuple[str, int, int]] = {}
    parameters: dict[int, str] = {}
    for _, kind, value in lines:
        if kind == "a" and value.startswith("rtpmap:"):
            match = _RTPMAP.match(value[7:].strip())
            if match:
                channels = int(match[4] or 1)
                maps.setdefault(int(match[1]), (match[2].upper(), int(match[3]), channels))
        elif kind == "a" and value.startswith("fmtp:"):
            digits, _, fmtp = value[5:].strip().partition(" ")
            if _PAYLOAD_TYPE.fullmatch(digits):
                parameters.setdefault(int(digits), fmtp.strip()[:MAX_PARAMETERS])
    payloads = []
    for text in formats:
        if not _PAYLOAD_TYPE.fullmatch(text) or int(text) > 127:
            # One format that is not a payload type spoils itself, not the others.
            continue
        number = int(text)
        name, clock, channels = maps.get(number, (_STATIC.get(number, ""), 8000, 1))
        payloads.append(PayloadOffer(number, name, clock, channels, parameters.get(number, "")))
    return tuple(payloads)


def _packet_times(lines: Sequence[tuple[int, str, str]]) -> tuple[int | None, int | None]:
    found: dict[str, int] = {}
    for _, kind, value in lines:
        name, colon, text = value.partition(":")
        whole = text.strip().partition(".")[0]
        if kind == "a" and colon and name in ("ptime", "maxptime") and _NUMBER.fullmatch(whole):
            found.setdefault(name, int(whole))
    return found.get("ptime"), found.get("maxptime") or None


def _cryptos(lines: Sequence[tuple[int, str, str]]) -> tuple[CryptoAttribute, ...]:
    values = [value[7:] for _, kind, value in lines if kind == "a" and value.startswith("crypto:")]
    found = (parse_crypto(value) for value in values[:MAX_CRYPTO])
    return tuple(line for line in found if line is not None)


def _rtcp_port(lines: Sequence[tuple[int, str, str]]) -> int | None:
    """RFC 3605; its address is ignored: media comes from one host."""
    for _, kind, value in lines:
        if kind == "a" and value.startswith("rtcp:"):
            text = value[5:].strip().partition(" ")[0]
            if _PORT.fullmatch(text) and 0 < int(text) < 65536:
                return int(text)
    return None
