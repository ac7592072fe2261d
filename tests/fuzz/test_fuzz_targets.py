"""What is known to be hard, and every seed, through each fuzz target: nothing breaks."""

from __future__ import annotations

import random

import pytest

from qwen3tts_phone.media import rtcp
from qwen3tts_phone.media.rtcp import Bye, ReceiverReport
from tests.fuzz import (
    accounts_target,
    carriers_target,
    chat_targets,
    description_target,
    dialog_targets,
    e2e_target,
    gate_target,
    hearing_target,
    latency_target,
    listening_target,
    offer_target,
    phone_config_target,
    plugin_targets,
    recogniser_target,
    record_targets,
    reference_target,
    rest_target,
    safety_targets,
    sip_examples,
    softphone_target,
    stream_targets,
    upstream_target,
    vllm_omni_target,
)
from tests.fuzz.fuzz_targets import TARGETS
from tests.fuzz.sip_examples import COMPACT, OFFER, request
from tests.fuzz.target import MOST_STEPS, SEPARATOR, cuts, retold, steps, story

DESCRIPTION = OFFER.encode()
INVITE = request("INVITE", body=OFFER)
HARD: dict[str, tuple[bytes, ...]] = {
    "voice_settings": (
        b"[" * 4000,
        b'{"audio": {"sample_rate": 1e999}}',
        b'{"audio": {"sample_rate": 22050}, "phoneme_id_map": {"_": [-1]}}',
    ),
    "wav": (
        b"RIFF\xff\xff\xff\xffWAVE",
        b"RIFF\x04\x00\x00\x00WAVEfmt \xff\xff\xff\xff",
        b"RIFF\x04\x00\x00\x00WAVEfmt \x10\x00\x00\x00" + bytes(16) + b"data\x00\x00\x00\x00",
    ),
    "rtp": (
        b"\x8f" + bytes(11),  # contributing sources beyond the end
        b"\x90" + bytes(11) + b"\x00\x00\xff\xff",  # an extension beyond the end
        b"\xa0" + bytes(11),  # padding, and no payload that could say how much
        b"\xa0" + bytes(12),  # padding of 0
        b"\xbf" + bytes(75) + b"\xff",
        b"\x40" + bytes(20),  # STUN's version
    ),
    "rtcp": (
        b"\x9f\xc8\x00\x06" + bytes(24),  # 31 blocks announced, none there
        b"\x81\xca\x00\x01" + bytes(4),  # a description that does not end
        b"\x81\xca\x00\x02" + bytes(4) + b"\x01\xffab",
        b"\x81\xcb\x00\x01" + bytes(4),
        b"\xa0\xc9\x00\x01" + bytes(3) + b"\x08",  # padding that swallows the packet
        b"\x80\xcc\xff\xff" + bytes(4),
        rtcp.build([ReceiverReport(1)] * 40),
        rtcp.build([ReceiverReport(1), Bye((1,))])
        + b"\x81\xcb\x00\x02"
        + bytes(4)
        + b"\xffx\xfe\x80",
    ),
    "dtmf": (
        bytes(9) * 20,
        bytes.fromhex("02ffffff9c050a0140") * 2 + bytes.fromhex("0200000000058affff"),
        bytes.fromhex("ff00000001058a0140ff00000001058a0140"),
        b"".join(bytes([20, 0, 0, n, 0, n % 17, 0x80, 1, 64]) for n in range(40)),
    ),
    "incoming": (
        story(*(b"u\x80\x00" + bytes([0, 7 * n]) + bytes(28) for n in range(20)), b"w\x01"),
        story(*(b"u\x80\x00" + bytes([n * 13 % 256, 0]) + bytes(28) for n in range(40))),
        story(
            *(b"u\x80\x65\x00" + bytes([n]) + bytes(8) + b"\x05\x00" for n in range(9)), b"w\x40"
        ),
        # The timestamps go back to before the stream's first one.
        bytes.fromhex(
            "7580000001000000000000abcd" + "55" * 20 + "ffff7580000002f00000000000abcd" + "55" * 20
        ),
        story(b"u\x80\x00\x00\x01" + bytes(8), b"s\x80\x00\x00\x01" + bytes(8), b"w\xff") * 3,
    ),
    "srtp": (
        story(*(b"p\x80\x00" + bytes([n, 0]) + bytes(20) for n in range(0, 250, 30))),
        story(b"p" + bytes(12), b"p\xbf" + bytes(11), b"p\x90" + bytes(11) + b"\x00\x00\xff\xff"),
        story(
            b"r" + b"\x80" * 2048, b"d" + b"\x81" * 1501, b"p" + b"\x80" * 2000, b"r", b"d", b"p"
        ),
        story(b"k", b"k", b"p\x80\x00" + bytes(30), b"k", b"p\x80\x00" + bytes(30)),
    ),
    "g711": (b"\x7f\xff" * 100 + b"\x00", b"\x80"),
    "frames": (b"\x00", b"\xff" + b"\xff\x7f\x00\x80" * 500, b"\x07" + b"\x01"),
    "sdp": (
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
    "sip_message": (
        b"\r\n" * 9,
        b"SIP/2.0 200\r\n\r\n",
        INVITE.replace(b"CSeq: 1 INVITE", b"CSeq: 4294967296 INVITE"),
        INVITE.replace(b"CSeq: 1 INVITE", "CSeq: \u0661 INVITE".encode()),
        INVITE.replace(b"CSeq: 1 INVITE", b"CSeq: 1 BYE"),
        INVITE.replace(b"Content-Length: ", b"Content-Length: 99999999999"),
        INVITE.replace(b"Max-Forwards", b"Content-Length: 5\r\nMax-Forwards"),
        INVITE.replace(b":5060;branch", b":99999;branch"),
        INVITE.replace(b"192.0.2.9:5060;branch", b"[::1;branch"),
        INVITE.replace(b";rport", b";rport=;RPORT=5;received=x"),
        INVITE.replace(b'"Them"', b'"Th\\"em, <sip:x>;tag=a'),
        INVITE.replace(b'"Them"', b"\xff\xfe"),
        INVITE.replace(b"Max-Forwards: 70", b" folded\r\n\tagain: x"),
        INVITE.replace(b"Max-Forwards: 70", b"X: a\rVia: b"),
        INVITE.replace(b"<sip:them@192.0.2.9:5060>", b"<sip:%zz@[::1]:0;lr>;q=\xc3\xa9"),
        INVITE.replace(b"Call-ID: fuzz\r\n", b"Call-ID: \r\n"),
        COMPACT.replace(b"Record-Route: ", b"Record-Route: " + b"<sip:p;lr>," * 60),
        sip_examples.filled(
            sip_examples.response(401, 'WWW-Authenticate: Digest realm="\\", nonce=x, nonce="')
        ),
    ),
    "sip_stream": (
        b"\r\n" * 20,
        b"l: 5\r\n\r\n123456",
        b"A" * 16384 + b"\r\n\r\n",
        INVITE.replace(b"Content-Length: ", b"l: 1\r\nContent-Length: "),
        INVITE.replace(b"Content-Length: ", b"Content-Length: -"),
        INVITE.replace(b"Content-Length: ", b"Content-Length: 9999999999"),
        INVITE.replace(b"\r\n", b"\n"),
        INVITE * 3,
    ),
    "sip_agent": (
        story(*[b"u" + INVITE] * 3, *[b"u" + request("INVITE", branch=f"b{n}") for n in range(9)]),
        story(b"u" + request("ACK"), b"u" + request("CANCEL"), b"u" + request("BYE", tag="x")),
        story(b"u" + INVITE.replace(b"Content-Length: ", b"Content-Length: 9"), b"u" + INVITE),
        story(b"u" + request("INVITE", "Record-Route: <sip:p>", body=OFFER), "a", "h", "4", "h"),
        story(b"u" + INVITE.replace(b"<sip:them@192.0.2.9:5060>", b"<sips:x>"), "r", "a"),
        story("p", "p", "p", "p", "p", "f", "h", "1"),
        story("g", "s", "4"),
        story("g", "4", "s", "s"),
        story("p", *[b"u" + sip_examples.response(200, body=OFFER)] * 4, "c", "c", "h", "5"),
        story("p", b"u" + sip_examples.response(302), b"u" + sip_examples.response(200)),
    ),
    "wire_server": (
        b"t" + b"[" * 4000,
        b't{"type":"ping","client_time_ms":1e999}',
        b't{"type":"ping","client_time_ms":' + b"9" * 4000 + b"}",
        b't{"type":"ping","type":"ping","client_time_ms":1}',
        b't{"type":"context.open","context_id":"\\u0000","context_no":1}',
        b't{"type":"context.open","context_id":"c","context_no":4294967296}',
        b't{"type":"\\ud83d","context_id":"\\ude00"}',
        story(
            b't{"type":"context.open","context_id":"c1","context_no":1}', "c", "d", "f", "f", "c"
        ),
    ),
    "wire_client": (
        b"b\x01",
        b"b\x02" + bytes(20),
        b"b\x01\x00\x00\x00\x09\x00\x00\x00" + b"\xff" * 8,
        b't{"type":"session.created"}',
        b't{"type":"error","code":"x","message":"","ends":"context","context_id":"c9"}',
        story(b't{"type":"context.done","context_id":"c1"}', b't{"type":"pong"}', "c\x01", "c\x01"),
    ),
    "runvnc": (
        b"t" + b"[" * 3000,
        b"b" + bytes(40),
        b't{"type":"generate_stream","text":"\\ud83d","voice_id":"tone"}',
        story(b't{"type":"cancel"}', b't{"type":"cancel"}', "e", "x", "l", "n", "z", "r"),
        story(
            b't{"type":"init","voice_id":"v1"}',
            *[b't{"type":"generate","text":"Hello."}'] * 12,
            b't{"type":"cancel"}',
            *("r", "l", "r"),
        ),
        story(b't{"type":"text","text":"a","voice_id":"tone"}', "pxxx", "q", "w\xff", "w\xff", "z"),
    ),
    "session": (
        b"b\x00",
        story("p", "e", "x", "q", "q", "w\xff", "r"),
        story(
            b't{"type":"context.open","context_id":"c","context_no":1,"window_ms":60000}',
            b't{"type":"text.append","context_id":"c","text":"' + b"a. " * 300 + b'"}',
            *("p", "e", "q", b"w\xff", b"w\xff", "r", "e"),
        ),
    ),
    "sse": (
        b"\r" * 50 + b"data\r\n\r\n",
        b"data: " + b"x" * 195 + b"\n\n",
        b": " + b"x" * 190 + b"\n:" + b"y" * 190 + b"\ndata:\n\n",
        b"event: a\nevent: b\n\ndata: \xf0\x9f\n\n\xff",
        b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n",
    ),
    "segmenter": (
        b"\x00\x00\xed\xa0\xbd\xed\xb8\x80" + b"\xff" * 20,
        b"\x01\x01" + b"```" * 50,
        b"\x02\x02" + b"[" * 200 + b"](" * 50,
        b"\x03\x00" + b"<" * 300,
        b"\x04\x05" + "\u200d\ufe0f".encode() * 60,
        b"\x05\x00" + b"1." * 200 + b"&#" * 40,
    ),
    **accounts_target.HARD,
    **carriers_target.HARD,
    **chat_targets.HARD,
    **dialog_targets.HARD,
    **e2e_target.HARD,
    **description_target.HARD,
    **gate_target.HARD,
    **hearing_target.HARD,
    **latency_target.HARD,
    **listening_target.HARD,
    **phone_config_target.HARD,
    **record_targets.HARD,
    **plugin_targets.HARD,
    **recogniser_target.HARD,
    **stream_targets.HARD,
    **reference_target.HARD,
    **rest_target.HARD,
    **safety_targets.HARD,
    **offer_target.HARD,
    **softphone_target.HARD,
    **upstream_target.HARD,
    **vllm_omni_target.HARD,
}


def cases() -> list[tuple[str, bytes]]:
    return [
        (name, data)
        for name, target in TARGETS.items()
        for data in (*target.seeds, *HARD.get(name, ()))
    ]


@pytest.mark.parametrize(("name", "data"), cases())
def test_nothing_breaks(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


@pytest.mark.parametrize("name", list(TARGETS))
def test_what_any_parser_may_be_given_breaks_nothing(name: str) -> None:
    target = TARGETS[name]
    for data in (b"", b"\0", b"\n", b"\xff" * 40, bytes(range(256)), b"\x80" * 200):
        target.run(data)
    for seed in target.seeds:
        for length in range(0, len(seed), 1 + len(seed) // 8):
            target.run(seed[:length])
            target.run(seed[:length] + seed[length + 1 :])


@pytest.mark.parametrize("name", list(TARGETS))
def test_a_target_has_examples_that_fit_and_says_what_holds(name: str) -> None:
    target = TARGETS[name]
    assert target.seeds
    assert all(len(seed) <= target.most_bytes for seed in target.seeds)
    assert target.claim.endswith(".")
    assert name in HARD
    assert all(0 < len(word) <= 64 for word in target.words)


def test_a_story_is_read_as_it_was_written() -> None:
    assert steps(story("a", b"ub\x00c", "")) == [("a", b""), ("u", b"b\x00c")]
    assert len(steps(SEPARATOR.join([b"x"] * 500))) == MOST_STEPS
    assert cuts(b"abcde", 2) == [b"ab", b"cd", b"e"]


def test_a_story_retold_is_made_of_steps_that_are_known() -> None:
    known = [b"a", b"b", b"c"]
    for seed in range(200):
        pieces = retold(story("d", "e"), known, random.Random(seed)).split(SEPARATOR)
        assert {*pieces} <= {*known, b"d", b"e"}
        assert 1 <= len(pieces) <= 5
