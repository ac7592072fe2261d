from __future__ import annotations

import pytest

from qwen3tts_codecs.table import CODECS, codecs_by_name
from qwen3tts_phone.errors import NoCommonCodec
from qwen3tts_phone.sdp.negotiation import ptime_for
from qwen3tts_phone.sdp.session import AgreedPayload, Negotiated, SdpSession, parse

ALL = ("PCMU", "PCMA", "G722", "opus")
HEAD = "v=0\r\no=them 1 1 IN IP4 10.0.0.9\r\ns=-\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\n"
MAPS = {
    96: "telephone-event/8000",
    97: "telephone-event/48000",
    107: "opus/48000/2",
    108: "CN/16000",
}


def theirs(formats: str, *more: str) -> str:
    """Their description with these formats."""
    numbers = [int(number) for number in formats.split()]
    maps = [f"a=rtpmap:{number} {MAPS[number]}" for number in numbers if number in MAPS]
    lines = [f"m=audio 4000 RTP/AVP {formats}", *maps, *more]
    return HEAD + "".join(f"{line}\r\n" for line in lines)


def ours(*codecs: str, **settings: str | int) -> SdpSession:
    return SdpSession("10.0.0.1", 6000, codecs=codecs or ALL, **settings)  # type: ignore[arg-type]


def agreed_with(offer: str, *codecs: str, **settings: str | int) -> tuple[str, Negotiated]:
    return ours(*codecs, **settings).answer(offer)


def test_an_offer_names_the_codecs_in_the_order_of_the_settings() -> None:
    offer = ours("G722", "opus", "PCMA").offer()
    assert "m=audio 6000 RTP/AVP 9 111 8 101 102\r\n" in offer
    # RFC 3551 section 4.5.2: the clock of G.722 is written as 8000.
    assert "a=rtpmap:9 G722/8000\r\n" in offer
    assert "a=rtpmap:111 opus/48000/2\r\n" in offer
    assert "a=fmtp:111 maxplaybackrate=24000;" in offer
    assert "a=rtpmap:101 telephone-event/8000\r\n" in offer
    assert "a=rtpmap:102 telephone-event/48000\r\n" in offer


@pytest.mark.parametrize("name", ["opus", "OPUS", "Opus"])
def test_a_codec_may_be_named_in_any_case(name: str) -> None:
    assert ours(name).codecs == ("opus",)


def test_opus_has_its_own_clock_number_and_events() -> None:
    text, agreed = agreed_with(theirs("107 0 96 97", "a=fmtp:107 maxaveragebitrate=20000"))
    assert (agreed.payload_name, agreed.payload_type, agreed.clock_hz) == ("opus", 107, 48000)
    assert (agreed.telephone_event_pt, agreed.telephone_event_hz) == (97, 48000)
    assert agreed.parameters == "maxaveragebitrate=20000"
    assert "m=audio 6000 RTP/AVP 107 97\r\n" in text
    assert "a=rtpmap:107 opus/48000/2\r\n" in text
    assert "a=rtpmap:97 telephone-event/48000\r\n" in text


def test_opus_with_events_of_8_khz_alone_takes_those() -> None:
    _, agreed = agreed_with(theirs("107 96"))
    assert (agreed.telephone_event_pt, agreed.telephone_event_hz) == (96, 8000)


def test_g722_has_a_clock_of_8000() -> None:
    _, agreed = agreed_with(theirs("9 0 96"))
    assert (agreed.payload_name, agreed.payload_type, agreed.clock_hz) == ("G722", 9, 8000)
    assert (agreed.telephone_event_pt, agreed.telephone_event_hz) == (96, 8000)


def test_opus_that_leaves_its_channels_out_is_opus() -> None:
    offer = theirs("107").replace("opus/48000/2", "opus/48000")
    assert agreed_with(offer)[1].payload_name == "opus"


@pytest.mark.parametrize("formats", ["9", "107"])
def test_codecs_that_are_not_in_the_settings_are_not_taken(formats: str) -> None:
    with pytest.raises(NoCommonCodec):
        agreed_with(theirs(formats), "PCMU", "PCMA")


