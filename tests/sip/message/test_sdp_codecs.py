from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_codecs.table import CODECS, codecs_by_name
from qwen3tts_phone.errors import NoCommonCodec
from qwen3tts_phone.sdp.crypto import KEY_BYTES, SUITES, SrtpKey, parse_crypto
from qwen3tts_phone.sdp.negotiation import ptime_for
from qwen3tts_phone.sdp.session import AgreedPayload, Negotiated, SdpOptions, SdpSession, parse

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
    return SdpSession("10.0.0.1", 6000, SdpOptions(codecs=codecs or ALL, **settings))  # type: ignore[arg-type]


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
        SdpSession("10.0.0.1", 6000, SdpOptions(**settings))  # type: ignore[arg-type]


FIRST = "AES_CM_128_HMAC_SHA1_80"
THEIR_KEY = SrtpKey(FIRST, base64.b64encode(bytes(range(30))).decode())


def crypto(key: SrtpKey = THEIR_KEY, tag: int = 1, more: str = "") -> str:
    return f"a=crypto:{tag} {key.suite} inline:{key.key}{more}"


def stream(protocol: str = "RTP/SAVP", *lines: str, port: int = 4000) -> str:
    return "".join(f"{line}\r\n" for line in (f"m=audio {port} {protocol} 0 101", *lines))


def offer(*streams: str) -> str:
    return HEAD + "".join(streams)


def encrypted(srtp: str = "accept", **settings: object) -> SdpSession:
    return SdpSession("10.0.0.1", 6000, SdpOptions(srtp=srtp, **settings))  # type: ignore[arg-type]


def test_an_offer_with_a_key_is_answered_with_a_key() -> None:
    text, agreed = encrypted().answer(offer(stream("RTP/SAVP", crypto(tag=7))))
    answered = parse(text).media[0]
    assert answered.protocol == "RTP/SAVP"
    (line,) = answered.crypto
    assert line.tag == 7
    assert line.key == agreed.srtp_send != THEIR_KEY
    assert agreed.srtp_receive == THEIR_KEY


def test_two_of_us_agree_on_each_others_keys() -> None:
    caller, callee = encrypted("require"), encrypted("accept")
    first = caller.offer()
    assert parse(first).media[0].protocol == "RTP/SAVP"
    assert tuple(line.key.suite for line in parse(first).media[0].crypto) == SUITES
    text, theirs = callee.answer(first)
    mine = caller.accept(text)
    assert mine.srtp_send == theirs.srtp_receive
    assert mine.srtp_receive == theirs.srtp_send
    assert mine.srtp_send != mine.srtp_receive


def test_the_first_suite_of_theirs_that_we_have_is_taken() -> None:
    gcm = SrtpKey.new("AEAD_AES_128_GCM")
    lines = [crypto(SrtpKey.new("AES_256_CM_HMAC_SHA1_80"), 1), crypto(gcm, 2), crypto(tag=3)]
    text, agreed = encrypted().answer(offer(stream("RTP/SAVP", *lines)))
    assert agreed.srtp_receive == gcm
    assert [line.tag for line in parse(text).media[0].crypto] == [2]


def test_a_key_beside_plain_rtp_is_taken_too() -> None:
    text, agreed = encrypted().answer(offer(stream("RTP/AVP", crypto())))
    assert agreed.srtp_receive == THEIR_KEY
    assert parse(text).media[0].protocol == "RTP/AVP"


def test_of_two_streams_the_encrypted_one_is_taken() -> None:
    both = offer(stream("RTP/AVP"), stream("RTP/SAVP", crypto(), port=4002))
    text, agreed = encrypted().answer(both)
    assert agreed.port == 4002
    assert agreed.srtp_send is not None
    assert [media.port for media in parse(text).media] == [0, 6000]
    text, agreed = encrypted("off").answer(both)
    assert (agreed.port, agreed.srtp_send) == (4000, None)
    assert [media.port for media in parse(text).media] == [6000, 0]


def test_without_a_key_the_call_is_plain() -> None:
    _, agreed = encrypted().answer(offer(stream("RTP/AVP")))
    assert agreed.srtp_send is agreed.srtp_receive is None


@pytest.mark.parametrize(
    ("srtp", "description", "said"),
    [
        ("off", stream("RTP/SAVP", crypto()), "RTP/SAVP; only plain RTP"),
        ("require", stream("RTP/AVP"), "encrypted calls alone"),
        ("require", stream("RTP/SAVP"), "without a key"),
        ("accept", stream("RTP/SAVP"), "without a key"),
        ("accept", stream("UDP/TLS/RTP/SAVP"), "DTLS"),
        ("require", stream("UDP/TLS/RTP/SAVPF"), "DTLS"),
        ("accept", stream("RTP/SAVP", crypto(SrtpKey.new("AES_256_CM_HMAC_SHA1_32"))), "suite"),
    ],
)
def test_what_is_not_to_be_had_is_refused_with_the_reason(
    srtp: str, description: str, said: str
) -> None:
    with pytest.raises(NoCommonCodec, match=said) as error:
        encrypted(srtp).answer(offer(description))
    assert error.value.remedy


