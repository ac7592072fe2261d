"""One utterance at the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import fields, replace
from typing import Protocol

from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.context_status import ContextStatus
from qwen3tts_wire.errors import BadRequest, ProtocolError, SpeechError
from qwen3tts_wire.events import (
    Alignment,
    Audio,
    Cancelled,
    Done,
    Event,
    EventQueue,
    Resumed,
    Started,
)
from qwen3tts_wire.formats import CLAUSE_START, AudioFrame
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import (
    MAX_SAMPLES,
    MAX_TEXT_CHARS,
    AlignmentInfo,
    ContextCancelled,
    ContextDone,
    ContextOpen,
    ContextStarted,
    Limits,
)
from qwen3tts_wire.resume import UnalignedTail
from qwen3tts_wire.states import ContextState

STOPPABLE = frozenset({ContextState.OPEN, ContextState.ENDING, ContextState.DONE})
"""States with report and cancel."""
_FIELDS = [each.name for each in fields(Word)]


class ContextConnection(Protocol):
    """Connection as a context uses it."""

    protocol: ClientProtocol

    @property
    def offset_s(self) -> float: ...

    def wake(self) -> None: ...

    async def flush_out(self) -> None: ...

    def forget(self, context: Context) -> None: ...

    def keep_done(self, context: Context) -> None: ...

    def reopen(self, context: Context, opened: ContextOpen, window_ms: float) -> ContextOpen: ...


class Context(ContextStatus):
    """One utterance: text in (``append``, ``flush``, ``end``), events out (``async for``).

    The queue holds at most the window's audio: an unread context stalls alone. A resuming client
    may change its server (``Resumed``); positions and text go on.
    """

    def __init__(
        self, connection: ContextConnection, opened: ContextOpen, *, resumable: bool = False
    ) -> None:
        super().__init__(opened)
        self._connection: ContextConnection | None = connection
        """None while it waits for another server."""
        self._tail = UnalignedTail(opened.format) if resumable else None
        self._events = EventQueue(opened.format)
        self._taken = 0
        """Samples taken and not yet credited."""
        self._started = False
        """True once ``Started`` was given."""
        self._limits = (
            Limits() if connection.protocol.session is None else connection.protocol.session.limits
        )
        self._reported = 0
        self.revoice: Callable[[], Awaitable[tuple[str | None, str | None]]] | None = None
        """Called for voice and language at another address; None: the same."""

    @property
    def _stoppable(self) -> bool:
        return (
            self._connection is not None
            and self._connection.protocol.state(self.context_no) in STOPPABLE
        )

    # --- text ---

    async def append(self, text: str) -> None:
        """Append text; waits under backpressure, raises the context's error.

        Raises:
            LimitExceeded: too much text; none of it was sent.
        """
        self._check_open()
        joined = self._replay.add(text, self._limits.max_text_chars)
        if self._connection is not None:
            self._connection.protocol.send_append(self.context_no, joined)
            await self._connection.flush_out()

    async def flush(self) -> None:
        """Speak all text so far, without waiting for a clause's end."""
        self._check_open()
        self._replay.flush()
        if self._connection is not None:
            self._connection.protocol.send_flush(self.context_no)
            await self._connection.flush_out()

    async def end(self) -> None:
        self._check_open()
        rest = self._replay.end()
        if self._connection is not None:
            self._connection.protocol.send_append(self.context_no, rest)
            self._connection.protocol.send_end(self.context_no)
            await self._connection.flush_out()

    # --- playout ---

    async def report(self, played: int, state: str = "playing") -> None:
        """Report the playout position, samples, and ``playing``, ``starved`` or ``held``.

        Raises:
            BadRequest: the position is invalid.
        """
        self._reported = self._position(played)
        if self._connection is not None and self._stoppable:
            there = self._attempt.there(self._reported)
            self._connection.protocol.send_report(self.context_no, there, state)
            await self._connection.flush_out()

    def cancel(self, played: int | None = None) -> asyncio.Future[Cancelled]:
        """Cancel; audio is dropped from now on, awaited or not.

        ``played``: playout position, samples; default: the last report. Without the server's
        answer it is computed here.

        Raises:
            BadRequest: the position is invalid.
        """
        if self._cancelled is not None:
            return self._cancelled
        if played is not None:
            self._reported = played = self._position(played)
        self._cancelled = asyncio.get_running_loop().create_future()
        self._finished = True
        self._events.clear()
        if self.error is None and self._connection is not None and self._stoppable:
            there = None if played is None else self._attempt.there(played)
            if there is None and self.resumed:
                there = self._attempt.there(self._reported)
            self._connection.protocol.send_cancel(self.context_no, there)
            self._connection.wake()
        else:
            self._settle_cancel()
        return self._cancelled

    def _position(self, played: int) -> int:
        try:
            return max(0, min(int(played), MAX_SAMPLES))
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRequest(
                f"A position is a number of samples, not {type(played).__name__}.",
                context_id=self.context_id,
            ) from error

    # --- events ---

    def __aiter__(self) -> Context:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._finished:
                raise StopAsyncIteration
            if self.error is not None:
                self._finished = True
                raise self.error
            await self._events.wait()
        event = self._events.take()
        if isinstance(event, Audio):
            self._give_credit(self._attempt.owed(self._events.count(event)))
        elif isinstance(event, Done):
            self._finished = True
        return event

    def _give_credit(self, samples: int) -> None:
        self._taken += samples
        taken_ms = 1000 * self._taken / self.format.sample_rate
        if (
            4 * taken_ms >= self._attempt.opened.window_ms
            and self.done is None
            and self._connection is not None
            and self._stoppable
        ):
            self._connection.protocol.send_credit(self.context_no, taken_ms)
            self._taken = 0
            self._connection.wake()

    # --- called by the connection ---

    def take(self, message: object, now: float) -> None:
        if isinstance(message, AudioFrame):
            self._audio(message, now)
        elif isinstance(message, AlignmentInfo):
            self._aligned(message, now)
        elif isinstance(message, ContextStarted):
            if not self._started:
                self._started = True
                if self._opened.voice is None and message.voice is not None:
                    # Another server's choice may be another one.
                    self._opened = replace(self._opened, voice=message.voice)
                self._events.put(
                    Started(
                        message.mode,
                        message.format,
                        message.voice,
                        message.language,
                        message.ignored,
                        message.marks,
                    )
                )
        elif isinstance(message, ContextDone):
            self._is_done(message, now)
        elif isinstance(message, ContextCancelled):
            self._answered(message)

    def fail(self, error: SpeechError) -> None:
        if self.error is None:
            self.error = error
        self._events.wake()
        if self._cancelled is not None:
            self._settle_cancel()

    def _audio(self, frame: AudioFrame, now: float) -> None:
        samples = len(frame.data) // self.format.bytes_per_sample
        if (join := self._attempt.pending_join) is not None:
            join.audio(frame.offset, frame.data, frame.flags)
            self._give_credit(samples)
            self._join(now)
            return
        most = self.format.samples(self._opened.window_ms) + self._slack + self._attempt.paid
        if self._events.samples + samples > most:
            raise ProtocolError("The server sent more audio than it was allowed.")
        self._sound(frame.offset, frame.data, frame.flags, now)

    def _sound(self, offset: int, data: bytes, flags: int, now: float) -> None:
        samples = len(data) // self.format.bytes_per_sample
        clause_start = bool(flags & CLAUSE_START)
        self._attempt.clauses += clause_start
        self._attempt.fruitful(now)
        position = self.received
        self.received += samples
        if self._tail is not None:
            self._tail.push(position, data)
        self._events.put(Audio(data, position, now, clause_start))

    def _aligned(self, message: AlignmentInfo, now: float) -> None:
        words = [Word(**{name: getattr(each, name) for name in _FIELDS}) for each in message.words]
        if (join := self._attempt.pending_join) is not None:
            join.add_words(words)
            if len(join.words) > MAX_TEXT_CHARS:
                raise ProtocolError("The server sent more words than there can be text.")
            self._join(now)
            return
        self._spoken(words)

    def _spoken(self, words: list[Word]) -> None:
        here = tuple(map(self._attempt.here, words)) if self.resumed else tuple(words)
        self.words.extend(here)
        if len(self.words) > MAX_TEXT_CHARS:
            raise ProtocolError("The server sent more words than there can be text.")
        if self._tail is not None and here:
            self._tail.aligned_to(here[-1].end)
        self._events.put(Alignment(here))

    def _is_done(self, message: ContextDone, now: float) -> None:
        if self._attempt.pending_join is not None:
            self._attempt.pending_join.finish()
            self._join(now)
        samples, chars, clauses = message.samples, message.chars, message.clauses
        if self.resumed:
            samples, chars, clauses = self.received, len(self.text), self._attempt.clauses
        marks = self._attempt.marks(message.marks)
        self.done = Done(samples, chars, clauses, message.reason, marks)
        self._events.put(self.done)
        if self._connection is not None:
            self._connection.keep_done(self)

    @property
    def _slack(self) -> int:
        return self.format.sample_rate // 100

    def _answered(self, message: ContextCancelled) -> None:
        if self._connection is not None:
            self._connection.forget(self)
        if self._cancelled is None or self._cancelled.done():
            return
        played, text_heard, text_remaining = (
            message.played,
            message.text_heard,
            message.text_remaining,
        )
        if self.resumed:
            played = self._reported
            if self._attempt.pending_join is None and played >= self._attempt.base:
                text_heard = self.text[: self._attempt.char] + text_heard
            else:
                known = self.heard(played)
                text_heard, text_remaining = known.text_heard, known.text_remaining
        self._cancelled.set_result(
            Cancelled(
                self._attempt.position(message.sent),
                self._attempt.position(message.generated),
                text_heard,
                text_remaining,
                played,
                True,
                self._attempt.marks(message.marks),
            )
        )

    def _settle_cancel(self) -> None:
        if self._connection is not None:
            self._connection.forget(self)
        if self._cancelled is None or self._cancelled.done():
            return
        known = self.heard(self._reported)
        self._cancelled.set_result(
            Cancelled(
                self.received,
                self.received,
                known.text_heard,
                known.text_remaining,
                self._reported,
                False,
            )
        )

    def _check_open(self) -> None:
        if self.error is not None:
            raise self.error

    # --- another server ---

    def detach(self, reason: str, offset_s: float) -> bool:
        """Leave a lost server; return whether another can go on.

        Not with unknown words; a context that needs no server is finished here.
        """
        connection = self._connection
        if self.over or self._tail is None or connection is None:
            return False
        able = () if connection.protocol.session is None else connection.protocol.session.features
        if self.received and not self.words and not {"alignment", "estimated_alignment"} & {*able}:
            return False
        self._connection = None
        connection.forget(self)
        made = self._attempt.lose(
            reason, offset_s, self.text, self.words, self.received, self._tail
        )
        if self._replay.ended and made.nothing_left(self.text):
            self.done = Done(self.received, len(self.text), self._attempt.clauses, "text_end", {})
            self._events.put(self.done)
            return False
        return True

    @property
    def waits(self) -> bool:
        return self._connection is None and not self._finished and self.error is None

    @property
    def joining(self) -> bool:
        """True until another server's audio has joined."""
        return self.resumed > 0 and self._attempt.pending_join is not None

    def speak_with(self, voice: str | None, language: str | None, there: Collection[str]) -> None:
        """Choose voice and language; ``there``: the next server's voice ids."""
        if voice is None and self._opened.voice in there:
            voice = self._opened.voice
        self._opened = replace(self._opened, voice=voice, language=language)

    def give_up(self) -> None:
        if self._connection is not None and self._stoppable:
            self._connection.protocol.send_cancel(self.context_no)
            self._connection.wake()

    def attach(self, connection: ContextConnection, fruitless: int) -> None:
        """Go on with another server.

        Raises:
            ConnectionLost: too many fruitless attempts.
            SpeechError: the server refuses.
        """
        assert self._tail is not None
        self._attempt.count_attempt(fruitless)
        queued_ms = 1000 * self._events.samples / self.format.sample_rate
        opened = connection.reopen(self, self._opened, self._opened.window_ms - queued_ms)
        self._attempt.begin(
            opened, connection.offset_s, self.text, self.words, self.received, self._tail
        )
        # The queue is full already where there is more credit than room: that much is paid.
        room_ms = max(0.0, self._opened.window_ms - queued_ms)
        self._attempt.paid = self.format.samples(max(0.0, opened.window_ms - room_ms))
        self._taken = 0
        self._connection = connection
        self.resumed += 1
        for piece, flushed in self._replay.rest(self._attempt.char):
            connection.protocol.send_append(self.context_no, piece)
            if flushed:
                connection.protocol.send_flush(self.context_no)
        if self._replay.ended:
            connection.protocol.send_end(self.context_no)
        connection.wake()

    def _join(self, now: float) -> None:
        join = self._attempt.pending_join
        if join is None or not join.joined:
            return
        del self.words[join.cut.words :]
        if self.words and self.words[-1].end > self.received:
            self.words[-1] = replace(self.words[-1], end=self.received)
        # What is said again is taken back, as far as it has not been read yet.
        back = self._events.take_back(join.fragment)
        self.received -= back
        self._give_credit(back)
        passed, words, pieces = join.passed, join.words, join.pieces
        if self._tail is not None:
            self._tail.clear()
        self._events.put(Resumed(self.received, *self._attempt.join(self.received, now)))
        if passed:
            here = tuple(self._attempt.in_text(each) for each in passed)
            self.words.extend(here)
            self._events.put(Alignment(here))
        if words:
            self._spoken(words)
        for offset, data, flags in pieces:
            self._attempt.paid += len(data) // self.format.bytes_per_sample
            self._sound(offset, data, flags, now)
