"""Offers with addresses of two families: what both ends have is taken (Linphone, ANAT, altc)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.call.media import sendable
from qwen3tts_phone.call.setup import media_host
from qwen3tts_phone.errors import BadSdp, NoCommonFamily
from qwen3tts_phone.sdp.addresses import alternatives
from qwen3tts_phone.sdp.session import SdpSession, parse

LINPHONE = (
    "v=0\r\no=alice 2391 3310 IN IP6 2001:db8::5\r\ns=Talk\r\nc=IN IP6 2001:db8::5\r\nt=0 0\r\n"
    "a=ice-pwd:1a2b3c4d5e6f7a8b9c0d1e2f\r\na=ice-ufrag:9a8b7c6d\r\n"
    "a=rtcp-xr:rcvr-rtt=all:10000 stat-summary=loss,dup,jitt,TTL voip-metrics\r\na=record:off\r\n"
    "m=audio 7078 RTP/AVPF 96 97 98 0 8 18 101 99 100\r\n"
    "a=rtpmap:96 opus/48000/2\r\na=fmtp:96 useinbandfec=1\r\na=rtpmap:97 speex/16000\r\n"
    "a=rtpmap:98 speex/8000\r\na=fmtp:18 annexb=yes\r\na=rtpmap:101 telephone-event/48000\r\n"
    "a=rtpmap:99 telephone-event/16000\r\na=rtpmap:100 telephone-event/8000\r\n"
    "{candidates}a=rtcp-fb:* trr-int 5000\r\na=rtcp-fb:* ccm tmmbr\r\n"
    "m=video 9078 RTP/AVPF 96\r\na=rtpmap:96 VP8/90000\r\n"
)
CANDIDATES = (
    "a=candidate:1 1 UDP 2130706431 2001:db8::5 7078 typ host\r\n"
    "a=candidate:1 2 UDP 2130706430 2001:db8::5 7079 typ host\r\n"
    "a=candidate:2 2 UDP 2130706174 192.0.2.7 7081 typ host\r\n"
    "a=candidate:2 1 UDP 2130706175 192.0.2.7 7080 typ host\r\n"
    "a=candidate:3 1 UDP 1694498815 198.51.100.9 40010 typ srflx raddr 192.0.2.7 rport 7080\r\n"
    "a=candidate:4 1 TCP 2105458943 192.0.2.7 9 typ host tcptype active\r\n"
    "a=candidate:5 1 UDP 2122252543 4f1c-8.local 51000 typ host\r\n"
)


def answer(offer: str, host: str = "192.0.2.2", peer: str = "") -> tuple[str, str, int]:
    session = SdpSession(host, 40000, codecs=("PCMU", "PCMA"))
    session.peer = peer
    body, agreed = session.answer(offer)
    return body, agreed.host, agreed.port


def test_of_linphones_default_offer_the_ipv4_candidate_is_taken() -> None:
    body, host, port = answer(LINPHONE.format(candidates=CANDIDATES))
    assert (host, port) == ("192.0.2.7", 7080)
    assert "c=IN IP4 192.0.2.2\r\n" in body
    assert "m=audio 40000 RTP/AVPF 0" in body
    assert "m=video 0 RTP/AVPF" in body


def test_the_candidate_that_signalling_comes_from_is_taken_first() -> None:
    _, host, port = answer(LINPHONE.format(candidates=CANDIDATES), peer="198.51.100.9")
    assert (host, port) == ("198.51.100.9", 40010)


def test_over_ipv6_its_own_address_is_taken() -> None:
    body, host, port = answer(LINPHONE.format(candidates=CANDIDATES), "2001:db8::2")
    assert (host, port) == ("2001:db8::5", 7078)
    assert "c=IN IP6 2001:db8::2\r\n" in body


def test_rtcp_of_another_address_is_not_sent_to_the_candidates() -> None:
    offer = LINPHONE.format(candidates=f"a=rtcp:7099\r\n{CANDIDATES}")
    _, agreed = SdpSession("192.0.2.2", 40000).answer(offer)
    assert agreed.rtcp_port is None
    _, agreed = SdpSession("2001:db8::2", 40000).answer(offer)
    assert agreed.rtcp_port == 7099


def test_of_lines_for_each_family_that_of_ours_is_taken() -> None:
    """RFC 4091: a=group:ANAT; the other line is refused."""
    offer = (
        "v=0\r\no=- 1 1 IN IP4 192.0.2.7\r\ns=-\r\nt=0 0\r\na=group:ANAT 1 2\r\n"
        "m=audio 7078 RTP/AVP 0\r\nc=IN IP6 2001:db8::5\r\na=mid:1\r\n"
        "m=audio 7080 RTP/AVP 0\r\nc=IN IP4 192.0.2.7\r\na=mid:2\r\n"
    )
    body, host, port = answer(offer)
    assert (host, port) == ("192.0.2.7", 7080)
    assert body.index("m=audio 0 RTP/AVP") < body.index("m=audio 40000 RTP/AVP")
    _, host, port = answer(offer, "2001:db8::2")
    assert (host, port) == ("2001:db8::5", 7078)


def test_an_alternative_connectivity_address_is_taken() -> None:
    """RFC 6947."""
    offer = (
        "v=0\r\no=- 1 1 IN IP6 2001:db8::5\r\ns=-\r\nc=IN IP6 2001:db8::5\r\nt=0 0\r\n"
        "m=audio 7078 RTP/AVP 0\r\na=altc:1 IP6 2001:db8::5 7078\r\na=altc:2 IP4 192.0.2.7 7090\r\n"
    )
    assert answer(offer)[1:] == ("192.0.2.7", 7090)


def test_two_c_lines_of_one_stream_are_both_known() -> None:
    offer = (
        "v=0\r\no=- 1 1 IN IP6 2001:db8::5\r\ns=-\r\nt=0 0\r\nm=audio 7078 RTP/AVP 0\r\n"
        "c=IN IP6 2001:db8::5\r\nc=IN IP4 192.0.2.7\r\n"
    )
    assert answer(offer)[1:] == ("192.0.2.7", 7078)


def test_without_an_address_of_our_family_it_cannot_be_sent_to() -> None:
    _, host, _ = answer(LINPHONE.format(candidates=""))
    with pytest.raises(NoCommonFamily, match="not an IPv4 address"):
        sendable(host, "192.0.2.2")


@pytest.mark.parametrize(
    ("c_line", "local", "expected"),
    [
        ("IP4 127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("IP6 ::1", "127.0.0.1", "::1"),
        ("IP4 127.0.0.1", "::1", "127.0.0.1"),
        # A phone on the loopback address opens nothing that others reach.
        ("IP6 2001:db8::5", "127.0.0.1", "127.0.0.1"),
        ("IP6 ::", "127.0.0.1", "127.0.0.1"),
        ("IP4 0.0.0.0", "::1", "::1"),
    ],
)
def test_media_gets_an_address_of_the_offers_family(c_line: str, local: str, expected: str) -> None:
    offer = f"v=0\r\no=- 1 1 IN {c_line}\r\ns=-\r\nc=IN {c_line}\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0"
    assert media_host(offer, local, "accept") == expected


@pytest.mark.parametrize("offer", [None, "nonsense", "v=0\r\no=- 1 1 IN IP4 1.2.3.4\r\ns=-\r\n"])
def test_an_offer_that_cannot_be_read_changes_nothing(offer: str | None) -> None:
    assert media_host(offer, "192.0.2.2", "accept") == "192.0.2.2"


@given(st.lists(st.text(max_size=80), max_size=8))
def test_any_line_is_taken_or_passed_by(values: list[str]) -> None:
    lines = [(1, "a", f"candidate:{value}") for value in values]
    lines += [(2, "a", f"altc:{value}") for value in values]
    for host, port in alternatives(lines):
        assert 0 < port < 65536
        assert host


def test_the_lines_are_bounded() -> None:
    lines = [(1, "a", f"candidate:1 1 UDP 1 192.0.2.1 {n} typ host") for n in range(1, 5000)]
    assert len(alternatives(lines)) <= 64
    with pytest.raises(BadSdp):
        parse("v=0\r\n" + "a=candidate:x\r\n" * 5000)