def test_a_caller_that_requires_encryption_takes_no_plain_answer() -> None:
    session = encrypted("require")
    session.offer()
    with pytest.raises(NoCommonCodec, match="encrypted calls alone"):
        session.accept(offer(stream("RTP/AVP")))


@pytest.mark.parametrize("tag", [2, 9])
def test_an_answer_with_a_tag_or_suite_that_was_not_offered_is_refused(tag: int) -> None:
    session = encrypted("require")
    session.offer()
    with pytest.raises(NoCommonCodec, match="none of the suites"):
        session.accept(offer(stream("RTP/SAVP", crypto(tag=tag))))


def test_what_has_begun_encrypted_does_not_go_on_in_the_clear() -> None:
    session = encrypted()
    session.answer(offer(stream("RTP/SAVP", crypto())))
    with pytest.raises(NoCommonCodec):
        session.answer(offer(stream("RTP/AVP")))
    session.offer(session.holding)
    with pytest.raises(NoCommonCodec, match="without encryption"):
        session.accept(offer(stream("RTP/AVP")))


def test_our_key_stays_through_hold_and_resume_and_theirs_may_change() -> None:
    session = encrypted()
    text, first = session.answer(offer(stream("RTP/SAVP", crypto())))
    again, second = session.answer(offer(stream("RTP/SAVP", crypto())))
    assert again == text
    other = SrtpKey.new(FIRST)
    _, third = session.answer(offer(stream("RTP/SAVP", crypto(other), "a=sendonly")))
    assert first.srtp_send == second.srtp_send == third.srtp_send
    assert third.srtp_receive == other
    held = parse(session.offer(session.holding)).media[0]
    assert held.protocol == "RTP/SAVP"
    assert [line.key for line in held.crypto] == [first.srtp_send]


def test_each_call_has_keys_of_its_own() -> None:
    one, two = encrypted("require").offer(), encrypted("require").offer()
    keys = [line.key.key for text in (one, two) for line in parse(text).media[0].crypto]
    assert len(set(keys)) == 2 * len(SUITES)


def test_a_key_is_in_no_repr() -> None:
    session = encrypted("require")
    text = session.offer()
    media = parse(text).media[0]
    key = media.crypto[0].key
    for shown in (repr(key), repr(media), repr(media.crypto)):
        assert key.key not in shown
    assert key.suite in repr(key)


@pytest.mark.parametrize(
    ("more", "usable"),
    [
        ("", True),
        ("|2^48", True),
        ("|1234567", True),
        ("|2^48|1:4", False),
        ("|1:4", False),
        (f";inline:{THEIR_KEY.key}", False),
        (" WSH=64", True),
        (" -SOMETHING=1", True),
        (" UNENCRYPTED_SRTP", False),
        (" UNAUTHENTICATED_SRTP", False),
        (" KDR=10", False),
        (" SOMETHING", False),
    ],
)
def test_parameters_that_change_the_processing_spoil_their_line(more: str, usable: bool) -> None:
    assert (parse_crypto(crypto(more=more)[9:]) is not None) is usable


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1",
        f"1 {FIRST}",
        f"x {FIRST} inline:{THEIR_KEY.key}",
        f"1 NULL_HMAC_SHA1_80 inline:{THEIR_KEY.key}",
        f"1 {FIRST} inline:AAAA",
        f"1 {FIRST} inline:{'A' * 39}=",
        f"1 {FIRST} inline:{THEIR_KEY.key[:-1]}*",
        f"1 {FIRST} uri:https://example.org",
        "1 AEAD_AES_256_GCM inline:" + THEIR_KEY.key,
    ],
)
def test_lines_that_are_no_key_are_as_if_they_were_not_there(value: str) -> None:
    assert parse_crypto(value) is None


@given(st.text(max_size=300))
def test_any_text_is_a_key_or_none(text: str) -> None:
    for value in (text, f"1 {FIRST} inline:{text}"):
        line = parse_crypto(value)
        assert line is None or len(line.key.raw) == sum(KEY_BYTES[line.key.suite])


@pytest.mark.parametrize("suite", KEY_BYTES)
def test_new_keys_have_their_length(suite: str) -> None:
    assert len(SrtpKey.new(suite).raw) == sum(KEY_BYTES[suite])


@pytest.mark.parametrize(("suite", "key"), [("NONE", THEIR_KEY.key), (FIRST, "?"), (FIRST, "AAAA")])
def test_keys_that_are_none_are_refused_without_showing_them(suite: str, key: str) -> None:
    with pytest.raises(ValueError, match=suite) as error:
        SrtpKey(suite, key)
    assert THEIR_KEY.key not in str(error.value)
