"""Client of OpenAI's streaming chat completions."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing

import httpx

from qwen3tts_agent.chat.messages import (
    ChatEvent,
    ChatMessage,
    ModelRefused,
    ModelStalled,
    ModelUnavailable,
    ToolSpec,
    request_body,
)
from qwen3tts_agent.chat.settings import ChatSettings, api_key_from
from qwen3tts_agent.chat.stream import ChatStream, one_line, parsed, refusal_words, whole_answer
from qwen3tts_text.surrogates import SurrogateJoiner
from qwen3tts_wire.errors import LimitExceeded, ProtocolError, SpeechError

logger = logging.getLogger(__name__)

IDLE_S = 4.0
"""Idle time after which the server may have closed the connection: uvicorn, which serves many
models, waits 5 s.
"""
OPENING_TIMEOUT_S = 5.0
"""Longest wait for the answer that opens it."""
MAX_KEPT_BYTES = 1 << 20
"""Longest answer that is read to its end, which keeps the connection."""
TRAILER_TIMEOUT_S = 1.0
"""Longest wait for the bytes after a reply's last word, which keeps the connection."""


class ChatConnection:
    """Connection opened ahead of a request by ``GET /models``, then kept.

    A request never waits for it: it opens its own where none is idle.
    """

    def __init__(self, http: httpx.AsyncClient, settings: ChatSettings) -> None:
        self._http = http
        self._settings = settings
        self._idle_since: float | None = None
        """Time of the loop's clock since which a connection is idle; None: no connection."""
        self._failed_at: float | None = None
        self._opening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def prepare(self) -> None:
        """Open a connection unless one is idle; never blocks or raises."""
        if self._closed or not self._settings.connect_ahead or self._opening is not None:
            return
        now = asyncio.get_running_loop().time()
        for at in (self._idle_since, self._failed_at):
            if at is not None and now - at < IDLE_S:
                return
        self._opening = self._start(self._open(), "open the model's connection")

    def taken(self) -> None:
        self._idle_since = None

    def keep(self, response: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
        """Keep a complete ``response``'s connection; ``chunks``: its body iterator."""
        self._start(self._read_rest(response, chunks), "end of the model's answer")

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside

    def _start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._settings.connect_s + OPENING_TIMEOUT_S):
                async with self._http.stream("GET", self._settings.models_url) as response:
                    size = 0
                    async for chunk in response.aiter_raw():
                        size += len(chunk)
                        if size > MAX_KEPT_BYTES:
                            break
            self._failed_at = None
            self._freed()
        except Exception as error:  # no consequence: the request itself will fail
            self._failed_at = asyncio.get_running_loop().time()
            logger.debug("the model's connection was not opened ahead: %s", type(error).__name__)
        finally:
            self._opening = None

    async def _read_rest(self, response: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
        try:
            async with asyncio.timeout(TRAILER_TIMEOUT_S):
                async for _ in chunks:
                    pass
            self._freed()
        except Exception as error:  # what came after the last word does not matter
            logger.debug("the model's connection is not kept: %s", type(error).__name__)
        finally:
            await response.aclose()

    def _freed(self) -> None:
        self._idle_since = asyncio.get_running_loop().time()


__all__ = [
    "ChatClient",
    "ChatMessage",
    "ChatSettings",
    "ModelRefused",
    "ModelStalled",
    "ModelUnavailable",
    "api_key_from",
    "reply_to",
]

MAX_ERROR_BYTES = 64 * 1024
REFUSAL_S = 2.0
"""Longest time for reading a refusal, whose status says the most."""
MAX_ANSWER_BYTES = 1 << 20
"""Longest answer without a stream."""
KEEPALIVE_S = 300.0
"""Time that an idle connection is kept between two turns: a new one costs each turn two round
trips.
"""


@functools.cache
def certificates() -> ssl.SSLContext:
    """Return the trusted authorities, read once: it takes 0.1 s."""
    return httpx.create_ssl_context()


class ChatClient:
    """Client that yields replies as they are written."""

    guessable = True

    def __init__(
        self, settings: ChatSettings, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.settings = settings
        headers = {"Accept": "text/event-stream, application/json", "Accept-Encoding": "identity"}
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        # Redirects are not followed: they would carry the key elsewhere.
        self._http = httpx.AsyncClient(
            headers=headers,
            verify=certificates() if settings.base_url.lower().startswith("https") else False,
            timeout=httpx.Timeout(settings.stall_s, connect=settings.connect_s),
            limits=httpx.Limits(keepalive_expiry=KEEPALIVE_S),
            transport=transport,
        )
        self._connection = ChatConnection(self._http, settings)
        self.streams = True
        """True if the last answer was a stream of events."""

    def prepare(self) -> None:
        """Connect ahead, if ``settings.connect_ahead``; never blocks or raises."""
        self._connection.prepare()

    async def close(self) -> None:
        await self._connection.close()
        await self._http.aclose()

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def models(self) -> tuple[str, ...]:
        """Return the model names (``GET /models``), if listed within `REFUSAL_S`."""
        try:
            async with asyncio.timeout(REFUSAL_S):
                async with self._http.stream("GET", self.settings.models_url) as response:
                    listed = parsed(await _read_some(response, MAX_ANSWER_BYTES)).get("data")
        except (TimeoutError, httpx.HTTPError, httpx.StreamError, ProtocolError):
            return ()
        entries = listed if isinstance(listed, list) else []
        names = (each.get("id") for each in entries if isinstance(each, dict))
        return tuple(one_line(name) for name in names if isinstance(name, str))

    async def reply(self, messages: Sequence[ChatMessage]) -> AsyncGenerator[str, None]:
        """Yield text deltas, without tools. Raises as :meth:`stream`."""
        async with aclosing(self.stream(messages)) as events:
            async for event in events:
                if isinstance(event, str):
                    yield event

    async def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the answer as it is written: text deltas, tool calls, its end.

        Nothing is read ahead of the consumer (backpressure). What precedes a failure is yielded
        first.

        Args:
            messages: the conversation.
            tools: those that the model may call.
            must_speak: it must answer in text this time.

        Raises:
            ModelUnavailable: unreachable, overloaded, or it broke off; ModelStalled where it was
                silent for too long.
            ModelRefused: the key, the path or the model is wrong, or a web page answered.
            ProtocolError: the answer does not belong to the protocol.
            LimitExceeded: the reply is longer than ``max_chars``.
        """
        shown, chars = self.settings.shown, 0
        joiner = SurrogateJoiner()
        try:
            body = request_body(self.settings.model, messages, tools, must_speak=must_speak)
            async with aclosing(self._answer({**self.settings.extra, **body})) as events:
                async for event in events:
                    if not isinstance(event, str):
                        # Nothing can join what stands before a call or the end.
                        if text := joiner.finish():
                            yield text
                        yield event
                        continue
                    room = self.settings.max_chars - chars
                    chars += len(event)
                    if text := joiner.push(event[:room]):
                        yield text
                    if chars > self.settings.max_chars:
                        raise LimitExceeded(
                            f"the reply is longer than {self.settings.max_chars} characters.",
                            remedy="Tell the model in its instructions to be brief.",
                        )
            if text := joiner.finish():
                yield text
        except httpx.ConnectTimeout:
            raise ModelUnavailable(
                f"the language model at {shown} did not answer within"
                f" {self.settings.connect_s:g} s.",
                remedy="Check the address and the network.",
            ) from None
        except httpx.ConnectError as error:
            raise ModelUnavailable(
                f"the language model at {shown} cannot be reached: {_cause(error)}.",
                remedy="Check that it runs and that host and port are right.",
            ) from None
        except (httpx.TimeoutException, TimeoutError):
            raise ModelStalled(
                f"the language model at {shown} was silent for {self.settings.stall_s:g} s"
                f" {_after(chars)}.",
                remedy="It may be loading or overloaded; try again.",
            ) from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise ModelUnavailable(
                f"the language model at {shown} broke off {_after(chars)}:"
                f" {str(error).rstrip('.') or type(error).__name__}.",
                remedy="Try again; its own log may say more.",
            ) from None

    async def _answer(self, body: dict[str, object]) -> AsyncGenerator[ChatEvent, None]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.connect_s + self.settings.stall_s
        request = self._http.build_request("POST", self.settings.url, json=body)
        self._connection.taken()
        async with asyncio.timeout_at(deadline):
            response = await self._http.send(request, stream=True)
        kept = False
        try:
            if response.status_code != 200:
                raise await self._refusal(response)
            self._check_encoding(response)
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "text/html":
                raise self._web_page()
            self.streams = kind != "application/json"
            if not self.streams:
                async with asyncio.timeout(self.settings.stall_s):  # however the bytes trickle
                    answer = await _read_some(response, MAX_ANSWER_BYTES)
                for event in whole_answer(answer):
                    yield event
                return
            chunks = response.aiter_raw()
            async with aclosing(_stalling(chunks, self.settings.stall_s)) as events:
                async for event in events:
                    yield event
            kept = True
            self._connection.keep(response, chunks)
        finally:
            if not kept:
                await response.aclose()

    def _check_encoding(self, response: httpx.Response) -> None:
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            raise ProtocolError(
                f"the language model at {self.settings.shown} compresses its stream ({encoding}).",
                remedy="Switch compression off there; it holds words back.",
            )

    def _web_page(self) -> ModelRefused:
        return ModelRefused(
            f"a web page answers, not a language model, at {self.settings.shown}.",
            remedy="The address usually ends in /v1.",
        )

    async def _refusal(self, response: httpx.Response) -> SpeechError:
        status, shown = response.status_code, self.settings.shown
        try:
            async with asyncio.timeout(REFUSAL_S):
                said = refusal_words(await _read_some(response, MAX_ERROR_BYTES))
        except (TimeoutError, httpx.HTTPError):
            said = ""
        because = f": {said}" if said else "."
        if status in (401, 403):
            return ModelRefused(
                f"the language model at {shown} does not accept the key ({status}){because}",
                remedy="Check the key: api_key, or the variable MR_QWEN3TTS_LLM_KEY (--key-env).",
            )
        if status in (404, 405, 501):
            return ModelRefused(
                f"the language model at {shown} has no such path or model ({status}){because}",
                remedy=f"Check the address, which usually ends in /v1, and the model's name"
                f" ({self.settings.model}).",
            )
        if 300 <= status < 400:
            return ModelRefused(
                f"the language model at {shown} redirects the request ({status}).",
                remedy="Give the final address; the key is not sent on.",
            )
        if status == 429:
            return ModelUnavailable(
                f"the language model at {shown} takes no more requests now ({status}){because}",
                remedy="Try again later, or check the limits and the credit of the key's account.",
            )
        if status >= 500:
            return ModelUnavailable(
                f"the language model at {shown} is overloaded or broken ({status}){because}",
                remedy="Try again later.",
            )
        return ModelRefused(
            f"the language model at {shown} refused the request ({status}){because}"
        )


def _cause(error: BaseException) -> str:
    found, inner = str(error), error.__cause__ or error.__context__
    while inner is not None:
        if isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        if isinstance(inner, socket.gaierror) and inner.strerror:
            found = inner.strerror
        elif isinstance(inner, ConnectionError) and inner.errno:
            found = os.strerror(inner.errno)
        inner = inner.__cause__ or inner.__context__
    return found.rstrip(".")


def _after(chars: int) -> str:
    return f"in mid-sentence, after {chars} characters" if chars else "before its first word"


async def _read_some(response: httpx.Response, limit: int) -> bytes:
    data = b""
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > limit:
            return data[:limit]
    return data


async def _stalling(
    chunks: AsyncIterator[bytes], stall_s: float
) -> AsyncGenerator[ChatEvent, None]:
    loop = asyncio.get_running_loop()
    stream = ChatStream()
    deadline = loop.time() + stall_s
    while not stream.ended:
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            for event in stream.finish():
                yield event
            return
        spoken = False
        for event in stream.push(chunk):
            yield event
            spoken = True
        if stream.failure is not None:
            raise stream.failure
        if spoken:
            # Time that the listener took between deltas is not the model's.
            deadline = loop.time() + stall_s


async def reply_to(settings: ChatSettings, *, prompt: str, system: str = "") -> AsyncIterator[str]:
    messages = [ChatMessage("system", system)] if system else []
    messages.append(ChatMessage("user", prompt))
    async with ChatClient(settings) as client, aclosing(client.reply(messages)) as deltas:
        async for delta in deltas:
            yield delta
