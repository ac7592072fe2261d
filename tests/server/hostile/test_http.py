"""HTTP as no client should speak it, and requests as none should be made."""

from __future__ import annotations

import asyncio
import json

import pytest

from qwen3tts_server.dialects.openai.request import SpeechRequest
from qwen3tts_server.settings import OpenAISettings
from tests.engine.fake_engine import FakeEngine
from tests.server.hostile.world import (
    NATIVE,
    SPEECH,
    VOICES,
    attacked,
    frame,
    messages,
    request,
    text,
    upgrade,
)

pytestmark = pytest.mark.network

GOOD: dict[str, object] = {"input": "Hi.", "voice": "tone", "response_format": "pcm"}
CODES = {
    "bad_request",
    "bad_text",
    "unknown_voice",
    "limit_exceeded",
    "model_not_found",
    "request_too_large",
    "unsupported_media_type",
}
JSON = {"Content_Type": "application/json"}
TIMES = ("head_timeout_s", "body_timeout_s", "keep_alive_s")


def posted(body: bytes, path: str = SPEECH, **headers: str) -> bytes:
    return request("POST", path, body, **JSON | headers)


async def test_every_field_of_a_request_to_speak() -> None:
    fields = list(SpeechRequest.model_fields)
    everything = list(messages("ignored", GOOD, fields, names_too=False))
    async with attacked() as world:
        for at in range(0, len(everything), 60):
            some = everything[at : at + 60]
            sent = [posted(body.encode(), Connection="keep-alive") for _, body in some]
            found = await world.http(b"".join([*sent, request("GET", "/health")]))
            assert found.pop().status == 200
            for (what, _), answer in zip(some, found, strict=True):
                if answer.status == 200:
                    assert answer.headers["x-sample-rate"][0].isdigit(), what
                    continue
                assert answer.status in (400, 404), (what, answer)
                assert answer.error["code"] in CODES, (what, answer.error)
                assert "evil" not in str(answer.headers).lower()


NO_REQUESTS = [
    b"",
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"null",
    b"[]",
    b'"input"',
    b"{" * 100_000,
    b'{"input":"Hi","seed":' + b"9" * 1_000_000 + b"}",
    b'{"input":"Hi","speed":1' + b"0" * 400 + b"}",
    b'{"input":"Hi","speed":0.' + b"0" * 1_000_000 + b"1}",
    b'{"input":"' + b"\\ud83d" * 4000 + b'"}',
    b'{"input":"' + b"\x01" * 10 + b'"}',
    b'{"input":"Hi","extra_params":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
    b'{"input":"Hi","x":[' + b"0," * 1_000_000 + b"0]}",
    b"{" + b",".join(b'"%d":0' % each for each in range(100_000)) + b"}",
]


async def test_bodies_that_are_no_request() -> None:
    async with attacked() as world:
        for body in NO_REQUESTS:
            (answer,) = await world.http(posted(body, Content_Length=str(len(body))))
            assert answer.status in (400, 413), body[:40]
            assert answer.error["code"] in CODES, body[:40]


SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: tts\r\n\r\n"
AMBIGUOUS: dict[str, bytes] = {
    "both, chunked first": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "both, length first": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 39\r\n\r\n",
    "a list of lengths": b"Content-Length: 0, 39\r\n\r\n",
    "a signed length": b"Content-Length: +0\r\n\r\n",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a length in hex": b"Content-Length: 0x0\r\n\r\n",
    "a length with low lines": b"Content-Length: 1_0\r\n\r\n",
    "an endless length": b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked and something": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "something like chunked": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a tab before chunked": b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "blank before the colon": b"Content-Length : 39\r\n\r\n",
    "a folded header": b"X: a\r\n Content-Length: 39\r\n\r\n",
    "a bare CR": b"X: a\rContent-Length: 39\r\n\r\n",
    "a NUL": b"X: a\0b\r\n\r\n",
    "a chunk of no number": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a negative chunk": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    "an endless chunk size": b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 100 + b"\r\n",
    "a long chunk extension": b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 70_000,
    "long trailers": b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 70_000,
    "a long head": b"X: " + b"x" * 70_000 + b"\r\n\r\n",
    "many headers": b"X: y\r\n" * 10_000 + b"\r\n",
    "two hosts": b"Host: other\r\nContent-Length: 0\r\n\r\n",
}
PLAIN = ("a folded header",)
"""Of these, those whose end every reader sees in one place."""


