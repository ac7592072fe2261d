"""Call detail record: a JSON line with times, media, end, quality and findings.

Times within a call are seconds after its INVITE; the two wall clock times are ISO 8601 in UTC. Keys
and the transcript are in it only where the settings ask for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from qwen3tts_phone.diagnosis.diagnose import diagnose, headline
from qwen3tts_phone.diagnosis.outcome import OUTCOME_WORDS, outcome_of
from qwen3tts_phone.diagnosis.quality import Score, call_quality
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.settings.records import RecordSettings

VERSION = 1
MAX_TEXT_CHARS = 2000
"""Longest text of a record that came from outside: a URI, a reason phrase."""


FIELDS: Final[dict[str, str]] = {
    "record": "version of this format: 1",
    "id": "the SIP Call-ID; of a stream the carrier's name of the call",
    "line": "what it came or went by: `sip`, or the kind of stream, such as `audiosocket`",
    "direction": "`in` or `out`",
    "started": "when the INVITE went out or came in, or the stream began: ISO 8601, UTC",
    "ended": "when the call was over; null while it lasts",
    "outcome": "how it came out: `answered`, `machine`, `busy`, `no_answer`, `declined`, ...",
    "outcome_words": "the same in words",
    "ringing_s": "when it rang, seconds after `started`; null = never. So are all that follow",
    "early_media_s": "when sound before the answer was announced",
    "answered_s": "when it was answered",
    "first_rtp_in_s": "when the first packet of sound came",
    "first_rtp_out_s": "when the first packet of sound went out",
    "ended_s": "when it was over",
    "talk_s": "from the answer to the end, seconds",
    "end": "`by` (local, remote, timeout, error), SIP's `status` and `reason`, the `error`'s code, "
    "and why in `words`",
    "account": "name of the account",
    "transport": "`udp`, `tcp` or `tls`; of a stream `tcp`, `ws` or `wss`",
    "user_agent": "what the other side's program calls itself",
    "codec": "what we sent",
    "codec_in": "what the other side sent",
    "ptime_ms": "length of our packets",
    "srtp": "the encryption; null = none",
    "held_s": "how long the other side had us on hold",
    "holding_s": "how long we had it on hold",
    "quality": "both directions' packets, loss (0 to 1), jitter (ms), rating `r` and opinion score "
    "`mos` (E-model, ITU-T G.107), and the round trip; null without sound",
    "media_sources": "sources of sound: when (`at_s`), `what` (`began`, `took_over`, `refused`; a "
    "host is refused once), and with `parties` the `host` and `port`; the first 20",
    "dtmf_in": "number of keys pressed at the other side",
    "dtmf_ignored": "keys of the other side beyond 20 a second, which were not taken",
    "dtmf_out": "number of keys that we sent",
    "utterances": "things that we said",
    "interrupted": "of these, stopped before their end",
    "turns": "how often the other side was listened to until it had finished speaking",
    "barge_ins": "how often it cut in while something was being said",
    "odd": "what it sent that its protocol does not have, and how often",
    "answered_by": "`human`, `machine` or `silence`, where somebody listened for it",
    "recording": "files of the recording",
    "transferred": "whether the call was handed on",
    "continues": "`id` of the call whose place this one has, after a transfer by the other side; "
    "null = none",
    "continued_by": "`id` of the call that has the place of this one; null = none",
    "diagnosis": "what was wrong and what to do about it; empty = all was well",
    "findings": "codes of all that was found, the worst first",
    "local": "our address; this and the next four with `parties` only",
    "remote": "the other side's address",
    "dialled": "the address that was called",
    "identity": "the other side as asserted by a trusted server (RFC 3325)",
    "transferred_to": "where the call was handed on",
    "keys_in": "the first 1,000 keys pressed at the other side; with `keys` only",
    "keys_out": "the first 1,000 keys that we sent; with `keys` only",
    "transcript": "what was said: `who` (agent, caller), `at_s`, `text`, `interrupted`; of ours "
    "what the other side has heard, of theirs what the host has recognised; with `transcript` "
    "only",
}
"""Every field of a record, for the documentation."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Record of a call: plain JSON values under the names of `FIELDS`."""

    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: CallFacts, settings: RecordSettings | None = None) -> CallRecord:
        """Build the record of a call, as it stands where it is not over."""
        return cls(_values(facts, settings or RecordSettings()))

    @classmethod
    def from_json(cls, line: str | bytes) -> CallRecord:
        """Parse one line; raises ValueError for one that is no record."""
        try:
            values = json.loads(line, parse_constant=_no_number, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"no JSON: {error}") from None
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        version = values.get("record")
        if type(version) is not int or version < 1:
            raise ValueError("no call record: the field record is missing")
        if version > VERSION:
            raise ValueError(f"a call record of version {version}; this program knows {VERSION}")
        for name in ("id", "direction", "started"):
            if not isinstance(values.get(name), str):
                raise ValueError(f"the field {name} is missing")
        datetime.fromisoformat(values["started"])
        return cls(values)

    def to_json(self) -> str:
        return json.dumps(self.values, allow_nan=False, separators=(",", ":"))

    @property
    def id(self) -> str:
        return str(self.values["id"])

    @property
    def started(self) -> datetime:
        return datetime.fromisoformat(self.values["started"])

    @property
    def outcome(self) -> str:
        """Value of `qwen3tts_phone.diagnosis.outcome.Outcome`."""
        return str(self.values.get("outcome", ""))

    @property
    def diagnosis(self) -> str:
        """First finding and its remedy in one line; empty = no finding."""
        return str(self.values.get("diagnosis", ""))


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text[:20])


