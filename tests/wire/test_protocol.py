from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.endpoint import ContextBroken
from qwen3tts_wire.errors import BadRequest, EngineFailed, LimitExceeded, ProtocolError
from qwen3tts_wire.fields import encode
from qwen3tts_wire.formats import AudioFormat, AudioFrame
from qwen3tts_wire.messages import (
    AlignmentInfo,
    ContextCancel,
    ContextCancelled,
    ContextDone,
    ContextOpen,
    ContextStarted,
    ErrorInfo,
    Limits,
    Ping,
    Pong,
    TextAppend,
    TextEnd,
    WordInfo,
)
from qwen3tts_wire.states import AUDIO, CLIENT, SERVER, ContextState
from tests.wire.pair import (
    GREETING,
    ConnectionPair,
    cancelled,
    done,
    errors,
    sound,
    started,
    violations,
)

NEW, OPEN, ENDING, DONE, CANCELLING, CANCELLED, FAILED = ContextState


def says(pair: ConnectionPair, text: str) -> ErrorInfo:
    """The server's one error after a raw message from the client."""
    pair.server.receive_data(text)
    (error,) = errors(pair.down())
    return error


def test_text_goes_up_and_sound_comes_down() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a", voice="v")
    pair.client.send_append(no, "Hello.")
    pair.client.send_flush(no)
    pair.client.send_end(no)
    assert [type(each).__name__ for each in pair.up()] == ["TextAppend", "TextFlush", "TextEnd"]
    pair.server.send_alignment("a", [WordInfo("Hello.", 0, 2, 0, 6)])
    pair.server.send_audio("a", b"\1\0\2\0", flags=1)
    pair.server.send_audio("a", b"\3\0")
    pair.server.send_done(done("a"))
    alignment, one, two, end = pair.down()
    assert isinstance(alignment, AlignmentInfo)
    assert alignment.words[0].text == "Hello."
    assert one == AudioFrame(no, 0, b"\1\0\2\0", 1)
    assert two == AudioFrame(no, 2, b"\3\0", 0)
    assert isinstance(end, ContextDone)


def test_offsets_count_samples_of_the_format_not_bytes() -> None:
    pair = ConnectionPair()
    pair.open(context_id="a", format=AudioFormat("mulaw", 8000))
    pair.server.send_audio("a", bytes(160))
    pair.server.send_audio("a", bytes(160))
    assert [each.offset for each in sound(pair.down())] == [0, 160]


def test_contexts_do_not_mix() -> None:
    pair = ConnectionPair()
    first, second = pair.open(context_id="a"), pair.open(context_id="b")
    pair.server.send_audio("b", b"bb")
    pair.server.send_audio("a", b"aa")
    pair.server.send_audio("b", b"BB")
    assert [(each.context_no, each.data) for each in sound(pair.down())] == [
        (second, b"bb"),
        (first, b"aa"),
        (second, b"BB"),
    ]


def test_audio_that_crosses_a_cancel_is_dropped_at_once() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    pair.server.send_audio("a", b"xx")
    pair.client.send_cancel(no, 0)
    assert pair.down() == []
    pair.up()
    pair.server.send_cancelled(cancelled("a"))
    (answer,) = pair.down()
    assert isinstance(answer, ContextCancelled)
    assert pair.client.strays == 0


def test_a_context_can_be_cancelled_after_it_is_done() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    pair.client.send_end(no)
    pair.up()
    pair.server.send_done(done("a"))
    pair.down()
    pair.client.send_cancel(no, 5)
    pair.up()
    pair.server.send_cancelled(cancelled("a"))
    assert isinstance(pair.down()[0], ContextCancelled)


def test_an_error_that_crosses_the_clients_messages_makes_no_further_errors() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    pair.server.send_failure("a", EngineFailed("broke"))
    pair.client.send_append(no, "more")
    pair.client.send_report(no, 3)
    pair.client.send_credit(no, 100)
    pair.client.send_cancel(no)
    assert pair.up() == []
    (error,) = errors(pair.down())
    assert (error.code, error.ends, error.retryable) == ("engine_failed", "context", True)


