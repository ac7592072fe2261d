"""Offer and answer (RFC 3264) for one audio stream (pure)."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from qwen3tts_codecs.payload import CodecSpec
from qwen3tts_codecs.table import SDP_CODECS, codecs_by_name
from qwen3tts_phone.errors import NoCommonCodec, WrongState
from qwen3tts_phone.sdp.crypto import (
    KEY_BYTES,
    SUITES,
    CryptoAttribute,
    SrtpKey,
    choose_crypto,
    confirmed_crypto,
)
from qwen3tts_phone.sdp.description import (
    ENCRYPTED,
    Direction,
    Media,
    PayloadOffer,
    SessionDescription,
    parse,
)
from qwen3tts_phone.sdp.negotiation import (
    COMFORT_NOISE_PT,
    AgreedPayload,
    LocalSide,
    Negotiated,
    answer_direction,
    event_payload_types,
    negotiate,
)
from qwen3tts_settings.constraints import check_fields, one_of

__all__ = [
    "AgreedPayload",
    "Direction",
    "ENCRYPTED",
    "Media",
    "Negotiated",
    "PayloadOffer",
    "SdpSession",
    "SessionDescription",
    "answer_direction",
    "parse",
]


@dataclass(frozen=True, slots=True)
class _Line:
    kind: str
    protocol: str
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Format:
    number: int
    rtpmap: str
    parameters: str = ""


@dataclass(frozen=True, slots=True)
class SdpOptions:
    """Options of our descriptions; raises ValueError with the field's name."""

    codecs: Sequence[str] = ("PCMU", "PCMA")
    """SDP names, in order of preference."""
    ptime_ms: int = 20
    """Packet time that we ask for, and send where the far end asks for none."""
    telephone_event: bool = True
    """True if RFC 4733 events are offered."""
    srtp: str = one_of(("off", "accept", "require"), default="off")
    """``accept``: where the far end offers a key; ``require``: SRTP alone."""
    srtp_suites: Sequence[str] = SUITES
    """Suites in order of preference."""
    comfort_noise: str = one_of(("off", "accept", "offer"), default="off")
    """``accept``: where the far end offers it."""
    rtcp_mux: str = one_of(("off", "accept"), default="accept")
    maxptime_ms: int | None = None
    opus_fmtp: str = ""
    """fmtp of Opus in place of the codec table's."""

    def __post_init__(self) -> None:
        check_fields(self)
        codecs_by_name(self.codecs)
        if set(self.srtp_suites) - set(KEY_BYTES) or not self.srtp_suites:
            known = ", ".join(KEY_BYTES)
            raise ValueError(f"srtp_suites={tuple(self.srtp_suites)!r}: known are {known}")


