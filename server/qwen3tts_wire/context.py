"""One utterance, as the client sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from .alignment import Word
from .errors import BadRequest, ProtocolError, SpeechError
from .events import Alignment, Audio, Cancelled, Done, Event, Started
from .formats import CLAUSE_START, AudioFormat, AudioFrame
from .growing_text import GrowingText
from .heard import Heard, heard
from .messages import (
    MAX_SAMPLES,
    MAX_TEXT_CHARS,
    AlignmentInfo,
    ContextCancelled,
    ContextDone,
    ContextOpen,
    ContextStarted,
)
from .protocol import ContextState

if TYPE_CHECKING:
    from .client import SpeechClient


STOPPABLE = frozenset({ContextState.OPEN, ContextState.ENDING, ContextState.DONE})
"""States in which the client may report and cancel."""


class Context:
    """Text goes in (``append``, ``flush``, ``end``), events come out (``async for``).

    The queue of events holds at most the window's worth of audio: the server may send more only as
    events are taken, so a context that nobody reads stalls alone.
    """

    def __init__(self, client: SpeechClient, opened: ContextOpen) -> None:
        self._client = client
        self._opened = opened
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._queued = 0
        self._taken = 0
        """Samples taken from the queue and not yet given back as credit."""
        self._text = GrowingText()
        self._reported = 0
        self._finished = False
        self._cancelled: asyncio.Future[Cancelled] | None = None
        self.words: list[Word] = []
        """Words received so far."""
        self.received = 0
        """Samples received so far."""
        self.done: Done | None = None
        """Set as soon as the server has said it, before the iterator gets there."""
        self.error: SpeechError | None = None
        """Why the context broke."""

    @property
    def context_id(self) -> str:
        """Name of the context on its connection."""
        return self._opened.context_id

    @property
    def context_no(self) -> int:
        """Number of the context on its connection, from 1."""
        return self._opened.context_no

    @property
    def format(self) -> AudioFormat:
        """Form of the samples."""
        return self._opened.format

    @property
    def text(self) -> str:
        """All text given so far, as positions in it count."""
        return str(self._text)

    @property
    def cancelling(self) -> bool:
        """Whether a cancel waits for its answer."""
        return self._cancelled is not None and not self._cancelled.done()

    def heard(self, position: int) -> Heard:
        """The text cut where the listener was after ``position`` samples, from what came so far."""
        return heard(
            self.text, self.words, position, total=self.done.samples if self.done else None
        )

    # --- text ---

    async def append(self, text: str) -> None:
        """Give more text. Waits while the connection cannot take more; raises the context's error.

        Raises:
            LimitExceeded: with this the context would hold too much text; nothing of it was sent.
        """
        self._check_open()
        self._text.add(self._client.protocol.send_append(self.context_no, text))
        await self._client.flush_out()

    async def flush(self) -> None:
        """Have all text so far spoken, without waiting for the end of a clause."""
        self._check_open()
        self._client.protocol.send_flush(self.context_no)
        await self._client.flush_out()

    async def end(self) -> None:
        """No more text follows."""
        self._check_open()
        self._text.add(self._client.protocol.send_end(self.context_no))
        await self._client.flush_out()

    # --- playout ---

    async def report(self, played: int, state: str = "playing") -> None:
        """Tell the server what has been heard (samples); ``playing``, ``starved`` or ``held``.

        Raises:
            BadRequest: no number, or no such state.
        """
        self._reported = self._position(played)
        if self._client.protocol.state(self.context_no) in STOPPABLE:
            self._client.protocol.send_report(self.context_no, self._reported, state)
            await self._client.flush_out()

    def cancel(self, played: int | None = None) -> asyncio.Future[Cancelled]:
        """Stop. Audio is dropped from this moment on, whether or not the answer is awaited.

        ``played`` is the position heard, in samples; without it the last report stands. The answer
        never fails: where the server does not give it, it is worked out here.

        Raises:
            BadRequest: ``played`` is no number; nothing is stopped.
        """
        if self._cancelled is not None:
            return self._cancelled
        if played is not None:
            self._reported = played = self._position(played)
        self._cancelled = asyncio.get_running_loop().create_future()
        self._events.clear()
        self._queued = 0
        self._finished = True
        self._arrived.set()
        if self.error is None and self._client.protocol.state(self.context_no) in STOPPABLE:
            self._client.protocol.send_cancel(self.context_no, played)
            self._client.wake()
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
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        if isinstance(event, Audio):
            self._give_credit(event)
        elif isinstance(event, Done):
            self._finished = True
        return event

    def _give_credit(self, event: Audio) -> None:
        samples = len(event.pcm) // self.format.bytes_per_sample
        self._queued -= samples
        self._taken += samples
        taken_ms = 1000 * self._taken / self.format.sample_rate
        if (
            4 * taken_ms >= self._opened.window_ms
            and self.done is None
            and self._client.protocol.state(self.context_no) in STOPPABLE
        ):
            self._client.protocol.send_credit(self.context_no, taken_ms)
            self._taken = 0
            self._client.wake()

    # --- called by the client ---

    def take(self, message: object, now: float) -> None:
        """A message about this context came."""
        if isinstance(message, AudioFrame):
            self._audio(message, now)
        elif isinstance(message, AlignmentInfo):
            words = tuple(
                Word(
                    each.text,
                    each.start,
                    each.end,
                    each.char_start,
                    each.char_end,
                    each.precision,
                    each.precision_ms,
                )
                for each in message.words
            )
            self.words.extend(words)
            if len(self.words) > MAX_TEXT_CHARS:
                raise ProtocolError("The server sent more words than there can be text.")
            self._put(Alignment(words))
        elif isinstance(message, ContextStarted):
            self._put(
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
            self.done = Done(
                message.samples, message.chars, message.clauses, message.reason, message.marks
            )
            self._put(self.done)
            self._client.keep_done(self)
        elif isinstance(message, ContextCancelled):
            self._answered(message)

    def fail(self, error: SpeechError) -> None:
        """The context is broken; what came before is still given out."""
        if self.error is None:
            self.error = error
        self._arrived.set()
        if self._cancelled is not None:
            self._settle_cancel()

    def _audio(self, frame: AudioFrame, now: float) -> None:
        samples = len(frame.data) // self.format.bytes_per_sample
        self.received += samples
        self._queued += samples
        if self._queued > self.format.samples(self._opened.window_ms) + self._slack:
            raise ProtocolError("The server sent more audio than it was allowed.")
        clause_start = bool(frame.flags & CLAUSE_START)
        self._put(Audio(frame.data, frame.offset, now, clause_start))

    @property
    def _slack(self) -> int:
        return self.format.sample_rate // 100

    def _put(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()

    def _answered(self, message: ContextCancelled) -> None:
        self._client.forget(self)
        if self._cancelled is not None and not self._cancelled.done():
            self._cancelled.set_result(
                Cancelled(
                    message.sent,
                    message.generated,
                    message.text_heard,
                    message.text_remaining,
                    message.played,
                    True,
                    message.marks,
                )
            )

    def _settle_cancel(self) -> None:
        self._client.forget(self)
        if self._cancelled is None or self._cancelled.done():
            return
        cut = self.heard(self._reported)
        self._cancelled.set_result(
            Cancelled(
                self.received,
                self.received,
                cut.text_heard,
                cut.text_remaining,
                self._reported,
                False,
            )
        )

    def _check_open(self) -> None:
        if self.error is not None:
            raise self.error
