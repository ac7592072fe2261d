"""Server state of a context: text, clauses, audio. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from qwen3tts_codecs.pcm import from_bytes
from qwen3tts_engine.base import SAMPLE_RATE, ContextVoice, EndReason, PcmChunk, SynthesisRequest
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.text_plan import LAYOUTS, PlanMode, TextPlan
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.transcode import Transcoder
from qwen3tts_text.growing import GrowingText
from qwen3tts_text.openings import Phrases
from qwen3tts_text.segmenter import SegmenterSettings
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.formats import CLAUSE_START
from qwen3tts_wire.heard import Heard, Word, heard
from qwen3tts_wire.messages import ContextOpen, PlayoutReport

AUDIBLE = 328
"""1 % of full scale (-40 dBFS), audible on a telephone."""
SHORTEST_GAP_S = 0.02
"""Shorter waits are covered by a packet of 20 ms."""
ENGINE_MARKS = ("slot", "prefill", "first_codes", "starter")
"""Marks of engines; ``slot`` defaults to the request."""
_BY_WEIGHT: tuple[EndReason, ...] = (
    *("text_end", "dry", "silence", "frame_cap", "repeated"),
    *("regenerated", "regenerated_cap", "regenerated_repeated"),
)
"""End reasons, least disturbing first; a context reports the worst."""


@dataclass(frozen=True)
class AlignedWords:
    words: tuple[Word, ...]


@dataclass(frozen=True)
class AudioPiece:
    data: bytes
    flags: int = 0


@dataclass(frozen=True)
class Done: ...


@dataclass(frozen=True)
class Failed:
    """The engine failed; earlier audio is sent."""

    error: SpeechError


Item = AlignedWords | AudioPiece | Done | Failed


class Utterance:
    """State of a context; ``now``: server's monotonic seconds."""

    def __init__(
        self,
        opened: ContextOpen,
        settings: ServerSettings,
        engine_hz: int,
        segmenter: SegmenterSettings,
        now: float,
        mode: PlanMode = "clause",
        openings: Phrases | None = None,
    ) -> None:
        self.opened = opened
        self.mode = mode
        self.reason: EndReason = "text_end"
        self.marks: dict[str, float] = {}
        self.words: list[Word] = []
        self.sent = 0
        """Samples handed to the connection."""
        self.clauses = 0
        self.speaking = False
        """True while a request is with the engine."""
        self.paused = False
        """True while the engine waits for the buffer."""
        self.over = False
        """True once all is said or the engine failed."""
        self.gaps: list[float] = []
        """Seconds a listener waited for the engine, not for text."""
        self.counted = False
        """True once counted as over."""
        self.context = ContextVoice()
        """Voice of its clauses, shared by like contexts."""
        self._plays_until: float | None = None
        self._settings = settings
        self._text = GrowingText()
        self._ended = False
        self._waiting_text = False
        self._last_append = now
        self._plan = TextPlan(mode, segmenter, language=opened.language, openings=openings)
        self._lead = PlayoutLead(opened.lead_ms)
        self._engine_marks: set[str] = set()
        self._transcoder = Transcoder(engine_hz, opened.format)
        self._origin = 0
        self._flags = 0
        self._queue: deque[Item] = deque()
        self._queued = 0
        self._credit = opened.format.samples(min(opened.window_ms, settings.limits.max_window_ms))
        self._frame = opened.format.samples(settings.frame_ms)
        self._ahead = opened.format.samples(settings.ahead_ms)
        self._played = 0
        self._played_at: float | None = None
        self._moving = False
        self.mark("received", now)

    # --- what is known ---

    @property
    def no(self) -> int:
        return self.opened.context_no

    @property
    def context_id(self) -> str:
        return self.opened.context_id

    @property
    def text(self) -> str:
        return str(self._text)

    @property
    def chars(self) -> int:
        return len(self._text)

    @property
    def generated(self) -> int:
        return self._transcoder.samples

    @property
    def queued(self) -> int:
        return self._queued

    @property
    def from_cache(self) -> bool:
        return "starter" in self.marks

    def mark(self, name: str, now: float) -> None:
        self.marks.setdefault(name, _ms(now))

    # --- text in ---

    def append(self, text: str, now: float) -> None:
        if not text:
            return
        self.mark("first_delta", now)
        self._text.add(text)
        if self.over:
            return
        self._last_append = now
        self._waiting_text = True
        self._plan.append(text)
        self._planned(now)

    def flush(self, now: float) -> None:
        self._waiting_text = False
        if not self.over:
            self._plan.flush()
            self._planned(now)

    def end(self, now: float) -> None:
        self._ended = True
        self._waiting_text = False
        if not self.over:
            self._plan.end()
            self._planned(now)
        self._finish_if_said(now)

    def _planned(self, now: float) -> None:
        if self._plan.waiting:
            self.mark("segment_ready", now)
            if not self.speaking and self._plays_until is not None:
                self._plays_until = max(self._plays_until, now)

    # --- the engine ---

    def next_request(self) -> SynthesisRequest | None:
        """Return the next engine text, or None."""
        if self.speaking or self.paused or self.over:
            return None
        piece = self._plan.next()
        if piece is None:
            return None
        self.speaking = True
        self.clauses += 1
        self._flags = CLAUSE_START
        self._origin = self._transcoder.engine_position
        opened = self.opened
        return SynthesisRequest(
            text=piece.text,
            voice=opened.voice,
            language=opened.language,
            speed=opened.speed,
            offsets=piece.offsets,
            final=piece.final,
            continued=self.generated > 0,
            more=piece.more,
            layout=LAYOUTS.get(self.mode),
            context=self.context,
            instructions=opened.instructions,
            sampling=opened.sampling,
            seed=opened.seed,
            initial_codec_chunk_frames=opened.initial_codec_chunk_frames,
            lead=self._lead,
        )

    def produced(self, chunk: PcmChunk, now: float) -> None:
        if self.over:
            return
        self._note(chunk)
        if chunk.pcm:
            self.mark("first_pcm", now)
            if "first_audible" not in self.marks and _audible(chunk.pcm):
                self.mark("first_audible", now)
        words = tuple(self._transcoder.word(each, self._origin) for each in chunk.words)
        if words:
            self.words.extend(words)
            self._queue.append(AlignedWords(words))
        self._sound(self._transcoder.push(chunk.pcm), now)

    def _note(self, chunk: PcmChunk) -> None:
        if chunk.end is not None:
            self.reason = max(self.reason, chunk.end, key=_BY_WEIGHT.index)
        for name, at in chunk.marks.items():
            if name in ENGINE_MARKS and name not in self._engine_marks:
                self._engine_marks.add(name)
                self.marks[name] = _ms(at)

    def generated_clause(self, now: float) -> None:
        self.speaking = False
        self._plan.generated()
        self._planned(now)
        if not self._plan.waiting:
            # Nothing follows immediately: the last 3 ms of the clause must not wait for the next.
            self._sound(self._transcoder.flush(), now)
        self._finish_if_said(now)

    def failed(self, error: SpeechError) -> None:
        if self.over:
            return
        self.speaking = False
        self.over = True
        self._plan.close()
        self._sound(self._transcoder.flush())
        self._queue.append(Failed(error))

    def _sound(self, data: bytes, now: float | None = None) -> None:
        if not data:
            return
        self._queue.append(AudioPiece(data, self._flags))
        self._flags = 0
        form = self.opened.format
        samples = len(data) // form.bytes_per_sample
        if now is not None:
            self._note_gap(samples / form.sample_rate, now)
        self._queued += samples

    def _note_gap(self, seconds: float, now: float) -> None:
        if self._plays_until is None or self._queued:
            # What lies here unsent is its reader's wait, not the engine's.
            self._plays_until = max(now, self._plays_until or now)
        late = now - self._plays_until
        if late >= SHORTEST_GAP_S and not self._plan.growing:
            self.gaps.append(late)
        self._plays_until = max(now, self._plays_until) + seconds

    def _finish_if_said(self, now: float) -> None:
        if self._ended and not self.speaking and not self.over and self._plan.finished():
            self.over = True
            self.mark("generated", now)
            self._queue.append(Done())

    # --- sound out ---

    def take(self, now: float) -> Item | None:
        if not self._queue:
            return None
        item = self._queue[0]
        if not isinstance(item, AudioPiece):
            return self._queue.popleft()
        width = self.opened.format.bytes_per_sample
        most = min(self._frame, self._credit)
        if most <= 0:
            return None
        self._queue.popleft()
        if len(item.data) > most * width:
            self._queue.appendleft(AudioPiece(item.data[most * width :]))
            item = AudioPiece(item.data[: most * width], item.flags)
        count = len(item.data) // width
        self._credit -= count
        self._queued -= count
        before = self._engine_samples(self.sent)
        self.sent += count
        self._lead.sent(self._engine_samples(self.sent) - before, now)
        self.mark("first_sent", now)
        return item

    def credit(self, window_ms: float) -> None:
        most = self.opened.format.samples(self._settings.limits.max_window_ms)
        self._credit = min(most, self._credit + self.opened.format.samples(window_ms))

    @property
    def full(self) -> bool:
        return self._queued >= self._ahead

    @property
    def drained(self) -> bool:
        return 2 * self._queued <= self._ahead

    def release(self) -> None:
        self._queue.clear()
        self._plan.close()
        self.context = ContextVoice()

    # --- the listener ---

    def report(self, report: PlayoutReport, now: float) -> None:
        self._played = min(report.played, self.sent)
        self._played_at = now
        self._moving = report.state == "playing"
        # A client without audio plays on by itself as soon as there is some; one that holds, not.
        self._lead.report(self._engine_samples(self._played), report.state != "held", now)

    def played(self, now: float) -> int:
        if self._played_at is not None:
            passed = (now - self._played_at) if self._moving else 0.0
            return min(self.sent, self._played + int(passed * self.opened.format.sample_rate))
        if "first_sent" not in self.marks:
            return 0
        passed = now - self.marks["first_sent"] / 1000
        return max(0, min(self.sent, int(passed * self.opened.format.sample_rate)))

    def lead_s(self, now: float) -> float:
        return (self.generated - self.played(now)) / self.opened.format.sample_rate

    def _engine_samples(self, samples: int) -> int:
        return samples * SAMPLE_RATE // self.opened.format.sample_rate

    def cut(self, played: int | None) -> tuple[int, Heard]:
        position = self._played if played is None else min(played, self.sent)
        total = self.generated if self.over and self._ended and not self._queue else None
        return position, heard(self.text, self.words, position, total=total)

    # --- pauses in the text ---

    @property
    def waiting(self) -> bool:
        return self._waiting_text and not self.over

    def flush_deadline(self, now: float) -> float | None:
        """Time at which a pause becomes a flush, or None."""
        pause_ms = self.opened.pause_flush_ms
        if pause_ms is None:
            pause_ms = self._settings.pause_flush_ms
        if not self.waiting or pause_ms == 0 or self._plan.waiting or self.mode in LAYOUTS:
            return None
        if self.speaking and not self._plan.growing:
            return None
        due = self._last_append + pause_ms / 1000
        lead_ms = self.opened.lead_ms
        if lead_ms is None:
            lead_ms = self._settings.pause_flush_lead_ms
        spare = self.lead_s(now) - lead_ms / 1000
        if spare <= 0:
            return due
        if self._played_at is not None and not self._moving:
            return None  # it stands still; the next report asks again
        return max(due, now + max(spare, 0.02))


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _audible(pcm: bytes) -> bool:
    samples = from_bytes(pcm)
    return int(samples.max()) > AUDIBLE or int(samples.min()) < -AUDIBLE
