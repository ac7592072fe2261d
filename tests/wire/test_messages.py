from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_wire import messages as m
from qwen3tts_wire.errors import BadRequest, ProtocolError
from qwen3tts_wire.fields import DecodeError, decode, encode, kinds
from qwen3tts_wire.formats import FORMATS, HEADER, AudioFormat, AudioFrame
from qwen3tts_wire.messages import CLIENT_MESSAGES, SERVER_MESSAGES

VALID: dict[str, dict[str, Any]] = {
    "context.open": {"context_id": "a", "context_no": 1},
    "text.append": {"context_id": "a", "text": "Hello"},
    "text.flush": {"context_id": "a"},
    "text.end": {"context_id": "a"},
    "playout.report": {"context_id": "a", "played": 10, "state": "held"},
    "context.cancel": {"context_id": "a", "played": None},
    "audio.credit": {"context_id": "a", "window_ms": 100},
    "voice.load": {"request_id": "r"},
    "ping": {"client_time_ms": 1.5},
}


def read(fields: object) -> Any:
    return decode(json.dumps(fields), CLIENT_MESSAGES, strict=True)


def fault(fields: object) -> DecodeError:
    got = read(fields)
    assert isinstance(got, DecodeError)
    return got


def test_there_is_a_valid_example_of_every_client_message() -> None:
    assert VALID.keys() == CLIENT_MESSAGES.keys()
    for name, fields in VALID.items():
        assert isinstance(read({"type": name, **fields}), CLIENT_MESSAGES[name])


@pytest.mark.parametrize("name", VALID)
def test_a_missing_field_is_named(name: str) -> None:
    for field, (_, required) in kinds(CLIENT_MESSAGES[name]).items():
        if required:
            fields = {key: value for key, value in VALID[name].items() if key != field}
            got = fault({"type": name, **fields})
            assert got.error.code == "bad_request"
            assert field in got.error.message


@pytest.mark.parametrize("name", VALID)
def test_an_unknown_field_is_refused_by_name(name: str) -> None:
    got = fault({"type": name, **VALID[name], "colour": "red"})
    assert "'colour'" in got.error.message
    assert got.type == name


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("wrong", [[], {"a": 1}, True, float("1e300"), "\ud800", "x\n", -1, ""])
def test_a_field_of_a_wrong_type_or_size_is_named(name: str, wrong: object) -> None:
    for field in VALID[name]:
        got = read({"type": name, **VALID[name], field: wrong})
        if isinstance(got, DecodeError):
            assert field in got.error.message
        else:
            assert field in ("text", "played", "state") or name == "ping"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a":' * 100_000, "not JSON"),
        ("1" * 10_000, "not JSON"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{}", "no type"),
        ('{"type": 3}', "no type"),
        ('{"type": "toString"}', "no message type"),
        ('{"type": "ping", "client_time_ms": NaN}', "not JSON"),
        ('{"type": "ping", "client_time_ms": Infinity}', "not JSON"),
        ('{"type": "ping", "client_time_ms": 1e999}', "from -1e"),
        ('{"type": "ping", "client_time_ms": 1, "client_time_ms": 2}', "twice"),
        ('{"type": "ping", "client_time_ms": true}', "must be a number"),
        ('{"type": "context.open", "context_id": "a", "context_no": 1.0}', "whole number"),
        ('{"type": "context.open", "context_id": "a", "context_no": 0}', "from 1 to"),
        ('{"type": "context.open", "context_id": "a", "context_no": 1, "mode": "x"}', "one of"),
        (
            '{"type": "context.open", "context_id": "a", "context_no": 1, "format": {"rate": 1}}',
            "context.open.format has no field 'rate'",
        ),
    ],
)
def test_what_cannot_be_read_is_a_fault_that_says_why(text: str, says: str) -> None:
    got = decode(text, CLIENT_MESSAGES, strict=True)
    assert isinstance(got, DecodeError)
    assert says in got.error.message


def test_text_beyond_the_bound_is_a_limit_exceeded_that_says_the_bound() -> None:
    got = fault({"type": "text.append", "context_id": "a", "text": "x" * 16_385})
    assert got.error.code == "limit_exceeded"
    assert "16384" in got.error.message
    assert got.context_id == "a"


def test_a_message_from_outside_never_stands_in_the_error_at_length() -> None:
    got = fault({"type": "ping", "client_time_ms": 1, "secret" * 1000: 1})
    assert len(got.error.message) < 100