def test_after_its_cancelled_the_server_itself_cannot_send_of_a_context() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    pair.client.send_cancel(no)
    pair.up()
    with pytest.raises(ProtocolError):
        pair.server.send_audio("a", b"xx")
    pair.server.send_cancelled(cancelled("a"))
    for send in (
        lambda: pair.server.send_audio("a", b"xx"),
        lambda: pair.server.send_alignment("a", []),
        lambda: pair.server.send_done(done("a")),
        lambda: pair.server.send_started(started("a", no)),
        lambda: pair.server.send_cancelled(cancelled("a")),
        lambda: pair.server.send_failure("a", EngineFailed("late")),
    ):
        with pytest.raises(ProtocolError):
            send()
    assert len(pair.down()) == 1


# --- every illegal pair ---


def in_state(state: ContextState) -> tuple[ConnectionPair, int]:
    """A pair with context "a" in a state, on both ends."""
    pair = ConnectionPair()
    if state is NEW:
        return pair, 1
    no = pair.open(context_id="a")
    if state in (ENDING, DONE):
        pair.client.send_end(no)
    if state in (CANCELLING, CANCELLED):
        pair.client.send_cancel(no)
    pair.up()
    if state is DONE:
        pair.server.send_done(done("a"))
    if state is CANCELLED:
        pair.server.send_cancelled(cancelled("a"))
    if state is FAILED:
        pair.server.send_failure("a", EngineFailed("broke"))
    pair.down()
    return pair, no


RAW: dict[str, dict[str, Any]] = {
    "text.append": {"text": "x"},
    "text.flush": {},
    "text.end": {},
    "playout.report": {"played": 1},
    "audio.credit": {"window_ms": 1},
    "context.cancel": {},
}


@pytest.mark.parametrize(("state", "message"), list(itertools.product(ContextState, RAW)))
def test_a_client_that_breaks_the_table_gets_an_error_and_nothing_changes(
    state: ContextState, message: str
) -> None:
    pair, _ = in_state(state)
    before = pair.server.state("a")
    pair.server.receive_data(json.dumps({"type": message, "context_id": "a", **RAW[message]}))
    events, answers = pair.server.events_received(), errors(pair.down())
    if (state, message) not in SERVER:
        assert not events
        assert (answers[0].code, answers[0].ends) == ("bad_request", "none")
        assert answers[0].context_id == "a"
        assert pair.server.state("a") is before
    else:
        assert answers == []
        assert bool(events) is (state is not FAILED)


@pytest.mark.parametrize(("state", "message"), list(itertools.product(ContextState, RAW)))
def test_the_client_refuses_to_break_the_table_itself(state: ContextState, message: str) -> None:
    pair, no = in_state(state)
    send: dict[str, Callable[[], object]] = {
        "text.append": lambda: pair.client.send_append(no, "x"),
        "text.flush": lambda: pair.client.send_flush(no),
        "text.end": lambda: pair.client.send_end(no),
        "playout.report": lambda: pair.client.send_report(no, 1),
        "audio.credit": lambda: pair.client.send_credit(no, 1),
        "context.cancel": lambda: pair.client.send_cancel(no),
    }
    if (state, message) in CLIENT:
        send[message]()
        assert pair.client.data_to_send()
    else:
        with pytest.raises(ProtocolError):
            send[message]()
        assert pair.client.data_to_send() == []


