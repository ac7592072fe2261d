"""Fuzz target: session descriptions to a phone with every codec, SRTP and comfort noise."""

from __future__ import annotations

from typing import Any

from qwen3tts_phone.errors import BadSdp, NoCommonCodec
from qwen3tts_phone.media.types import RemoteMedia
from qwen3tts_phone.sdp import session as sdp
from qwen3tts_phone.sdp.crypto import SUITES, SrtpKey
from qwen3tts_phone.sdp.session import SdpOptions, SdpSession
from tests.fuzz import sip_examples as examples
from tests.fuzz.target import Target

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
            "192.0.2.1",
            4000,
            SdpOptions(codecs=("opus", "G722", "PCMU", "PCMA"), **settings),
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


TARGETS = {
    "description": Target(
        run_description,
        "A description is BadSdp or NoCommonCodec, or comes to something that the media process"
        " takes, encrypted where it must be, and the same each time.",
        (*examples.DESCRIPTIONS, RICH.encode(), PLAIN.encode()),
        (
            *examples.SDP_WORDS,
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
        most_bytes=3000,
    )
}
HARD: dict[str, tuple[bytes, ...]] = {
    "description": (
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
}
