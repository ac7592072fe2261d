"""Where Deepgram's streaming interface is, what it is asked for, and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from qwen3tts_phone.recognise.keys import key_for, key_variable
from qwen3tts_phone.recognise.service_url import check_service_url

DEEPGRAM = "wss://api.deepgram.com/v1/listen"
SEVERAL = "multi"
"""Deepgram's language for callers who may speak any of several."""
OURS = frozenset({"encoding", "sample_rate", "channels", "multichannel", "interim_results"})
"""Parameters that follow from the sound that is sent."""


@dataclass(frozen=True, slots=True)
class DeepgramSettings:
    """Deepgram's ``/v1/listen``, or a server with the same interface (docs/recognisers.md).

    Raises ValueError whose text begins with the name of the field.
    """

    url: str = field(default=DEEPGRAM, repr=False)
    """``wss://HOST/v1/listen``. What stands in its query goes along (``smart_format=true``) and
    comes before ``model``, ``languages`` and ``endpointing_ms``."""
    model: str = "nova-3"
    api_key: str | None = field(default=None, repr=False)
    """Sent as ``Authorization: Token``; None = the environment's ``DEEPGRAM_API_KEY`` at
    api.deepgram.com, and ``QWEN3TTS_STT_KEY`` anywhere else."""
    languages: tuple[str, ...] = ()
    """What callers may speak: one code, or with none or several Deepgram's ``multi``."""
    rate_hz: int = 16_000
    """Rate of the samples that are sent."""
    endpointing_ms: int = 300
    """Silence after which Deepgram fixes the words so far by itself."""
    open_timeout_s: float = 5.0
    """How long the connection may take."""
    answer_timeout_s: float = 10.0
    """How long a turn's text may take after the end of the turn, reconnecting included."""
    settle_s: float = 1.5
    """So long after a turn what is known of it counts: Deepgram does not answer every
    ``Finalize``."""
    keep_alive_s: float = 4.0
    """Between two ``KeepAlive`` while nothing is sent; after 10 s without Deepgram closes."""
    behind_s: float = 10.0
    """Sound that may wait to be sent; a server that takes it more slowly loses the turn."""
    longest_s: float = 300.0
    """Sound of one turn that is kept, so that it can be sent again after a lost connection."""

    def __post_init__(self) -> None:
        where = "a WebSocket", "wss://HOST/v1/listen", "the environment"
        parts = check_service_url(self.url, ("ws", "wss"), *where)
        if taken := sorted(OURS.intersection(dict(parse_qsl(parts.query)))):
            raise ValueError(f"url: {', '.join(taken)} cannot be set there; leave it out")
        if self.api_key and not all("!" <= char <= "~" for char in self.api_key):
            raise ValueError("api_key holds something else than visible ASCII characters")
        if not (self.model and self.model.isprintable() and len(self.model) <= 256):
            raise ValueError("model is no name of a model")
        if not isinstance(self.languages, tuple) or len(self.languages) > 100:
            raise ValueError("languages is no tuple of codes, such as ('en',)")
        if not 8000 <= self.rate_hz <= 48_000:
            raise ValueError(f"rate_hz={self.rate_hz} is not between 8000 and 48000")
        if not 10 <= self.endpointing_ms <= 5000:
            raise ValueError(f"endpointing_ms={self.endpointing_ms} is not between 10 and 5000")
        times = ("open_timeout_s", "answer_timeout_s", "settle_s", "keep_alive_s")
        for name in (*times, "behind_s", "longest_s"):
            if not 0 < getattr(self, name) <= 3600:
                raise ValueError(f"{name}={getattr(self, name)} is not above 0, up to 3600")

    @property
    def shown(self) -> str:
        """The address for messages: without its query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))

    @property
    def address(self) -> str:
        """The address that is dialled, with all parameters."""
        parts = urlsplit(self.url)
        asked = {
            "model": self.model,
            "language": self.languages[0] if len(self.languages) == 1 else SEVERAL,
            "endpointing": str(self.endpointing_ms),
            **dict(parse_qsl(parts.query, keep_blank_values=True)),
            "encoding": "linear16",
            "sample_rate": str(self.rate_hz),
            "channels": "1",
            "interim_results": "true",
        }
        repeated = parse_qsl(parts.query, keep_blank_values=True)  # keyterm may come several times
        query = [(name, value) for name, value in asked.items() if name not in dict(repeated)]
        return urlunsplit(
            (parts.scheme, parts.netloc, parts.path, urlencode([*query, *repeated]), "")
        )

    @property
    def key_variable(self) -> str:
        """The environment's variable for the key."""
        return key_variable(self.url)

    def headers(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """The key, if there is one.

        Raises:
            ValueError: the environment's key cannot be one, or Deepgram needs one.
        """
        key = key_for(self.url, self.api_key, environ)
        return {"Authorization": f"Token {key}"} if key else {}


def named(text: str) -> dict[str, Any] | None:
    """The fields in ``deepgram``, ``deepgram:MODEL`` or ``deepgram:URL``; None = another kind."""
    kind, colon, rest = text.partition(":")
    rest = rest.strip()
    if kind.lower() != "deepgram" or (colon and not rest):
        return None
    if not rest:
        return {}
    return {"url" if rest.lower().startswith(("ws:", "wss:")) else "model": rest}
