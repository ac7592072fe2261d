from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.audio.tones import ToneKind
from qwen3tts_phone.diagnosis.outcome import (
    OUTCOME_WORDS,
    Outcome,
    describe_progress,
    outcome_of,
    outcome_of_error,
    outcome_of_status,
    outcome_of_tone,
)
from qwen3tts_phone.errors import (
    BadSdp,
    BadSip,
    CalleeUnreachable,
    CallNotAllowed,
    CallRefused,
    NoCommonCodec,
    RegistrationFailed,
)
from qwen3tts_phone.facts import CallFacts, EndFacts
from tests.phone.facts import call_facts, unanswered


def test_each_stage_has_its_words() -> None:
    assert describe_progress(180) == "it rings"
    assert describe_progress(181) == "the call is being forwarded"
    assert describe_progress(182) == "the call is queued"
    assert describe_progress(150) == describe_progress(100)


def test_each_outcome_has_its_words() -> None:
    assert set(OUTCOME_WORDS) == set(Outcome)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.ANSWERED),
        (302, Outcome.MOVED),
        (401, Outcome.NOT_ALLOWED),
        (404, Outcome.WRONG_NUMBER),
        (480, Outcome.UNAVAILABLE),
        (486, Outcome.BUSY),
        (487, Outcome.CANCELLED),
        (488, Outcome.NO_CODEC),
        (499, Outcome.FAILED),
        (503, Outcome.UNAVAILABLE),
        (600, Outcome.BUSY),
        (603, Outcome.DECLINED),
        (604, Outcome.WRONG_NUMBER),
    ],
)
def test_a_status_is_an_outcome(status: int, outcome: Outcome) -> None:
    assert outcome_of_status(status) is outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CallRefused(486, "Busy Here"), Outcome.BUSY),
        (CalleeUnreachable("It rang.", why="no_answer"), Outcome.NO_ANSWER),
        (CalleeUnreachable("No such host.", why="dns"), Outcome.WRONG_NUMBER),
        (CalleeUnreachable("Silence.", why="timeout"), Outcome.UNREACHABLE),
        (RegistrationFailed("Silence."), Outcome.UNREACHABLE),
        (RegistrationFailed("No.", status=403), Outcome.FAILED),
        (NoCommonCodec("G729 only."), Outcome.NO_CODEC),
        (BadSip("No address."), Outcome.WRONG_NUMBER),
        (CallNotAllowed("It is an emergency number.", rule="emergency"), Outcome.NOT_ALLOWED),
        (BadSdp("Line 1."), Outcome.FAILED),
        (OSError("disk"), Outcome.FAILED),
    ],
)
def test_an_error_is_an_outcome(error: Exception, outcome: Outcome) -> None:
    assert outcome_of_error(error) is outcome


def test_a_tone_before_the_answer_is_an_outcome_or_none() -> None:
    known = {kind: outcome for kind in ToneKind if (outcome := outcome_of_tone(kind))}
    assert known == {
        ToneKind.BUSY: Outcome.BUSY,
        ToneKind.CONGESTION: Outcome.UNAVAILABLE,
        ToneKind.SIT: Outcome.WRONG_NUMBER,
        ToneKind.FAX_CED: Outcome.MACHINE,
    }


def test_a_server_that_gives_up_ringing_is_no_answer() -> None:
    facts = unanswered(by="remote", status=480, error=CallRefused(480, "Temporarily Unavailable"))
    assert outcome_of(facts) is Outcome.UNAVAILABLE
    facts.ringing_at = 101.0
    assert outcome_of(facts) is Outcome.NO_ANSWER


def test_a_call_that_rang_until_we_gave_it_up() -> None:
    assert outcome_of(unanswered(by="local", status=487)) is Outcome.CANCELLED
    rang_out = unanswered(by="timeout", error=CalleeUnreachable("It rang.", why="no_answer"))
    assert outcome_of(rang_out) is Outcome.NO_ANSWER


def test_an_answer_is_an_answer_whatever_ended_it() -> None:
    lost = EndFacts(by="error", error=CalleeUnreachable("Gone.", why="session"))
    assert outcome_of(call_facts(end=lost)) is Outcome.ANSWERED
    assert outcome_of(call_facts(answered_by="machine")) is Outcome.MACHINE


def test_a_call_without_an_end_has_failed_so_far() -> None:
    assert outcome_of(CallFacts()) is Outcome.FAILED


@given(st.integers())
def test_any_number_has_words_and_an_outcome(status: int) -> None:
    assert describe_progress(status)
    assert outcome_of_status(status) in Outcome
