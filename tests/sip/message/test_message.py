from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message.fields import parse_address, parse_uri, parse_via, split_list
from qwen3tts_phone.sip.message.message import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_MESSAGE_BYTES,
    InvalidRequest,
    Request,
    Response,
    StreamFramer,
    parse_message,
    reply,
)

HEAD = (
    b"INVITE sip:bob@10.0.0.2 SIP/2.0\r\n"
    b"Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK1;rport\r\n"
    b"From: <sip:alice@10.0.0.1>;tag=a\r\n"
    b"To: <sip:bob@10.0.0.2>\r\n"
    b"Call-ID: c\r\n"
    b"CSeq: 1 INVITE\r\n"
)
WHOLE = HEAD + b"Content-Length: 4\r\n\r\nbody"


def test_a_message_survives_reading_and_writing() -> None:
    message = parse_message(WHOLE)
    assert isinstance(message, Request)
    assert (message.method, message.uri, message.body) == ("INVITE", "sip:bob@10.0.0.2", b"body")
    assert bytes(message) == WHOLE


@pytest.mark.parametrize("name", [b"Via", b"From", b"To", b"Call-ID", b"CSeq"])
def test_a_message_without_a_mandatory_header_is_refused_by_its_name(name: bytes) -> None:
    lines = [line for line in WHOLE.split(b"\r\n") if not line.startswith(name + b":")]
    with pytest.raises(BadSip, match=name.decode()):
        parse_message(b"\r\n".join(lines))


@pytest.mark.parametrize("name", [b"From", b"To", b"Call-ID", b"CSeq"])
def test_a_header_that_may_stand_once_may_not_stand_twice(name: bytes) -> None:
    line = next(line for line in WHOLE.split(b"\r\n") if line.startswith(name + b":"))
    with pytest.raises(BadSip, match="once"):
        parse_message(WHOLE.replace(line, line + b"\r\n" + line))


@settings(deadline=None)
@given(st.integers(0, len(WHOLE) - 1))
def test_a_truncated_message_is_refused(length: int) -> None:
    with pytest.raises(BadSip):
        parse_message(WHOLE[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"\0" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
        b"SIP/2.0 2OO OK\r\n\r\n",
        b"SIP/2.0 99999 OK\r\n\r\n",
        b"SIP/2.0 099 OK\r\n\r\n",
        WHOLE.replace(b"INVITE sip", b"INV\xffITE sip"),
        WHOLE.replace(b"INVITE sip", b"IN VITE sip"),
        WHOLE.replace(b"Call-ID: c", b"Call-ID"),
        WHOLE.replace(b"Call-ID: c", b"Call-ID:"),
        WHOLE.replace(b"Call-ID: c", b"Call ID: c"),
        WHOLE.replace(b"Call-ID: c", b"Call-ID: c\nEvil: x"),
        WHOLE.replace(b"Call-ID: c", b"Call-ID: c\0"),
        WHOLE.replace(b"tag=a", b"tag=a\xff\xfe"),
        WHOLE.replace(b"1 INVITE", b"INVITE"),
        WHOLE.replace(b"1 INVITE", b"-1 INVITE"),
        WHOLE.replace(b"1 INVITE", b"4294967296 INVITE"),
        WHOLE.replace(b"1 INVITE", b"99999999999999999999 INVITE"),
        WHOLE.replace(b"SIP/2.0/UDP 10", b"SIP/3.0/UDP 10"),
        WHOLE.replace(b":5060;", b":99999;"),
        WHOLE.replace(b"10.0.0.1:5060;branch", b"exa mple;branch"),
        WHOLE.replace(b"rport", b"self=1"),
        WHOLE.replace(b"<sip:alice@10.0.0.1>;tag=a", b"<sip:alice@10.0.0.1"),
        WHOLE.replace(b"tag=a", b"tag=" + b"a" * 300),
        HEAD.replace(b"\r\n", b"\n") + b"\n",
        b" folded: first\r\n" + WHOLE,
        HEAD + b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
        HEAD + b"X: y\r\n" * MAX_HEADERS + b"\r\n",
        HEAD + b"\r\n" + b"x" * MAX_MESSAGE_BYTES,
    ],
    ids=range(30),
)
def test_a_broken_message_is_bad_sip(data: bytes) -> None:
    with pytest.raises(BadSip):
        parse_message(data)


