"""Outcome and progress of an outgoing call, in words."""

from __future__ import annotations

from enum import StrEnum

from qwen3tts_phone.audio.tones import ToneKind
from qwen3tts_phone.errors import (
    BadSip,
    CalleeUnreachable,
    CallRefused,
    NoCommonCodec,
    RegistrationFailed,
)
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.sip_statuses import meaning_of

_PROGRESS = {
    100: "the call is being set up",
    180: "it rings",
    181: "the call is being forwarded",
    182: "the call is queued",
    183: "sound comes before the answer",
    199: "one of several phones has given up",
}


def describe_progress(status: int) -> str:
    return _PROGRESS.get(status, "the call is being set up")


class Outcome(StrEnum):
    ANSWERED = "answered"
    MACHINE = "machine"
    """Answered by an answering machine."""
    BUSY = "busy"
    NO_ANSWER = "no_answer"
    """It rang, and was not answered."""
    DECLINED = "declined"
    """Declined by a person or a service."""
    UNAVAILABLE = "unavailable"
    """The phone is known but not there, or its server has no room now."""
    WRONG_NUMBER = "wrong_number"
    MOVED = "moved"
    NOT_ALLOWED = "not_allowed"
    """A password, the account's rights, or a rule of ours."""
    NO_CODEC = "no_codec"
    UNREACHABLE = "unreachable"
    """Nothing answers at that address."""
    CANCELLED = "cancelled"
    """We gave it up."""
    FAILED = "failed"
    """Anything else that broke."""


OUTCOME_WORDS: dict[Outcome, str] = {
    Outcome.ANSWERED: "the call was answered",
    Outcome.MACHINE: "an answering machine took the call",
    Outcome.BUSY: "the line is busy",
    Outcome.NO_ANSWER: "it rang and was not answered",
    Outcome.DECLINED: "the call was declined",
    Outcome.UNAVAILABLE: "the phone is not reachable now",
    Outcome.WRONG_NUMBER: "there is no such number",
    Outcome.MOVED: "the number has moved",
    Outcome.NOT_ALLOWED: "the call is not allowed",
    Outcome.NO_CODEC: "the other side speaks none of our codecs",
    Outcome.UNREACHABLE: "nothing answers at that address",
    Outcome.CANCELLED: "the call was given up before it was answered",
    Outcome.FAILED: "the call failed",
}


def outcome_of_status(status: int) -> Outcome:
    """Return a final answer's outcome (RFC 3261 section 21, RFC 8197, RFC 8688)."""
    if 200 <= status < 300:
        return Outcome.ANSWERED
    return Outcome(meaning_of(status).outcome)


_BY_TONE = {
    ToneKind.BUSY: Outcome.BUSY,
    ToneKind.CONGESTION: Outcome.UNAVAILABLE,
    ToneKind.SIT: Outcome.WRONG_NUMBER,
    ToneKind.FAX_CED: Outcome.MACHINE,
}


def outcome_of_tone(kind: ToneKind) -> Outcome | None:
    """Return the outcome that a tone announces; None = the call goes on.

    Some networks play busy and wrong-number tones for half a minute before they refuse.
    """
    return _BY_TONE.get(kind)


def outcome_of_error(error: Exception) -> Outcome:
    match error:
        case CallRefused(status=status):
            return outcome_of_status(status)
        case CalleeUnreachable(why="no_answer"):
            return Outcome.NO_ANSWER
        case CalleeUnreachable(why="dns"):
            return Outcome.WRONG_NUMBER
        case CalleeUnreachable() | RegistrationFailed(status=None):
            return Outcome.UNREACHABLE
        case NoCommonCodec():
            return Outcome.NO_CODEC
        case BadSip():
            return Outcome.WRONG_NUMBER
        case _ if getattr(error, "code", "") == "call_not_allowed":
            return Outcome.NOT_ALLOWED
    return Outcome.FAILED


def outcome_of(facts: CallFacts) -> Outcome:
    if facts.was_answered:
        return Outcome.MACHINE if facts.answered_by == "machine" else Outcome.ANSWERED
    return _unanswered(facts.end, facts.ringing_at is not None)


def _unanswered(end: EndFacts | None, rang: bool) -> Outcome:
    if end is None:
        return Outcome.FAILED
    if end.by == "local" and end.error is None:
        return Outcome.CANCELLED
    if end.by == "timeout" and rang:
        return Outcome.NO_ANSWER
    # RFC 3261 section 16.7: a server that gives up ringing answers 408 or 480.
    if end.status in (408, 480) and rang:
        return Outcome.NO_ANSWER
    if end.error is not None:
        return outcome_of_error(end.error)
    return outcome_of_status(end.status) if end.status else Outcome.CANCELLED