async def test_what_may_be_read_in_two_ways_is_not_read_twice() -> None:
    async with attacked(access={"body_timeout_s": 0.3, "keep_alive_s": 0.3}) as world:
        for name, rest in AMBIGUOUS.items():
            head = (
                b"POST /v1/audio/speech HTTP/1.1\r\nHost: tts\r\nContent-Type: application/json\r\n"
            )
            found = await world.http(head + rest + SMUGGLED)
            # One answer to the first and, where its end is beyond doubt, one to the second.
            assert found, name
            assert 400 <= found[0].status < 500, name
            assert found[0].error["type"] == "invalid_request_error", name
            assert all(each.status != 200 for each in found) or name in PLAIN, name


LINES = [
    b"GET  / HTTP/1.1",
    b"GET / HTTP/1.2",
    b"GET / HTTP/2.0",
    b"PRI * HTTP/2.0",
    b"GET /\x00 HTTP/1.1",
    b"GET /\xff\xfe HTTP/1.1",
    b"GET http://169.254.169.254/latest HTTP/1.1",
    b"CONNECT 127.0.0.1:22 HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"TRACE / HTTP/1.1",
    b"GET /../../../../etc/passwd HTTP/1.1",
    b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1",
    b"GET /v1/models/%00%0d%0aX-Evil:%201 HTTP/1.1",
    b"GET /v1/models/%ff%fe HTTP/1.1",
    b"GET /" + b"a" * 12_000 + b" HTTP/1.1",
    b"DELETE /v1/audio/voices/..%2f..%2fx HTTP/1.1",
    b"DELETE /v1/audio/voices/%0d%0aX-Evil:1 HTTP/1.1",
    b"DELETE /v1/audio/voices/ HTTP/1.1",
    b"POST /v1/audio/speech/ HTTP/1.1",
    b"X" * 300 + b" / HTTP/1.1",
    b"get /health HTTP/1.1",
]


async def test_odd_requests_have_an_answer_in_the_one_shape() -> None:
    async with attacked() as world:
        for line in LINES:
            (answer,) = await world.http(line + b"\r\nHost: tts\r\nConnection: close\r\n\r\n")
            assert 400 <= answer.status < 500, line[:40]
            assert answer.error["type"] == "invalid_request_error", line[:40]
            assert "x-evil" not in answer.headers


async def test_what_becomes_a_header_cannot_make_another() -> None:
    async with attacked() as world:
        for name, value in [
            ("X_Request_Id", "a b"),
            ("X_Request_Id", "a\xff"),
            ("X_Request_Id", "x" * 65),
            ("Origin", "https://evil.example\xff"),
            ("Accept", "text/event-stream" * 500),
            ("Authorization", "Bearer \xff\xfe"),
            ("Authorization", "Basic Og=="),
            ("Range", "bytes=0-"),
            ("Expect", "100-continue"),
            ("Upgrade", "h2c"),
        ]:
            found = await world.http(posted(json.dumps(GOOD).encode(), **{name: value}))
            last = found[-1]
            assert last.status in (200, 403), (name, last)
            if name == "X_Request_Id":
                assert last.headers["x-request-id"] != [value]


async def test_silent_slow_and_half_closed_connections_end_by_themselves() -> None:
    body = json.dumps(GOOD).encode()
    begun = {
        "nothing": b"",
        "a byte": b"G",
        "half a head": b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
        "no body": posted(b"", Content_Length="1000"),
        "half a body": posted(body)[:-10],
        "half a chunk": posted(b"", Transfer_Encoding="chunked") + b"5\r\nab",
        "half a handshake": upgrade(NATIVE)[:-2],
    }
    async with attacked(access=dict.fromkeys(TIMES, 0.2)) as world:
        waiting = [await world.attacker(data) for data in begun.values()]
        half = [await world.attacker(data) for data in begun.values()]
        for each in half:
            each.writer.write_eof()
        for name, each in zip(begun, waiting, strict=True):
            (answer,) = await each.ended()
            assert answer.status == 408, name
            assert answer.error["code"] == "request_timeout"
        for each in half:
            await each.rest()


