"""A recogniser behind a WebSocket: any program that speaks docs/recognisers.md."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections import deque
from collections.abc import Coroutine
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.recognise.base import PartialTaker, Samples, Transcript
from qwen3tts_phone.recognise.errors import (
    RecogniserUnavailable,
    RecognitionFailed,
    RecognitionTimeout,
)
from qwen3tts_phone.recognise.socket_dialling import closed, dial
from qwen3tts_phone.recognise.socket_protocol import (
    TRIES,
    Answer,
    Failed,
    Final,
    Outgoing,
    Partial,
    TurnStream,
    read_answer,
)
from qwen3tts_phone.recognise.socket_settings import SocketSettings
from qwen3tts_phone.without_words import without_words
from qwen3tts_wire.errors import ProtocolError, SpeechError

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.2
"""Before a lost connection is made again; twice as long each time in a row."""
LONGEST_WAIT_S = 5.0


class SocketRecogniser:
    """Sends each call's turns over a WebSocket of its own, and connects again when it is lost.

    >>> recogniser = SocketRecogniser(SocketSettings("ws://127.0.0.1:9000/asr"))
    """

    def __init__(self, settings: SocketSettings, *, clock: Clock | None = None) -> None:
        """Nothing is connected yet."""
        self.settings = settings
        self._clock = clock or LoopClock()
        self._open: weakref.WeakSet[SocketRecognition] = weakref.WeakSet()
        self._closed = False

    @property
    def rate_hz(self) -> int:
        """Rate of the samples that it takes."""
        return self.settings.rate_hz

    async def warm(self) -> None:
        """Look whether the server is there and ready.

        Raises:
            RecogniserUnavailable: what is there will not do: key, path, certificate, protocol.
            RecognitionFailed: nothing answers, or not now.
        """
        socket = await dial(self.settings, _stream(self.settings).hello())
        await socket.close()

    async def open(self, on_partial: PartialTaker | None = None) -> SocketRecognition:
        """Begin to recognise one call; connects in the background."""
        if self._closed:
            raise RecognitionFailed("The recogniser is closed.")
        recognition = SocketRecognition(self.settings, self._clock, on_partial)
        self._open.add(recognition)
        return recognition

    async def close(self) -> None:
        """Close the connections of all calls."""
        self._closed = True
        for recognition in list(self._open):
            await recognition.close()


class SocketRecognition:
    """One call's connection, or one after the other; see `Recognition`."""

    def __init__(
        self, settings: SocketSettings, clock: Clock, on_partial: PartialTaker | None
    ) -> None:
        self.failure: SpeechError | None = None
        """Why there is no connection; None while there is one, or the first is being made."""
        self.connections = 0
        """How many there have been."""
        self._settings = settings
        self._clock = clock
        self._on_partial = on_partial
        self._stream = _stream(settings)
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
        """Take the caller's sound; see `Recognition`."""
        self._queue(self._stream.push(samples, at))

    def begin_turn(self, at: float) -> None:
        """The caller speaks since ``at``; see `Recognition`."""
        out, _ = self._stream.begin_turn(at)
        self._queue(out)

    def pause(self, at: float) -> None:
        """The caller is silent since ``at``; see `Recognition`."""
        self._queue(self._stream.pause(at))

    def resume(self) -> None:
        """They speak on; see `Recognition`."""
        self._queue(self._stream.resume())

    def drop_turn(self) -> None:
        """It was a noise; see `Recognition`."""
        self._queue(self._stream.drop_turn())

    def end_turn(self, at: float) -> Coroutine[Any, Any, Transcript]:
        """The turn is over from this call on; see `Recognition` for what comes of it."""
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
        else:
            self._waiting[number] = text
        self._queue(out)
        return self._text(number, text)

    async def close(self) -> None:
        """The call is over; see `Recognition`."""
        self._closed = True
        self._fail_all(_over())
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # --- a turn's text

    async def _text(self, number: int | None, text: asyncio.Future[Transcript]) -> Transcript:
        settings = self._settings
        try:
            async with asyncio.timeout(settings.answer_timeout_s):
                return await text
        except TimeoutError:
            raise RecognitionTimeout(
                f"The recogniser at {settings.shown} did not answer within"
                f" {settings.answer_timeout_s:g} s.",
                remedy="Look at its server, or allow more time (answer_timeout_s).",
            ) from self.failure
        finally:
            if number is not None and self._waiting.pop(number, None) is not None:
                self._queue(self._stream.give_up(number))

    def _take(self, answer: Answer) -> None:
        match self._stream.take(answer):
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
        except Exception as error:  # somebody else's function: the connection goes on
            log.error("on_partial failed\n%s", without_words(error))

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
                f"The recogniser at {self._settings.shown} takes sound more slowly than it is"
                " spoken.",
                remedy="Give its server more power, or fewer calls.",
            )
            log.warning("%s", self.failure)
            self._fail_all(self.failure)
            self._abandon(self._socket)

    def _abandon(self, socket: ClientConnection) -> None:
        """Leave a connection that takes nothing more; nothing that waits for it is sent."""
        self._lost()
        socket.transport.abort()

    def _lost(self) -> None:
        self._socket = None
        self._stream.lost()
        self._out.clear()
        self._out_bytes = 0

    async def _run(self) -> None:
        """Connect, talk, connect again, to the end of the call."""
        wait_s = FIRST_WAIT_S
        while True:
            before = self._answers
            try:
                socket = await dial(self._settings, self._stream.hello())
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
            wait_s = FIRST_WAIT_S if self._answers > before else min(LONGEST_WAIT_S, 2 * wait_s)
            await self._clock.sleep_until(self._clock.now() + wait_s)

    async def _talk(self, socket: ClientConnection) -> None:
        """Send and receive until the connection is over."""
        self.connections += 1
        self.failure = None
        self._socket = socket
        out, given_up = self._stream.greeted()
        for number in given_up:
            self._fail(
                number, RecognitionFailed(f"{TRIES} connections to the recogniser broke over it.")
            )
        # What is sent again comes at once; only what is spoken from now on has a pace.
        again = sum(len(message) for message in out)
        self._most_bytes = again + round(2 * self._settings.rate_hz * self._settings.behind_s)
        self._queue(out)
        sender = asyncio.create_task(self._send(socket), name="send to a recogniser")
        try:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    answer = read_answer(await socket.recv())
                    if answer is not None:
                        self._take(answer)
                        self._answers += 1
        except ProtocolError as error:
            await socket.close(1002, "see docs/recognisers.md")
            raise RecognitionFailed(error.message, remedy=error.remedy) from None
        finally:
            if self._socket is socket:
                self._lost()
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):  # the receiver tells
            while self._socket is socket:
                self._to_send.clear()
                while self._out and self._socket is socket:
                    message = self._out.popleft()
                    await socket.send(message)
                    self._out_bytes = max(0, self._out_bytes - len(message))
                await self._to_send.wait()

    def _failed(self, error: SpeechError) -> None:
        """A connection was lost, or none came about."""
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
        text.exception()  # whether or not anybody waits for it


def _over() -> RecognitionFailed:
    return RecognitionFailed("The call was over before a turn's text came.")