class SdpSession:
    """Our side of offers and answers: version, order of media lines, SRTP keys.

    ``host`` and ``port`` receive our RTP. Unusable descriptions raise BadSdp, a missing codec or
    encryption NoCommonCodec.
    """

    def __init__(self, host: str, port: int, options: SdpOptions | None = None) -> None:
        if not 0 < port < 65536:
            raise ValueError(f"port={port} is not between 1 and 65535")
        self._options = options = options or SdpOptions()
        self._codecs = codecs_by_name(options.codecs)
        self.host = host
        self.port = port
        self.peer = ""
        """Address that the far end's signalling comes from; empty = not known."""
        self.negotiated: Negotiated | None = None
        """Latest agreement."""
        self.remote: Media | None = None
        """The audio line that the far end described last."""
        self.direction: Direction = "sendrecv"
        """Direction of our last description."""
        self.direction_wanted: Direction = "sendrecv"
        """Direction that we want, whatever is agreed."""
        self._mux = False
        self._event_pts = event_payload_types(self._codecs)
        self._id = secrets.randbits(31)
        self._version = secrets.randbits(24)
        self._body = ""
        self._keys: dict[str, SrtpKey] = {}
        self._crypto: tuple[CryptoAttribute, ...] = ()
        """Our own lines, as last described."""
        if options.srtp == "require":
            self._crypto = tuple(
                CryptoAttribute(number, self._key(suite))
                for number, suite in enumerate(self._options.srtp_suites, 1)
            )
        self._lines = [_Line("audio", "RTP/SAVP" if self._crypto else "RTP/AVP", ())]
        self._audio_index = 0
        self._formats = tuple(self._format(codec) for codec in self._codecs)
        self._noise_pt: int | None = None
        """Payload type of comfort noise in our descriptions; None = not described."""
        if options.comfort_noise == "offer" and any(codec.comfort_noise for codec in self._codecs):
            self._noise_pt = COMFORT_NOISE_PT

    # --- what is said

    def offer(self, direction: Direction | None = None) -> str:
        self.direction_wanted = direction or self.direction_wanted
        return self._write(self.direction_wanted)

    @property
    def holding(self) -> Direction:
        """Direction that puts the far end on hold (RFC 3264 section 8.4)."""
        # A far end that holds us must not be offered that we still send.
        return (
            "inactive" if self.negotiated is not None and not self.negotiated.send else "sendonly"
        )

    @property
    def codecs(self) -> tuple[str, ...]:
        return tuple(codec.name for codec in self._codecs)

    def saved(self) -> SdpSession:
        return copy.copy(self)

    def restore(self, saved: SdpSession) -> None:
        self.__dict__.update(saved.__dict__)

    def accept(self, text: str | SessionDescription) -> Negotiated:
        if not self._body:
            raise WrongState("There is an answer, and no offer was made.")
        description = parse(text) if isinstance(text, str) else text
        wanted = self._options.srtp if self._crypto or self._options.srtp == "require" else "off"
        remote = description.media[description.audio_line(wanted, self.host)]
        keys: tuple[SrtpKey, SrtpKey] | None = None
        if self._crypto and remote.encrypted:
            pair = confirmed_crypto(remote.crypto, self._crypto)
            if pair is None:
                raise NoCommonCodec(
                    "The far end's answer has a key for none of the suites that we offered.",
                    remedy="Let the other side answer with the tag and suite of our offer.",
                )
            keys = (pair[0].key, pair[1].key)
        elif self._crypto and self._was_encrypted:
            raise NoCommonCodec(
                "The far end would go on without encryption.",
                remedy="Let the other side keep SRTP for the whole call.",
            )
        agreed = self._settle(remote, keys, self.direction_wanted)
        self._agreed(agreed, remote)
        return agreed

    def answer(
        self, offered: str | SessionDescription, direction: Direction | None = None
    ) -> tuple[str, Negotiated]:
        description = parse(offered) if isinstance(offered, str) else offered
        # What has begun encrypted does not go on in the clear.
        index = description.audio_line(
            "require" if self._was_encrypted else self._options.srtp, self.host
        )
        remote = description.media[index]
        crypto: CryptoAttribute | None = None
        if self._options.srtp != "off" and remote.encrypted:
            crypto = choose_crypto(remote.crypto, self._options.srtp_suites)
            if crypto is None:
                offered_suites = ", ".join(line.key.suite for line in remote.crypto)
                raise NoCommonCodec(
                    f"No common crypto suite: the far end has {offered_suites[:120]}.",
                    remedy=f"Allow {self._options.srtp_suites[0]} on the other side.",
                )
        wanted = direction or self.direction_wanted
        keys = (self._key(crypto.key.suite), crypto.key) if crypto is not None else None
        agreed = self._settle(remote, keys, wanted, answered=True)
        self.direction_wanted = wanted
        # RFC 3264 section 6: as many media lines as the offer has, in its order.
        self._lines = [_Line(m.kind, m.protocol, m.formats) for m in description.media]
        self._audio_index = index
        self._crypto = (
            (CryptoAttribute(crypto.tag, keys[0]),) if crypto is not None and keys else ()
        )
        # RFC 3264 section 6.1: the payload numbers of the offer are used.
        codec = SDP_CODECS[agreed.payload_name.upper()]
        self._formats = (self._format(codec, agreed.payload_type),)
        self._noise_pt = agreed.comfort_noise_pt
        self._mux = agreed.rtcp_mux
        described = agreed.telephone_event_pt
        if described is not None:
            self._event_pts = {agreed.telephone_event_hz: described}
        body = self._write(answer_direction(remote, wanted), events=described is not None)
        self._agreed(agreed, remote)
        return body, agreed

    # --- what is agreed

    @property
    def _was_encrypted(self) -> bool:
        return self.negotiated is not None and self.negotiated.srtp_send is not None

    def _agreed(self, agreed: Negotiated, remote: Media) -> None:
        self.negotiated, self.remote = agreed, remote

    def _settle(
        self,
        remote: Media,
        keys: tuple[SrtpKey, SrtpKey] | None,
        wanted: Direction,
        *,
        answered: bool = False,
    ) -> Negotiated:
        return negotiate(
            remote,
            LocalSide(
                codecs=self._codecs,
                host=self.host,
                peer=self.peer,
                direction=wanted,
                ptime_ms=self._options.ptime_ms,
                events=self._options.telephone_event,
                event_pts=tuple(self._event_pts.values()),
                noise=self._options.comfort_noise != "off"
                if answered
                else self._noise_pt is not None,
                rtcp_mux=self._options.rtcp_mux == "accept" if answered else self._mux,
                current=self.negotiated.payload_name if self.negotiated is not None else "",
                numbers=None if answered else {each.rtpmap: each.number for each in self._formats},
            ),
            keys,
        )

    # --- what is written

    def _key(self, suite: str) -> SrtpKey:
        if suite not in self._keys:
            self._keys[suite] = SrtpKey.new(suite)
        return self._keys[suite]

    def _format(self, codec: CodecSpec, payload_type: int | None = None) -> _Format:
        number = codec.payload_type if payload_type is None else payload_type
        parameters = codec.fmtp
        if codec.name == "opus" and self._options.opus_fmtp:
            parameters = self._options.opus_fmtp
        return _Format(number, codec.rtpmap, parameters)

    def _all_formats(self, *, events: bool) -> list[_Format]:
        formats = list(self._formats)
        if self._noise_pt is not None:
            formats.append(_Format(self._noise_pt, "CN/8000"))
        if events and self._options.telephone_event:
            formats += [
                _Format(number, f"telephone-event/{clock_hz}", "0-15")
                for clock_hz, number in self._event_pts.items()
            ]
        return formats

    def _audio(self, line: _Line, direction: Direction, *, events: bool) -> list[str]:
        formats = self._all_formats(events=events)
        numbers = " ".join(str(each.number) for each in formats)
        lines = [f"m=audio {self.port} {line.protocol} {numbers}"]
        lines += [f"a=rtpmap:{each.number} {each.rtpmap}" for each in formats]
        lines += [f"a=fmtp:{each.number} {each.parameters}" for each in formats if each.parameters]
        lines += [f"a=crypto:{line}" for line in self._crypto]
        lines.append(f"a=ptime:{self._options.ptime_ms}")
        if self._options.maxptime_ms is not None:
            lines.append(f"a=maxptime:{self._options.maxptime_ms}")
        if self._mux:
            lines.append("a=rtcp-mux")
        return [*lines, f"a={direction}"]

    def _write(self, direction: Direction, *, events: bool = True) -> str:
        self.direction = direction
        lines = ["s=-", f"c=IN {_family(self.host)} {self.host}", "t=0 0"]
        for index, line in enumerate(self._lines):
            if index == self._audio_index:
                lines += self._audio(line, direction, events=events)
            else:
                lines.append(f"m={line.kind} 0 {line.protocol} {' '.join(line.formats) or '0'}")
        body = "".join(f"{line}\r\n" for line in lines)
        if body != self._body:
            # RFC 3264 section 8: the version rises by one with each change, and with changes only.
            self._version += 1
            self._body = body
        origin = f"o=- {self._id} {self._version} IN {_family(self.host)} {self.host}"
        return f"v=0\r\n{origin}\r\n{body}"


def _family(host: str) -> str:
    return "IP6" if ":" in host else "IP4"
