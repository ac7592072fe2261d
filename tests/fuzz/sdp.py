"""Session descriptions: G.711, every codec with SRTP, and a browser's offer."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from qwen3tts_phone.errors import BadSdp, NoCommonCodec
from qwen3tts_phone.media.types import RemoteMedia
from qwen3tts_phone.sdp import session as sdp
from qwen3tts_phone.sdp.crypto import SUITES, SrtpKey
from qwen3tts_phone.sdp.session import Media, SdpOptions, SdpSession
from qwen3tts_phone.softphone.webrtc.offer import MAX_FORMATS, CodecChoice, read_offer
from tests.fuzz.sip_messages import DESCRIPTIONS, OFFER, SDP_WORDS
from tests.fuzz.target import Target

HOST_NAME = re.compile(r"[A-Za-z0-9.-]+")


def run_sdp(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        described = sdp.parse(text)
    except BadSdp:
        return
    for media in described.media:
        _usable(media)
    session = SdpSession("192.0.2.1", 4000)
    try:
        answer, agreed = session.answer(text)
    except (BadSdp, NoCommonCodec):
        return
    # What is agreed must be what the media process takes, of an address that it can send to.
    RemoteMedia(
        agreed.host if _is_ipv4(agreed.host) else "192.0.2.9",
        agreed.port,
        agreed.payload_type,
        agreed.payload_name,
        agreed.ptime_ms,
        agreed.telephone_event_pt,
    )
    assert len(answer) <= len(text) + 1000
    ours = sdp.parse(answer)
    assert [media.kind for media in ours.media] == [media.kind for media in described.media]
    assert ours.audio.port == 4000
    assert session.answer(text)[0] == answer
    caller = SdpSession("192.0.2.1", 4000)
    caller.offer()
    caller.accept(text)
    sdp.parse(session.offer(session.holding))


def _usable(media: Media) -> None:
    assert 0 <= media.port <= 65535
    try:
        ipaddress.ip_address(media.host)
    except ValueError:
        assert HOST_NAME.fullmatch(media.host), ascii(media.host)
    assert "%" not in media.host
    assert media.host.isascii()
    assert media.host.isprintable()
    assert len(media.host) <= 255
    assert all(0 <= payload.payload_type <= 127 for payload in media.payloads)


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


KEY = SrtpKey(SUITES[0], "A" * 40)

CRYPTO = f"a=crypto:1 {KEY.suite} inline:{KEY.key}"

RICH = (
    "v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\n"
    "m=audio 40000 RTP/SAVP 107 9 0 13 97 96\r\na=rtpmap:107 opus/48000/2\r\n"
    "a=fmtp:107 useinbandfec=1;maxaveragebitrate=20000\r\na=rtpmap:97 telephone-event/48000\r\n"
    "a=rtpmap:96 telephone-event/8000\r\na=rtpmap:13 CN/8000\r\na=rtcp:40009\r\na=rtcp-mux\r\n"
    f"{CRYPTO}|2^31\r\na=maxptime:60\r\nc=IN IP6 2001:db8::9\r\n"
)

PLAIN = RICH.replace("SAVP", "AVP").replace(CRYPTO, "a=x")

SETTINGS: tuple[dict[str, Any], ...] = (
    {"srtp": "accept", "comfort_noise": "accept"},
    {"srtp": "require", "comfort_noise": "offer", "ptime_ms": 30},
    {"srtp": "off", "rtcp_mux": "off"},
)


def run_description(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for settings in SETTINGS:
        session = SdpSession(
            "192.0.2.1", 4000, SdpOptions(codecs=("opus", "G722", "PCMU", "PCMA"), **settings)
        )
        try:
            answer, agreed = session.answer(text)
        except (BadSdp, NoCommonCodec):
            _answered(text, settings)
            continue
        assert (agreed.srtp_send is None) is (agreed.srtp_receive is None)
        if settings["srtp"] == "require":
            assert agreed.srtp_send is not None
        if settings["srtp"] == "off":
            assert agreed.srtp_send is None
        RemoteMedia(
            host=agreed.host,
            port=agreed.port,
            payload_type=agreed.payload_type,
            payload_name=agreed.payload_name,
            ptime_ms=agreed.ptime_ms,
            telephone_event_pt=agreed.telephone_event_pt,
            telephone_event_in=agreed.telephone_event_in,
            rtcp_port=agreed.rtcp_port,
            also_receive=tuple((each.payload_type, each.clock_hz) for each in agreed.also_receive),
            clock_hz=agreed.clock_hz,
            silence="00",
            telephone_event_hz=agreed.telephone_event_hz,
            comfort_noise_pt=agreed.comfort_noise_pt,
            srtp_send=agreed.srtp_send,
            srtp_receive=agreed.srtp_receive,
        )
        ours = sdp.parse(answer)
        line = ours.media[ours.audio_line(settings["srtp"] if agreed.srtp_send else "off")]
        assert line.port == 4000
        if agreed.srtp_send is not None:
            assert [each.key for each in line.crypto] == [agreed.srtp_send]
            assert agreed.srtp_receive is not None
            assert agreed.srtp_receive.key not in repr(agreed)
        assert session.answer(text)[0] == answer
        before = session.offer()
        saved = session.saved()
        session.offer(session.holding)
        session.restore(saved)
        assert session.offer() == before
        _answered(text, settings)


def _answered(text: str, settings: dict[str, Any]) -> None:
    """The same text as an answer to an offer of ours."""
    caller = SdpSession("192.0.2.1", 4000, SdpOptions(**settings))
    caller.offer()
    try:
        agreed = caller.accept(text)
    except (BadSdp, NoCommonCodec):
        return
    if settings["srtp"] == "require":
        assert agreed.srtp_send is not None


BROWSER_OFFER = (
    "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
    "m=audio 9 UDP/TLS/RTP/SAVPF 111 0 8\r\nc=IN IP4 0.0.0.0\r\n"
    "a=ice-ufrag:x\r\na=ice-pwd:y\r\na=fingerprint:sha-256 AB\r\na=rtcp-mux\r\na=sendrecv\r\n"
    "a=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10;useinbandfec=1\r\n"
)

CODEC_CHOICES: tuple[CodecChoice, ...] = ("auto", "opus", "PCMU", "PCMA")


def run_browser_offer(data: bytes) -> None:
    try:
        offer = read_offer(data.decode("utf-8", "replace"))
    except BadSdp:
        return
    assert len(offer.codecs) <= MAX_FORMATS
    for choice in CODEC_CHOICES:
        try:
            codec = offer.chosen(choice)
        except NoCommonCodec:
            continue
        payload = codec.payload()
        assert payload.payload_type == codec.payload_type
        payload.silent_frame(20)


DESCRIPTION = OFFER.encode()

TARGETS = {
    "sdp": Target(
        run_sdp,
        "A description is BadSdp or NoCommonCodec, or has a short answer that fits it line by line"
        " and media that can be sent to.",
        DESCRIPTIONS,
        SDP_WORDS,
        max_bytes=3000,
        hard=(
            b"v=0",
            b"v=0\r\no=- 1 99999999999999999999 IN IP4 x",
            DESCRIPTION.replace(b"40000", b"65536"),
            DESCRIPTION.replace(b"40000", b"0" * 5000),
            DESCRIPTION.replace(b"40000", b"00000000099999"),
            DESCRIPTION.replace(b"IP4 192.0.2.9", b"IP6 fe80::1%\x00x"),
            DESCRIPTION.replace(b"40000", "\u0664\u0660".encode()),
            DESCRIPTION.replace(b"40000", b"-1"),
            DESCRIPTION.replace(b"192.0.2.9\r\nt", b"255.255.255.255\r\nt"),
            DESCRIPTION.replace(b"192.0.2.9\r\nt", b"224.0.0.1/127/3\r\nt"),
            DESCRIPTION.replace(b"RTP/AVP 0", b"RTP/AVP 999 -1 x 0"),
            DESCRIPTION.replace(b"rtpmap:101", b"rtpmap:0"),
            DESCRIPTION.replace(b"ptime:20", b"ptime:99999999999999999999"),
            DESCRIPTION.replace(b"ptime:20", b"maxptime:0"),
            DESCRIPTION.replace(b"m=audio", b"m=\xff\x00"),
            DESCRIPTION + b"m=audio 0 RTP/AVP 0\r\n" * 15,
            DESCRIPTION + b"a=x\r\n" * 400,
        ),
    ),
    "description": Target(
        run_description,
        "A description is BadSdp or NoCommonCodec, or comes to something that the media process"
        " takes, encrypted where it must be, and the same each time.",
        (*DESCRIPTIONS, RICH.encode(), PLAIN.encode()),
        (
            *SDP_WORDS,
            b"a=crypto:1 ",
            SUITES[0].encode(),
            b" inline:",
            b"|2^31|1:4",
            b" UNENCRYPTED_SRTP",
            b"UDP/TLS/",
            b"opus/48000/2",
            b"telephone-event/48000",
            b"CN/8000",
            b"a=rtcp:",
            b"a=rtcp-mux",
        ),
        max_bytes=3000,
        hard=(
            RICH.replace("|2^31", "|2^31|1:4").encode(),
            RICH.replace("inline:A", "inline:?").encode(),
            RICH.replace("crypto:1", "crypto:" + "9" * 30).encode(),
            RICH.replace("107 9 0 13 97 96", "13 97 96").encode(),
            RICH.replace("a=rtcp:40009", "a=rtcp:99999").encode(),
            RICH.replace("a=maxptime:60", "a=maxptime:1\r\na=ptime:0").encode(),
            RICH.replace("a=rtpmap:13 CN/8000", "a=rtpmap:13 PCMU/8000").encode(),
            RICH.replace("RTP/SAVP", "UDP/TLS/RTP/SAVPF").encode(),
            (RICH + RICH.partition("t=0 0\r\n")[2].replace("SAVP", "AVP")).encode(),
            RICH.replace("a=rtpmap:96", "a=rtpmap:107").encode(),
            (RICH + f"{CRYPTO}\r\n" * 200).encode(),
        ),
    ),
    "softphone_offer": Target(
        run_browser_offer,
        "A browser's offer is read, or refused with the reason.",
        (BROWSER_OFFER.encode(),),
        (b"a=rtpmap:", b"a=fmtp:", b"m=audio ", b"UDP/TLS/RTP/SAVPF", b"opus/48000/2", b"\r\n"),
        max_bytes=70_000,
        hard=(
            BROWSER_OFFER.replace("opus/48000/2", "opus/48000/2/2/2").encode(),
            BROWSER_OFFER.replace("111 0 8", "111 0 8 " + "9" * 400).encode(),
            BROWSER_OFFER.replace("111 0 8", "\u0661\u0661\u0661 0").encode(),
            BROWSER_OFFER.replace("a=rtpmap:111", "a=rtpmap:0").encode(),
            BROWSER_OFFER.replace(
                "minptime=10;useinbandfec=1", "maxaveragebitrate=" + "9" * 3000
            ).encode(),
            BROWSER_OFFER.replace("minptime=10", "maxplaybackrate=0;cbr=1;=;;=" * 50).encode(),
            BROWSER_OFFER.replace("a=sendrecv", "a=sendonly").encode(),
            BROWSER_OFFER.replace("m=audio", "m=audio 1 2 3 4\r\nm=video").encode(),
            BROWSER_OFFER.replace("\r\n", "\n\n").encode(),
            b"v=0\r\n" + b"a=x\r\n" * 1500,
            b"v=0\nm=audio 0/0 UDP/TLS/RTP/SAVPF " + b"0 " * 100,
            b"v=0\n\xff\xfe",
            b"",
        ),
    ),
}
