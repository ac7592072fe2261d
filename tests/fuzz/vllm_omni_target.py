"""Fuzz targets: a client of vLLM-Omni's WebSocket, and the units of its text."""

from __future__ import annotations

import json

from qwen3tts_server.dialects.vllm_omni.utterances import Granularity, Splitter
from qwen3tts_wire.errors import EngineFailed
from tests.fuzz.target import Target, story
from tests.fuzz.target import steps as steps_of
from tests.server.vllm_omni.line import CLOSE, Line

GRANULARITIES: tuple[Granularity, ...] = ("none", "sentence", "clause")
STREAM = b't{"type":"session.config","response_format":"pcm","stream_audio":true'
SAY = b't{"type":"input.text","text":"One. Two, three. Fo"}'
DONE = b't{"type":"input.done"}'
CANCEL = b't{"type":"input.cancel"}'


def run_session(data: bytes) -> None:
    line = Line(max_waiting_answers=60, max_message_chars=2000, max_waiting_chars=3000)
    for kind, rest in steps_of(data):
        if line.code() is not None:
            break
        if kind in "tb":
            line.say(rest.decode("utf-8", "replace") if kind == "t" else rest)
        elif kind == "w":
            line.wait((rest[0] if rest else 20) / 4)
        elif kind == "k":
            line.stuck = True
        elif kind == "u":
            line.unstick()
        elif kind == "q":
            line.act(line.session.drain(5.0, line.now))
        elif line.saying is not None:
            if kind == "p":
                line.audio(bytes(2 * (len(rest) + 1)))
            elif kind == "e":
                line.finish()
            elif kind == "x":
                line.fail(EngineFailed("broke"))
    line.unstick()
    if line.code() is None:
        line.say(CLOSE)
    for _ in range(4000):
        if line.saying is None:
            break
        line.finish()
    assert line.saying is None
    if line.code() is None:  # before the first configuration there is no good-bye
        line.wait(60.0)
    assert line.code() is not None
    assert not line.session.busy


def run_splitter(data: bytes) -> None:
    granularity = GRANULARITIES[data[0] % 3] if data else "sentence"
    text = data[2:].decode("utf-8", "replace")
    whole = _units(granularity, text, len(text) or 1)
    assert _units(granularity, text, 1 + (data[1] if len(data) > 1 else 0) % 16) == whole
    assert "".join("".join(whole).split()) == "".join(text.split())
    assert all(unit == unit.strip() != "" for unit in whole)


def _units(granularity: Granularity, text: str, length: int) -> list[str]:
    splitter = Splitter(granularity)
    found: list[str] = []
    for start in range(0, len(text), length):
        splitter.feed(text[start : start + length])
        while (unit := splitter.take()) is not None:
            found.append(unit)
    splitter.end()
    while (unit := splitter.take()) is not None:
        found.append(unit)
    assert len(splitter) == 0
    return found


TARGETS: dict[str, Target] = {
    "vllm_omni": Target(
        run_session,
        "Whatever client, engine and clock do, units are said one by one in the protocol's order,"
        " every answer is its own protocol, and the connection comes to rest with a close code.",
        (
            story(STREAM + b"}", SAY, DONE, "pxx", "e", b't{"type":"session.close"}'),
            story(
                STREAM + b',"split_granularity":"sentence","word_timestamps":true}',
                *(SAY, "p", "e", "px", "x", SAY, CANCEL, SAY, DONE, "p", "e", "e", "e"),
            ),
            story(
                b't{"type":"session.config","speaker":"tone","split_granularity":"clause"}',
                *(SAY, "k", "p", "e", "u", DONE, "q", "p", "e", b"w\xff"),
            ),
        ),
        words=(
            *(b'"type":"session.config"', b'"type":"input.text"', b'"type":"input.done"'),
            *(b'"text":"', b'"split_granularity":"', b'"clause"', b'"seed":', b'"voice":null'),
            *(b'"stream_audio":true', b'"word_timestamps":true', b'"response_format":"pcm"'),
            *(DONE, CANCEL, b"\\ud83d", b"1e999", b'"speaker_embedding":['),
        ),
        stepwise=True,
    ),
    "vllm_omni_units": Target(
        run_splitter,
        "Any text comes back in units that lose nothing but white space, the same however cut.",
        tuple(
            bytes([number, 3]) + text.encode()
            for number, text in enumerate(
                (
                    "One. Two.",
                    'Dr. J. R. Smith said "3.14, i.e. pi." Yes?! 1,000 times...',
                    "Well, e.g. this; and \u4f60\u597d\uff0c\u4e16\u754c\u3002\u300d \u0964 \u061f",
                )
            )
        ),
        words=(b". ", b"Dr.", b"e.g.", b"3.14", "\u3002".encode(), "\u300d".encode(), b"?!", b'"'),
        most_bytes=1024,
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "vllm_omni": (
        b"t" + b"[" * 1900,
        b"b" + bytes(3000),
        b"t" + b"x" * 5000,
        story(b't{"type":"session.config"}', *[DONE] * 40, CANCEL, "q"),
        story(b't{"type":"session.config"}', "k", *[CANCEL] * 40, "u"),
        story(STREAM + b"}", SAY, DONE, "p", "k", "p", "p", CANCEL, "u", SAY, "q", b"w\xff"),
        story(STREAM + b"}", SAY, "q", DONE, b"w\xff", "p"),
        story(
            b't{"type":"session.config","split_granularity":"clause"}',
            b't{"type":"input.text","text":"' + b"a1, " * 400 + b'"}',
            *("e", "e", "x", "e", b't{"type":"session.close"}', "e"),
        ),
        story(
            b't{"type":"session.config"}',
            b't{"type":"input.text","text":"\\ud83d"}',
            b't{"type":"input.text","text":"\\ude00\\udc00"}',
            DONE,
        ),
        story(b't{"type":"session.config","seed":9223372036854775808}', SAY),
        json.dumps({"type": "session.config", "speaker_embedding": [0] * 700}).encode(),
    ),
    "vllm_omni_units": (
        b"\x01\x00" + b"." * 900,
        b"\x02\x00" + b"a." * 400,
        b"\x01\x00" + "\u3002.J.\u3002Dr".encode() * 40,
        b"\x02\x05" + b"1.," * 200 + b"\xff" * 30,
        b"\x00\x00" + b" \n\t" * 200,
    ),
}