def test_the_client_ignores_unknown_fields_and_types() -> None:
    pong = {"type": "pong", "client_time_ms": 1, "received_ms": 2, "sent_ms": 3, "new": [1]}
    assert decode(json.dumps(pong), SERVER_MESSAGES, strict=False) == m.Pong(1, 2, 3)
    assert decode('{"type": "new"}', SERVER_MESSAGES, strict=False) is None


def test_what_is_none_is_left_out() -> None:
    assert json.loads(encode(m.ContextCancel("a"))) == {"type": "context.cancel", "context_id": "a"}


def test_a_lone_surrogate_never_reaches_the_wire() -> None:
    for text in ("\ud83d", "a\ude00b"):
        written = encode(m.TextAppend("a", text))
        written.encode("utf-8")
        assert "\ufffd" in json.loads(written)["text"]


SAMPLES: list[Any] = [
    m.ContextOpen("a", 1, "v", "en", mode="live", sampling=m.Sampling(top_k=3), seed=4),
    m.SessionCreated(
        m.PROTOCOL,
        "e",
        "m",
        (m.VoiceInfo("v", "Vé", "en"),),
        FORMATS,
        m.Limits(),
        ("clause",),
    ),
    m.ContextStarted("a", 1, "clause", AudioFormat(), "v", None, ("seed",), {"received": 1.5}),
    m.AlignmentInfo("a", (m.WordInfo("hé", 0, 1, 0, 2),)),
    m.ContextDone("a", 1, 2, 3, "text_end", {"done": 1.0}),
    m.ContextCancelled("a", 1, 2, 0, "", "x"),
    m.ErrorInfo("bad_text", "no", "do", "a", None, False, "context"),
    m.ServerDraining(10.0),
]


@pytest.mark.parametrize("message", SAMPLES, ids=lambda each: each.type)
def test_every_message_comes_back_as_it_was(message: Any) -> None:
    table: dict[str, Any] = {**CLIENT_MESSAGES, **SERVER_MESSAGES}
    assert decode(encode(message), table, strict=False) == message


def test_every_message_is_frozen() -> None:
    for kind in (*CLIENT_MESSAGES.values(), *SERVER_MESSAGES.values()):
        assert dataclasses.is_dataclass(kind)
        assert kind.__dataclass_params__.frozen  # type: ignore[union-attr]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(CLIENT_MESSAGES)),
    st.dictionaries(
        st.sampled_from(sorted({name for kind in CLIENT_MESSAGES.values() for name in kinds(kind)}))
        | st.text(max_size=5),
        JSON,
        max_size=6,
    ),
)
def test_any_fields_give_a_message_or_a_fault(name: str, fields: dict[str, Any]) -> None:
    got = decode(json.dumps({**fields, "type": name}), CLIENT_MESSAGES, strict=True)
    assert isinstance(got, (DecodeError, CLIENT_MESSAGES[name]))


@settings(deadline=None)
@given(st.text(st.characters(categories=None)), st.booleans())
def test_any_text_gives_a_message_or_a_fault(text: str, strict: bool) -> None:
    got = decode(text, CLIENT_MESSAGES, strict=strict)
    assert got is None or isinstance(got, DecodeError)


@settings(deadline=None)
@given(
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=50),
    st.integers(0, 255),
)
def test_a_frame_comes_back_as_it_was(no: int, offset: int, data: bytes, flags: int) -> None:
    frame = AudioFrame(no, offset, data, flags)
    assert AudioFrame.from_bytes(frame.to_bytes()) == frame


def test_the_header_is_the_sixteen_bytes_of_the_contract() -> None:
    message = AudioFrame(0x01020304, 0x1112131415161718, b"\xaa\xbb", 1).to_bytes()
    assert HEADER.size == 16
    assert message.hex() == "01010000" + "04030201" + "1817161514131211" + "aabb"


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_frame_or_a_protocol_error(data: bytes) -> None:
    try:
        assert AudioFrame.from_bytes(data).to_bytes()[4:] == data[4:]
    except ProtocolError:
        assert len(data) < 16 or data[0] != 1


def test_what_is_served_is_accepted_and_the_rest_is_refused_by_name() -> None:
    for each in FORMATS:
        assert each.checked() is each
    with pytest.raises(BadRequest, match="mulaw at 16000 Hz is not served"):
        AudioFormat("mulaw", 16000).checked()


@pytest.mark.parametrize("form", FORMATS)
def test_milliseconds_to_samples_and_back_is_exact(form: AudioFormat) -> None:
    for samples in range(0, 100_000, 37):
        assert form.samples(1000 * samples / form.sample_rate) == samples
