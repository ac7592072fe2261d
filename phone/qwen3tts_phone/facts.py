"""Facts of one call, filled in by its line.

Record, quality and diagnosis follow from these alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.media.stats import LegStats
from qwen3tts_speech.latency import Mark
from qwen3tts_speech.utterance import Spoken
from qwen3tts_wire.errors import SpeechError

EndedBy = Literal["local", "remote", "timeout", "error"]
ENDINGS: dict[EndedBy, str] = {
    "local": "we hung up",
    "remote": "the other side hung up",
    "timeout": "nothing came in time",
    "error": "it failed",
}
Address = tuple[str, int]
"""Numeric host and port."""
ODD_KINDS = 16
"""Kinds of undefined messages that are counted apart."""
MAX_NOTED_KEYS = 1000
"""Keys of each side that a record holds; further ones are counted."""
ODD_CHARS = 80
"""Longest name of one."""
SOURCES_KEPT = 20
"""Changes of the source of a call's sound that are kept."""


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One line of a transcript."""

    who: Literal["agent", "caller"]
    at: float
    """Begin (monotonic, s)."""
    text: str = field(repr=False)
    """Text that was heard."""
    interrupted: bool = False
    """True if it was stopped before its end."""


@dataclass(slots=True, kw_only=True)
class EndFacts:
    """End of a call; from `qwen3tts_phone.sip.call.state.Ended`."""

    by: EndedBy
    status: int | None = None
    """SIP's status where there was one: of the refusal of a call, None after a BYE."""
    reason: str = ""
    """The reason phrase, or the text of a Reason header (RFC 3326)."""
    error: SpeechError | None = None
    """Why, where it did not simply end."""

    @property
    def words(self) -> str:
        """Cause of the end in one clause, or the error's own message."""
        if self.error is not None:
            return str(self.error)
        said = " ".join(str(each) for each in (self.status, self.reason) if each)
        return ENDINGS[self.by] + (f" ({said})" if said else "")


@dataclass(slots=True, kw_only=True)
class RegistrationFacts:
    """Registration of the account of a call."""

    state: Literal["registered", "trying", "failed", "expired", "unregistered"] = "unregistered"
    server: str = ""
    """``host:port`` that was asked last."""
    user: str = ""
    realm: str = ""
    status: int | None = None
    """Latest answer of the registrar."""
    error: CallError | None = None


class SourceChange(NamedTuple):
    """A source of media packets that was accepted or refused."""

    at: float
    what: Literal["began", "took_over", "refused"]
    source: Address


@dataclass(slots=True, kw_only=True)
class MediaFacts:
    """Media of a call: agreement, addresses, holds, counters."""

    codec: str = ""
    """Encoding name of what we send; empty = nothing was agreed."""
    codec_in: str = ""
    """Inbound codec; empty = the same."""
    ptime_ms: int = 20
    srtp: str = ""
    """Name of the suite (RFC 4568); empty = not encrypted."""
    srtp_setting: str = ""
    """Our setting: ``off``, ``accept`` or ``require``; empty = not known."""
    telephone_events: bool = False
    """True if the far end takes keys as RFC 4733 events."""
    send: bool = True
    """True if we may send: False while the far end holds us."""
    receive: bool = True
    """True if the far end may send: False while we hold it."""
    held_s: float = 0.0
    """Time on hold by the far end, in all."""
    holding_s: float = 0.0
    """Time on hold by us."""
    local: Address | None = None
    """Address and port that our description gives for sound."""
    remote: Address | None = None
    """Address and port that the far end's description gives."""
    peer_host: str = ""
    """Numeric address that the far end's SIP messages come from."""
    our_codecs: tuple[str, ...] = ()
    their_codecs: tuple[str, ...] = ()
    """Codecs of its description; empty = not known."""
    source: Address | None = None
    """Source of its packets (`MediaStarted.source`)."""
    sources: list[SourceChange] = field(default_factory=list)
    """Sources that were taken and refused, in their order; the first `SOURCES_KEPT` of them."""
    refused: SourceChange | None = None
    """The last one that was refused."""
    unconfirmed: str = ""
    """The described host, where sending was paused since nothing had come from it."""
    loud_in_s: float | None = None
    """Seconds of inbound audio that were not silence; None = not measured."""
    silent_s: float = 0.0
    """Time without packets at the end (`MediaTimeout`); 0 = there was none."""
    failed: str = ""
    """Why the media process gave the call up; empty = it did not."""
    stats: LegStats | None = None
    """The counters at the end."""

    def note_source(self, source: Address, at: float) -> None:
        if source != self.source:
            self._keep(SourceChange(at, "took_over" if self.source else "began", source))
        self.source = source
        self.silent_s = 0.0

    def note_refused(self, source: Address, at: float) -> None:
        self.refused = SourceChange(at, "refused", source)
        if not any(each.what == "refused" and each.source[0] == source[0] for each in self.sources):
            self._keep(self.refused)

    def _keep(self, change: SourceChange) -> None:
        if len(self.sources) < SOURCES_KEPT:
            self.sources.append(change)


