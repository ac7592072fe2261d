"""Recogniser behind a WebSocket (docs/recognisers.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from qwen3tts_agent.recognition.settings import SocketSettings
from qwen3tts_agent.recognition.socket_dialling import closed, dial
from qwen3tts_agent.recognition.socket_protocol import (
    TRIES,
    Answer,
    Failed,
    Final,
    Outgoing,
    Partial,
    RecognitionService,
    TurnStream,
)
from qwen3tts_agent.recognition.turns import OpenRecognitions
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.detection.recogniser import (
    PartialCallback,
    RecogniserReport,
    RecogniserUnavailable,
    RecognitionFailed,
    RecognitionTimeout,
    Samples,
    Transcript,
)
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_wire.errors import ProtocolError, SpeechError

log = logging.getLogger(__name__)

RECONNECT_DELAY_S = 0.2
"""Delay before reconnecting; doubled each time in a row."""
MAX_RECONNECT_DELAY_S = 5.0


class ServiceRecogniser:
    """Recogniser with a reconnecting WebSocket a call."""

    def __init__(self, service: RecognitionService, clock: Clock | None = None) -> None:
        self._service = service
        self._clock = clock or LoopClock()
        self._open = OpenRecognitions[SocketRecognition]()

    @property
    def rate_hz(self) -> int:
        return self._service.rate_hz

    async def warm(self) -> None:
        socket = await self._service.dial()
        await socket.close()

    async def open(self, on_partial: PartialCallback | None = None) -> SocketRecognition:
        self._open.check()
        return self._open.add(SocketRecognition(self._service, self._clock, on_partial))

    async def close(self) -> None:
        await self._open.close()


class SocketRecogniser(ServiceRecogniser):
    """Recogniser that speaks ``qwen3tts.recogniser.v1``.

    >>> recogniser = SocketRecogniser(SocketSettings("ws://127.0.0.1:9000/asr"))
    """

    def __init__(self, settings: SocketSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        super().__init__(
            RecognitionService(
                settings.shown,
                settings.rate_hz,
                lambda: dial(settings, _stream(settings).hello()),
                lambda: _stream(settings),
                answer_timeout_s=settings.answer_timeout_s,
                behind_s=settings.behind_s,
            ),
            clock,
        )


async def check(settings: SocketSettings) -> RecogniserReport:
    """Wait for a ready server; see `RecogniserCheck`."""
    recogniser = SocketRecogniser(settings)
    try:
        await recogniser.warm()
    finally:
        await recogniser.close()
    return RecogniserReport(
        kind="ws", language=", ".join(settings.languages), address=settings.shown
    )


class SocketRecognition:
    """Recognition of one call over successive connections."""

    def __init__(
        self, service: RecognitionService, clock: Clock, on_partial: PartialCallback | None
    ) -> None:
        self.failure: SpeechError | None = None
        """Error of the last connection; None while there is one, or the first is being made."""
        self.connections = 0
        """Number of connections so far."""
        self._service = service
        self._clock = clock
        self._on_partial = on_partial
        self._stream = service.stream()
        self._out: deque[str | bytes] = deque()
        self._out_bytes = 0
        self._most_bytes = 0
        self._to_send = asyncio.Event()
        self._socket: ClientConnection | None = None
        self._waiting: dict[int, asyncio.Future[Transcript]] = {}
        self._closed = False
        self._answers = 0
        self._task = asyncio.create_task(self._run(), name="talk to a recogniser")

    def push(self, samples: Samples, at: float) -> None:
        self._queue(self._stream.push(samples, at))

    def begin_turn(self, at: float) -> None:
        out, _ = self._stream.begin_turn(at)
        self._queue(out)

    def pause(self, at: float) -> None:
        self._queue(self._stream.pause(at))

    def resume(self) -> None:
        self._queue(self._stream.resume())

    def drop_turn(self) -> None:
        self._queue(self._stream.drop_turn())

    def end_turn(self, at: float) -> Coroutine[Any, Any, Transcript]:
        out, number, oldest = self._stream.end_turn(at)
        if oldest is not None:
            self._fail(
                oldest,
                RecognitionFailed(
                    "Too many turns wait for the recogniser.",
                    remedy="Its server is too slow, or answers other turns than it is asked for.",
                ),
            )
        text: asyncio.Future[Transcript] = asyncio.get_running_loop().create_future()
        text.add_done_callback(_looked_at)
        if number is None:
            text.set_result(Transcript(""))
        elif self._closed:
            text.set_exception(_over())
        elif isinstance(self.failure, RecogniserUnavailable):
            self._stream.give_up(number)
            text.set_exception(self.failure)
        elif (complete := self._stream.finished(number)) is not None:
            text.set_result(complete)
        else:
            self._waiting[number] = text
        self._queue(out)
        return self._text(number, text)

    async def close(self) -> None:
        self._closed = True
        self._fail_all(_over())
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # --- a turn's text

    async def _text(self, number: int | None, text: asyncio.Future[Transcript]) -> Transcript:
        service = self._service
        try:
            async with asyncio.timeout(service.answer_timeout_s):
                if service.settle_s is not None and number is not None:
                    settled, _ = await asyncio.wait({text}, timeout=service.settle_s)
                    if not settled and (known := self._stream.known(number)) is not None:
                        return known
                return await text
        except TimeoutError:
            if number is not None and (known := self._stream.known(number)) is not None:
                return known
            raise RecognitionTimeout(
                f"The recogniser at {service.shown} did not answer within"
                f" {service.answer_timeout_s:g} s.",
                remedy="Look at its server, or allow more time (answer_timeout_s).",
            ) from self.failure
        finally:
            if number is not None and self._waiting.pop(number, None) is not None:
                self._queue(self._stream.give_up(number))

    def _take(self, answer: Answer) -> None:
        match answer:
            case Partial(_, transcript):
                self._tell(transcript)
            case Final(turn, transcript):
                text = self._waiting.get(turn)
                if text is not None and not text.done():
                    text.set_result(transcript)
            case Failed(None, said):
                raise RecognitionFailed(f"The recogniser failed: {said or 'it does not say why'}.")
            case Failed(turn, said):
                because = f": {said}" if said else ""
                self._fail(turn, RecognitionFailed(f"The recogniser could not do it{because}."))

    def _tell(self, transcript: Transcript) -> None:
        if self._on_partial is None:
            return
        try:
            self._on_partial(transcript)
        except Exception as error:  # of the program's function: the connection goes on
            log.error("on_partial failed\n%s", traceback_without_message(error))

    def _fail(self, number: int | None, error: SpeechError) -> None:
        text = self._waiting.get(number) if number is not None else None
        if text is not None and not text.done():
            text.set_exception(error)

    def _fail_all(self, error: SpeechError) -> None:
        for number in list(self._waiting):
            self._fail(number, error)

    # --- the connection

    def _queue(self, messages: Outgoing) -> None:
        for message in messages:
            self._out.append(message)
            self._out_bytes += len(message)
        if messages:
            self._to_send.set()
        if self._out_bytes > self._most_bytes and self._socket is not None:
            self.failure = RecognitionFailed(
                f"The recogniser at {self._service.shown} takes sound more slowly than it is"
                " spoken.",
                remedy="Give its server more power, or fewer calls.",
            )
            log.warning("%s", self.failure)
            self._fail_all(self.failure)
            self._abandon(self._socket)

    def _abandon(self, socket: ClientConnection) -> None:
        self._lost()
        socket.transport.abort()

    def _lost(self) -> None:
        self._socket = None
        self._stream.lost()
        self._out.clear()
        self._out_bytes = 0

    async def _run(self) -> None:
        wait_s = RECONNECT_DELAY_S
        while True:
            before = self._answers
            try:
                socket = await self._service.dial()
                try:
                    await self._talk(socket)
                finally:
                    await socket.close()
                raise self.failure or closed(socket)
            except SpeechError as error:
                self._failed(error)
            except (
                Exception
            ) as error:  # a defect of ours: the call's next turns still have a chance
                log.exception("talking to the recogniser broke off")
                self._failed(RecognitionFailed(f"It broke: {type(error).__name__}."))
            wait_s = (
                RECONNECT_DELAY_S
                if self._answers > before
                else min(MAX_RECONNECT_DELAY_S, 2 * wait_s)
            )
            await self._clock.sleep_until(self._clock.now() + wait_s)

    async def _talk(self, socket: ClientConnection) -> None:
        self.connections += 1
        self.failure = None
        self._socket = socket
        out, given_up = self._stream.greeted()
        for number in given_up:
            self._fail(
                number, RecognitionFailed(f"{TRIES} connections to the recogniser broke over it.")
            )
        # Retransmitted audio comes in one burst; only what is spoken from now on has a pace.
        again = sum(len(message) for message in out)
        self._most_bytes = again + round(2 * self._service.rate_hz * self._service.behind_s)
        self._queue(out)
        sender = asyncio.create_task(self._send(socket), name="send to a recogniser")
        try:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    for answer in self._stream.read(await socket.recv()):
                        self._take(answer)
                        self._answers += 1
        except ProtocolError as error:
            await socket.close(1002, "see docs/recognisers.md")
            raise RecognitionFailed(error.message, remedy=error.remedy) from None
        finally:
            last = self._stream.leaving() if self._closed else []
            if self._socket is socket:
                self._lost()
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            with contextlib.suppress(ConnectionClosed):
                for message in last:
                    await socket.send(message)

    async def _send(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):  # the receiver tells
            while self._socket is socket:
                self._to_send.clear()
                while self._out and self._socket is socket:
                    message = self._out.popleft()
                    await socket.send(message)
                    self._out_bytes = max(0, self._out_bytes - len(message))
                await self._idle()

    async def _idle(self) -> None:
        keep_alive_s = self._service.keep_alive_s
        if keep_alive_s is None:
            await self._to_send.wait()
            return
        came = asyncio.ensure_future(self._to_send.wait())
        rest = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + keep_alive_s))
        try:
            await asyncio.wait({came, rest}, return_when=asyncio.FIRST_COMPLETED)
            if not came.done():
                self._queue(self._stream.idle())
        finally:
            came.cancel()
            rest.cancel()

    def _failed(self, error: SpeechError) -> None:
        if self.failure is None or type(error) is not type(self.failure):
            log.warning("%s", error)
        self.failure = error
        if isinstance(error, RecogniserUnavailable):
            self._fail_all(error)


def _stream(settings: SocketSettings) -> TurnStream:
    return TurnStream(
        settings.rate_hz,
        languages=settings.languages,
        everything=settings.audio == "all",
        longest_s=settings.longest_s,
    )


def _looked_at(text: asyncio.Future[Transcript]) -> None:
    if not text.cancelled():
        text.exception()  # retrieved, so that asyncio does not log it


def _over() -> RecognitionFailed:
    return RecognitionFailed("The call was over before a turn's text came.")