def _values(facts: CallFacts, settings: RecordSettings) -> dict[str, Any]:
    media, stats = facts.media, facts.media.stats
    findings = diagnose(facts)
    outcome = outcome_of(facts)
    first_in = facts.first_rtp_in_at
    first_out = facts.first_rtp_out_at
    if stats is not None:
        first_in = first_in if first_in is not None else stats.first_received_at
        first_out = first_out if first_out is not None else stats.first_sent_at
    values: dict[str, Any] = {
        "record": VERSION,
        "id": _text(facts.call_id),
        "line": facts.line,
        "direction": facts.direction,
        "started": _iso(facts.started_wall),
        "ended": _ended(facts),
        "outcome": str(outcome),
        "outcome_words": OUTCOME_WORDS[outcome],
        "ringing_s": _after(facts, facts.ringing_at),
        "early_media_s": _after(facts, facts.early_media_at),
        "answered_s": _after(facts, facts.answered_at),
        "first_rtp_in_s": _after(facts, first_in),
        "first_rtp_out_s": _after(facts, first_out),
        "ended_s": _after(facts, facts.ended_at),
        "talk_s": _talk_s(facts),
        "end": _end(facts.end),
        "account": facts.account or None,
        "transport": facts.transport or None,
        "user_agent": _text(facts.user_agent) or None,
        "codec": media.codec or None,
        "codec_in": media.codec_in or media.codec or None,
        "ptime_ms": media.ptime_ms if media.codec else None,
        "srtp": media.srtp or None,
        "held_s": _round(media.held_s, 3),
        "holding_s": _round(media.holding_s, 3),
        "quality": _quality(facts),
        "media_sources": [
            {
                "at_s": _after(facts, each.at),
                "what": each.what,
                **({"host": each.source[0], "port": each.source[1]} if settings.parties else {}),
            }
            for each in media.sources
        ],
        "dtmf_in": len(facts.keys_in) + facts.keys_in_more,
        "dtmf_ignored": facts.keys_ignored,
        "dtmf_out": len(facts.keys_out) + facts.keys_out_more,
        "utterances": facts.utterances,
        "interrupted": facts.interrupted,
        "turns": facts.turns,
        "barge_ins": facts.barge_ins,
        "odd": {_text(what): count for what, count in facts.odd.items()},
        "answered_by": facts.answered_by or None,
        "recording": [str(path) for path in facts.recording],
        "transferred": bool(facts.transferred_to),
        "continues": _text(facts.continues) or None,
        "continued_by": _text(facts.continued_by) or None,
        "diagnosis": headline(findings),
        "findings": [each.code for each in findings],
    }
    if settings.parties:
        values |= {
            "local": _text(facts.local_uri),
            "remote": _text(facts.remote_uri),
            "dialled": _text(facts.dialled_uri),
            "identity": _text(facts.identity) or None,
            "transferred_to": _text(facts.transferred_to) or None,
        }
    if settings.keys:
        values |= {"keys_in": _text(facts.keys_in), "keys_out": _text(facts.keys_out)}
    if settings.transcript:
        values["transcript"] = [
            {
                "who": line.who,
                "at_s": _after(facts, line.at),
                "text": line.text,
                "interrupted": line.interrupted,
            }
            for line in sorted(facts.transcript, key=lambda line: line.at)
        ]
    return values