def test_an_answer_with_another_number_for_opus_is_sent_to_with_it() -> None:
    session = ours("opus", "PCMU")
    session.offer()
    agreed = session.accept(theirs("107"))
    assert agreed.payload_type == 107
    # RFC 3264 section 5.1: they send to us with the number of our offer.
    assert AgreedPayload(111, "opus", 48000) in agreed.also_receive


def test_of_an_answer_with_several_codecs_the_first_is_sent_and_all_are_heard() -> None:
    session = ours()
    session.offer()
    agreed = session.accept(theirs("8 9 0"))
    assert agreed.payload_name == "PCMA"
    assert {each.name for each in agreed.also_receive} == {"PCMU", "G722"}


def test_static_numbers_are_heard_even_where_they_were_not_described() -> None:
    _, agreed = agreed_with(theirs("8"), "PCMU", "PCMA")
    assert agreed.also_receive == (AgreedPayload(0, "PCMU", 8000),)


def test_a_static_number_that_means_something_else_there_is_not_heard_as_ours() -> None:
    offer = theirs("8 0", "a=rtpmap:0 X-OTHER/8000")
    _, agreed = agreed_with(offer, "PCMU", "PCMA")
    assert agreed.also_receive == ()


@pytest.mark.parametrize("side", ["theirs", "ours"])
def test_the_codec_stays_where_a_change_of_the_session_still_has_it(side: str) -> None:
    session = ours("PCMU", "PCMA", "G722")
    session.answer(theirs("8 0"))
    if side == "theirs":
        agreed = session.answer(theirs("0 9 8", "a=sendonly"))[1]
    else:
        session.offer(session.holding)
        agreed = session.accept(theirs("0 8"))
    assert agreed.payload_name == "PCMA"


def test_the_codec_changes_where_it_must() -> None:
    session = ours()
    session.answer(theirs("0"))
    assert session.answer(theirs("107 9"))[1].payload_name == "opus"
    assert session.answer(theirs("9"))[1].payload_name == "G722"


# --- comfort noise (RFC 3389)


@pytest.mark.parametrize(
    ("setting", "offered", "agreed"),
    [
        ("off", "0 13", None),
        ("accept", "0 13", 13),
        ("accept", "0", None),
        ("offer", "0 13", 13),
        ("offer", "0", None),
    ],
)
def test_comfort_noise_is_used_where_both_have_it(
    setting: str, offered: str, agreed: int | None
) -> None:
    text, result = agreed_with(theirs(offered), comfort_noise=setting)
    assert result.comfort_noise_pt == agreed
    assert ("a=rtpmap:13 CN/8000\r\n" in text) is (agreed is not None)


@pytest.mark.parametrize(("setting", "there"), [("off", 0), ("accept", 0), ("offer", 1)])
def test_comfort_noise_is_offered_only_where_asked_for(setting: str, there: int) -> None:
    session = ours(comfort_noise=setting)
    assert session.offer().count("a=rtpmap:13 CN/8000") == there
    agreed = session.accept(theirs("0 13"))
    assert agreed.comfort_noise_pt == (13 if there else None)


@pytest.mark.parametrize("formats", ["9 13", "107 13", "107 108"])
def test_comfort_noise_of_8_khz_goes_with_g711_alone(formats: str) -> None:
    assert agreed_with(theirs(formats), comfort_noise="accept")[1].comfort_noise_pt is None


# --- packet times


@pytest.mark.parametrize(
    ("codec", "wanted", "most", "ptime"),
    [
        ("PCMU", 50, None, 50),
        ("PCMU", 5, None, 20),
        ("PCMU", 35, None, 20),
        ("PCMU", None, None, 40),
        ("PCMU", None, 30, 30),
        ("PCMU", None, 35, 30),
        ("PCMU", 60, 40, 40),
        ("PCMU", 20, 5, 10),
        ("OPUS", 30, None, 20),
        ("OPUS", 60, None, 60),
        ("OPUS", 60, 50, 40),
        ("G722", 30, None, 30),
    ],
)
def test_packet_times_are_what_both_can(
    codec: str, wanted: int | None, most: int | None, ptime: int
) -> None:
    assert ptime_for(CODECS[codec], wanted, most, 40) == ptime