@pytest.mark.parametrize("state", ContextState)
@pytest.mark.parametrize(
    "message", ["context.started", AUDIO, "alignment", "context.done", "context.cancelled", "error"]
)
def test_a_server_that_breaks_the_table_is_a_violation_or_a_stray(
    state: ContextState, message: str
) -> None:
    pair, no = in_state(state)
    data: Any = {
        "context.started": {"context_no": no, "mode": "clause", "format": {}},
        "alignment": {"words": []},
        "context.done": {"samples": 0, "chars": 0, "clauses": 0},
        "context.cancelled": {
            "sent": 0,
            "generated": 0,
            "played": 0,
            "text_heard": "",
            "text_remaining": "",
        },
        "error": {"code": "engine_failed", "message": "broke", "ends": "context"},
        AUDIO: AudioFrame(no, 0, b"xx").to_bytes(),
    }[message]
    if message != AUDIO:
        data = json.dumps({"type": message, "context_id": "a", **data})
    pair.client.receive_data(data)
    events = pair.client.events_received()
    if (state, message) in CLIENT:
        assert not violations(events)
        assert pair.client.strays == 0
    elif state in (NEW, CANCELLED, FAILED):
        assert pair.client.strays == 1 or violations(events) or errors(events)
    else:
        assert len(violations(events)) == 1


# --- opening ---


def test_a_number_is_never_used_twice() -> None:
    pair = ConnectionPair()
    pair.open(context_id="a")
    text = json.dumps({"type": "context.open", "context_id": "b", "context_no": 1})
    error = says(pair, text)
    assert (error.code, error.ends) == ("bad_request", "context")
    assert "greater than 1" in error.message


def test_an_id_that_is_open_is_refused_and_the_open_context_goes_on() -> None:
    pair = ConnectionPair()
    pair.open(context_id="a")
    error = says(pair, json.dumps({"type": "context.open", "context_id": "a", "context_no": 2}))
    assert error.ends == "none"
    pair.server.send_audio("a", b"xx")
    assert len(sound(pair.down())) == 1


def test_an_id_may_be_used_again_when_its_context_is_over() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    pair.client.send_cancel(no)
    pair.up()
    pair.server.send_cancelled(cancelled("a"))
    pair.down()
    assert pair.open(context_id="a") == 2


def test_too_many_contexts_are_refused_and_room_comes_back() -> None:
    pair = ConnectionPair(Limits(max_contexts=2))
    first = pair.open(context_id="a")
    pair.open(context_id="b")
    pair.client.send_open(context_id="c")
    assert pair.up() == []
    (error,) = errors(pair.down())
    assert (error.code, error.context_id, error.ends) == ("limit_exceeded", "c", "context")
    pair.client.send_cancel(first)
    pair.up()
    pair.server.send_cancelled(cancelled("a"))
    pair.open(context_id="d")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"speed": 9.0}, "speed"),
        ({"colour": "red"}, "colour"),
        ({"mode": "loud"}, "mode"),
        ({"format": AudioFormat("opus", 48000)}, "opus"),
        ({"window_ms": 0.0}, "window_ms"),
        ({"context_id": "x" * 200}, "context_id"),
        ({"context_no": 7}, "context_no"),
        ({"window_ms": "long"}, "window_ms"),
        ({"format": "pcm"}, "format"),
        ({"voice": object()}, "voice"),
        ({"speed": float("nan")}, "speed"),
    ],
)
def test_the_client_refuses_bad_options_before_it_sends_them(
    options: dict[str, Any], says: str
) -> None:
    pair = ConnectionPair()
    with pytest.raises((BadRequest, LimitExceeded), match=says):
        pair.client.send_open(**options)
    assert pair.client.data_to_send() == []


def test_an_option_that_is_none_is_left_out() -> None:
    opened = ConnectionPair().client.send_open(window_ms=None, pause_flush_ms=None)
    assert opened.window_ms == 10_000