@dataclass(slots=True, kw_only=True)
class CallFacts:
    """One call. Times are seconds of the monotonic clock; None = did not happen."""

    call_id: str = ""
    line: str = "sip"
    """Kind of line: ``sip``, or the kind of stream, such as ``audiosocket``."""
    direction: Literal["in", "out"] = "out"
    local_uri: str = ""
    remote_uri: str = ""
    dialled_uri: str = ""
    identity: str = ""
    """Far end as asserted by a trusted server (RFC 3325); empty = not asserted."""
    display_name: str = ""
    """The name that the far end gives itself; empty = none."""
    account: str = ""
    """Its name; empty = none."""
    transport: str = ""
    """``udp``, ``tcp`` or ``tls``; of a stream ``ws``, ``wss`` or ``tcp``."""
    user_agent: str = ""
    """User-Agent of the far end."""
    started_wall: float = 0.0
    """The wall clock when the INVITE went out or came in, seconds since 1970 (`time.time()`)."""
    started_at: float = 0.0
    """The same moment on the monotonic clock."""
    ringing_at: float | None = None
    early_media_at: float | None = None
    answered_at: float | None = None
    first_rtp_in_at: float | None = None
    first_rtp_out_at: float | None = None
    ended_at: float | None = None
    provisional_status: int | None = None
    """The last one that came, such as 183; None = none."""
    end: EndFacts | None = None
    """None while it lasts."""
    media: MediaFacts = field(default_factory=MediaFacts)
    registration: RegistrationFacts | None = None
    """State of the account; None = no account to register."""
    logged: bool = True
    """True if its record is written to the log."""
    keys_in: str = field(default="", repr=False)
    """Digits that the far end pressed; the first `MAX_NOTED_KEYS`."""
    keys_in_more: int = field(default=0, repr=False)
    """Keys pressed after these."""
    keys_ignored: int = field(default=0, repr=False)
    """Keys that came faster than a person presses them, and were not taken."""
    keys_out: str = field(default="", repr=False)
    keys_out_more: int = field(default=0, repr=False)
    utterances: int = 0
    interrupted: int = 0
    """Utterances that were stopped before their end."""
    turns: int = 0
    """Turns of the far end."""
    barge_ins: int = 0
    """Barge-ins of the far end."""
    odd: dict[str, int] = field(default_factory=dict)
    """Messages that the protocol does not define, counted by kind."""
    recording: tuple[Path, ...] = ()
    unrecorded: str = ""
    """Why it was to be recorded and was not; empty = it was, or was not to be."""
    transferred_to: str = ""
    """Target to which the call was handed on, or empty."""
    continues: str = ""
    """Id of the call whose place this one has, after a transfer or a replacement; empty = none."""
    continued_by: str = ""
    """Id of the call that has, or was to have, the place of this one; empty = none."""
    handed_on: int = 0
    """Calls before this one in the same chain of transfers."""
    answered_by: str = ""
    """``human``, ``machine`` or ``silence`` where somebody listened for it."""
    keep_transcript: bool = False
    """True if what was said is kept in ``transcript``."""
    transcript: list[TranscriptLine] = field(default_factory=list, repr=False)
    """Lines in the order of their end: of ours what the far end has heard; of theirs what a
    host with speech recognition hands to `note_heard`."""

    @property
    def was_answered(self) -> bool:
        return self.answered_at is not None

    def note_spoken(self, spoken: Spoken, now: float) -> None:
        if self.keep_transcript and (spoken.heard or spoken.interrupted):
            began = spoken.record.marks.get(Mark.FIRST_FRAME_WIRE, now)
            self.transcript.append(TranscriptLine("agent", began, spoken.heard, spoken.interrupted))

    def note_keys(self, keys: str, *, ours: bool) -> None:
        if ours:
            room = max(0, MAX_NOTED_KEYS - len(self.keys_out))
            self.keys_out += keys[:room]
            self.keys_out_more += len(keys[room:])
        else:
            room = max(0, MAX_NOTED_KEYS - len(self.keys_in))
            self.keys_in += keys[:room]
            self.keys_in_more += len(keys[room:])

    def note_odd(self, what: str) -> None:
        """Count an undefined message; excess kinds count as ``others``."""
        what = what[:ODD_CHARS]
        if what not in self.odd and len(self.odd) >= ODD_KINDS:
            what = "others"
        self.odd[what] = self.odd.get(what, 0) + 1

    def note_turn(self, text: str, at: float, *, barge_in: bool = False) -> None:
        """Count a turn; ``barge_in``: it interrupted our speech."""
        self.turns += 1
        self.barge_ins += barge_in
        self.note_heard(text, at)

    def note_heard(self, text: str, at: float) -> None:
        if self.keep_transcript and text:
            self.transcript.append(TranscriptLine("caller", at, text))


def link_successor(new: CallFacts, old: CallFacts) -> None:
    old.continued_by, new.continues = new.call_id, old.call_id
    new.handed_on = old.handed_on + 1