def test_our_own_packet_time_is_sent_where_they_ask_for_none() -> None:
    text, agreed = agreed_with(theirs("0"), ptime_ms=30, maxptime_ms=60)
    assert agreed.ptime_ms == 30
    assert "a=ptime:30\r\na=maxptime:60\r\n" in text


# --- addresses, RTCP


def test_of_several_addresses_the_one_of_our_family_is_taken() -> None:
    offer = theirs("0").replace("c=IN IP4 10.0.0.9", "c=IN IP6 2001:db8::9\r\nc=IN IP4 10.0.0.9")
    assert agreed_with(offer)[1].host == "10.0.0.9"
    six = SdpSession("2001:db8::1", 6000)
    text, agreed = six.answer(offer)
    assert agreed.host == "2001:db8::9"
    assert "c=IN IP6 2001:db8::1\r\n" in text


def test_a_further_address_that_is_of_no_use_is_passed_by() -> None:
    offer = theirs("0", "c=IN IP4 10.0.0.7", "c=IN IP4 host.example.org", "c=IN IP4 224.0.0.1")
    assert parse(offer).audio.hosts == ("10.0.0.7",)


def test_rtcp_goes_where_they_say() -> None:
    assert agreed_with(theirs("0", "a=rtcp:4444 IN IP4 10.0.0.9"))[1].rtcp_port == 4444
    assert agreed_with(theirs("0", "a=rtcp:0"))[1].rtcp_port is None
    assert agreed_with(theirs("0"))[1].rtcp_port is None


@pytest.mark.parametrize(("setting", "muxed"), [("accept", True), ("off", False)])
def test_rtcp_is_muxed_where_they_offer_it(setting: str, muxed: bool) -> None:
    text, agreed = agreed_with(theirs("0", "a=rtcp-mux"), rtcp_mux=setting)
    assert agreed.rtcp_mux is muxed
    assert ("a=rtcp-mux\r\n" in text) is muxed


def test_an_answer_cannot_mux_what_was_not_offered() -> None:
    session = ours()
    assert "rtcp-mux" not in session.offer()
    assert not session.accept(theirs("0", "a=rtcp-mux")).rtcp_mux


def test_ice_and_fingerprints_are_passed_by() -> None:
    offer = theirs(
        "0",
        "a=ice-ufrag:abcd",
        "a=ice-pwd:0123456789012345678901",
        "a=candidate:1 1 UDP 2130706431 10.0.0.9 4000 typ host",
        "a=fingerprint:sha-256 " + ":".join(["AB"] * 32),
        "a=setup:actpass",
    )
    text, agreed = agreed_with(offer)
    assert agreed.payload_name == "PCMU"
    assert not any(word in text for word in ("ice", "candidate", "fingerprint", "setup"))


def test_a_change_that_is_not_made_leaves_the_session_as_it_was() -> None:
    session = ours()
    session.answer(theirs("0 96"))
    before = session.offer()
    saved = session.saved()
    session.answer(theirs("107 97", "a=sendonly"))
    session.restore(saved)
    assert session.offer() == before
    assert session.negotiated is not None
    assert session.negotiated.payload_name == "PCMU"


@pytest.mark.parametrize("names", [(), ("PCMU", "G729"), ("",)])
def test_unknown_codecs_are_named(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="codecs="):
        codecs_by_name(names)


@pytest.mark.parametrize(
    "settings", [{"srtp": "maybe"}, {"comfort_noise": "yes"}, {"srtp_suites": ("ROT13",)}]
)
def test_settings_that_are_none_are_named(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(settings))}="):
        SdpSession("10.0.0.1", 6000, **settings)  # type: ignore[arg-type]
