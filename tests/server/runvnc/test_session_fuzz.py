"""Any order of messages, sound, failures and time: what is said begins and ends once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_server.dialects.runvnc.messages import FRAME, FrameQueue
from tests.fuzz.dialects import run_runvnc
from tests.fuzz.target import sequence
from tests.server.runvnc.client import AUDIO


def message(kind: str, **fields: Any) -> bytes:
    return b"t" + json.dumps({"type": kind, **fields}).encode()


MESSAGES = [
    message("init", voice_id="tone"),
    message("init", ref_audio_base64=AUDIO, ref_text="Hi."),
    message("init", ref_audio_base64=AUDIO),
    message("generate_stream", text="Hello."),
    message("generate_stream", text="Hello.", voice_id="tone"),
    message("generate_stream", text="Hello.", voice_id="unlisted"),
    message("generate", text="Hello."),
    message("generate", text=""),
    message("text", text="Hel"),
    message("text", text="lo.", voice_id="tone"),
    message("text", text="", final=True),
    message("cancel"),
    message("ping"),
    message("unknown"),
    b"b" + bytes(FRAME),
    b"t{",
]
EVENTS = [b"p" + bytes(n) for n in (1, 30, 200)] + [b"e", b"x", b"l", b"n", b"r", b"w\x02", b"z"]
STEPS = st.lists(st.sampled_from(MESSAGES + EVENTS * 2 + [b"q"]), max_size=40)


@given(STEPS)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_order_keeps_the_promises(told: list[bytes]) -> None:
    run_runvnc(sequence(MESSAGES[0], b"l", *told))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
FIELDS = ("text", "voice_id", "language", "final", "ref_audio_base64", "ref_text", "x_vector_only")


@given(
    st.sampled_from(["init", "generate_stream", "generate", "text", "cancel", "ping"]),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_fields_have_an_answer_or_an_effect(kind: str, fields: dict[str, Any]) -> None:
    told = message(kind, **fields)
    run_runvnc(sequence(MESSAGES[0], b"l", told, b"l", b"p" + bytes(50), b"r", told, b"e"))


@given(st.lists(st.binary(max_size=400)), st.integers(1, 9))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_frames_hold_all_that_was_pushed_and_nothing_else(pieces: list[bytes], most: int) -> None:
    frames, out = FrameQueue(), list[bytes]()
    for piece in pieces:
        frames.push(piece)
        out += frames.take(most, 0.0)
    frames.finish()
    frames.finish()
    out += frames.take(10_000, 0.0)
    assert {*map(len, out)} <= {FRAME}
    whole = b"".join(pieces)
    assert b"".join(out) == whole + b"\xff" * (-len(whole) % FRAME)


def test_frames_that_are_cleared_are_gone() -> None:
    frames = FrameQueue(0.01)
    frames.push(bytes(500))
    assert len(frames) == 3
    assert frames.due(1.0) == pytest.approx(1.0)
    frames.clear()
    frames.finish()
    assert (len(frames), frames.due(1.0), frames.take(5, 9.0)) == (0, None, [])
