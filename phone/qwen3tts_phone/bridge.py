"""Words from a language model: any endpoint that speaks OpenAI's streaming chat completions."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx

from qwen3tts_phone.sse import SseParser
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ProtocolError, SpeechError
from qwen3tts_wire.surrogates import SurrogateJoiner, clean

MAX_ERROR_BYTES = 64 * 1024
"""How much of a refusal is read."""
MAX_ANSWER_BYTES = 1 << 20
"""How much of an answer that is not streamed is read."""


class ModelUnavailable(SpeechError):
    """The language model cannot be reached, is too slow, or broke off; it may work later."""

    code = "model_unavailable"
    retryable = True


class ModelRefused(SpeechError):
    """The language model's server does not take the request as it is."""

    code = "model_refused"


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Where the model is and how long it may take."""

    base_url: str
    """Up to and including the version, such as ``http://127.0.0.1:11434/v1``."""
    model: str = "default"
    api_key: str = field(default="", repr=False)
    """Sent as a bearer token; never logged. See `api_key_from`."""
    connect_s: float = 5.0
    """How long the connection may take."""
    stall_s: float = 20.0
    """How long the model may go without a word, before the first one as well."""
    max_chars: int = 20_000
    """Bound on one reply; it is about twenty minutes of speech."""

    def __post_init__(self) -> None:
        """Refuse an address that cannot work; raises `BadRequest`."""
        try:
            url = httpx.URL(self.base_url)
        except (httpx.InvalidURL, ValueError) as error:
            raise BadRequest(f"the language model's address is no URL: {error}.") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise BadRequest(
                "the language model's address is no http URL.",
                remedy="Write it as http://HOST:PORT/v1.",
            )
        if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise BadRequest(
                "the language model's key holds characters that no key has.",
                remedy="Check the environment variable for line ends and quotation marks.",
            )

    @property
    def url(self) -> str:
        """The address that is asked."""
        return self.base_url.rstrip("/") + "/chat/completions"

    @property
    def shown(self) -> str:
        """The address for messages: without user, password and query."""
        url = httpx.URL(self.base_url)
        host = f"[{url.host}]" if ":" in url.host else url.host
        port = f":{url.port}" if url.port else ""
        return f"{url.scheme}://{host}{port}{url.path}"


def api_key_from(variable: str, environ: Mapping[str, str] | None = None) -> str:
    """The key in an environment variable, or nothing: local servers ask for none."""
    return (os.environ if environ is None else environ).get(variable, "").strip()


