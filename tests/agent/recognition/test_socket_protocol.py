from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from qwen3tts_agent.recognition.socket_protocol import (
    MOST_BINARY,
    MOST_PENDING,
    MOST_TEXT,
    TRIES,
    Failed,
    Final,
    Outgoing,
    Partial,
    Ready,
    TurnStream,
    read_answer,
)
from qwen3tts_phone.detection.recogniser import Transcript
from qwen3tts_wire.errors import ProtocolError
from tests.agent.recognition.sounds import FRAME, RATE, tone


def said(out: Outgoing) -> list[dict[str, Any] | int]:
    """Messages as objects; samples as how many there are."""
    return [json.loads(each) if isinstance(each, str) else len(each) // 2 for each in out]


def kinds(out: Outgoing) -> list[str | int]:
    """The same, only their types; consecutive samples as one number."""
    short: list[str | int] = []
    for each in said(out):
        if isinstance(each, dict):
            short.append(each["type"])
        elif short and isinstance(short[-1], int):
            short[-1] += each
        else:
            short.append(each)
    return short


def ready_stream(**options: Any) -> TurnStream:
    stream = TurnStream(RATE, **options)
    stream.hello()
    stream.greeted()
    return stream


def test_the_first_message_says_what_will_come() -> None:
    (start,) = said(TurnStream(8000, languages=("en",), everything=True).hello())
    assert start == {
        "type": "start",
        "rate_hz": 8000,
        "encoding": "pcm_s16le",
        "audio": "all",
        "languages": ["en"],
    }


def test_a_turn_from_its_first_sound_to_its_end() -> None:
    stream = ready_stream()
    assert stream.push(tone(1.0), 1.0) == []
    out, number = stream.begin_turn(0.9)
    assert said(out[:1]) == [{"type": "turn.begin", "turn": number, "samples_back": 0}]
    assert kinds(out[1:]) == [round(0.4 * RATE)]
    assert kinds(stream.push(tone(0.02), 1.02)) == [FRAME]
    assert said(stream.pause(1.0)) == [
        {"type": "turn.pause", "turn": number, "speech_samples": round(0.4 * RATE)}
    ]
    assert stream.pause(1.01) == []
    assert said(stream.resume()) == [{"type": "turn.resume", "turn": number}]
    assert stream.resume() == []
    out, ended, oldest = stream.end_turn(1.02)
    assert (ended, oldest) == (number, None)
    assert said(out) == [{"type": "turn.end", "turn": number, "speech_samples": round(0.42 * RATE)}]
    assert stream.push(tone(0.02), 1.04) == []


def test_everything_may_be_sent_and_then_a_turn_begins_in_what_was_sent() -> None:
    stream = ready_stream(everything=True)
    assert kinds(stream.push(tone(1.0), 1.0)) == [RATE]
    out, number = stream.begin_turn(0.9)
    assert said(out) == [{"type": "turn.begin", "turn": number, "samples_back": round(0.4 * RATE)}]


def test_samples_are_little_endian_and_come_in_messages_of_a_bounded_size() -> None:
    stream = ready_stream()
    stream.begin_turn(0.0)
    samples = tone(5.0)
    out = stream.push(samples, 5.0)
    assert all(isinstance(each, bytes) and len(each) <= MOST_BINARY for each in out)
    joined = b"".join(each for each in out if isinstance(each, bytes))
    assert (np.frombuffer(joined, "<i2") == samples).all()


def test_a_turn_that_begins_anew_gives_the_last_one_up() -> None:
    stream = ready_stream()
    _, first = stream.begin_turn(0.0)
    out, second = stream.begin_turn(1.0)
    assert second == first + 1
    assert said(out)[0] == {"type": "turn.cancel", "turn": first}


def test_a_noise_that_began_a_turn_is_cancelled() -> None:
    stream = ready_stream()
    assert stream.drop_turn() == []
    _, number = stream.begin_turn(0.0)
    assert said(stream.drop_turn()) == [{"type": "turn.cancel", "turn": number}]
    assert stream.push(tone(0.1), 0.1) == []
    assert stream.take(Partial(number, Transcript("late"))) is None
    assert stream.end_turn(0.2) == ([], None, None)


def test_texts_before_a_turns_end_are_what_is_understood_so_far() -> None:
    stream = ready_stream()
    _, number = stream.begin_turn(0.0)
    text = Transcript("so far")
    assert stream.take(Partial(number, text)) == Partial(number, text)
    assert stream.take(Final(number, text)) == Partial(number, text)
    stream.end_turn(1.0)
    assert stream.take(Partial(number, text)) == Partial(number, text)
    assert stream.take(Final(number, text)) == Final(number, text)
    for late in (Final(number, text), Partial(number, text), Failed(number, ""), Final(99, text)):
        assert stream.take(late) is None


def test_a_turn_that_is_given_up_is_not_answered() -> None:
    stream = ready_stream()
    stream.begin_turn(0.0)
    _, number, _ = stream.end_turn(1.0)
    assert number is not None
    assert said(stream.give_up(number)) == [{"type": "turn.cancel", "turn": number}]
    assert stream.give_up(number) == []
    assert stream.take(Final(number, Transcript("late"))) is None


def test_what_was_not_answered_is_sent_again_to_the_next_server() -> None:
    stream = ready_stream()
    stream.begin_turn(0.0)
    stream.push(tone(1.0), 1.0)
    stream.end_turn(1.0)
    stream.begin_turn(1.5)
    stream.push(tone(0.5), 2.0)
    stream.lost()
    assert stream.push(tone(0.5), 2.5) == []
    assert stream.pause(2.5) == []
    out, given_up = stream.greeted()
    assert given_up == []
    assert kinds(out) == [
        *("turn.begin", RATE, "turn.end"),
        *("turn.begin", RATE, "turn.pause"),
    ]
    assert [each["turn"] for each in said(out) if isinstance(each, dict)] == [1, 1, 2, 2]


def test_a_turn_that_every_connection_breaks_over_is_given_up() -> None:
    stream = ready_stream()
    stream.begin_turn(0.0)
    stream.push(tone(0.1), 0.1)
    _, number, _ = stream.end_turn(0.1)
    for _ in range(TRIES - 1):
        stream.lost()
        out, given_up = stream.greeted()
        assert kinds(out)[-1] == "turn.end"
        assert given_up == []
    stream.lost()
    assert stream.greeted() == ([], [number])
    assert stream.take(Final(number or 0, Transcript("x"))) is None


def test_turns_without_answers_are_bounded() -> None:
    stream = ready_stream()
    oldest = []
    for turn in range(MOST_PENDING + 2):
        stream.begin_turn(float(turn))
        oldest.append(stream.end_turn(turn + 0.5)[2])
    assert oldest == [None] * MOST_PENDING + [1, 2]


def test_an_end_without_a_beginning_is_nothing() -> None:
    assert ready_stream().end_turn(1.0) == ([], None, None)


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ('{"type":"ready"}', Ready()),
        ('{"type":"partial","turn":1,"text":"a"}', Partial(1, Transcript("a"))),
        (
            '{"type":"final","turn":2,"text":" a\\n b ","language":"en","confidence":1}',
            Final(2, Transcript("a b", "en", 1.0)),
        ),
        ('{"type":"final","turn":2,"text":"","language":null}', Final(2, Transcript(""))),
        ('{"type":"error","turn":3,"message":"too\\nloud"}', Failed(3, "too loud")),
        ('{"type":"error"}', Failed(None, "")),
        ('{"type":"news","of":"tomorrow"}', None),
    ],
)
def test_what_a_server_may_say(message: str, answer: object) -> None:
    assert read_answer(message) == answer


@pytest.mark.parametrize(
    "message",
    [
        b"\0\0",
        "hello",
        "[1]",
        "{}",
        '{"type":7}',
        '{"type":"final","text":"no turn"}',
        '{"type":"final","turn":"1","text":"a"}',
        '{"type":"final","turn":true,"text":"a"}',
        '{"type":"final","turn":1}',
        '{"type":"final","turn":1,"text":["a"]}',
        '{"type":"final","turn":1,"text":"a","language":7}',
        '{"type":"final","turn":1,"text":"a","confidence":1.5}',
        '{"type":"final","turn":1,"text":"a","confidence":NaN}',
        '{"type":"final","turn":1,"text":"a","confidence":"sure"}',
        json.dumps({"type": "final", "turn": 1, "text": "a" * (MOST_TEXT + 1)}),
        "[" * 100_000,
    ],
)
def test_what_no_server_may_say(message: str | bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_answer(message)
    assert "docs/recognisers.md" in caught.value.remedy


def test_a_text_has_no_control_characters() -> None:
    answer = read_answer('{"type":"final","turn":1,"text":"a\\u0000\\ud83db\\u001b[31m"}')
    assert answer == Final(1, Transcript("a b [31m"))
