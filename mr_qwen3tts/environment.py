"""Where settings come from: the agent's ``env``, then the environment of the process.

The host replaces ``os.environ`` by one that looks through the callers' variables for a ``context``.
With several calls at once that may be another call's, and in a task there is none at all. So here
the context that is handed over is asked, and the whole environment behind the replacement: only
single look-ups are replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from .variables import server_of

PREFIX = "MR_QWEN3TTS_"
HOSTS = frozenset({"MR_SPEAK_CMD"})
"""Variables of the host that count here as well."""
COMMAND_LINE = frozenset(
    {"MR_QWEN3TTS_SERVER", "MR_QWEN3TTS_CONFIG", "MR_QWEN3TTS_CHECKPOINT", "MR_QWEN3TTS_LLM_KEY"}
)
"""Variables of ``mr-qwen3tts``; they mean nothing here, and nothing is wrong with them."""
Getenv = Callable[[str], str | None]


def environment(context: Any = None) -> dict[str, str]:
    """Every variable of ours that is set.

    Args:
        context: the host's ChatContext, which has a mapping ``env``; or a mapping; or None. What
            it has goes first; an empty value there is "not set", whatever the process has.
    """
    held = _ours(os.environ.copy())
    own = context if isinstance(context, Mapping) else getattr(context, "env", None)
    if isinstance(own, Mapping):
        held |= _ours(own)
    return {name: text for name, text in held.items() if text}


def _ours(variables: Mapping[Any, Any]) -> dict[str, str]:
    return {
        name: _text(value)
        for name, value in variables.items()
        if isinstance(name, str) and (name.startswith(PREFIX) or name in HOSTS)
    }


def _text(value: object) -> str:
    """A value as the environment would have it: an agent's file has numbers and lists, too."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "" if value is None else str(value).strip()


# --- the variables of the plugin that this one takes the place of

_ADDRESSES: dict[str, Callable[[Getenv], str | None]] = {
    "openai": lambda getenv: getenv("MR_QWEN3TTS_OPENAI_URL"),
    "vllm": lambda getenv: getenv("MR_QWEN3TTS_API_URL"),
    "websocket": lambda getenv: getenv("MR_QWEN3TTS_WS_URL"),
}
"""The address that each of its backends had; ``openai`` was the backend where none was named."""
_MEANINGLESS: tuple[Callable[[Getenv], str | None], ...] = (
    lambda getenv: getenv("MR_QWEN3TTS_BACKEND"),
    lambda getenv: getenv("MR_QWEN3TTS_MODEL"),
    lambda getenv: getenv("MR_QWEN3TTS_SEND_TIMESTAMPS"),
    lambda getenv: getenv("MR_QWEN3TTS_HTTP_CHUNK_SIZE"),
    lambda getenv: getenv("MR_QWEN3TTS_USE_PACER"),
    lambda getenv: getenv("MR_QWEN3TTS_PRE_BUFFER_MS"),
    lambda getenv: getenv("MR_QWEN3TTS_STREAM_TOKENS"),
)
_REPLACED: tuple[tuple[Callable[[Getenv], str | None], str], ...] = (
    (lambda getenv: getenv("MR_QWEN3TTS_REALTIME_STREAM"), "live"),
    (lambda getenv: getenv("MR_QWEN3TTS_INITIAL_TOKENS"), "initial_codec_chunk_frames"),
)
"""Those that mean the same as a setting of another name."""


OLDER = frozenset(
    name
    for ask in (*_ADDRESSES.values(), *_MEANINGLESS, *(ask for ask, _ in _REPLACED))
    if (name := ask(str)) is not None
)
"""All of them; those that still have their name are settings."""


def take_older(getenv: Getenv, written: dict[str, tuple[str, str]]) -> tuple[str, ...]:
    """Add to what is written what only an older variable says; returns the names of the rest.

    Args:
        getenv: asks for a variable.
        written: variable and text of each setting that is written.
    """
    ignored = {ask(str) or "" for ask in _MEANINGLESS if ask(getenv)}
    for ask, name in _REPLACED:
        text = ask(getenv)
        if text is None:
            continue
        variable = ask(str) or ""
        # There, no token was "as the server likes it".
        if name in written or (name == "initial_codec_chunk_frames" and text == "0"):
            ignored.add(variable)
        else:
            written[name] = (variable, text)
    backend = (getenv("MR_QWEN3TTS_BACKEND") or "openai").lower()
    first = [backend] if backend in _ADDRESSES else []
    for each in dict.fromkeys([*first, *_ADDRESSES]):
        text = _ADDRESSES[each](getenv)
        if text is None:
            continue
        variable = _ADDRESSES[each](str) or ""
        if "url" in written:
            ignored.add(variable)
        else:
            # Our server has all protocols on one port. An address that is none is told as it is.
            written["url"] = (variable, server_of(text) or text)
    return tuple(sorted(ignored))