class ChatClient:
    """Asks for replies and hands them over word by word."""

    def __init__(
        self, settings: ChatSettings, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """``transport`` replaces the network, in tests."""
        self.settings = settings
        headers = {"Accept": "text/event-stream, application/json", "Accept-Encoding": "identity"}
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        # Redirects are not followed: they would carry the key elsewhere.
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(settings.stall_s, connect=settings.connect_s),
            transport=transport,
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def reply(self, messages: Sequence[ChatMessage]) -> AsyncGenerator[str, None]:
        """The model's answer as text deltas, as it writes them.

        What came before a failure has been yielded and can be spoken; then the error follows.

        Raises:
            ModelUnavailable: unreachable, too slow, overloaded, or it broke off in mid-sentence.
            ModelRefused: the key, the path or the model is wrong, or a web page answered.
            ProtocolError: the answer is none that this protocol has.
            LimitExceeded: the reply is longer than ``max_chars``.
        """
        shown, chars = self.settings.shown, 0
        joiner = SurrogateJoiner()
        try:
            async with aclosing(self._answer(messages)) as deltas:
                async for delta in deltas:
                    chars += len(delta)
                    if chars > self.settings.max_chars:
                        raise LimitExceeded(
                            f"the reply is longer than {self.settings.max_chars} characters.",
                            remedy="Tell the model in its instructions to be brief.",
                        )
                    if text := joiner.push(delta):
                        yield text
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
                f"the language model at {shown} cannot be reached: {error}.",
                remedy="Check that it runs and that host and port are right.",
            ) from None
        except (httpx.TimeoutException, TimeoutError):
            raise ModelUnavailable(
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

    async def _answer(self, messages: Sequence[ChatMessage]) -> AsyncGenerator[str, None]:
        body = {
            "model": self.settings.model,
            "stream": True,
            "messages": [
                {"role": message.role, "content": clean(message.content)} for message in messages
            ],
        }
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.connect_s + self.settings.stall_s
        request = self._http.build_request("POST", self.settings.url, json=body)
        async with asyncio.timeout_at(deadline):
            response = await self._http.send(request, stream=True)
        try:
            if response.status_code != 200:
                raise await self._refusal(response)
            self._check_encoding(response)
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "text/html":
                raise self._web_page()
            if kind == "application/json":
                yield _whole_answer(await _read_some(response, MAX_ANSWER_BYTES))
                return
            async with aclosing(_stalling(response, self.settings.stall_s)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
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
            f"a web page, no language model, answers at {self.settings.shown}.",
            remedy="The address usually ends in /v1.",
        )

    async def _refusal(self, response: httpx.Response) -> SpeechError:
        """The typed error for a status that is not 200."""
        status, shown = response.status_code, self.settings.shown
        said = _said(await _read_some(response, MAX_ERROR_BYTES))
        because = f": {said}" if said else "."
        if status in (401, 403):
            return ModelRefused(
                f"the language model at {shown} does not accept the key ({status}){because}",
                remedy="Set its key in the environment variable that the call names.",
            )
        if status in (404, 405, 501):
            return ModelRefused(
                f"the language model at {shown} knows no such path or model ({status}){because}",
                remedy=f"Check the address, which usually ends in /v1, and the model's name"
                f" ({self.settings.model}).",
            )
        if 300 <= status < 400:
            return ModelRefused(
                f"the language model at {shown} points elsewhere ({status}).",
                remedy="Give the final address; the key is not sent on.",
            )
        if status == 429 or status >= 500:
            return ModelUnavailable(
                f"the language model at {shown} is overloaded or broken ({status}){because}",
                remedy="Try again later.",
            )
        return ModelRefused(
            f"the language model at {shown} refused the request ({status}){because}"
        )


def _after(chars: int) -> str:
    return f"in mid-sentence, after {chars} characters" if chars else "before its first word"


async def _read_some(response: httpx.Response, limit: int) -> bytes:
    """At most ``limit`` bytes of a body."""
    data = b""
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > limit:
            return data[:limit]
    return data


async def _stalling(response: httpx.Response, stall_s: float) -> AsyncGenerator[str, None]:
    """The deltas of a stream; ``TimeoutError`` when no word comes for ``stall_s``.

    Comments that keep the connection open are no words.
    """
    loop = asyncio.get_running_loop()
    stream = Deltas()
    chunks = response.aiter_raw()
    deadline = loop.time() + stall_s
    while not stream.ended:
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            stream.cut_off()
            return
        spoken = False
        for delta in stream.push(chunk):
            yield delta
            spoken = True
        if stream.failure is not None:
            raise stream.failure
        if spoken:
            # Time that the listener took between deltas is not the model's.
            deadline = loop.time() + stall_s


class Deltas:
    """The text in a stream of chat completions (sans-I/O)."""

    def __init__(self) -> None:
        self.ended = False
        """Whether the model has said that it is done."""
        self.failure: SpeechError | None = None
        """What went wrong after the last delta that was given out; nothing follows it."""
        self._parser = SseParser()
        self._finished = False
        self._any = False

    def push(self, data: bytes) -> list[str]:
        """The deltas that are complete by now; look at ``failure`` afterwards."""
        deltas: list[str] = []
        try:
            for event in self._parser.push(data):
                if self.ended or self.failure is not None:
                    break
                if event.data.strip() == "[DONE]":
                    self.ended = True
                elif delta := self._delta(event.data):
                    deltas.append(delta)
        except SpeechError as error:
            self.failure = error
        self._any = self._any or bool(deltas)
        return deltas

    def cut_off(self) -> None:
        """The bytes have ended; raises `ModelUnavailable` unless the model had finished."""
        if not self.ended and not self._finished:
            raise ModelUnavailable(
                "the language model's answer ended in mid-sentence."
                if self._any
                else "the language model's answer is empty.",
                remedy="Try again; its own log may say more.",
            )

    def _delta(self, data: str) -> str:
        raw = _parse(data)
        if raw.get("error"):
            raise _stream_error(raw["error"])
        choices = raw.get("choices")
        if not isinstance(choices, list) or not choices:
            return ""  # usage reports and keep-alives
        choice = choices[0]
        if not isinstance(choice, dict):
            raise ProtocolError("the language model sent a choice that is no object.")
        if choice.get("finish_reason"):
            self._finished = True
        delta = choice.get("delta")
        content = delta.get("content") if isinstance(delta, dict) else None
        if content is None:
            return ""
        if not isinstance(content, str):
            raise ProtocolError("the language model sent content that is no text.")
        return content


def _parse(data: str | bytes) -> dict[str, Any]:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError(
            "the language model sent something that is no JSON.",
            remedy="Check that its address is an OpenAI-compatible endpoint.",
        ) from None
    if not isinstance(raw, dict):
        raise ProtocolError("the language model sent JSON that is no object.")
    return raw


def _whole_answer(body: bytes) -> str:
    """The text of an answer by a server that does not stream."""
    raw = _parse(body)
    if raw.get("error"):
        raise _stream_error(raw["error"])
    match raw.get("choices"):
        case [{"message": {"content": str(content)}}, *_]:
            return content
    raise ProtocolError("the language model's answer holds no text.")


def _stream_error(error: object) -> SpeechError:
    return ModelUnavailable(
        f"the language model failed: {_one_line(error)}", remedy="Its own log may say more."
    )


def _said(body: bytes) -> str:
    """What a refusal says, on one line; nothing for web pages and noise."""
    try:
        raw = _parse(body)
    except ProtocolError:
        return ""
    return _one_line(raw.get("error") or raw.get("detail") or raw.get("message") or "")


def _one_line(error: object) -> str:
    """The message of an error object, printable and short."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("code") or "no reason given"
    line = " ".join(str(error).split())[:300]
    return "".join(char if char.isprintable() else "?" for char in line)


async def reply_to(settings: ChatSettings, *, prompt: str, system: str = "") -> AsyncIterator[str]:
    """One reply to one prompt, with a connection of its own."""
    messages = [ChatMessage("system", system)] if system else []
    messages.append(ChatMessage("user", prompt))
    async with ChatClient(settings) as client, aclosing(client.reply(messages)) as deltas:
        async for delta in deltas:
            yield delta
