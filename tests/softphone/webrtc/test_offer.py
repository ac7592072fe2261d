from __future__ import annotations

import pytest

from qwen3tts_phone.errors import BadSdp, NoCommonCodec
from qwen3tts_phone.softphone.webrtc.offer import MAX_CANDIDATES, MAX_CHARS, read_offer
from tests.softphone.webrtc.calls import OFFER


def without(*names: str) -> str:
    return "\r\n".join(line for line in OFFER.split("\r\n") if not line.startswith(names))


def test_a_browsers_offer_is_read() -> None:
    offer = read_offer(OFFER)
    assert [(codec.name, codec.payload_type) for codec in offer.codecs] == [
        ("opus", 111),
        ("PCMU", 0),
        ("PCMA", 8),
    ]
    assert offer.sends
    assert "P2uYro0" not in repr(offer)


def test_auto_takes_opus_as_the_browser_wants_it() -> None:
    codec = read_offer(OFFER).chosen("auto")
    payload = codec.payload()
    assert (payload.name, payload.payload_type, payload.clock_hz) == ("opus", 111, 48_000)
    assert codec.parameters == "minptime=10;useinbandfec=1"


def test_pcmu_can_be_asked_for() -> None:
    assert read_offer(OFFER).chosen("PCMU").payload().name == "PCMU"


def test_auto_goes_on_to_the_next_best() -> None:
    offer = read_offer(without("a=rtpmap:111"))
    assert offer.chosen("auto").name == "PCMU"


def test_a_static_type_needs_no_rtpmap() -> None:
    assert read_offer(without("a=rtpmap:0")).chosen("PCMU").payload_type == 0


def test_a_codec_that_is_not_offered_is_named_with_those_that_are() -> None:
    offer = read_offer(without("a=rtpmap:111"))
    with pytest.raises(NoCommonCodec, match="does not offer opus; it has red, G722, PCMU") as told:
        offer.chosen("opus")
    assert "auto" in told.value.remedy


def test_a_name_at_another_clock_is_another_codec() -> None:
    offer = read_offer(OFFER.replace("PCMU/8000", "PCMU/16000").replace("opus/48000", "opus/8000"))
    assert [codec.name for codec in offer.codecs] == ["PCMA"]


def test_a_browser_without_a_microphone_only_listens() -> None:
    assert not read_offer(OFFER.replace("a=sendrecv", "a=recvonly")).sends
    assert read_offer(without("a=sendrecv")).sends


@pytest.mark.parametrize(
    ("sdp", "hidden"),
    [
        (OFFER, False),
        (OFFER.replace("192.0.2.9 54321 typ", "2001:db8::9 54321 typ"), False),
        (OFFER.replace("192.0.2.9 54321 typ", "6f1c0a52-1111.local 54321 typ"), True),
        (without("a=candidate"), True),
    ],
)
def test_whether_a_browser_hides_its_addresses_is_known(sdp: str, hidden: bool) -> None:
    assert read_offer(sdp).hidden == hidden


@pytest.mark.parametrize(
    ("sdp", "said"),
    [
        ("", "does not begin with v=0"),
        ("hello", "does not begin with v=0"),
        ("v=0\r\n", "has 0 lines of media"),
        (OFFER + "m=video 9 UDP/TLS/RTP/SAVPF 96\r\n", "has 2 lines of media"),
        (OFFER.replace("m=audio", "m=video"), "offers no sound"),
        (OFFER.replace("UDP/TLS/RTP/SAVPF", "RTP/AVP"), "does not offer UDP/TLS/RTP/SAVPF"),
        (OFFER.replace("m=audio 54321", "m=audio x"), "has a media line that cannot be read"),
        (OFFER + "a line\r\n", "has an invalid line"),
        (without("a=ice-ufrag"), "has no user fragment of ICE"),
        (without("a=ice-pwd"), "has no password of ICE"),
        (without("a=fingerprint"), "has no fingerprint"),
        (without("a=rtcp-mux"), "wants a port of its own for RTCP"),
        (OFFER.replace("a=sendrecv", "a=sendonly"), "does not want to hear anything"),
        (OFFER.replace("a=sendrecv", "a=inactive"), "does not want to hear anything"),
        (OFFER + "a=candidate:x\r\n" * MAX_CANDIDATES, "addresses"),
        (OFFER + "a=candidate:1\r\n", "has an address that cannot be read"),
        (OFFER.replace("192.0.2.9 54321 typ", "192.0.2.9 70000 typ"), "an address that cannot be"),
        (OFFER + "a=x\r\n" * 2000, "more than 2000 lines"),
        (OFFER + " " * MAX_CHARS, f"longer than {MAX_CHARS}"),
        (OFFER.replace("111 63", "111 " * 80 + "63"), "more than 64 formats"),
    ],
)
def test_what_is_no_offer_is_refused_and_said(sdp: str, said: str) -> None:
    with pytest.raises(BadSdp, match=said) as told:
        read_offer(sdp)
    assert told.value.remedy
