"""A vLLM-Omni server's WebSocket as a client sees it: one text, one stream of sound."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from typing import Any

from websockets.exceptions import ConnectionClosed

from qwen3tts_engine.upstream.address import Address
from qwen3tts_engine.upstream.backend import Order, with_extra
from qwen3tts_engine.upstream.exchange import Exchange
from qwen3tts_engine.upstream.faults import garbage
from qwen3tts_engine.upstream.links import Link, Links
from qwen3tts_engine.upstream.patience import Patience
from qwen3tts_engine.upstream.settings import UpstreamSettings


class VllmOmni:
    """Requests in text, whole; there is no cancel in that protocol, so the connection is cut."""

    # Its sound can be streamed at its usual speed only.
    options = frozenset({"instructions", "seed", "initial_codec_chunk_frames"})

    def __init__(
        self, address: Address, settings: UpstreamSettings, key: str, context: ssl.SSLContext
    ) -> None:
        self._settings = settings
        self._extra = settings.extra_fields()
        self.links = Links(address.speech, settings, key, context)
        """Connections between requests."""

    async def probe(self) -> None:
        """Connect; the connection is kept for the first request."""
        await self.links.keep(await self.links.make())

    async def close(self) -> None:
        """End idle connections."""
        await self.links.close()

    def config(self, order: Order) -> dict[str, Any]:
        """``session.config`` for an order."""
        fields = {
            "type": "session.config",
            "model": self._settings.model or None,
            "response_format": "pcm",
            "stream_audio": True,
            "split_granularity": "none",
            **order.fields(),
        }
        return with_extra(fields, self._extra)

    async def speak(self, order: Order) -> AsyncGenerator[bytes, None]:
        """See Backend."""
        link = await self.links.take()
        exchange = Exchange()
        patience = Patience(self._settings.first_audio_s, self._settings.stall_s)
        try:
            async with patience.limit():
                await self._ask(link, order)
            while not exchange.done:
                async with patience.limit():
                    data = await link.recv()
                sound = exchange.receive(data)
                if sound:
                    yield sound
                    patience.sounded()
        except TimeoutError as error:
            raise patience.over() from error
        except ConnectionClosed as error:
            self._closed(exchange, error)
        finally:
            if exchange.done and link.open:
                await self.links.keep(link)
            else:
                await link.abort()

    async def _ask(self, link: Link, order: Order) -> None:
        config = self.config(order)
        if link.configured != config:
            await link.send(config)
            link.configured = config
        await link.send({"type": "input.text", "text": order.text})
        await link.send({"type": "input.done"})

    def _closed(self, exchange: Exchange, error: ConnectionClosed) -> None:
        if error.rcvd is None and error.sent is not None and error.sent.code in (1002, 1007, 1009):
            most = self._settings.max_message_bytes
            what = (
                f"a message of more than {most} bytes" if error.sent.code == 1009 else "no frames"
            )
            raise garbage(what) from error
        code = None if error.rcvd is None else error.rcvd.code
        exchange.closed(code, "" if error.rcvd is None else error.rcvd.reason)
