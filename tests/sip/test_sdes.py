from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.errors import NoCommonCodec
from qwen3tts_phone.sdp.crypto import KEY_BYTES, SUITES, SrtpKey, parse_crypto
from qwen3tts_phone.sdp.session import SdpSession, parse

HEAD = "v=0\r\no=them 1 1 IN IP4 10.0.0.9\r\ns=-\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\n"
FIRST = "AES_CM_128_HMAC_SHA1_80"
THEIR_KEY = SrtpKey(FIRST, base64.b64encode(bytes(range(30))).decode())


def crypto(key: SrtpKey = THEIR_KEY, tag: int = 1, more: str = "") -> str:
    return f"a=crypto:{tag} {key.suite} inline:{key.key}{more}"


def stream(protocol: str = "RTP/SAVP", *lines: str, port: int = 4000) -> str:
    return "".join(f"{line}\r\n" for line in (f"m=audio {port} {protocol} 0 101", *lines))


def offer(*streams: str) -> str:
    return HEAD + "".join(streams)


def encrypted(srtp: str = "accept", **settings: object) -> SdpSession:
    return SdpSession("10.0.0.1", 6000, srtp=srtp, **settings)  # type: ignore[arg-type]


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
