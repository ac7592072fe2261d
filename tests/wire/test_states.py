"""The tables are the rules; these tests state the rules in words."""

from __future__ import annotations

import itertools

import pytest

from qwen3tts_wire.errors import ProtocolError
from qwen3tts_wire.messages import CLIENT_MESSAGES, SERVER_MESSAGES
from qwen3tts_wire.states import AUDIO, CLIENT, OVER, SERVER, ContextState, Table, move

NEW, OPEN, ENDING, DONE, CANCELLING, CANCELLED, FAILED = ContextState
NO_CONTEXT = {"ping", "voice.load", "session.created", "pong", "server.draining"}
MESSAGES = sorted({*CLIENT_MESSAGES, *SERVER_MESSAGES, AUDIO} - NO_CONTEXT)


@pytest.mark.parametrize("table", [SERVER, CLIENT], ids=["server", "client"])
def test_every_pair_that_the_table_lacks_is_illegal(table: Table) -> None:
    for state, message in itertools.product(ContextState, MESSAGES):
        if (state, message) in table:
            assert move(table, state, message) is table[state, message]
        else:
            with pytest.raises(ProtocolError, match=message):
                move(table, state, message)


@pytest.mark.parametrize("table", [SERVER, CLIENT], ids=["server", "client"])
def test_the_tables_know_no_other_messages(table: Table) -> None:
    assert {message for _, message in table} <= set(MESSAGES)


@pytest.mark.parametrize("table", [SERVER, CLIENT], ids=["server", "client"])
def test_nothing_leaves_a_context_that_is_over(table: Table) -> None:
    for (state, _), after in table.items():
        if state in OVER:
            assert after is state


def test_the_server_sends_nothing_of_a_context_after_cancelled() -> None:
    assert not [message for state, message in SERVER if state is CANCELLED]


def test_the_server_sends_no_audio_once_it_has_read_a_cancel() -> None:
    assert (CANCELLING, AUDIO) not in SERVER
    assert (CANCELLING, "alignment") not in SERVER
    assert [m for s, m in SERVER if s is CANCELLING] == ["context.cancelled"]


def test_text_is_legal_only_before_its_end() -> None:
    for table in (SERVER, CLIENT):
        for message in ("text.append", "text.flush", "text.end"):
            legal = {state for state, m in table if m == message}
            assert legal - {FAILED} == {OPEN}


def test_a_context_that_is_done_can_be_cancelled() -> None:
    assert move(SERVER, DONE, "context.cancel") is CANCELLING
    assert move(CLIENT, DONE, "context.cancel") is CANCELLING


def test_whatever_the_client_may_do_the_server_understands_or_ignores() -> None:
    """For each move of the client there is a state of the server in which it is legal."""
    for _, message in CLIENT:
        if message in CLIENT_MESSAGES:
            assert [state for state, m in SERVER if m == message]