@pytest.mark.parametrize("length", [b"5", b"9999999999", b"-1", b"x", b"4, 4", b"4\r\nl: 5"])
def test_a_wrong_length_can_be_answered_with_400(length: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Content-Length") as error:
        parse_message(WHOLE.replace(b"Content-Length: 4", b"Content-Length: " + length))
    assert error.value.status == 400
    assert error.value.request.method == "INVITE"


def test_bytes_beyond_the_length_are_cut_off() -> None:
    assert parse_message(WHOLE + b"more").body == b"body"


def test_without_a_length_the_rest_of_the_datagram_is_the_body() -> None:
    assert parse_message(HEAD + b"\r\nall of it").body == b"all of it"


def test_another_method_in_cseq_can_be_answered_with_400() -> None:
    with pytest.raises(InvalidRequest, match="CSeq"):
        parse_message(WHOLE.replace(b"1 INVITE", b"1 BYE"))


@pytest.mark.parametrize("start", [b"SIP/2.0 200", b"SIP/2.0 200 ", b"SIP/2.0 200 Tout va bien"])
def test_the_reason_phrase_may_be_anything_or_nothing(start: bytes) -> None:
    data = WHOLE.replace(b"INVITE sip:bob@10.0.0.2 SIP/2.0", start)
    message = parse_message(data)
    assert isinstance(message, Response)
    assert message.status == 200


def test_leading_blank_lines_are_ignored() -> None:
    assert parse_message(b"\r\n\r\n" + WHOLE).call_id == "c"


def test_folded_lines_are_one_header() -> None:
    data = WHOLE.replace(b"Call-ID: c", b"Subject: one\r\n\ttwo\r\n   three\r\nCall-ID: c")
    assert parse_message(data).get("Subject") == "one two three"


def test_lists_may_stand_on_one_line_or_several() -> None:
    data = HEAD.replace(
        b"Via:", b"Via: SIP/2.0/TCP proxy1;branch=z9hG4bK0, SIP/2.0/UDP [2001:db8::1]:5062\r\nv :"
    )
    message = parse_message(data + b"\r\n")
    assert len(message.values("Via")) == 3
    assert (message.via.transport, message.via.host) == ("TCP", "proxy1")
    assert message.branch == "z9hG4bK0"


def test_a_reply_echoes_what_came_and_adds_the_tag() -> None:
    request = parse_message(WHOLE.replace(b"<sip:alice", b'"A \\"quoted\\" name, x" <sip:alice'))
    assert isinstance(request, Request)
    response = reply(request, 180, to_tag="mine")
    assert response.require("From") == request.require("From")
    assert response.require("To") == "<sip:bob@10.0.0.2>;tag=mine"
    assert reply(request, 100, to_tag="mine").to.tag is None


@pytest.mark.parametrize(
    ("text", "uri", "tag"),
    [
        ("<sip:a@b.c>;tag=1", "sip:a@b.c", "1"),
        ("sip:a@b.c;tag=1", "sip:a@b.c", "1"),
        ('"<sip:no@x>" <sip:a@b.c;x=y>;TAG=1', "sip:a@b.c;x=y", "1"),
        ("Plain Name <sip:a@b.c>", "sip:a@b.c", None),
        ("<tel:+1-555>;tag=9;q=0.1", "tel:+1-555", "9"),
        ("<urn:service:sos>", "urn:service:sos", None),
    ],
)
def test_addresses_are_read_in_all_their_forms(text: str, uri: str, tag: str | None) -> None:
    address = parse_address(text)
    assert (address.uri, address.tag) == (uri, tag)


@pytest.mark.parametrize("text", ["", "<>", "<sip:a b>", "<sip:a", '"open <sip:a@b>', "<sip:a>;;"])
def test_a_broken_address_is_bad_sip(text: str) -> None:
    with pytest.raises(BadSip):
        parse_address(text)


@pytest.mark.parametrize("host", ["pbx1", "node-2", "a1.b2", "10.0.0.1", "[::1]", "x.example.org."])
def test_hosts_of_every_kind_are_read(host: str) -> None:
    uri = parse_uri(f"sip:bob@{host}:5070;transport=tcp")
    assert (uri.user, uri.host, uri.port) == ("bob", host, 5070)
    assert parse_via(f"SIP/2.0/UDP {host}:5070;branch=z").host == host


def test_uri_headers_are_dropped() -> None:
    assert parse_uri("sip:bob@x.org?subject=hello").host == "x.org"


def test_commas_in_quotes_and_brackets_do_not_split() -> None:
    assert split_list('"a, b" <sip:x,y@z>, <sip:q>') == ['"a, b" <sip:x,y@z>', "<sip:q>"]


# Fuzz: BadSip or a message that can be used, never anything else.


def use(message: Request | Response) -> None:
    """Look at everything that the agent looks at; only BadSip may come."""
    for read in (
        lambda: message.cseq,
        lambda: message.via,
        lambda: message.branch,
        lambda: message.from_.tag,
        lambda: message.to.tag,
        lambda: message.contact,
        lambda: message.contact_uri,
        lambda: message.sdp,
        lambda: message.values("Record-Route"),
        lambda: bytes(message),
    ):
        try:
            read()
        except BadSip:
            continue


pieces = st.sampled_from(
    [
        *(HEAD.split(b"\r\n")),
        *(b"v: SIP/2.0/UDP x;branch=", b"f: <sip:a@b>;tag=", b"t: sip:b", b"i: 1", b"CSeq: 1 ACK"),
        *(b"", b" folded", b"\t", b"m: *", b"m: <sip:", b"l: 3", b"l: 99", b"Contact: <sip:a@b>,"),
        *(b"Record-Route: <sip:p;lr>", b"SIP/2.0 200 OK", b"Route: ,,,", b'From: "', b"To: <>;tag"),
        *(b"Via: SIP/2.0/UDP a;self=1", b"Via: SIP/2.0/TCP a:0", b"c: application/sdp", b":"),
    ]
)


@settings(deadline=None)
@given(st.lists(st.one_of(pieces, st.binary(max_size=40)), max_size=20), st.binary(max_size=40))
@example([b"INVITE sip:b SIP/2.0", b"Via: SIP/2.0/UDP a;self=1"], b"")
def test_any_heap_of_lines_is_a_message_or_bad_sip(lines: list[bytes], body: bytes) -> None:
    try:
        use(parse_message(b"\r\n".join(lines) + b"\r\n\r\n" + body))
    except BadSip:
        return


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_a_uri_an_address_a_via_or_bad_sip(text: str) -> None:
    for read in (parse_uri, parse_address, parse_via):
        try:
            read(text)
        except BadSip:
            continue


@pytest.mark.parametrize(
    "text",
    [
        "sip:" + "a" * 4000,
        "sip:a@" + "a-" * 2000,
        "sip:a@" + "a." * 2000,
        '"' + '\\"' * 2000 + "<sip:a>",
        "<sip:a>" + ";a=b" * 900 + "!(",
        "a " * 2000 + "<",
        "SIP/2.0/UDP a" + ";a" * 1900 + ";(",
        "sip:[" + "a:" * 2000,
        "sip:" + "%41" * 1300 + "!@x",
    ],
    ids=range(9),
)
def test_no_value_takes_long_to_refuse(text: str) -> None:
    import time

    start = time.process_time()
    for read in (parse_uri, parse_address, parse_via):
        try:
            read(text)
        except BadSip:
            continue
    assert time.process_time() - start < 1.0


ONE = b"OPTIONS sip:a SIP/2.0\r\nCall-ID: 1\r\nContent-Length: 4\r\n\r\nbody"
TWO = b"BYE sip:a SIP/2.0\r\nCall-ID: 2\r\nl : 0\r\n\r\n"
THREE = b"SIP/2.0 200 OK\r\nCall-ID: 3\r\n\r\n"


def test_messages_are_cut_by_their_length() -> None:
    assert StreamFramer().push(ONE + TWO + THREE) == [ONE, TWO, THREE]


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1), st.integers(0, 5))
def test_however_the_bytes_arrive_the_messages_are_the_same(cuts: list[int], blank: int) -> None:
    stream = b"\r\n" * blank + ONE + b"\r\n" + TWO + b"\r\n\r\n" + THREE + ONE
    framer, got, at = StreamFramer(), [], 0
    for cut in cuts:
        got += framer.push(stream[at : at + cut])
        at += cut
    got += framer.push(stream[at:])
    assert got == [ONE, TWO, THREE, ONE]


