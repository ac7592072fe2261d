"""Check of a browser's SDP offer before aiortc (pure; RFC 8866, 8829)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.table import BROWSER_CODECS, CODECS, SDP_CODECS, agreed_payload
from qwen3tts_phone.errors import BadSdp, NoCommonCodec

CodecChoice: TypeAlias = str
"""``auto`` = the best that both ends have, or one of `BROWSER_CODECS`."""
PROFILE = "UDP/TLS/RTP/SAVPF"
STATIC = {
    spec.payload_type: (spec.name, spec.clock_hz) for spec in SDP_CODECS.values() if spec.static
}
MAX_CHARS = 65_536
MAX_LINES = 2000
MAX_FORMATS = 64
MAX_CANDIDATES = 100
"""Limit, as packets are sent to each one."""
RELOAD = "Reload the page, and use a current browser."

_LINE = re.compile(r"([a-z])=(.*)", re.DOTALL)
_MEDIA = re.compile(r"(\w+) (\d{1,5})(?:/\d+)? (\S+) (.+)", re.DOTALL)
_RTPMAP = re.compile(r"(\d{1,3}) ([^/\s]+)/(\d{1,6})(?:/\d+)?", re.DOTALL)
_FMTP = re.compile(r"(\d{1,3}) (.*)", re.DOTALL)
_CANDIDATE = re.compile(r"\S+ \d{1,5} \S+ \d{1,10} (\S+) (\d{1,5}) typ \S+(?: .*)?", re.DOTALL)
"""RFC 8839 section 5.1."""


@dataclass(frozen=True, slots=True)
class OfferedCodec:
    name: str
    payload_type: int
    parameters: str = ""

    def payload(self) -> Payload:
        return agreed_payload(self.name, self.payload_type, self.parameters)


@dataclass(frozen=True, slots=True)
class Offer:
    sdp: str = field(repr=False)
    """Unchanged; holds addresses and the ICE password."""
    codecs: tuple[OfferedCodec, ...]
    all_codecs: tuple[str, ...]
    sends: bool
    hidden: bool = False
    """True if the browser hides its addresses (no candidates, or mDNS names), as without a
    microphone (draft-ietf-mmusic-mdns-ice-candidates)."""

    def chosen(self, choice: CodecChoice) -> OfferedCodec:
        accepted: Sequence[str] = BROWSER_CODECS if choice == "auto" else (choice,)
        for name in accepted:
            for codec in self.codecs:
                if codec.name == name:
                    return codec
        has = ", ".join(self.all_codecs) or "no known codec"
        raise NoCommonCodec(
            f"The browser does not offer {' or '.join(accepted)}; it has {has}.",
            remedy="Choose the codec auto, or another browser: all current ones have Opus and PCMU."
            if choice != "auto"
            else "Use a current browser: all have Opus and PCMU.",
        )


def read_offer(sdp: str) -> Offer:
    if len(sdp) > MAX_CHARS:
        raise _bad(f"is longer than {MAX_CHARS} characters")
    lines = [line for line in sdp.replace("\r\n", "\n").split("\n") if line]
    if len(lines) > MAX_LINES:
        raise _bad(f"has more than {MAX_LINES} lines")
    if not lines or lines[0] != "v=0":
        raise _bad("does not begin with v=0")
    fields: list[tuple[str, str]] = []
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            raise _bad("has an invalid line")
        fields.append((found[1], found[2]))
    places = [at for at, (kind, _) in enumerate(fields) if kind == "m"]
    if len(places) != 1:
        raise _bad(f"has {len(places)} lines of media; one of sound is wanted, and nothing else")
    at = places[0]
    media = _MEDIA.fullmatch(fields[at][1])
    if media is None:
        raise _bad("has a media line that cannot be read")
    if media[1] != "audio":
        raise _bad("offers no sound")
    if media[3] != PROFILE:
        raise _bad(f"does not offer {PROFILE}, which WebRTC is made of")
    session, section = _attributes(fields[:at]), _attributes(fields[at + 1 :])
    hidden = _check_transport(session, section)
    return Offer(sdp, *_codecs(media[4].split(), section), _sends(session, section), hidden)


Attributes = dict[str, list[str]]


def _attributes(fields: Sequence[tuple[str, str]]) -> Attributes:
    found: Attributes = {}
    for kind, value in fields:
        if kind == "a":
            name, _, rest = value.partition(":")
            found.setdefault(name, []).append(rest)
    return found


def _check_transport(session: Attributes, section: Attributes) -> bool:
    for name, what in (
        ("ice-ufrag", "user fragment of ICE"),
        ("ice-pwd", "password of ICE"),
        ("fingerprint", "fingerprint of a certificate"),
    ):
        if not any(section.get(name) or session.get(name) or ()):
            raise _bad(f"has no {what}")
    if "rtcp-mux" not in section:
        raise _bad("wants a port of its own for RTCP")
    if len(section.get("candidate", ())) > MAX_CANDIDATES:
        raise _bad(f"has more than {MAX_CANDIDATES} addresses")
    return _hides([_host(value) for value in section.get("candidate", ())])


def _host(candidate: str) -> str:
    found = _CANDIDATE.fullmatch(candidate)
    if found is None or int(found[2]) > 65_535:
        raise _bad("has an address that cannot be read")
    return found[1]


def _hides(hosts: Sequence[str]) -> bool:
    try:
        for host in hosts:
            ipaddress.ip_address(host)
    except ValueError:
        return True
    return not hosts


def _codecs(
    formats: Sequence[str], section: Attributes
) -> tuple[tuple[OfferedCodec, ...], tuple[str, ...]]:
    if len(formats) > MAX_FORMATS:
        raise _bad(f"has more than {MAX_FORMATS} formats")
    known = dict(STATIC)
    for value in section.get("rtpmap", ()):
        found = _RTPMAP.fullmatch(value)
        if found is not None:
            known[int(found[1])] = (found[2], int(found[3]))
    parameters = {
        int(found[1]): found[2]
        for value in section.get("fmtp", ())
        if (found := _FMTP.fullmatch(value)) is not None
    }
    ours: list[OfferedCodec] = []
    names: list[str] = []
    for text in formats:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1
        if number not in known or number > 127:
            continue
        name, clock_hz = known[number]
        if name not in names:
            names.append(name[:40])
        spec = CODECS.get(name.upper())
        if spec is None or not spec.in_browsers or spec.clock_hz != clock_hz:
            continue
        # RFC 3551 section 3: what is not static has a dynamic type.
        if not spec.static and number < 96:
            continue
        ours.append(OfferedCodec(spec.name, number, parameters.get(number, "")))
    return tuple(ours), tuple(names)


def _sends(session: Attributes, section: Attributes) -> bool:
    for attributes in (section, session):
        for name in ("sendrecv", "recvonly", "sendonly", "inactive"):
            if name in attributes:
                if name in ("sendonly", "inactive"):
                    raise _bad("does not want to hear anything")
                return name == "sendrecv"
    return True  # RFC 8866 section 6.7: the default


def _bad(what: str) -> BadSdp:
    return BadSdp(f"The browser's offer {what}.", remedy=RELOAD)
