"""Replies of chat endpoints and of speech recognizers."""

from __future__ import annotations

import asyncio
import contextlib
import json

import numpy as np

from qwen3tts_agent.chat.messages import (
    ChatMessage,
    Finished,
    ModelUnavailable,
    ToolCall,
    request_body,
)
from qwen3tts_agent.chat.stream import (
    MAX_ARGUMENT_CHARS,
    MAX_CALLS,
    ChatStream,
    refusal_words,
    whole_answer,
)
from qwen3tts_agent.recognition.deepgram import DeepgramStream
from qwen3tts_agent.recognition.openai import read_text, refusal
from qwen3tts_agent.recognition.socket_protocol import (
    MOST_BINARY,
    MOST_PENDING,
    MOST_TEXT,
    Failed,
    Final,
    Outgoing,
    Partial,
    Ready,
    TurnStream,
    read_answer,
)
from qwen3tts_agent.tools import Toolbox, tool, tools_of
from qwen3tts_wire.child.messages import HEAD, MAX_DATA, MAX_JSON, BadMessage, Decoder, Message
from qwen3tts_wire.errors import ProtocolError, SpeechError
from qwen3tts_wire.whisper.guards import FASTEST_CHARS_S, SPARE_CHARS
from tests.fuzz.target import Target, chunks, sequence, steps


def run_stream(data: bytes) -> None:
    """The bytes of a stream; cut otherwise they give the same."""
    whole = _events([data])
    assert _events(chunks(data, 1 + len(data) % 7)) == whole
    calls = [event for event in whole if isinstance(event, ToolCall)]
    assert len(calls) <= 4 * MAX_CALLS
    assert all(call.id and len(call.arguments) <= MAX_ARGUMENT_CHARS for call in calls)
    ends = [place for place, event in enumerate(whole) if isinstance(event, Finished)]
    assert ends in ([], [len(whole) - 1]), "nothing follows the end"
    json.dumps(request_body("m", [ChatMessage("assistant", "", tuple(calls))])).encode()


def _events(pieces: list[bytes]) -> list[object]:
    stream = ChatStream()
    found: list[object] = []
    for piece in pieces:
        found += stream.push(piece)
        if stream.failure is not None:
            assert isinstance(stream.failure, SpeechError)
            break
    if stream.failure is None and not stream.ended:
        with contextlib.suppress(ModelUnavailable):
            found += stream.finish()
    texts = "".join(event for event in found if isinstance(event, str))
    return [texts, *(event for event in found if not isinstance(event, str))]


def run_answer(data: bytes) -> None:
    """The body of an answer that is not streamed, or of a refusal."""
    words = refusal_words(data)
    assert words.isprintable()
    assert len(words) <= 300
    try:
        events = whole_answer(data)
    except SpeechError:
        return
    assert isinstance(events[-1], Finished)


async def look_up(day: str, names: list[str] | None = None, count: int = 1) -> str:
    """Look something up."""
    return f"{day} {names} {count}"


def run_arguments(data: bytes) -> None:
    """The bytes are the arguments that a model gives a tool."""
    box = Toolbox(
        tools_of([tool(look_up)]), {"call": None, "conversation": None}, timeout_s=5, most_chars=500
    )
    arguments = data.decode("utf-8", "surrogateescape")
    text, ok = asyncio.run(box.use(ToolCall("a", "look", arguments)))
    assert isinstance(text, str)
    assert len(text) <= 1200
    assert ok == (not text.startswith("Error: "))