def _quality(facts: CallFacts) -> dict[str, Any] | None:
    media, stats = facts.media, facts.media.stats
    if stats is None or not media.codec:
        return None
    scores = call_quality(stats, media.codec, media.ptime_ms)
    return {
        "in": {
            "packets": stats.received,
            "lost": stats.lost,
            "late": stats.late,
            "concealed": stats.concealed,
            "loss": _round(stats.fraction_lost, 4),
            "jitter_ms": _round(stats.jitter_ms, 2),
            **_score(scores.heard),
        },
        "out": {
            "packets": stats.sent,
            "lost": stats.remote_lost,
            "loss": _round(stats.remote_lost / stats.sent if stats.sent else 0.0, 4),
            "loss_max": _round(stats.remote_fraction_max, 4),
            "jitter_ms": _round(stats.remote_jitter_ms, 2),
            "skipped": stats.skipped_slots,
            "starvations": stats.starvations,
            **_score(scores.sent),
        },
        "round_trip_ms": _round(stats.round_trip_ms, 1),
        "round_trip_max_ms": _round(stats.round_trip_max_ms, 1),
        "source_changes": stats.source_changes,
        "srtp_failed": stats.srtp_failed,
        "strangers": stats.strangers,
    }


def _score(score: Score | None) -> dict[str, float | None]:
    if score is None:
        return {"r": None, "mos": None}
    return {"r": _round(score.r, 1), "mos": _round(score.mos, 2)}


def _end(end: EndFacts | None) -> dict[str, Any] | None:
    if end is None:
        return None
    return {
        "by": end.by,
        "status": end.status,
        "reason": _text(end.reason),
        "error": end.error.code if end.error is not None else None,
        "words": end_reason(end),
    }


def end_reason(end: EndFacts) -> str:
    """Return the cause of an end in words."""
    if end.error is not None:
        return _text(str(end.error))
    said = " ".join(str(each) for each in (end.status, end.reason) if each)
    why = f" ({_text(said)})" if said else ""
    if end.by == "local":
        return f"we hung up{why}"
    if end.by == "remote":
        return f"the other side hung up{why}"
    if end.by == "timeout":
        return f"nothing came in time{why}"
    return f"it failed{why}"


def _talk_s(facts: CallFacts) -> float | None:
    if facts.answered_at is None or facts.ended_at is None:
        return None
    return _round(max(0.0, facts.ended_at - facts.answered_at), 3)


def _after(facts: CallFacts, at: float | None) -> float | None:
    return None if at is None else _round(max(0.0, at - facts.started_at), 3)


def _ended(facts: CallFacts) -> str | None:
    if facts.ended_at is None:
        return None
    return _iso(facts.started_wall + max(0.0, facts.ended_at - facts.started_at))


def _iso(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")


def _round(value: float | None, digits: int) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return round(value, digits)


def _text(text: str) -> str:
    return text[:MAX_TEXT_CHARS]
