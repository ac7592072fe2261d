"""Where a transcription route is, what it is asked for, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

from qwen3tts_phone.recognise.service_url import check_service_url

OPENAI = "https://api.openai.com/v1"
FORMATS = ("json", "verbose_json", "text")


@dataclass(frozen=True, slots=True)
class TranscriptionSettings:
    """A server with ``POST {url}/audio/transcriptions`` (docs/recognisers.md).

    Raises ValueError whose text begins with the name of the field.
    """

    url: str = OPENAI
    """Up to and including the version, such as ``http://127.0.0.1:8000/v1``."""
    model: str = "whisper-1"
    """Name of the model at that server."""
    api_key: str | None = field(default=None, repr=False)
    """Sent as a bearer token; None = the environment's ``OPENAI_API_KEY`` at api.openai.com, and
    ``QWEN3TTS_STT_KEY`` anywhere else."""
    languages: tuple[str, ...] = ()
    """What callers may speak; with one code the server does not guess, otherwise it finds out."""
    prompt: str = field(default="", repr=False)
    """Names and words that callers are likely to say, as running text."""
    response_format: Literal["json", "verbose_json", "text"] = "json"
    """``verbose_json`` tells the language and lets invented texts be found, where the model has it
    (Whisper does)."""
    early: bool = True
    """Ask at a pause in the caller's speech, not only when the turn is over: the text comes sooner,
    and a service that is paid by the minute hears some turns twice."""
    connect_s: float = 5.0
    """How long a connection may take."""
    timeout_s: float = 15.0
    """How long a turn's text may take after the turn, the second try included."""
    at_once: int = 8
    """Requests of all calls at the same time."""
    most_waiting: int = 32
    """Turns of all calls that may wait for one of these."""

    def __post_init__(self) -> None:
        where = "a server", "http://HOST:PORT/v1", "the environment"
        if check_service_url(self.url, ("http", "https"), *where).query:
            raise ValueError("url is no address of a server; write http://HOST:PORT/v1")
        if self.api_key and not all("!" <= char <= "~" for char in self.api_key):
            raise ValueError("api_key holds something else than visible ASCII characters")
        if not (self.model and self.model.isprintable() and len(self.model) <= 256):
            raise ValueError("model is no name of a model")
        if not isinstance(self.languages, tuple) or len(self.languages) > 100:
            raise ValueError("languages is no tuple of codes, such as ('en',)")
        if len(self.prompt) > 4000:
            raise ValueError("prompt is longer than 4000 characters")
        if self.response_format not in FORMATS:
            raise ValueError(f"response_format={self.response_format!r}: {', '.join(FORMATS)}")
        for name in ("connect_s", "timeout_s"):
            if not 0 < getattr(self, name) <= 3600:
                raise ValueError(f"{name}={getattr(self, name)} is not above 0, up to 3600")
        for name, least in (("at_once", 1), ("most_waiting", 0)):
            if not least <= getattr(self, name) <= 10_000:
                raise ValueError(f"{name}={getattr(self, name)} is not between {least} and 10000")

    @property
    def route(self) -> str:
        """The address that turns are sent to."""
        return self.url.rstrip("/") + "/audio/transcriptions"

    @property
    def shown(self) -> str:
        """The address for messages."""
        return self.url

    def form(self) -> dict[str, str]:
        """The fields that go along with each turn."""
        fields = {"model": self.model, "response_format": self.response_format}
        if len(self.languages) == 1:
            fields["language"] = self.languages[0]
        if self.prompt:
            fields["prompt"] = self.prompt
        return fields


IN_QUERY = ("model", "language", "prompt", "response_format", "early")
"""Settings that may stand behind the address on a command line."""


def named(text: str) -> dict[str, Any] | None:
    """The fields in ``openai``, ``openai:MODEL`` or ``openai:URL?model=NAME&language=en``.

    None = another kind is named. A key of the query that is no setting of `IN_QUERY` comes back as
    it is written, for `RecogniserKind.settings` to refuse by name.
    """
    kind, colon, rest = text.partition(":")
    rest = rest.strip()
    if kind.lower() != "openai" or (colon and not rest):
        return None
    if not rest:
        return {}
    if not rest.lower().startswith(("http:", "https:")):
        return {"model": rest}
    address, _, query = rest.partition("?")
    fields: dict[str, Any] = {"url": address}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key == "language":
            fields["languages"] = (value,)
        elif key == "early":
            fields["early"] = value.lower() not in ("0", "no", "false")
        else:
            fields[key if key in IN_QUERY else f"?{key}"] = value
    return fields
