"""Table of the fields of a call record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from qwen3tts_phone.diagnosis.diagnose import diagnose, headline
from qwen3tts_phone.diagnosis.findings import Finding
from qwen3tts_phone.diagnosis.outcome import OUTCOME_WORDS, Outcome, outcome_of
from qwen3tts_phone.diagnosis.quality import Score, call_quality
from qwen3tts_phone.facts import CallFacts, EndFacts, MediaFacts
from qwen3tts_phone.settings.records import RecordSettings

VERSION: Final = 1
MAX_TEXT_CHARS: Final = 2000
"""Longest text of a record that came from outside: a URI, a reason phrase."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """Facts of a call and the settings of its record."""

    facts: CallFacts
    settings: RecordSettings
    findings: list[Finding]
    outcome: Outcome

    @property
    def media(self) -> MediaFacts:
        return self.facts.media

    @property
    def first_in_at(self) -> float | None:
        stats, at = self.media.stats, self.facts.first_rtp_in_at
        return stats.first_received_at if at is None and stats is not None else at

    @property
    def first_out_at(self) -> float | None:
        stats, at = self.media.stats, self.facts.first_rtp_out_at
        return stats.first_sent_at if at is None and stats is not None else at

    def after(self, at: float | None) -> float | None:
        """Return a moment in seconds after the call's beginning."""
        return None if at is None else rounded(max(0.0, at - self.facts.started_at), 3)


@dataclass(frozen=True, slots=True)
class Field:
    """Name, description in Markdown, value, and the setting that it depends on."""

    name: str
    words: str
    value: Callable[[RecordSource], Any]
    only_with: str = ""


def record_values(facts: CallFacts, settings: RecordSettings) -> dict[str, Any]:
    source = RecordSource(facts, settings, diagnose(facts), outcome_of(facts))
    return {
        each.name: each.value(source)
        for each in TABLE
        if not each.only_with or getattr(settings, each.only_with)
    }


def _end(end: EndFacts | None) -> dict[str, Any] | None:
    if end is None:
        return None
    return {
        "by": end.by,
        "status": end.status,
        "reason": bounded_text(end.reason),
        "error": end.error.code if end.error is not None else None,
        "words": bounded_text(end.words),
    }


def _score(score: Score | None) -> dict[str, float | None]:
    if score is None:
        return {"r": None, "mos": None}
    return {"r": rounded(score.r, 1), "mos": rounded(score.mos, 2)}


def _quality(media: MediaFacts) -> dict[str, Any] | None:
    stats = media.stats
    if stats is None or not media.codec:
        return None
    scores = call_quality(stats, media.codec, media.ptime_ms)
    return {
        "in": {
            "packets": stats.received,
            "lost": stats.lost,
            "late": stats.late,
            "concealed": stats.concealed,
            "loss": rounded(stats.fraction_lost, 4),
            "jitter_ms": rounded(stats.jitter_ms, 2),
            **_score(scores.heard),
        },
        "out": {
            "packets": stats.sent,
            "lost": stats.remote_lost,
            "loss": rounded(stats.remote_lost / stats.sent if stats.sent else 0.0, 4),
            "loss_max": rounded(stats.remote_fraction_max, 4),
            "jitter_ms": rounded(stats.remote_jitter_ms, 2),
            "skipped": stats.skipped_slots,
            "starvations": stats.starvations,
            **_score(scores.sent),
        },
        "round_trip_ms": rounded(stats.round_trip_ms, 1),
        "round_trip_max_ms": rounded(stats.round_trip_max_ms, 1),
        "source_changes": stats.source_changes,
        "srtp_failed": stats.srtp_failed,
        "strangers": stats.strangers,
    }


def _talk_s(facts: CallFacts) -> float | None:
    if facts.answered_at is None or facts.ended_at is None:
        return None
    return rounded(max(0.0, facts.ended_at - facts.answered_at), 3)


def _media_sources(source: RecordSource) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for each in source.media.sources:
        host, port = each.source
        address = {"host": host, "port": port} if source.settings.parties else {}
        found.append({"at_s": source.after(each.at), "what": each.what, **address})
    return found