def test_the_client_refuses_what_is_no_text() -> None:
    pair = ConnectionPair()
    no = pair.open()
    with pytest.raises(BadRequest, match="bytes"):
        pair.client.send_append(no, b"abc")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "refused",
    [
        {"context_id": "b", "context_no": 5, "speed": 9},
        {"context_id": "b", "context_no": 1},
        {"context_id": "b", "context_no": 5},
    ],
    ids=["a bad field", "a number used before", "one context too many"],
)
def test_what_follows_on_an_open_that_is_refused_makes_no_further_errors(
    refused: dict[str, Any],
) -> None:
    pair = ConnectionPair(Limits(max_contexts=1))
    pair.open(context_id="a")
    assert says(pair, json.dumps({"type": "context.open", **refused})).ends == "context"
    for message in (TextAppend("b", "Hi."), TextEnd("b"), ContextCancel("b")):
        pair.server.receive_data(encode(message))
    assert pair.server.events_received() == []
    assert pair.down() == []


def test_a_bad_open_ends_the_context_that_it_would_have_opened() -> None:
    pair = ConnectionPair()
    text = json.dumps({"type": "context.open", "context_id": "a", "context_no": 1, "x": 1})
    error = says(pair, text)
    assert (error.context_id, error.ends) == ("a", "context")
    assert pair.open(context_id="a") == 1


def test_the_window_is_at_most_what_the_server_allows() -> None:
    pair = ConnectionPair()
    greeting = replace(GREETING, limits=Limits(max_window_ms=100))
    client = ClientProtocol()
    client.receive_data(encode(greeting))
    assert client.send_open().window_ms == 100
    assert client.send_open(window_ms=5000.0).window_ms == 100
    assert client.send_open(window_ms=50.0).window_ms == 50
    assert pair.client.send_open().window_ms == 10_000


# --- text ---


def test_halves_of_a_character_are_joined_by_either_end() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    assert pair.client.send_append(no, "a\ud83d") == "a"
    assert pair.client.send_append(no, "\ude00b") == "\U0001f600b"
    assert [each.text for each in pair.up() if isinstance(each, TextAppend)] == [
        "a",
        "\U0001f600b",
    ]
    for half in ("\ud83d", "\ude00"):
        append = {"type": "text.append", "context_id": "a", "text": half}
        pair.server.receive_data(json.dumps(append))
    texts = [e.text for e in pair.server.events_received() if isinstance(e, TextAppend)]
    assert "".join(texts) == "\U0001f600"


def test_a_half_that_stays_alone_is_replaced_at_the_end_by_either_end() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    pair.client.send_append(no, "\ud83d")
    assert pair.client.send_end(no) == "\ufffd"
    append, end = pair.up()
    assert isinstance(append, TextAppend)
    assert append.text == "\ufffd"
    pair.open(context_id="b")
    pair.server.receive_data('{"type":"text.append","context_id":"b","text":"\\ud83d"}')
    pair.server.receive_data('{"type":"text.end","context_id":"b"}')
    events = pair.server.events_received()
    assert [e.text for e in events if isinstance(e, TextAppend)] == ["", "\ufffd"]
    assert isinstance(end, TextEnd)
    assert isinstance(events[-1], TextEnd)


def test_a_half_waits_across_a_flush() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    pair.client.send_append(no, "\ud83d")
    pair.client.send_flush(no)
    assert pair.client.send_append(no, "\ude00") == "\U0001f600"


def test_long_text_is_sent_in_pieces() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    text = "word " * 10_000
    pair.client.send_append(no, text)
    pieces = [each.text for each in pair.up() if isinstance(each, TextAppend)]
    assert "".join(pieces) == text
    assert max(map(len, pieces)) == 16_384


def test_text_beyond_the_bound_of_a_context_is_refused_before_it_is_sent() -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="a")
    pair.client.send_append(no, "x" * 100_000)
    pair.client.data_to_send()
    with pytest.raises(LimitExceeded, match="100000"):
        pair.client.send_append(no, "x")
    assert pair.client.data_to_send() == []


def test_a_client_that_sends_too_much_text_anyway_loses_the_context_and_no_other() -> None:
    pair = ConnectionPair(Limits(max_text_chars=10))
    pair.open(context_id="a")
    pair.open(context_id="b")
    pair.server.receive_data('{"type":"text.append","context_id":"a","text":"12345678901"}')
    (broken,) = pair.server.events_received()
    assert isinstance(broken, ContextBroken)
    (error,) = errors(pair.down())
    assert (error.code, error.ends, error.context_id) == ("limit_exceeded", "context", "a")
    assert pair.server.state("b") is OPEN


