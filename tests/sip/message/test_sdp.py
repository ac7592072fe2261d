"""Offers with addresses of two families: what both ends have is taken (Linphone, ANAT, altc)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.call.media import checked_media_host
from qwen3tts_phone.call.setup import media_host
from qwen3tts_phone.errors import BadSdp, CallError, NoCommonCodec, NoCommonFamily, WrongState
from qwen3tts_phone.sdp.addresses import alternatives
from qwen3tts_phone.sdp.session import Direction, SdpOptions, SdpSession, parse

PHONE = (
    "v=0\r\no=phone 12 7 IN IP4 10.0.0.9\r\ns=call\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\n"
    "m=audio 4000 RTP/AVP 9 8 0 96\r\na=rtpmap:96 telephone-event/8000\r\na=fmtp:96 0-16\r\n"
    "a=ptime:30\r\n"
)


def ours() -> SdpSession:
    return SdpSession("10.0.0.1", 6000)


def version(text: str) -> int:
    return parse(text).version


def test_an_offer_has_both_laws_and_telephone_events() -> None:
    audio = parse(ours().offer()).audio
    assert [(p.payload_type, p.name) for p in audio.payloads] == [
        *((0, "PCMU"), (8, "PCMA"), (101, "TELEPHONE-EVENT")),
    ]
    assert (audio.host, audio.port, audio.ptime_ms) == ("10.0.0.1", 6000, 20)
    assert (audio.direction, audio.telephone_event_pt) == ("sendrecv", 101)


def test_an_offer_of_ours_is_answered_by_ourselves() -> None:
    caller, callee = ours(), SdpSession("10.0.0.2", 7000, SdpOptions(codecs=("PCMA",)))
    text, theirs = callee.answer(caller.offer())
    mine = caller.accept(text)
    assert (mine.payload_type, mine.payload_name, mine.host, mine.port) == (
        *(8, "PCMA", "10.0.0.2", 7000),
    )
    assert (theirs.host, theirs.port, theirs.telephone_event_pt) == ("10.0.0.1", 6000, 101)


def test_the_answer_takes_the_offers_first_codec_that_we_have() -> None:
    text, agreed = ours().answer(PHONE)
    assert (agreed.payload_name, agreed.payload_type, agreed.ptime_ms) == ("PCMA", 8, 30)
    assert "m=audio 6000 RTP/AVP 8 96\r\n" in text


@pytest.mark.parametrize("number", [96, 100, 101, 127])
def test_the_payload_number_of_the_offer_is_used_when_answering(number: int) -> None:
    text, agreed = ours().answer(PHONE.replace("96", str(number)))
    assert agreed.telephone_event_pt == number
    assert f"a=rtpmap:{number} telephone-event/8000\r\n" in text
    assert parse(text).audio.telephone_event_pt == number


def test_a_codec_on_a_dynamic_number_keeps_that_number() -> None:
    offer = PHONE.replace("9 8 0 96", "97").replace("rtpmap:96 telephone-event", "rtpmap:97 pcmu")
    text, agreed = ours().answer(offer)
    assert (agreed.payload_type, agreed.payload_name) == (97, "PCMU")
    assert "a=rtpmap:97 PCMU/8000\r\n" in text


def test_without_telephone_events_in_the_offer_there_are_none_in_the_answer() -> None:
    text, agreed = ours().answer(PHONE.replace(" 96\r", "\r"))
    assert agreed.telephone_event_pt is None
    assert "telephone-event" not in text


@pytest.mark.parametrize(
    ("offered", "wanted", "said", "send", "receive"),
    [
        ("sendrecv", "sendrecv", "sendrecv", True, True),
        ("sendonly", "sendrecv", "recvonly", False, True),
        ("recvonly", "sendrecv", "sendonly", True, False),
        ("inactive", "sendrecv", "inactive", False, False),
        ("sendrecv", "sendonly", "sendonly", True, False),
        ("sendonly", "sendonly", "inactive", False, False),
        ("recvonly", "recvonly", "inactive", False, False),
        ("sendrecv", "inactive", "inactive", False, False),
    ],
)
def test_directions_are_answered_by_what_both_ends_want(
    offered: str, wanted: Direction, said: str, send: bool, receive: bool
) -> None:
    text, agreed = ours().answer(PHONE + f"a={offered}\r\n", wanted)
    assert parse(text).audio.direction == said
    assert (agreed.send, agreed.receive) == (send, receive)


def test_a_direction_of_the_session_holds_for_its_streams() -> None:
    text, _ = ours().answer(PHONE.replace("t=0 0", "t=0 0\r\na=sendonly"))
    assert parse(text).audio.direction == "recvonly"


def test_hold_by_the_old_zero_address_stops_our_sending() -> None:
    text, agreed = ours().answer(PHONE.replace("c=IN IP4 10.0.0.9", "c=IN IP4 0.0.0.0"))
    assert (agreed.send, agreed.receive) == (False, True)
    assert parse(text).audio.direction == "recvonly"


def test_a_connection_line_of_the_stream_wins() -> None:
    _, agreed = ours().answer(PHONE + "c=IN IP4 10.0.0.77\r\n")
    assert agreed.host == "10.0.0.77"


def test_a_connection_line_may_stand_with_the_stream_alone() -> None:
    offer = PHONE.replace("c=IN IP4 10.0.0.9\r\n", "", 1) + "c=IN IP6 2001:db8::7\r\n"
    assert ours().answer(offer)[1].host == "2001:db8::7"


def test_hold_and_resume_count_the_version_up_and_nothing_else_does() -> None:
    session = ours()
    first = session.offer()
    assert version(session.offer()) == version(first)
    held = session.offer(session.holding)
    assert version(held) == version(first) + 1
    assert parse(held).audio.direction == "sendonly"
    resumed = session.offer("sendrecv")
    assert version(resumed) == version(first) + 2
    assert parse(resumed).audio.direction == "sendrecv"
    assert parse(resumed).session_id == parse(first).session_id


def test_answers_count_the_version_up_with_each_change() -> None:
    session = ours()
    first, _ = session.answer(PHONE)
    again, _ = session.answer(PHONE)
    held, _ = session.answer(PHONE + "a=sendonly\r\n")
    back, _ = session.answer(PHONE)
    assert [version(t) - version(first) for t in (first, again, held, back)] == [0, 0, 1, 2]


def test_while_we_hold_their_change_does_not_take_us_off_hold() -> None:
    session = ours()
    session.accept(ours_answer(session.offer()))
    session.accept(ours_answer(session.offer(session.holding)))
    text, agreed = session.answer(PHONE)
    assert parse(text).audio.direction == "sendonly"
    assert not agreed.receive


def ours_answer(offer: str) -> str:
    return SdpSession("10.0.0.2", 7000).answer(offer)[0]


def test_holding_the_one_who_holds_us_is_inactive() -> None:
    session = ours()
    session.answer(PHONE + "a=sendonly\r\n")
    assert parse(session.offer(session.holding)).audio.direction == "inactive"


def test_other_streams_are_answered_with_port_0_and_stay_in_later_offers() -> None:
    session = ours()
    offer = (
        PHONE.replace("m=audio", "m=video 5000 RTP/AVP 99\r\nm=audio")
        + "m=application 9 UDP/BFCP *\r\n"
    )
    for text in (session.answer(offer)[0], session.offer(session.holding)):
        kinds = [(media.kind, media.port) for media in parse(text).media]
        assert kinds == [("video", 0), ("audio", 6000), ("application", 0)]


def test_a_second_audio_stream_is_refused() -> None:
    text, agreed = ours().answer(PHONE + "m=audio 4002 RTP/AVP 0\r\n")
    assert [media.port for media in parse(text).media] == [6000, 0]
    assert agreed.port == 4000


def test_an_audio_stream_that_is_over_is_passed_by_for_one_that_is_not() -> None:
    offer = PHONE.replace("m=audio 4000", "m=audio 0") + "m=audio 4002 RTP/AVP 0\r\n"
    text, agreed = ours().answer(offer)
    assert agreed.port == 4002
    assert [media.port for media in parse(text).media] == [0, 6000]


def test_port_0_in_an_answer_is_a_refusal() -> None:
    session = ours()
    session.offer()
    with pytest.raises(NoCommonCodec, match="port 0"):
        session.accept(PHONE.replace("m=audio 4000", "m=audio 0"))


def test_codecs_that_we_lack_are_named() -> None:
    offer = PHONE.replace("9 8 0 96", "9 18 98") + "a=rtpmap:98 opus/48000/2\r\n"
    with pytest.raises(NoCommonCodec, match="G722, G729, OPUS") as error:
        ours().answer(offer)
    assert "PCMU" in error.value.remedy


def test_pcmu_at_another_rate_is_not_pcmu() -> None:
    with pytest.raises(NoCommonCodec):
        ours().answer(PHONE.replace("9 8 0 96", "98") + "a=rtpmap:98 PCMU/16000\r\n")


def test_encrypted_media_says_what_to_turn_off() -> None:
    with pytest.raises(NoCommonCodec, match="RTP/SAVP") as error:
        ours().answer(PHONE.replace("RTP/AVP", "RTP/SAVP"))
    assert "encryption" in error.value.remedy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with v=0"),
        ("hello", "begins with v=0"),
        ("v=1\r\n", "begins with v=0"),
        ("v=0\r\n", "no o= line"),
        (PHONE.partition("m=")[0], "no audio"),
        (PHONE.replace("m=audio", "m=video"), "no audio"),
        (PHONE.replace("4000", "99999"), "Line 6: '99999' is not a port"),
        (PHONE.replace("4000", "-1"), "not a port"),
        (PHONE.replace("4000", "0" * 5000), "not a port"),
        (PHONE.replace("4000", "00000000099999"), "not a port"),
        (PHONE.replace("4000", "٤"), "not a port"),
        (PHONE.replace("m=audio 4000 RTP/AVP 9 8 0 96", "m=audio 4000"), "Line 6"),
        (PHONE.replace("c=IN IP4 10.0.0.9\r\n", ""), "no c= line"),
        (PHONE.replace("IP4 10.0.0.9\r\nt", "IP4 10.0 .9\r\nt"), "Line 4"),
        (PHONE.replace("IP4 10.0.0.9\r\nt", "IP4 -x-\r\nt"), "not an IP address"),
        (PHONE.replace("IP4 10.0.0.9\r\nt", "IP6 fe80::1%\x00x\r\nt"), "not an IP address"),
        (PHONE.replace("IP4 10.0.0.9\r\nt", "IP6 fe80::1%eth0\r\nt"), "not an IP address"),
        (PHONE.replace("IP4 10.0.0.9\r\nt", "IP4 224.0.0.1/127\r\nt"), "group"),
        (PHONE.replace("12 7", "12 seven"), "Line 2"),
        (PHONE.replace("s=call", "nonsense"), "Line 3"),
        (PHONE.replace("s=call", "s=call\r\n"), "Line 4"),
        (PHONE + "m=video 1 x 1\r\n" * 20, "More than 16"),
        (PHONE + "a=x\r\n" * 2000, "lines"),
        (PHONE + "a=" + "x" * 40_000, "characters"),
        (PHONE.replace("9 8 0", "0 " * 100), "formats"),
    ],
)
def test_what_cannot_be_used_says_where(text: str, said: str) -> None:
    with pytest.raises(BadSdp, match=said):
        ours().answer(text)


def test_lines_that_end_in_lf_alone_are_read() -> None:
    assert parse(PHONE.replace("\r\n", "\n")).audio.port == 4000


@pytest.mark.parametrize(
    ("attributes", "ptime"),
    [
        ("a=ptime:10\r\n", 10),
        ("a=ptime:20.0\r\n", 20),
        ("a=ptime:0\r\n", 20),
        ("a=ptime:x\r\n", 20),
        ("a=ptime:99999999999999999999\r\n", 20),
        ("a=maxptime:10\r\n", 10),
        ("a=ptime:60\r\na=maxptime:30\r\n", 30),
        ("", 20),
    ],
)
def test_the_packet_time_is_what_they_ask_for_where_we_can(attributes: str, ptime: int) -> None:
    _, agreed = ours().answer(PHONE.replace("a=ptime:30\r\n", attributes))
    assert agreed.ptime_ms == ptime


def test_an_answer_without_an_offer_is_wrong_state() -> None:
    with pytest.raises(WrongState):
        ours().accept(PHONE)


@pytest.mark.parametrize(
    "settings", [{"port": 0}, {"port": 70000}, {"codecs": ()}, {"codecs": ("G729",)}]
)
def test_settings_of_ours_are_checked(settings: dict[str, object]) -> None:
    settings = dict(settings)
    port = int(str(settings.pop("port", 6000)))
    with pytest.raises(ValueError, match=r"port=|codecs="):
        SdpSession("10.0.0.1", port, SdpOptions(**settings))  # type: ignore[arg-type]


def try_all(text: str) -> None:
    """Typed error or a result that can be used."""
    try:
        description = parse(text)
        answer, agreed = ours().answer(description)
    except CallError:
        return
    assert parse(answer).audio.port == 6000
    assert 0 < agreed.port < 65536
    assert agreed.payload_name in ("PCMU", "PCMA")
    assert agreed.telephone_event_pt is None or 0 <= agreed.telephone_event_pt < 128


@settings(deadline=None)
@given(st.text(max_size=500))
def test_any_text_is_a_description_or_bad_sdp(text: str) -> None:
    try_all(text)
    try_all("v=0\r\n" + text)


lines = st.sampled_from(
    [
        *PHONE.split("\r\n"),
        *("m=audio 0 RTP/AVP 0", "m=audio 5/2 RTP/AVP 0 0 0", "m=audio 1 RTP/AVPF 200 -1 x 8"),
        *("c=IN IP6 ::", "c=IN IP4 0.0.0.0", "c=IN IP4 host.example.org", "c=", "m=", "o=", "a="),
        *("a=rtpmap:0 PCMA/8000", "a=rtpmap:8 opus/48000/2", "a=rtpmap:999 x/1", "a=inactive"),
        *("m=image 4 udptl t38", "a=maxptime:0", "b=AS:64", "a=rtpmap:96 telephone-event/48000"),
    ]
)


@settings(deadline=None)
@given(st.lists(st.one_of(lines, st.text(max_size=20)), max_size=25))
def test_any_heap_of_lines_is_a_description_or_bad_sdp(some: list[str]) -> None:
    try_all("\r\n".join(some))
    try_all("v=0\r\no=- 1 1 IN IP4 1.2.3.4\r\n" + "\r\n".join(some))


@settings(deadline=None)
@given(st.data())
def test_a_description_with_one_changed_stretch_is_one_or_bad_sdp(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(PHONE)))
    length = data.draw(st.integers(0, 20))
    put = data.draw(st.text(max_size=20))
    try_all(PHONE[:start] + put + PHONE[start + length :])


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
    session = SdpSession(host, 40000, SdpOptions(codecs=("PCMU", "PCMA")))
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
        checked_media_host(host, "192.0.2.2")


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
