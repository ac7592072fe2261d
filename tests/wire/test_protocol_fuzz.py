"""Any order of things: the guarantee holds, and nothing crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.endpoint import Data
from qwen3tts_wire.errors import EngineFailed, ProtocolError
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import CLIENT_MESSAGES, SERVER_MESSAGES, ContextCancel, ContextOpen
from qwen3tts_wire.server_end import ServerProtocol
from qwen3tts_wire.states import OVER, ContextState
from tests.wire.pair import ConnectionPair, cancelled, done, errors, started, violations

ACTIONS = st.tuples(
    st.sampled_from(
        [
            "open",
            "append",
            "flush",
            "end",
            "report",
            "credit",
            "cancel",
            "up",
            "down",
            "audio",
            "words",
            "done",
            "fail",
        ]
    ),
    st.integers(0, 3),
)


def subject(data: Data) -> tuple[str, str]:
    """Which context a message of the server is about, and its type."""
    if isinstance(data, bytes):
        return f"c{AudioFrame.from_bytes(data).context_no}", "audio"
    fields = json.loads(data)
    kind = fields["type"]
    if kind == "error" and fields["ends"] == "context":
        kind = "failure"
    return fields.get("context_id", ""), kind


@settings(max_examples=400, deadline=None)
@given(st.lists(ACTIONS, min_size=30, max_size=80))
def test_no_frame_of_a_context_comes_after_its_cancelled_in_any_order_of_events(
    actions: list[tuple[str, int]],
) -> None:
    pair = ConnectionPair()
    numbers: list[int] = []
    waiting: set[str] = set()
    cancelled_here: set[int] = set()
    seen: list[Any] = []

    def heard(count: int | None) -> None:
        for event in pair.down(count):
            seen.append(event)
            if isinstance(event, AudioFrame):
                assert event.context_no not in cancelled_here

    def read(count: int | None = None) -> None:
        while (count is None or count > 0) and (pair.rising or pair.client.outbox.size):
            read_one()
            count = None if count is None else count - 1

    def read_one() -> None:
        for event in pair.up(1):
            if isinstance(event, ContextOpen):
                pair.server.send_started(started(event.context_id, event.context_no))
            elif isinstance(event, ContextCancel):
                waiting.add(event.context_id)

    def on_client(name: str, no: int) -> None:
        send: dict[str, Callable[[], object]] = {
            "append": lambda: pair.client.send_append(no, "Hi \ud83d"),
            "flush": lambda: pair.client.send_flush(no),
            "end": lambda: pair.client.send_end(no),
            "report": lambda: pair.client.send_report(no, 1),
            "credit": lambda: pair.client.send_credit(no, 10),
            "cancel": lambda: pair.client.send_cancel(no, 0),
        }
        try:
            send[name]()
        except ProtocolError:
            return
        if name == "cancel":
            cancelled_here.add(no)

    def on_server(name: str, context_id: str) -> None:
        send: dict[str, Callable[[], object]] = {
            "audio": lambda: pair.server.send_audio(context_id, b"\1\2"),
            "words": lambda: pair.server.send_alignment(context_id, []),
            "done": lambda: pair.server.send_done(done(context_id)),
            "fail": lambda: pair.server.send_failure(context_id, EngineFailed("broke")),
        }
        try:
            send[name]()
        except ProtocolError:
            return

    for name, which in actions:
        if name == "open":
            numbers.append(pair.client.send_open().context_no)
        elif name == "up":
            read(which or None)
        elif name == "down":
            heard(which or None)
        elif numbers:
            no = numbers[which % len(numbers)]
            if name in ("audio", "words", "done", "fail"):
                on_server(name, f"c{no}")
            else:
                on_client(name, no)
        if waiting and which % 2:
            pair.server.send_cancelled(cancelled(waiting.pop()))
    read()
    for context_id in waiting:
        pair.server.send_cancelled(cancelled(context_id))
    seen.extend(pair.down())

    over: set[str] = set()
    for data in pair.log:
        context_id, kind = subject(data)
        if kind in ("context.cancelled", "failure"):
            assert context_id not in over
            over.add(context_id)
        elif kind != "error":
            assert context_id not in over, f"{kind} of {context_id} after its end"
    assert pair.client.strays == 0
    assert not violations(seen)
    # Whatever the client does by its own table, the server has no complaint.
    assert not [each for each in errors(seen) if each.ends == "none"]
    for no in cancelled_here:
        assert pair.client.state(no) in (ContextState.NEW, *OVER)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["context_id", "context_no", "text", "played", "state", "window_ms", "format", "words", "ends"]
)
IDS = st.sampled_from(["good", "bad", "c1", ""])


def messages(kinds: Any) -> st.SearchStrategy[str]:
    return st.builds(
        lambda kind, context_id, fields: json.dumps(
            {**fields, "type": kind, "context_id": context_id}
        ),
        st.sampled_from(sorted(kinds)),
        IDS,
        st.dictionaries(FIELDS, JSON, max_size=4),
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.text() | messages(CLIENT_MESSAGES), max_size=12))
def test_garbage_gives_the_server_an_error_to_answer_or_nothing(junk: list[str | bytes]) -> None:
    server = ServerProtocol()
    for data in junk:
        server.receive_data(data)
        server.events_received()
        for answer in server.data_to_send():
            assert isinstance(answer, str)
            answer.encode("utf-8")
            assert json.loads(answer)["type"] == "error"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.text() | messages(CLIENT_MESSAGES), max_size=12))
def test_garbage_does_not_touch_the_other_contexts(junk: list[str | bytes]) -> None:
    pair = ConnectionPair()
    no = pair.open(context_id="undisturbed")
    for data in junk:
        pair.server.receive_data(data)
        pair.server.events_received()
    pair.server.send_audio("undisturbed", b"ok")
    pair.down()
    pair.client.send_append(no, "still there")
    assert [type(each).__name__ for each in pair.up()] == ["TextAppend"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.text() | messages(SERVER_MESSAGES), max_size=12))
def test_garbage_gives_the_client_events_or_violations(junk: list[str | bytes]) -> None:
    client = ClientProtocol()
    client.send_open("c1")
    for data in junk:
        client.receive_data(data)
        client.events_received()