def _transcript(source: RecordSource) -> list[dict[str, Any]]:
    return [
        {
            "who": line.who,
            "at_s": source.after(line.at),
            "text": line.text,
            "interrupted": line.interrupted,
        }
        for line in sorted(source.facts.transcript, key=lambda line: line.at)
    ]


def _iso_after(facts: CallFacts, at: float | None) -> str | None:
    return None if at is None else _iso(facts.started_wall + max(0.0, at - facts.started_at))


def _iso(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")


def rounded(value: float | None, digits: int) -> float | None:
    """Round a finite number; None for any other."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def bounded_text(text: str) -> str:
    return text[:MAX_TEXT_CHARS]


TABLE: Final = (
    Field("record", "version of this format: 1", lambda e: VERSION),
    Field(
        "id",
        "the SIP Call-ID; of a stream the carrier's name of the call",
        lambda e: bounded_text(e.facts.call_id),
    ),
    Field(
        "line",
        "what it came or went by: `sip`, or the kind of stream, such as `audiosocket`",
        lambda e: e.facts.line,
    ),
    Field("direction", "`in` or `out`", lambda e: e.facts.direction),
    Field(
        "started",
        "when the INVITE went out or came in, or the stream began: ISO 8601, UTC",
        lambda e: _iso(e.facts.started_wall),
    ),
    Field(
        "ended",
        "when the call was over; null while it lasts",
        lambda e: _iso_after(e.facts, e.facts.ended_at),
    ),
    Field(
        "outcome",
        "how it came out: `answered`, `machine`, `busy`, `no_answer`, `declined`, ...",
        lambda e: str(e.outcome),
    ),
    Field("outcome_words", "the same in words", lambda e: OUTCOME_WORDS[e.outcome]),
    Field(
        "ringing_s",
        "when it rang, seconds after `started`; null = never. So are all that follow",
        lambda e: e.after(e.facts.ringing_at),
    ),
    Field(
        "early_media_s",
        "when sound before the answer was announced",
        lambda e: e.after(e.facts.early_media_at),
    ),
    Field("answered_s", "when it was answered", lambda e: e.after(e.facts.answered_at)),
    Field(
        "first_rtp_in_s", "when the first packet of sound came", lambda e: e.after(e.first_in_at)
    ),
    Field(
        "first_rtp_out_s",
        "when the first packet of sound went out",
        lambda e: e.after(e.first_out_at),
    ),
    Field("ended_s", "when it was over", lambda e: e.after(e.facts.ended_at)),
    Field("talk_s", "from the answer to the end, seconds", lambda e: _talk_s(e.facts)),
    Field(
        "end",
        "`by` (local, remote, timeout, error), SIP's `status` and `reason`, the `error`'s code,"
        " and why in `words`",
        lambda e: _end(e.facts.end),
    ),
    Field("account", "name of the account", lambda e: e.facts.account or None),
    Field(
        "transport",
        "`udp`, `tcp` or `tls`; of a stream `tcp`, `ws` or `wss`",
        lambda e: e.facts.transport or None,
    ),
    Field(
        "user_agent",
        "what the other side's program calls itself",
        lambda e: bounded_text(e.facts.user_agent) or None,
    ),
    Field("codec", "what we sent", lambda e: e.media.codec or None),
    Field(
        "codec_in", "what the other side sent", lambda e: e.media.codec_in or e.media.codec or None
    ),
    Field(
        "ptime_ms", "length of our packets", lambda e: e.media.ptime_ms if e.media.codec else None
    ),
    Field("srtp", "the encryption; null = none", lambda e: e.media.srtp or None),
    Field("held_s", "how long the other side had us on hold", lambda e: rounded(e.media.held_s, 3)),
    Field("holding_s", "how long we had it on hold", lambda e: rounded(e.media.holding_s, 3)),
    Field(
        "quality",
        "both directions' packets, loss (0 to 1), jitter (ms), rating `r` and opinion score "
        "`mos` (E-model, ITU-T G.107), and the round trip; null without sound",
        lambda e: _quality(e.media),
    ),
    Field(
        "media_sources",
        "sources of sound: when (`at_s`), `what` (`began`, `took_over`, `refused`; a host is "
        "refused once), and with `parties` the `host` and `port`; the first 20",
        _media_sources,
    ),
    Field(
        "dtmf_in",
        "number of keys pressed at the other side",
        lambda e: len(e.facts.keys_in) + e.facts.keys_in_more,
    ),
    Field(
        "dtmf_ignored",
        "keys of the other side beyond 20 a second, which were not taken",
        lambda e: e.facts.keys_ignored,
    ),
    Field(
        "dtmf_out",
        "number of keys that we sent",
        lambda e: len(e.facts.keys_out) + e.facts.keys_out_more,
    ),
    Field("utterances", "things that we said", lambda e: e.facts.utterances),
    Field("interrupted", "of these, stopped before their end", lambda e: e.facts.interrupted),
    Field(
        "turns",
        "how often the other side was listened to until it had finished speaking",
        lambda e: e.facts.turns,
    ),
    Field(
        "barge_ins",
        "how often it cut in while something was being said",
        lambda e: e.facts.barge_ins,
    ),
    Field(
        "odd",
        "what it sent that its protocol does not have, and how often",
        lambda e: {bounded_text(what): count for what, count in e.facts.odd.items()},
    ),
    Field(
        "answered_by",
        "`human`, `machine` or `silence`, where somebody listened for it",
        lambda e: e.facts.answered_by or None,
    ),
    Field(
        "recording", "files of the recording", lambda e: [str(path) for path in e.facts.recording]
    ),
    Field("transferred", "whether the call was handed on", lambda e: bool(e.facts.transferred_to)),
    Field(
        "continues",
        "`id` of the call whose place this one has, after a transfer by the other side; null = "
        "none",
        lambda e: bounded_text(e.facts.continues) or None,
    ),
    Field(
        "continued_by",
        "`id` of the call that has the place of this one; null = none",
        lambda e: bounded_text(e.facts.continued_by) or None,
    ),
    Field(
        "diagnosis",
        "what was wrong and what to do about it; empty = all was well",
        lambda e: headline(e.findings),
    ),
    Field(
        "findings",
        "codes of all that was found, the worst first",
        lambda e: [each.code for each in e.findings],
    ),
    Field(
        "local",
        "our address; this and the next four with `parties` only",
        lambda e: bounded_text(e.facts.local_uri),
        only_with="parties",
    ),
    Field(
        "remote",
        "the other side's address",
        lambda e: bounded_text(e.facts.remote_uri),
        only_with="parties",
    ),
    Field(
        "dialled",
        "the address that was called",
        lambda e: bounded_text(e.facts.dialled_uri),
        only_with="parties",
    ),
    Field(
        "identity",
        "the other side as asserted by a trusted server (RFC 3325)",
        lambda e: bounded_text(e.facts.identity) or None,
        only_with="parties",
    ),
    Field(
        "transferred_to",
        "where the call was handed on",
        lambda e: bounded_text(e.facts.transferred_to) or None,
        only_with="parties",
    ),
    Field(
        "keys_in",
        "the first 1,000 keys pressed at the other side; with `keys` only",
        lambda e: bounded_text(e.facts.keys_in),
        only_with="keys",
    ),
    Field(
        "keys_out",
        "the first 1,000 keys that we sent; with `keys` only",
        lambda e: bounded_text(e.facts.keys_out),
        only_with="keys",
    ),
    Field(
        "transcript",
        "what was said: `who` (agent, caller), `at_s`, `text`, `interrupted`; of ours what the "
        "other side has heard, of theirs what the host has recognised; with `transcript` only",
        _transcript,
        only_with="transcript",
    ),
)
FIELDS: Final[dict[str, str]] = {each.name: each.words for each in TABLE}
"""Description of every field, for the documentation."""