def test_a_blank_line_before_a_message_loses_nothing() -> None:
    framer = StreamFramer()
    assert framer.push(b"\r\n") == []
    assert framer.push(b"\r\n" + ONE) == [ONE]


def test_keep_alives_are_counted() -> None:
    framer = StreamFramer()
    assert framer.push(b"\r\n\r\n" + ONE + b"\r\n\r\n") == [ONE]
    assert framer.pings == 2


@pytest.mark.parametrize("cut", range(1, 8))
def test_keep_alives_are_counted_wherever_they_are_cut(cut: int) -> None:
    framer = StreamFramer()
    stream = b"\r\n\r\n\r\n\r\n"
    assert framer.push(stream[:cut]) == []
    assert framer.push(stream[cut:]) == []
    assert framer.pings == 2


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("cut", range(4))
def test_the_bound_on_headers_is_the_same_wherever_the_stream_is_cut(cut: int, over: int) -> None:
    stream = b"x" * (MAX_HEAD_BYTES + over) + b"\r\n\r\n"
    framer = StreamFramer()

    def push() -> list[bytes]:
        return framer.push(stream[: len(stream) - cut]) + framer.push(stream[len(stream) - cut :])

    if over:
        with pytest.raises(BadSip):
            push()
    else:
        assert push() == [stream]


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 20_000,
        b"A: b\r\n" * 4000 + b"\r\n",
        b"X: y\r\nContent-Length: 100000\r\n\r\n",
        b"X: y\r\nContent-Length: 99999999999\r\n\r\n",
        b"X: y\r\nContent-Length: -1\r\n\r\n",
        b"X: y\r\nContent-Length: x\r\n\r\n",
        b"X: y\r\nContent-Length: 4\r\nl: 5\r\n\r\n",
    ],
    ids=range(7),
)
def test_a_stream_that_cannot_be_cut_is_bad_sip(data: bytes) -> None:
    with pytest.raises(BadSip):
        StreamFramer().push(data)


def test_a_flood_of_single_bytes_is_not_searched_again_and_again() -> None:
    import time

    framer = StreamFramer()
    start = time.process_time()
    for _ in range(16_000):
        framer.push(b"x")
    assert time.process_time() - start < 1.0
