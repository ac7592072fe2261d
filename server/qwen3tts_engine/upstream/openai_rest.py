"""An OpenAI-style server's ``POST /v1/audio/speech`` as a client sees it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx

from qwen3tts_engine.upstream.address import Address
from qwen3tts_engine.upstream.backend import Order, with_extra
from qwen3tts_engine.upstream.faults import garbage, of_status
from qwen3tts_engine.upstream.http import beginning, content_type, fault
from qwen3tts_engine.upstream.offer import DEFAULT
from qwen3tts_engine.upstream.patience import Patience
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_engine.upstream.speech_body import body_for


class OpenAIRest:
    """Requests as JSON; the answer is read while it is made, as raw pcm or as events, whichever the
    server takes ``stream`` for."""

    options = frozenset({"instructions", "speed"})

    def __init__(
        self, address: Address, settings: UpstreamSettings, client: httpx.AsyncClient
    ) -> None:
        self._url = address.speech
        self._settings = settings
        self._extra = settings.extra_fields()
        self._client = client

    async def probe(self) -> None:
        """Nothing to see without speech: to ask for some may cost money."""

    async def close(self) -> None:
        """The client is not ours."""

    def body(self, order: Order) -> dict[str, Any]:
        """The request for an order."""
        fields = {
            "model": self._settings.model or None,
            "input": order.text,
            "response_format": "pcm",
            **order.fields(),
        }
        # OpenAI's route asks for a voice; vLLM-Omni knows this name for none.
        fields.setdefault("voice", DEFAULT)
        if order.speed == 1.0:
            fields["stream"] = True
        else:
            # vLLM-Omni refuses to stream at another speed; then it comes as a whole.
            fields["speed"] = order.speed
        return with_extra(fields, self._extra)

    async def speak(self, order: Order) -> AsyncGenerator[bytes, None]:
        """See Backend."""
        settings = self._settings
        patience = Patience(settings.first_audio_s, settings.stall_s)
        accept = {"Accept": "audio/pcm, audio/*;q=0.9, */*;q=0.1"}
        request = self._client.build_request(
            "POST", self._url, json=self.body(order), headers=accept
        )
        try:
            async with patience.limit():
                response = await self._client.send(request, stream=True)
            try:
                async with patience.limit():
                    await self._check(response)
                body = body_for(
                    content_type(response),
                    response.headers.get("x-sample-rate"),
                    settings.max_message_bytes,
                )
                pieces = response.aiter_raw()
                while True:
                    async with patience.limit():
                        piece = await anext(pieces, None)
                    if piece is None:
                        break
                    sound = body.push(piece)
                    if sound:
                        yield sound
                        patience.sounded()
                body.end()
            finally:
                await response.aclose()
        except TimeoutError as error:
            raise patience.over() from error
        except httpx.HTTPError as error:
            raise fault(error) from error

    async def _check(self, response: httpx.Response) -> None:
        """Refuse what is no speech."""
        status = response.status_code
        kind = content_type(response)
        if status != 200:
            after = response.headers.get("retry-after")
            raise of_status(status, await beginning(response), kind, after)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise garbage("a compressed answer, which was not asked for")
        if "json" in kind.lower():
            # An error with the status of success.
            raise of_status(500, await beginning(response), kind)
