"""Queue of all calls' speech for one model process, replaced at its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.detection.recogniser import RecogniserBusy, RecognitionFailed, Samples
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.whisper.guards import Decoding

log = logging.getLogger(__name__)

RESTART_DELAY_S = 10.0
"""Time after a failed start without another one; turns fail immediately with the same error."""


class RecognitionWorker(Protocol):
    """Worker of the queue, such as `WhisperProcess`."""

    on_gone: Callable[[], None]

    @property
    def alive(self) -> bool: ...

    async def hear(self, samples: Samples) -> Decoding:
        """Recognise one piece at a time. Raises RecognitionFailed."""
        ...

    async def idle(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(eq=False, slots=True)
class _Piece:
    samples: Samples
    answer: asyncio.Future[Decoding]
    spare: bool = False
    """True if it is a partial text, given up for any other piece."""
    work: asyncio.Task[Decoding] | None = None

    def give_up(self) -> None:
        _fail(self, RecogniserBusy("A piece that is needed came."))
        if self.work is not None:
            self.work.cancel()


class RecognitionQueue:
    """Queue in front of one replaceable worker."""

    def __init__(
        self, start: Callable[[], Awaitable[RecognitionWorker]], clock: Clock, *, most_waiting: int
    ) -> None:
        """``start`` returns a worker that is ready; raises SpeechError."""
        self.started = 0
        """Number of workers so far."""
        self._start = start
        self._clock = clock
        self._most_waiting = most_waiting
        self._waiting: deque[_Piece] = deque()
        self._present: _Piece | None = None
        self._came = asyncio.Event()
        self._worker: RecognitionWorker | None = None
        self._starting: asyncio.Task[RecognitionWorker] | None = None
        self._awaited = 0
        """Callers of `ready`, who receive the error of a failed start."""
        self._failure: SpeechError | None = None
        self._not_before = 0.0
        self._server: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        return sum(not piece.answer.done() for piece in self._waiting)

    @property
    def worker(self) -> RecognitionWorker | None:
        return self._worker

    @property
    def loading(self) -> bool:
        return self._starting is not None

    def begin(self) -> None:
        if not self._closed and self._worker is None and self._starting is None:
            if self._failure is not None and self._clock.now() < self._not_before:
                return
            self._starting = asyncio.create_task(self._begin(), name="start a recogniser")
            self._starting.add_done_callback(_looked_at)

    async def ready(self) -> None:
        self._awaited += 1
        try:
            await self._ready()
        finally:
            self._awaited -= 1

    async def ask(self, samples: Samples, *, spare: bool = False) -> Decoding:
        """Recognise one piece, int16 [n], in turn; cancellation gives it up.

        ``spare``: only while the worker is idle.

        Raises RecogniserBusy, RecogniserUnavailable, RecognitionFailed.
        """
        if self._closed:
            raise RecognitionFailed("The recogniser is closed.")
        if spare and (self._worker is None or self._present is not None or self.waiting):
            raise RecogniserBusy("The recogniser has other work.")
        if self._present is not None and self._present.spare and not spare:
            self._present.give_up()
        if self.waiting >= self._most_waiting:
            raise RecogniserBusy(
                f"{self.waiting} pieces of speech wait for the recogniser.",
                remedy="Use a smaller model, a GPU, or fewer calls.",
            )
        piece = _Piece(samples, asyncio.get_running_loop().create_future(), spare)
        self._waiting.append(piece)
        self._came.set()
        if self._server is None:
            self._server = asyncio.create_task(self._serve(), name="recognise")
        try:
            return await piece.answer
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):
                self._waiting.remove(piece)
            if piece.work is not None:
                piece.work.cancel()
            raise

    async def close(self) -> None:
        self._closed = True
        tasks = [each for each in (self._server, self._starting) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._waiting:
            _fail(self._waiting.popleft(), RecognitionFailed("The recogniser was closed."))
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.close()

    async def _ready(self) -> RecognitionWorker:
        if self._closed:
            raise RecognitionFailed("The recogniser is closed.")
        self.begin()
        if self._worker is not None:
            return self._worker
        if (starting := self._starting) is not None:
            await asyncio.wait([starting])
            if starting.cancelled():
                raise RecognitionFailed("The recogniser was closed.")
            return starting.result()
        assert self._failure is not None
        raise type(self._failure)(self._failure.message, remedy=self._failure.remedy)

    async def _begin(self) -> RecognitionWorker:
        try:
            worker = await self._start()
        except SpeechError as error:
            self._failure = error
            self._not_before = self._clock.now() + RESTART_DELAY_S
            if not self._awaited:
                log.error("the recogniser does not start: %s", error)
            raise
        finally:
            self._starting = None
        self.started += 1
        self._worker = worker
        worker.on_gone = lambda: self._lost(worker)
        if not worker.alive:  # between its greeting and this line
            self._lost(worker)
        return worker

    def _lost(self, worker: RecognitionWorker) -> None:
        if worker is not self._worker:
            return
        self._worker = None
        if self._closed:
            return
        now = self._clock.now()
        soon_again = now < self._not_before
        self._failure = RecognitionFailed(
            "The recogniser's process has ended again and again.",
            remedy="Its own message says why; is there enough memory for the model?",
        )
        self._not_before = now + RESTART_DELAY_S
        log.warning("the recogniser's process is lost; %s", "later" if soon_again else "another")
        if not soon_again:
            self._failure = None
            self.begin()

    async def _serve(self) -> None:
        while True:
            await self._came.wait()
            if not self._waiting:
                self._came.clear()
                continue
            piece = self._waiting.popleft()
            if not piece.answer.done():
                self._present = piece
                try:
                    await self._hear(piece)
                finally:
                    self._present = None

    async def _hear(self, piece: _Piece) -> None:
        try:
            worker = await self._ready()
            if piece.answer.done():
                return
            piece.work = asyncio.create_task(worker.hear(piece.samples), name="hear a piece")
            await asyncio.wait([piece.work])
            if piece.work.cancelled():
                await worker.idle()
            elif not piece.answer.done():
                piece.answer.set_result(piece.work.result())
        except SpeechError as error:
            _fail(piece, error)
        except asyncio.CancelledError:
            if piece.work is not None:
                piece.work.cancel()
            _fail(piece, RecognitionFailed("The recogniser was closed."))
            raise
        except Exception as error:  # a defect here costs this piece only
            log.exception("a piece of speech could not be heard")
            _fail(piece, RecognitionFailed(f"The recogniser broke: {type(error).__name__}."))


def _fail(piece: _Piece, error: SpeechError) -> None:
    if not piece.answer.done():
        piece.answer.set_exception(error)


def _looked_at(task: asyncio.Task[RecognitionWorker]) -> None:
    if not task.cancelled():
        task.exception()