def _delta(**delta: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


_CALL = {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"day":"Mo"}'}}

RATE = 8000
READY = b't{"type":"ready"}'

RESULTS = (
    b't{"type":"Results","start":0,"duration":0.5,"is_final":true,"from_finalize":true,"channel":'
    b'{"alternatives":[{"transcript":"Good morning.","confidence":0.9,"languages":["en"]}]}}'
)

SO_FAR = RESULTS.replace(b'"is_final":true', b'"is_final":false')

FINAL = b't{"type":"final","turn":1,"text":"Good morning.","language":"en","confidence":0.9}'


def recogniser_server(data: bytes) -> None:
    """A server says anything at any moment of a call, over any number of connections."""
    stream = TurnStream(RATE, everything=bool(data[:1] > b"\x7f"), longest_s=2.0)
    at = 0.0
    waiting: set[int] = set()
    for what, given in steps(data):
        out: Outgoing = []
        if what in "tb":
            with contextlib.suppress(ProtocolError):
                answer = read_answer(given.decode("utf-8", "replace") if what == "t" else given)
                heard = None if answer is None else stream.take(answer)
                if isinstance(heard, Ready):
                    out, given_up = stream.greeted()
                    assert set(given_up) <= waiting
                    waiting -= set(given_up)
                elif isinstance(heard, Partial | Final):
                    text = heard.transcript
                    assert len(text.text) <= MOST_TEXT
                    assert text.text.isprintable()
                    assert text.confidence is None or 0.0 <= text.confidence <= 1.0
                if isinstance(heard, Final):
                    assert heard.turn in waiting
                    waiting.remove(heard.turn)
                elif isinstance(heard, Failed):
                    assert len(heard.message) <= 200
                    assert heard.message.isprintable()
                    waiting -= {heard.turn or 0}
        elif what == "a":
            samples = np.frombuffer(given[: len(given) // 2 * 2], np.int16)
            at += len(samples) / RATE
            out = stream.push(samples, at)
        elif what == "<":
            out, _ = stream.begin_turn(at - len(given) / 100)
        elif what == "p":
            out = stream.pause(at)
        elif what == "r":
            out = stream.resume()
        elif what == ">":
            out, ended, oldest = stream.end_turn(at - len(given) / 100)
            waiting |= {ended} if ended is not None else set()
            waiting -= {oldest} if oldest is not None else set()
        elif what == "d":
            out = stream.drop_turn()
        elif what == "x":
            stream.lost()
        assert len(waiting) <= MOST_PENDING
        assert stream.ready or not out
        assert all(isinstance(each, str) or len(each) <= MOST_BINARY for each in out)


def deepgram_server(data: bytes) -> None:
    """Deepgram, or what answers in its place, says anything at any moment of a call."""
    stream = DeepgramStream(RATE, longest_s=2.0)
    at = 0.0
    waiting: set[int] = set()
    for what, given in steps(data):
        out: Outgoing = []
        if what in "tb":
            with contextlib.suppress(ProtocolError):
                message = given.decode("utf-8", "replace") if what == "t" else given
                for heard in stream.read(message):
                    if isinstance(heard, Final):
                        assert heard.turn in waiting
                        waiting.remove(heard.turn)
                    if isinstance(heard, Failed):
                        assert len(heard.message) <= 200
                        assert heard.message.isprintable()
                    elif isinstance(heard, Partial | Final):
                        text = heard.transcript
                        assert len(text.text) <= 3 * MOST_TEXT
                        assert text.text.isprintable()
                        assert text.confidence is None or 0.0 <= text.confidence <= 1.0
        elif what == "o":
            out, given_up = stream.greeted()
            assert set(given_up) <= waiting
            waiting -= set(given_up)
        elif what == "a":
            samples = np.frombuffer(given[: len(given) // 2 * 2], np.int16)
            at += len(samples) / RATE
            out = stream.push(samples, at)
        elif what == "<":
            out, _ = stream.begin_turn(at - len(given) / 100)
        elif what == "p":
            out = stream.pause(at)
        elif what == "r":
            out = stream.resume()
        elif what == ">":
            out, ended, oldest = stream.end_turn(at - len(given) / 100)
            waiting |= {ended} if ended is not None else set()
            waiting -= {oldest} if oldest is not None else set()
        elif what == "d":
            out = stream.drop_turn()
        elif what == "k":
            known = {number for number in waiting if stream.known(number) is not None}
            waiting -= known
        elif what == "x":
            stream.lost()
        assert len(waiting) <= MOST_PENDING
        assert stream.ready or not out
        assert all(isinstance(each, str) or len(each) <= MOST_BINARY for each in out)


def transcription_answer(data: bytes) -> None:
    """A transcription route answers with any bytes."""
    kinds = ("application/json", "text/plain", "text/html", "", "application/json; charset=x")
    kind, status = kinds[data[0] % 5] if data else "", 100 + 2 * (data[1] if data[1:] else 50)
    seconds = 10.0
    with contextlib.suppress(SpeechError):
        found = read_text(data[2:], kind, plain=status % 4 == 0, seconds=seconds)
        assert found.text.isprintable()
        assert len(found.text) <= SPARE_CHARS + FASTEST_CHARS_S * seconds
        assert found.confidence is None or 0.0 <= found.confidence <= 1.0
    said = str(refusal(status, data[2:], "small", "QWEN3TTS_STT_KEY"))
    assert said.isprintable()
    assert len(said) < 800


def recogniser_process(data: bytes) -> None:
    """The process sends any bytes, cut anywhere."""
    length = 1 + (data[0] if data else 0) % 64
    whole, pieces = Decoder(), Decoder()
    try:
        expected = whole.push(data[1:])
    except BadMessage:
        expected = None
    found: list[Message] = []
    try:
        for piece in chunks(data[1:], length):
            found += pieces.push(piece)
    except BadMessage:
        assert expected is None
    else:
        assert found == expected
    for message in found:
        assert Decoder().push(message.encode()) == [message]


def _packed(*messages: Message) -> bytes:
    return b"\x06" + b"".join(message.encode() for message in messages)


TARGETS = {
    "chat_stream": Target(
        run_stream,
        "Any bytes are words and calls, the same however they are cut, or a typed error.",
        (
            _delta(content="Good ") + _delta(content="morning.") + b"data: [DONE]\n\n",
            _delta(tool_calls=[_CALL]) + _delta(tool_calls=[{"index": 0, "function": {}}]),
            _delta(content="<think>x</think>y")
            + b'data: {"choices":[{"finish_reason":"stop"}]}\n\n',
        ),
        (
            *(b"data: ", b'"tool_calls":[', b'"function":{', b'"index":', b"\n\n", b"[DONE]"),
            b"<think>",
        ),
        max_bytes=2048,
        hard=(
            b"",
            b"data: [DONE]\n\n" + _delta(content="after the end"),
            _delta(tool_calls=[{"index": "x", "id": 3, "function": 4}, None]),
            _delta(
                tool_calls=[
                    {"index": n % 3, "id": str(n), "function": {"name": "n"}} for n in range(40)
                ]
            ),
            _delta(tool_calls=[{"function": {"name": "a"}}, {"function": {"arguments": [1]}}]),
            _delta(content=["x", {"text": "y"}, {"text": 3}]),
            _delta(content="<think>" * 3) + _delta(content="</think>"),
            b'data: {"choices":[{"delta":[],"finish_reason":{"a":1}}]}\n\n',
            b"data: " + b"[" * 2000 + b"\n\n",
            b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n',
        ),
    ),
    "chat_answer": Target(
        run_answer,
        "Any body is words and calls or a typed error, and a refusal is one printable line.",
        (
            b'{"choices":[{"message":{"content":"Yes."}}]}',
            b'{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"x"}}]}}]}',
            b'{"error":{"message":"no"}}',
        ),
        (b'"choices":[', b'"message":{', b'"content":', b'"error":', b'"tool_calls":['),
        max_bytes=1024,
        hard=(
            b"[]",
            b'{"error":[{"message":"a\\u001b[2J"}]}',
            b'{"choices":[{"message":{"content":3}}]}',
            b'{"choices":[{"message":{"content":null}}]}',
            b"{" * 1000,
            b'{"detail":"' + b"x" * 900 + b'"}',
        ),
    ),
    "tool_arguments": Target(
        run_arguments,
        "Any arguments are used, or refused in a text of bounded length.",
        (b'{"day":"Mo"}', b'{"day":"Mo","names":["a"],"count":2}', b"{}", b"null"),
        (b'"day":', b'"names":[', b'"count":', b"null", b"NaN", b"1e999"),
        max_bytes=1024,
        hard=(
            b"[]",
            b'{"day":1e999}',
            b'{"day":"\\ud800"}',
            b"[" * 900,
            b'{"day":null}',
            b'{"day":"Mo","count":true}',
            b'{"day":"Mo","call":1}',
            b"\xff\xfe",
        ),
    ),
    "recogniser_server": Target(
        recogniser_server,
        "A recogniser's server may say anything: no text of a turn that is not waited for, nothing"
        " unbounded, nothing sent before it is ready.",
        (
            sequence(
                *(READY, b"a" + bytes(640), "<", b"a" + b"\x10\x20" * 400, "p", "r", "p", ">"),
                *(FINAL, "<", ">", "x", READY, FINAL),
            ),
            sequence("<", ">", READY, b't{"type":"error","turn":1,"message":"no room"}', FINAL),
            sequence(READY, "<", b't{"type":"partial","turn":1,"text":"Good"}', ">", FINAL, "x"),
        ),
        words=(
            *(b'"type":', b'"partial"', b'"final"', b'"error"', b'"ready"', b'"turn":', b'"text":'),
            *(b'"confidence":', b'"language":', b"1e999", b"NaN", b"null", b"\\ud83d"),
        ),
        stepwise=True,
        hard=(
            b"t" + b"[" * 3000,
            b't{"type":"final","turn":' + b"9" * 4000 + b',"text":""}',
            b't{"type":"final","turn":1e999,"text":""}',
            b't{"type":["final"],"turn":1}',
            sequence(READY, *("<", ">") * 12, FINAL, FINAL),
            sequence(READY, "<", ">", *(b"x", READY) * 6, FINAL),
            sequence("d", READY, "<", "d", "p", ">", FINAL, "<", "x", "d", READY),
            sequence(READY, "<", FINAL, FINAL, ">", FINAL, FINAL),
            sequence("<", b"a" + bytes(3000), ">", "x", "x", READY, READY, READY),
            sequence(READY, "<" + "y" * 400, ">" + "y" * 400, b"a" + b"\xff", "p", "p", "r", "r"),
            sequence(READY, "<", ">", b't{"type":"final","turn":1,"text":"\\ud83d\\u0000\\u202e"}'),
            sequence(READY, "<", ">", b't{"type":"final","turn":1,"text":"a","confidence":-0.0}'),
            sequence(
                READY, b't{"type":"error","turn":null,"message":{"a":1}}', b't{"type":"error"}'
            ),
        ),
    ),
    "deepgram_server": Target(
        deepgram_server,
        "Deepgram's server may say anything: no text of a turn that is not waited for, nothing"
        " unbounded, nothing sent where there is no connection.",
        (
            sequence("o", "<", b"a" + b"\x10\x20" * 300, SO_FAR, "p", "r", "p", ">", RESULTS),
            sequence("<", ">", "o", RESULTS, "x", "o", "<", b"a" + bytes(800), SO_FAR, ">", "k"),
            sequence("o", "<", "d", "<", ">", b't{"type":"Error","description":"no room"}', "x"),
        ),
        words=(
            *(b'"type":', b'"Results"', b'"Error"', b'"Metadata"', b'"UtteranceEnd"', b'"start":'),
            *(b'"duration":', b'"is_final":true', b'"from_finalize":true', b'"channel":'),
            *(b'"alternatives":', b'"transcript":', b"1e999", b"NaN", b"-1", b"null"),
        ),
        max_bytes=4096,
        stepwise=True,
        hard=(
            b"t" + b"[" * 3000,
            sequence("o", "<", b't{"type":"Results","start":1e999,"duration":1}', ">", "k"),
            sequence(
                "o", "<", b't{"type":"Results","start":' + b"9" * 4000 + b',"duration":1}', ">"
            ),
            sequence("o", *("<", ">") * 12, RESULTS, RESULTS),
            sequence("o", "<", ">", *("x", "o") * 6, RESULTS),
            sequence("d", "o", "<", "d", "p", ">", RESULTS, "<", "x", "d", "o"),
            sequence("o", "<", RESULTS, RESULTS, ">", RESULTS, "k", "k"),
            sequence("<", b"a" + bytes(3000), ">", "x", "x", "o", "o", "o"),
        ),
    ),
    "transcription_answer": Target(
        transcription_answer,
        "A transcription route may answer with anything: a text that can be believed, or an error.",
        (
            b'\x00\x32{"text":"Good morning.","language":"en"}',
            b'\x00\x32{"text":"Hi","segments":[{"avg_logprob":-0.3,"no_speech_prob":0.1}]}',
            b'\x00\x96{"error":{"message":"no such model"}}',
            b"\x01\x32Good morning.",
        ),
        words=(b'"text":', b'"segments":', b'"avg_logprob":', b"1e999", b"NaN", b'"error":'),
        hard=(
            b"\x00\x32" + b"[" * 3000,
            b'\x00\x32{"text":"a","segments":[{"avg_logprob":'
            + b"9" * 400
            + b',"no_speech_prob":1}]}',
            b'\x00\x32{"text":"a","segments":[{"avg_logprob":NaN,"no_speech_prob":1e999}]}',
            b'\x00\x32{"text":"\\ud83d\\u0000\\u202e"}',
            b"\x01\x32" + b"\xff\x00" * 100,
        ),
    ),
    "recogniser_process": Target(
        recogniser_process,
        "The model's process may send anything, cut anywhere: the same messages, or none.",
        (
            _packed(
                Message("ready", {"load_s": 1.5, "device": "cpu"}),
                Message("text", {"job": 1, "text": "Good morning.", "language": "en"}),
            ),
            _packed(Message("hear", {"job": 1}, bytes(64)), Message("drop", {"job": 1})),
        ),
        hard=(
            b"\x00" + HEAD.pack(2, 0) + b"{}",
            b"\x00" + HEAD.pack(MAX_JSON + 1, 0),
            b"\x00" + HEAD.pack(0, MAX_DATA + 1),
            b"\x00" + HEAD.pack(3000, 0) + b"[" * 3000,
            b"\x3f" + HEAD.pack(4, 0) + b"null" + HEAD.pack(0, 0),
            b"\x02" + HEAD.pack(12, 4) + b'{"kind":"a"}' + bytes(4) + HEAD.pack(12, 0),
            b"\x01" + HEAD.pack(11, 0) + b'{"kind":"\xff'[:11],
        ),
    ),
}
