"""Check of a language model by one streamed request for one token.

``GET /models`` shows less: many servers list models without a key, list models that they cannot
load, or have no list.
"""

from __future__ import annotations

import asyncio
import difflib
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import perf_counter

import httpx

from qwen3tts_agent.chat.client import ChatClient
from qwen3tts_agent.chat.messages import ChatMessage, ModelRefused, ModelStalled
from qwen3tts_agent.chat.settings import ChatSettings

__all__ = ["CHECK_S", "ModelCheck", "ModelSpeed", "check_model", "measure_model"]

CHECK_S = 8.0
"""Longest wait for the answer to a check, connecting included."""
BOUNDS = ("max_tokens", "max_completion_tokens")
"""Names of the bound on an answer's length: the general one, and that of OpenAI's newer models,
which refuse the first.
"""
ENOUGH_CHARS = 200
"""Text after which a model that ignores the bound is not read any further."""
MOST_NAMES = 5
QUESTION = "Say yes."
SPEED_QUESTION = "Explain in three sentences how tea is made."
SPEED_TOKENS = 64
CLAUSE_ENDS = frozenset(",.;:!?，。；：！？、")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """Result of a check of a language model."""

    model: str
    shown: str
    """Address, without user, password and query."""
    first_token_s: float | None
    """From the request, connecting included; None = the one token held no text, as with models that
    reason first.
    """
    streams: bool
    """True if it streams; else the first clause waits for the whole reply."""


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """Times of one reply on an open connection."""

    first_token_s: float
    """From the request to the first text."""
    first_clause_s: float
    """From the first text to the end of the first clause."""
    tokens_per_s: float | None
    """Text deltas a second after the first one; nearly all servers send one a token. None = the
    whole reply came in one delta.
    """


async def check_model(
    settings: ChatSettings,
    *,
    limit_s: float = CHECK_S,
    transport: httpx.AsyncBaseTransport | None = None,
) -> ModelCheck:
    """Request one token from the model.

    An unknown model (404) makes it ask ``GET /models`` as well, for the remedy.

    Args:
        settings: of the model.
        limit_s: longest wait, in seconds.
        transport: replaces the network, in tests.

    Raises ModelUnavailable, ModelRefused, ProtocolError.
    """
    try:
        async with asyncio.timeout(limit_s):
            return await _one_token(_for_check(settings, limit_s), transport)
    except TimeoutError:
        raise ModelStalled(
            f"the language model {settings.model} at {settings.shown} did not answer within"
            f" {limit_s:g} s.",
            remedy="It may be loading: try again when it answers, or allow it more time"
            " (--check-seconds).",
        ) from None


async def measure_model(
    settings: ChatSettings,
    *,
    limit_s: float = 4 * CHECK_S,
    transport: httpx.AsyncBaseTransport | None = None,
) -> ModelSpeed:
    """Measure a reply of at most `SPEED_TOKENS` tokens. Raises as `check_model`."""
    extra = {"max_tokens": SPEED_TOKENS, **settings.extra}
    settings = replace(_for_check(settings, limit_s), extra=extra)
    try:
        async with asyncio.timeout(limit_s), ChatClient(settings, transport=transport) as client:
            await client.models()  # opens the connection, as a call does ahead of a request
            return await _timed(client)
    except TimeoutError:
        raise ModelStalled(
            f"the language model {settings.model} at {settings.shown} did not finish a reply of"
            f" {SPEED_TOKENS} tokens within {limit_s:g} s.",
            remedy="It is too slow for a telephone: take a smaller model or a GPU.",
        ) from None


def _for_check(settings: ChatSettings, limit_s: float) -> ChatSettings:
    # Slightly later than the check itself, whose error says what to do.
    return replace(
        settings,
        connect_s=min(settings.connect_s, limit_s),
        stall_s=limit_s + 1.0,
        connect_ahead=False,
        max_chars=max(settings.max_chars, ENOUGH_CHARS),
    )


async def _one_token(
    settings: ChatSettings, transport: httpx.AsyncBaseTransport | None
) -> ModelCheck:
    others = {name: value for name, value in settings.extra.items() if name not in BOUNDS}
    refused: ModelRefused | None = None
    for bound in BOUNDS:
        asked = replace(settings, extra={**others, bound: 1})
        async with ChatClient(asked, transport=transport) as client:
            try:
                first_s = await _first_text(client)
            except ModelRefused as error:
                if not any(name in error.message for name in BOUNDS):
                    raise await _with_names(error, client) from None
                refused = error
                continue
            return ModelCheck(settings.model, settings.shown, first_s, client.streams)
    # It refuses so short an answer alone: address, key and model are right.
    assert refused is not None
    return ModelCheck(settings.model, settings.shown, None, True)


async def _first_text(client: ChatClient) -> float | None:
    began = perf_counter()
    first_s: float | None = None
    chars = 0
    async with aclosing(client.reply([ChatMessage("user", QUESTION)])) as deltas:
        async for delta in deltas:
            if first_s is None:
                first_s = perf_counter() - began
            chars += len(delta)
            if chars >= ENOUGH_CHARS:
                break
    return first_s


async def _with_names(error: ModelRefused, client: ChatClient) -> ModelRefused:
    model = client.settings.model
    if "(404)" not in error.message:
        return error
    names = await client.models()
    if not names or model in names:
        return error
    near = difflib.get_close_matches(model, names, n=MOST_NAMES, cutoff=0.4)
    shown = list(dict.fromkeys([*near, *names]))[:MOST_NAMES]
    more = ", …" if len(names) > len(shown) else ""
    return ModelRefused(
        error.message,
        remedy=f"Name a model that it has: {', '.join(shown)}{more}; not {model}.",
    )


async def _timed(client: ChatClient) -> ModelSpeed:
    began = perf_counter()
    times: list[float] = []
    clause_at: float | None = None
    async with aclosing(client.reply([ChatMessage("user", SPEED_QUESTION)])) as deltas:
        async for delta in deltas:
            times.append(perf_counter() - began)
            if clause_at is None and CLAUSE_ENDS.intersection(delta):
                clause_at = times[-1]
            if len(times) >= SPEED_TOKENS:
                break
    if not times:
        raise ModelStalled(
            f"the language model {client.settings.model} at {client.settings.shown} wrote no text"
            f" within {SPEED_TOKENS} tokens.",
            remedy="It reasons before it speaks: switch that off, or take another model.",
        )
    took = times[-1] - times[0]
    return ModelSpeed(
        first_token_s=times[0],
        first_clause_s=(clause_at if clause_at is not None else times[-1]) - times[0],
        tokens_per_s=(len(times) - 1) / took if took > 0 else None,
    )
