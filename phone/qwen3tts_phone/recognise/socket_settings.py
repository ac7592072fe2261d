"""Where a recogniser's server is, and how long it may take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from qwen3tts_phone.recognise.service_url import check_service_url

API_KEY_ENV = "QWEN3TTS_STT_KEY"
"""The environment's key of the recogniser's server."""


@dataclass(frozen=True, slots=True)
class SocketSettings:
    """A server that speaks `qwen3tts.recogniser.v1` (docs/recognisers.md).

    Raises ValueError whose text begins with the name of the field.
    """

    url: str = field(repr=False)
    """``ws://HOST:PORT/PATH`` or ``wss://…``; a query goes along and is never shown."""
    api_key: str | None = field(default=None, repr=False)
    """Sent as a bearer token; None = that of the environment's ``QWEN3TTS_STT_KEY``, if any."""
    languages: tuple[str, ...] = ()
    """What callers may speak (``("en", "de")``); none = the server finds out."""
    rate_hz: int = 16_000
    """Rate of the samples that the server is sent."""
    audio: Literal["turns", "all"] = "turns"
    """What is sent: the sound of turns only, or everything that the caller's line brings."""
    open_timeout_s: float = 5.0
    """How long connection and greeting may take."""
    answer_timeout_s: float = 10.0
    """How long a turn's text may take after the end of the turn, reconnecting included."""
    behind_s: float = 10.0
    """Sound that may wait to be sent; a server that takes it more slowly loses the turn."""
    longest_s: float = 300.0
    """Sound of one turn that is kept, so that it can be sent again after a lost connection."""

    def __post_init__(self) -> None:
        check_service_url(
            self.url, ("ws", "wss"), "a WebSocket", "ws://HOST:PORT/PATH", API_KEY_ENV
        )
        if self.api_key and not all("!" <= char <= "~" for char in self.api_key):
            raise ValueError("api_key holds something else than visible ASCII characters")
        if not isinstance(self.languages, tuple) or len(self.languages) > 100:
            raise ValueError("languages is no tuple of codes, such as ('en',)")
        if not 4000 <= self.rate_hz <= 48_000:
            raise ValueError(f"rate_hz={self.rate_hz} is not between 4000 and 48000")
        if self.audio not in ("turns", "all"):
            raise ValueError(f"audio={self.audio!r} is neither turns nor all")
        for name in ("open_timeout_s", "answer_timeout_s", "behind_s", "longest_s"):
            if not 0 < getattr(self, name) <= 3600:
                raise ValueError(f"{name}={getattr(self, name)} is not above 0, up to 3600")

    @property
    def shown(self) -> str:
        """The address for messages: without its query."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{host}{port}{parts.path}"

    @property
    def address(self) -> str:
        """The address that is dialled."""
        return self.url

    @property
    def key_variable(self) -> str:
        """The environment's variable for the key."""
        return API_KEY_ENV

    def headers(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """What goes along with the key, if there is one.

        Raises:
            ValueError: the environment's key cannot be one.
        """
        key = self.api_key
        if key is None:
            key = (os.environ if environ is None else environ).get(API_KEY_ENV, "").strip()
            if not all("!" <= char <= "~" for char in key):
                raise ValueError(
                    f"{API_KEY_ENV} holds something else than visible ASCII characters"
                )
        return {"Authorization": f"Bearer {key}"} if key else {}
