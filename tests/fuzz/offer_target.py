"""A browser's offer of sound: any text gives an offer or the typed error, in bounded time."""

from __future__ import annotations

from qwen3tts_phone.errors import BadSdp, NoCommonCodec
from qwen3tts_phone.softphone.webrtc.offer import MAX_FORMATS, CodecChoice, read_offer
from tests.fuzz.target import Target

OFFER = (
    "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
    "m=audio 9 UDP/TLS/RTP/SAVPF 111 0 8\r\nc=IN IP4 0.0.0.0\r\n"
    "a=ice-ufrag:x\r\na=ice-pwd:y\r\na=fingerprint:sha-256 AB\r\na=rtcp-mux\r\na=sendrecv\r\n"
    "a=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10;useinbandfec=1\r\n"
)


CHOICES: tuple[CodecChoice, ...] = ("auto", "opus", "PCMU", "PCMA")


def read(data: bytes) -> None:
    try:
        offer = read_offer(data.decode("utf-8", "replace"))
    except BadSdp:
        return
    assert len(offer.codecs) <= MAX_FORMATS
    for choice in CHOICES:
        try:
            codec = offer.chosen(choice)
        except NoCommonCodec:
            continue
        payload = codec.payload()
        assert payload.payload_type == codec.payload_type
        payload.silent_frame(20)


TARGETS = {
    "softphone_offer": Target(
        read,
        "A browser's offer is read, or refused with what is wrong with it.",
        (OFFER.encode(),),
        (b"a=rtpmap:", b"a=fmtp:", b"m=audio ", b"UDP/TLS/RTP/SAVPF", b"opus/48000/2", b"\r\n"),
        most_bytes=70_000,
    ),
}
HARD: dict[str, tuple[bytes, ...]] = {
    "softphone_offer": (
        OFFER.replace("opus/48000/2", "opus/48000/2/2/2").encode(),
        OFFER.replace("111 0 8", "111 0 8 " + "9" * 400).encode(),
        OFFER.replace("111 0 8", "\u0661\u0661\u0661 0").encode(),
        OFFER.replace("a=rtpmap:111", "a=rtpmap:0").encode(),
        OFFER.replace("minptime=10;useinbandfec=1", "maxaveragebitrate=" + "9" * 3000).encode(),
        OFFER.replace("minptime=10", "maxplaybackrate=0;cbr=1;=;;=" * 50).encode(),
        OFFER.replace("a=sendrecv", "a=sendonly").encode(),
        OFFER.replace("m=audio", "m=audio 1 2 3 4\r\nm=video").encode(),
        OFFER.replace("\r\n", "\n\n").encode(),
        b"v=0\r\n" + b"a=x\r\n" * 1500,
        b"v=0\nm=audio 0/0 UDP/TLS/RTP/SAVPF " + b"0 " * 100,
        b"v=0\n\xff\xfe",
        b"",
    ),
}
