"""The recogniser that streams turns to Deepgram."""

from __future__ import annotations

import asyncio
import contextlib
import time

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.recognise.base import RecogniserReport
from qwen3tts_phone.recognise.deepgram.messages import (
    CLOSE_STREAM,
    FINALIZE,
    Results,
    read_message,
)
from qwen3tts_phone.recognise.deepgram.settings import DeepgramSettings
from qwen3tts_phone.recognise.deepgram.stream import DeepgramStream
from qwen3tts_phone.recognise.errors import RecogniserUnavailable, RecognitionFailed
from qwen3tts_phone.recognise.socket_dialling import closed, dial
from qwen3tts_phone.recognise.socket_protocol import Failed
from qwen3tts_phone.recognise.socket_service import SocketService
from qwen3tts_phone.recognise.websocket import ServiceRecogniser
from qwen3tts_wire.errors import ProtocolError

CHECKED_S = 1.0
"""Length of the sound that a check sends."""
PIECE_S = 0.1
"""In messages of this length: Deepgram takes no long ones."""


class DeepgramRecogniser(ServiceRecogniser):
    """Streams each call's turns over a WebSocket of its own.

    >>> recogniser = DeepgramRecogniser(DeepgramSettings(languages=("en",)))
    """

    def __init__(
        self, settings: DeepgramSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        """Nothing is connected yet."""
        self.settings = chosen = settings or DeepgramSettings()
        super().__init__(
            SocketService(
                chosen.shown,
                chosen.rate_hz,
                lambda: dial(chosen, None),
                lambda: DeepgramStream(chosen.rate_hz, longest_s=chosen.longest_s),
                answer_timeout_s=chosen.answer_timeout_s,
                behind_s=chosen.behind_s,
                settle_s=chosen.settle_s,
                keep_alive_s=chosen.keep_alive_s,
            ),
            clock,
        )


async def check(settings: DeepgramSettings) -> RecogniserReport:
    """Send a second of silence and wait for its results; see `RecogniserCheck`."""
    socket = await dial(settings, None)
    try:
        piece = bytes(2 * round(PIECE_S * settings.rate_hz))
        with contextlib.suppress(ConnectionClosed):  # what it said before can be read yet
            for _ in range(round(CHECKED_S / PIECE_S)):
                await socket.send(piece)
            await socket.send(FINALIZE)
        began = time.monotonic()
        async with asyncio.timeout(settings.answer_timeout_s):
            await _until_results(socket)
        wait_s = time.monotonic() - began
        with contextlib.suppress(ConnectionClosed):
            await socket.send(CLOSE_STREAM)
    except TimeoutError:
        raise RecognitionFailed(
            f"The recogniser at {settings.shown} takes sound, and sent no results within"
            f" {settings.answer_timeout_s:g} s.",
            remedy="Check the address; it is one of Deepgram's streaming interface.",
        ) from None
    except ConnectionClosed:
        raise closed(socket) from None
    except ProtocolError as error:
        raise RecogniserUnavailable(error.message, remedy=error.remedy) from None
    finally:
        await socket.close()
    return RecogniserReport(
        kind="deepgram",
        model=settings.model,
        language=", ".join(settings.languages),
        address=settings.shown,
        wait_s=wait_s,
    )


async def _until_results(socket: ClientConnection) -> None:
    while True:
        match read_message(await socket.recv()):
            case Results(fixed=True):
                return
            case Failed(_, said):
                raise RecognitionFailed(f"The recogniser failed: {said or 'it does not say why'}.")
