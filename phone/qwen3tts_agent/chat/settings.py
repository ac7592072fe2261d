"""Settings of a language model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from qwen3tts_wire.errors import BadRequest

RESERVED_FIELDS = frozenset({"model", "messages", "stream", "tools", "tool_choice"})
"""Fields of a request that ``extra`` may not set."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Address, key and time limits of a language model."""

    base_url: str
    """Up to and including the version, such as ``http://127.0.0.1:11434/v1``."""
    model: str = "default"
    api_key: str = field(default="", repr=False)
    """Bearer token; never logged. See `api_key_from`."""
    connect_s: float = 5.0
    """Time limit of connecting."""
    stall_s: float = 20.0
    """Longest time without a word, before the first one as well."""
    max_chars: int = 20_000
    """Bound on one reply, about twenty minutes of speech."""
    connect_ahead: bool = True
    """Open the connection before the first request, and again while the caller speaks
    where it was idle for some seconds, by ``GET /models``, whose answer is ignored.
    """
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request, such as ``temperature`` or ``max_tokens``."""

    def __post_init__(self) -> None:
        try:
            url = httpx.URL(self.base_url)
        except (httpx.InvalidURL, ValueError) as error:
            raise BadRequest(f"the language model's address is no URL: {error}.") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise BadRequest(
                "the language model's address is not an http URL.",
                remedy="Write it as http://HOST:PORT/v1.",
            )
        if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise BadRequest(
                "the language model's key holds characters that no key has.",
                remedy="Check the environment variable for line ends and quotation marks.",
            )
        if taken := sorted(RESERVED_FIELDS.intersection(self.extra)):
            raise BadRequest(
                f"extra: {', '.join(taken)} cannot be set there.",
                remedy="The model has a setting of its own; the others follow from the call.",
            )

    @property
    def url(self) -> str:
        return self.base_url.rstrip("/") + "/chat/completions"

    @property
    def models_url(self) -> str:
        return self.base_url.rstrip("/") + "/models"

    @property
    def shown(self) -> str:
        url = httpx.URL(self.base_url)
        host = f"[{url.host}]" if ":" in url.host else url.host
        port = f":{url.port}" if url.port else ""
        return f"{url.scheme}://{host}{port}{url.path}"


def api_key_from(variable: str, environ: Mapping[str, str] | None = None) -> str:
    """Return a variable's key; empty where unset: local servers need none."""
    return (os.environ if environ is None else environ).get(variable, "").strip()