def test_a_server_with_a_smaller_bound_for_one_message_holds_to_it() -> None:
    pair = ConnectionPair(Limits(max_append_chars=5))
    pair.open(context_id="a")
    pair.server.receive_data('{"type":"text.append","context_id":"a","text":"123456"}')
    (error,) = errors(pair.down())
    assert (error.code, error.ends) == ("limit_exceeded", "context")


@pytest.mark.parametrize("message", ["text.append", "text.flush", "text.end", "context.cancel"])
def test_a_text_message_that_cannot_be_read_ends_its_context(message: str) -> None:
    pair = ConnectionPair()
    pair.open(context_id="a")
    pair.server.receive_data(json.dumps({"type": message, "context_id": "a", "oops": 1}))
    (broken,) = pair.server.events_received()
    assert isinstance(broken, ContextBroken)
    assert errors(pair.down())[0].ends == "context"


@pytest.mark.parametrize("message", ["playout.report", "audio.credit"])
def test_a_report_that_cannot_be_read_ends_nothing(message: str) -> None:
    pair = ConnectionPair()
    pair.open(context_id="a")
    pair.server.receive_data(json.dumps({"type": message, "context_id": "a", "oops": 1}))
    assert pair.server.events_received() == []
    assert errors(pair.down())[0].ends == "none"
    assert pair.server.state("a") is OPEN


# --- the rest ---


def test_binary_and_oversized_messages_are_answered() -> None:
    pair = ConnectionPair()
    pair.server.receive_data(b"\0\1")
    pair.server.receive_data("x" * 300_000)
    codes = [each.code for each in errors(pair.down())]
    assert codes == ["bad_request", "limit_exceeded"]


def test_a_ping_is_for_the_server_to_answer() -> None:
    pair = ConnectionPair()
    pair.client.send_ping(12.5)
    (ping,) = pair.up()
    assert isinstance(ping, Ping)
    pair.server.send_pong(ping, 100.0, 101.0)
    assert pair.down() == [Pong(12.5, 100.0, 101.0)]


def test_failed_contexts_are_forgotten_in_the_end() -> None:
    pair = ConnectionPair(Limits(max_contexts=3))
    for i in range(600):
        pair.open(context_id=f"c{i}")
        pair.server.send_failure(f"c{i}", EngineFailed("broke"))
        pair.down()
    assert pair.server.state("c0") is NEW
    assert pair.server.state("c599") is FAILED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        bytes(20),
        "{",
        '{"type": "pong"}',
        '{"type": "context.done", "context_id": "a"}',
        AudioFrame(77, 0, b"xx").to_bytes(),
        AudioFrame(1, 2, b"xx").to_bytes(),
        AudioFrame(1, 0, b"x").to_bytes(),
    ],
)
def test_nonsense_from_the_server_is_a_violation(data: str | bytes) -> None:
    pair = ConnectionPair()
    pair.open(context_id="a")
    pair.client.receive_data(data)
    assert len(violations(pair.client.events_received())) == 1


def test_a_second_greeting_is_a_violation() -> None:
    pair = ConnectionPair()
    pair.server.send_session_created(pair.client.session)  # type: ignore[arg-type]
    assert len(violations(pair.down())) == 1


def test_the_server_sees_the_fields_as_the_client_gave_them() -> None:
    pair = ConnectionPair()
    sent = pair.client.send_open(voice="v", language="de", mode="clause", seed=7, lead_ms=40.0)
    assert pair.up() == [sent]
    assert isinstance(sent, ContextOpen)
    pair.server.send_started(started(sent.context_id, sent.context_no))
    (event,) = pair.down()
    assert isinstance(event, ContextStarted)
