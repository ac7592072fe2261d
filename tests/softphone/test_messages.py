from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone.messages import encoded, read_page
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_wire.errors import BadRequest, LimitExceeded
from qwen3tts_wire.fields import DecodeError


def page(**fields: Any) -> protocol.PageMessage | DecodeError:
    return read_page(json.dumps(fields))


def test_what_a_page_sends_is_read_field_by_field() -> None:
    assert page(type="call", sdp="v=0", record=True) == protocol.Call("v=0", record=True)
    assert page(type="type", utterance=3, text="Good ") == protocol.Type(3, "Good ")
    assert page(type="hello", token="abc") == protocol.Hello("abc")
    assert page(type="report") == Report()
    assert page(type="hangup") == protocol.HangUp()


@pytest.mark.parametrize(
    ("fields", "error", "named"),
    [
        ({"type": "call", "sdp": "v=0", "volume": 3}, BadRequest, "volume"),
        ({"type": "call"}, BadRequest, "sdp"),
        ({"type": "call", "sdp": "v=0", "codec": "G729"}, BadRequest, "codec"),
        ({"type": "key", "digit": "12"}, BadRequest, "digit"),
        ({"type": "type", "utterance": -1, "text": ""}, BadRequest, "utterance"),
        ({"type": "type", "utterance": 1, "text": "x" * 4097}, LimitExceeded, "text"),
        ({"type": "mute", "on": "yes"}, BadRequest, "on"),
        ({"type": "report", "rtt_ms": -1}, BadRequest, "rtt_ms"),
        ({"type": "answer", "sdp": "v=0"}, BadRequest, "answer"),
        ({"type": ["call"]}, BadRequest, "type"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], error: type[Exception], named: str) -> None:
    fault = page(**fields)
    assert isinstance(fault, DecodeError)
    assert isinstance(fault.error, error)
    assert named in fault.error.message


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"type": "ping", "time": NaN}', "[" * 9000]
)
def test_what_is_no_message_is_a_fault(text: str) -> None:
    assert isinstance(read_page(text), DecodeError)


def test_a_token_and_spoken_words_are_in_no_representation() -> None:
    shown = repr(
        [
            protocol.Hello("secret-token"),
            protocol.Type(1, "secret words"),
            protocol.Utterance(1, "typed", "secret words"),
            protocol.Spoken(1, "secret words", "secret", interrupted=True),
            protocol.Turn("secret words", False, 0.0, 1.0),
        ]
    )
    assert "secret" not in shown


def test_what_the_server_says_is_json_without_what_is_not_known() -> None:
    assert json.loads(encoded(protocol.Heard(2, 480, 17.5))) == {
        "type": "heard",
        "id": 2,
        "position": 480,
        "time": 17.5,
    }
    words = protocol.Words(1, ((0, 4, 0, 480), (5, 8, 480, 960)), 24_000)
    assert json.loads(encoded(words))["words"] == [[0, 4, 0, 480], [5, 8, 480, 960]]
    assert "rtt_ms" not in json.loads(encoded(protocol.Line(0.0, "idle")))
    assert json.loads(encoded(protocol.State("up")))["type"] == "state"


def test_a_lone_half_of_a_character_leaves_as_valid_text() -> None:
    text = encoded(protocol.Utterance(1, "typed", "a\ud83d"))
    assert json.loads(text)["text"] == "a\ufffd"
    text.encode()


def test_every_message_has_a_name_of_its_own_on_its_side() -> None:
    for kinds in (protocol.PAGE_MESSAGES, protocol.SERVER_MESSAGES):
        for name, kind in kinds.items():
            assert kind.type == name
            assert dataclasses.is_dataclass(kind)
            assert kind.__doc__