async def test_a_body_in_pieces_of_a_byte_holds_nobody_up() -> None:
    async with attacked() as world:
        one = await world.attacker(posted(b"", Transfer_Encoding="chunked"))
        sending = asyncio.create_task(one.send(b"1\r\n \r\n" * 40_000 + b"0\r\n\r\n"))
        await world.heard_more(3)
        await sending
        (answer,) = await one.ended()
        assert answer.status == 400
        assert answer.error["code"] == "bad_request"


async def test_pipelined_requests_are_answered_in_turn() -> None:
    async with attacked() as world:
        body = json.dumps({**GOOD, "stream": False}).encode()
        keep = posted(body, Connection="keep-alive")
        wrong = posted(b"{", Connection="keep-alive")
        found = await world.http((keep + wrong) * 20 + request("GET", "/health"))
        assert [each.status for each in found] == [200, 400] * 20 + [200]
        assert len({each.body for each in found[:40:2]}) == 1
        flood = await world.attacker(request("GET", "/health", Connection="keep-alive") * 3000)
        flood.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await world.heard_more(3)


async def test_frames_before_the_handshake_is_answered_harm_nobody() -> None:
    async with attacked() as world:
        early = text({"type": "ping", "client_time_ms": 1})
        for data in (early * 3, early * 300, frame(1, b" " * 200_000), b"\xff" * 9000):
            one = await world.attacker(upgrade(NATIVE, "qwen3tts.speech.v1") + data)
            await world.heard_more(1)
            one.reset()


HANDSHAKES: list[dict[str, str]] = [
    {"Sec_WebSocket_Version": "12"},
    {"Sec_WebSocket_Version": "x"},
    {"Sec_WebSocket_Key": "short"},
    {"Sec_WebSocket_Key": ""},
    {"Upgrade": "websocket, h2c"},
    {"Connection": "close"},
    {"Content_Length": "5"},
    {"Transfer_Encoding": "chunked"},
    {"Sec_WebSocket_Protocol": "a" * 10_000},
    {"Sec_WebSocket_Protocol": ", ".join(f"p{each}" for each in range(2000))},
    {"Sec_WebSocket_Protocol": ",,\xff"},
    {"Sec_WebSocket_Protocol": "bearer.\xff\xfe"},
    {"Sec_WebSocket_Extensions": "a b c;;=,"},
    {"X": "y" * 9000},
    {f"X{each}": "y" for each in range(200)},
]


async def test_handshakes_that_are_none_have_an_answer_and_an_end() -> None:
    async with attacked(access=dict.fromkeys(TIMES, 0.2)) as world:
        for changes in HANDSHAKES:
            one = await world.attacker(upgrade(NATIVE, **changes))
            head = await one.reader.readline()
            status = int(head.split()[1])
            if status == 101:
                # Nothing of our protocol: a close frame says so.
                await one.reader.readuntil(b"\r\n\r\n")
                assert await one.close_code() == 1002
            else:
                assert 400 <= status < 500, (changes, head)
                await one.rest()


async def test_clients_that_go_in_the_middle_of_an_answer_free_everything() -> None:
    engine = FakeEngine()
    async with attacked(engine, openai=OpenAISettings()) as world:
        for form in ("pcm", "wav", "mp3", "flac", "opus", "aac"):
            for more in ({"stream": True}, {"stream": False}, {"stream_format": "sse"}):
                body = json.dumps({**GOOD, "voice": "stall", "response_format": form, **more})
                for leave in ("reset", "half"):
                    one = await world.attacker(posted(body.encode()))
                    await world.until(lambda: any(e.voice == "stall" for e in engine.requests))
                    if leave == "half":
                        one.writer.write_eof()
                    else:
                        one.reset()
                    await world.until(lambda: world.server.service.connections == 1)
                    engine.requests.clear()


async def test_uploads_where_nothing_clones_and_to_wrong_places() -> None:
    async with attacked() as world:
        for path in (VOICES, SPEECH, "/", "/health", "/v1/models"):
            head = request("POST", path, Content_Length=str(1 << 40), Content_Type="text/plain")
            (answer,) = (await world.http(head + b"x"))[:1]
            assert 400 <= answer.status < 500
            assert answer.error["code"]
