"""Settings of the recognisers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from qwen3tts_settings.constraints import bounded, check_fields, matching, one_of
from qwen3tts_wire.whisper.model import DTYPES, LEAST_WINDOW_S, WINDOW_S
from qwen3tts_wire.whisper.models import AUTO, is_name

LANGUAGE = re.compile(r"[A-Za-z]{2,20}", re.ASCII)
DEVICE = r"auto|cpu|cuda(:[0-9]{1,2})?"


@dataclass(frozen=True, slots=True)
class WhisperSettings:
    """Settings of Whisper: one model process for all calls.

    Raises ValueError with the field's name first.
    """

    model: str = AUTO
    """A folder with a model for CTranslate2, a size (``tiny``, ``base``, ``small``, ``medium``,
    ``large-v3``, ``turbo``; ``tiny.en`` to ``medium.en`` for English alone), or a hub id.
    ``auto``: from the hub's cache, else a package with weights, else ``base`` from the hub.
    """
    languages: tuple[str, ...] = ()
    """Codes or English names of the languages that callers may speak (``("en", "de")``): one is not
    detected; of several, the likeliest; none = any that the model knows.
    """
    device: str = matching(DEVICE, "auto, cpu, cuda or cuda:N", default="auto")
    """``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:1``."""
    dtype: str = one_of(DTYPES, default="auto")
    """``auto`` (float16 on a GPU, else int8), ``int8``, ``float32``, ``float16``, ``bfloat16`` or
    ``int8_float16``."""
    threads: int = bounded(0, 1024, default=0)
    """CPU threads of the model; 0 = all but one, which the calls keep."""
    early: bool = True
    """Begin while the caller speaks and at their pauses, not only when their turn is over."""
    timeout_s: float = bounded(above=0, high=86_400, unit="seconds", default=15.0)
    """Time limit of a turn's text after its end."""
    load_timeout_s: float = bounded(above=0, high=86_400, unit="seconds", default=900.0)
    """Time limit of loading or downloading the model."""
    stall_s: float = bounded(above=0, high=86_400, unit="seconds", default=60.0)
    """Time limit of one piece; then the process is replaced."""
    most_waiting: int = bounded(1, 10_000, default=64)
    """Pieces of all calls that may wait for the model."""
    offline: bool = False
    """Download nothing: the model must be there."""
    window_s: int = bounded(LEAST_WINDOW_S, WINDOW_S, unit="seconds", default=LEAST_WINDOW_S)
    """Least window of the encoder, which has the turn's length and 2 s; 30 = Whisper's own."""

    def __post_init__(self) -> None:
        if not is_name(self.model):
            raise ValueError(
                f"model={self.model!r} is not a folder, size or hub id; name a folder with a"
                " Whisper model, or a size such as tiny.en"
            )
        if not isinstance(self.languages, tuple) or not all(
            LANGUAGE.fullmatch(each) for each in self.languages
        ):
            raise ValueError(f"languages={self.languages!r}: a tuple of codes, such as ('en',)")
        check_fields(self)

    @property
    def folder(self) -> str:
        path = Path(self.model).expanduser()
        return str(path.resolve()) if path.is_dir() else self.model

    def load_options(self) -> dict[str, Any]:
        names = ("device", "dtype", "threads", "offline", "window_s")
        return {
            "model": self.folder,
            "languages": list(self.languages),
            **{name: value for name, value in asdict(self).items() if name in names},
        }


def check_service_url(
    url: str, schemes: tuple[str, ...], what: str, example: str, key_place: str
) -> SplitResult:
    """Return the parts of an address; raises ValueError, also for a password.

    ``what``, ``example`` and ``key_place`` are named in the error.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that does not exist
        raise ValueError(f"url is not an address; write {example}") from None
    if not good or parts.fragment:
        raise ValueError(f"url is not an address of {what}; write {example}")
    if parts.username or parts.password:
        raise ValueError(f"url holds a password; put the key into {key_place} instead")
    return parts


def _check_service(api_key: str | None, languages: object) -> None:
    if api_key and not all("!" <= char <= "~" for char in api_key):
        raise ValueError("api_key holds other than visible ASCII characters")
    if not isinstance(languages, tuple) or len(languages) > 100:
        raise ValueError("languages is not a tuple of codes, such as ('en',)")


MODEL_NAME = r"[^\x00-\x1f\x7f-\x9f]{1,256}"
API_KEY_ENV = "QWEN3TTS_STT_KEY"
"""Environment variable for the key of a recogniser's server."""


@dataclass(frozen=True, slots=True)
class SocketSettings:
    """Settings of a `qwen3tts.recogniser.v1` server (docs/recognisers.md).

    Raises ValueError with the field's name first.
    """

    url: str = field(repr=False)
    """``ws://HOST:PORT/PATH`` or ``wss://…``; a query is sent and never shown."""
    api_key: str | None = field(default=None, repr=False)
    """Bearer token; None = the environment's ``QWEN3TTS_STT_KEY``, if any."""
    languages: tuple[str, ...] = ()
    """Languages that callers may speak (``("en", "de")``); none = the server detects them."""
    rate_hz: int = bounded(4000, 48_000, default=16_000)
    """Rate of the samples that are sent."""
    audio: Literal["turns", "all"] = one_of(("turns", "all"), default="turns")
    """Audio that is sent: that of turns only, or all of the caller's."""
    open_timeout_s: float = bounded(above=0, high=3600, unit="seconds", default=5.0)
    """Time limit of connection and greeting."""
    answer_timeout_s: float = bounded(above=0, high=3600, unit="seconds", default=10.0)
    """Time limit of a turn's text after its end, reconnecting included."""
    behind_s: float = bounded(above=0, high=3600, unit="seconds", default=10.0)
    """Audio that may wait to be sent (backpressure); beyond that the turn is lost."""
    longest_s: float = bounded(above=0, high=3600, unit="seconds", default=300.0)
    """Audio of one turn that is kept for retransmission after a lost connection."""

    def __post_init__(self) -> None:
        check_service_url(
            self.url, ("ws", "wss"), "a WebSocket", "ws://HOST:PORT/PATH", API_KEY_ENV
        )
        _check_service(self.api_key, self.languages)
        check_fields(self)

    @property
    def shown(self) -> str:
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{host}{port}{parts.path}"

    @property
    def address(self) -> str:
        return self.url

    @property
    def key_variable(self) -> str:
        return API_KEY_ENV

    def headers(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        key = self.api_key
        if key is None:
            key = (os.environ if environ is None else environ).get(API_KEY_ENV, "").strip()
            if not all("!" <= char <= "~" for char in key):
                raise ValueError(f"{API_KEY_ENV} holds other than visible ASCII characters")
        return {"Authorization": f"Bearer {key}"} if key else {}


KEY_VARIABLES = {"api.openai.com": "OPENAI_API_KEY", "api.deepgram.com": "DEEPGRAM_API_KEY"}
"""Environment variables for the keys of services that require one, by host."""


def key_variable(url: str) -> str:
    return KEY_VARIABLES.get((urlsplit(url).hostname or "").lower(), API_KEY_ENV)


def key_for(url: str, given: str | None, environ: Mapping[str, str] | None = None) -> str:
    """Return the key for this address, or empty; sent only to its own hosts.

    ``given``: of the settings; None = the environment's. Raises ValueError.
    """
    variable = key_variable(url)
    key = given
    if key is None:
        key = (os.environ if environ is None else environ).get(variable, "").strip()
        if not all("!" <= char <= "~" for char in key):
            raise ValueError(f"{variable} holds other than visible ASCII characters")
    if not key and variable != API_KEY_ENV:
        raise ValueError(f"there is no key for {urlsplit(url).hostname}")
    return key


OPENAI = "https://api.openai.com/v1"
FORMATS = ("json", "verbose_json", "text")


@dataclass(frozen=True, slots=True)
class TranscriptionSettings:
    """Settings of ``POST {url}/audio/transcriptions`` (docs/recognisers.md).

    Raises ValueError with the field's name first.
    """

    url: str = OPENAI
    """Up to and including the version, such as ``http://127.0.0.1:8000/v1``."""
    model: str = matching(MODEL_NAME, "a model's name", default="whisper-1")
    """Name of the model at that server."""
    api_key: str | None = field(default=None, repr=False)
    """Bearer token; None = the environment's ``OPENAI_API_KEY`` at api.openai.com, and
    ``QWEN3TTS_STT_KEY`` anywhere else.
    """
    languages: tuple[str, ...] = ()
    """Languages that callers may speak; a single one is not detected by the server."""
    prompt: str = field(default="", repr=False)
    """Names and words that callers are likely to say, as running text."""
    response_format: Literal["json", "verbose_json", "text"] = one_of(FORMATS, default="json")
    """``verbose_json`` reports the language and lets hallucinations be found, where the model has
    it (Whisper does).
    """
    early: bool = True
    """Request at a pause in the caller's speech, not only when the turn is over: the text comes
    earlier, and a service that is paid by the minute hears some turns twice.
    """
    connect_s: float = bounded(above=0, high=3600, unit="seconds", default=5.0)
    """Time limit of connecting."""
    timeout_s: float = bounded(above=0, high=3600, unit="seconds", default=15.0)
    """Time limit of a turn's text after its end, the second attempt included."""
    at_once: int = bounded(1, 10_000, default=8)
    """Concurrent requests of all calls."""
    most_waiting: int = bounded(0, 10_000, default=32)
    """Turns of all calls that may wait for one of these."""

    def __post_init__(self) -> None:
        where = "a server", "http://HOST:PORT/v1", "the environment"
        if check_service_url(self.url, ("http", "https"), *where).query:
            raise ValueError("url is not an address of a server; write http://HOST:PORT/v1")
        _check_service(self.api_key, self.languages)
        if len(self.prompt) > 4000:
            raise ValueError("prompt is longer than 4000 characters")
        check_fields(self)

    @property
    def route(self) -> str:
        return self.url.rstrip("/") + "/audio/transcriptions"

    @property
    def shown(self) -> str:
        return self.url

    def form(self) -> dict[str, str]:
        fields = {"model": self.model, "response_format": self.response_format}
        if len(self.languages) == 1:
            fields["language"] = self.languages[0]
        if self.prompt:
            fields["prompt"] = self.prompt
        return fields


QUERY_SETTINGS = ("model", "language", "prompt", "response_format", "early")
"""Settings that may follow the address on a command line."""


def openai_options(text: str) -> dict[str, Any] | None:
    """Return the fields in ``openai``, ``openai:MODEL`` or ``openai:URL?model=NAME&language=en``.

    None = another kind. An unknown key of the query is kept, to be refused by name.
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
            fields[key if key in QUERY_SETTINGS else f"?{key}"] = value
    return fields


DEEPGRAM = "wss://api.deepgram.com/v1/listen"
MULTILINGUAL = "multi"
"""Deepgram's language for callers who may speak any of several."""
RESERVED_PARAMETERS = frozenset(
    {"encoding", "sample_rate", "channels", "multichannel", "interim_results"}
)
"""Parameters that follow from the audio that is sent."""


@dataclass(frozen=True, slots=True)
class DeepgramSettings:
    """Settings of Deepgram's ``/v1/listen`` or the same interface.

    Raises ValueError with the field's name first.
    """

    url: str = field(default=DEEPGRAM, repr=False)
    """``wss://HOST/v1/listen``. Its query is sent along (``smart_format=true``) and precedes
    ``model``, ``languages`` and ``endpointing_ms``.
    """
    model: str = matching(MODEL_NAME, "a model's name", default="nova-3")
    api_key: str | None = field(default=None, repr=False)
    """``Authorization: Token``; None = the environment's ``DEEPGRAM_API_KEY`` at api.deepgram.com,
    and ``QWEN3TTS_STT_KEY`` anywhere else.
    """
    languages: tuple[str, ...] = ()
    """Languages that callers may speak: one code, or with none or several Deepgram's ``multi``."""
    rate_hz: int = bounded(8000, 48_000, default=16_000)
    """Rate of the samples that are sent."""
    endpointing_ms: int = bounded(10, 5000, default=300)
    """Silence after which Deepgram makes the words so far final by itself."""
    open_timeout_s: float = bounded(above=0, high=3600, unit="seconds", default=5.0)
    """Time limit of connecting."""
    answer_timeout_s: float = bounded(above=0, high=3600, unit="seconds", default=10.0)
    """Time limit of a turn's text after its end, reconnecting included."""
    settle_s: float = bounded(above=0, high=3600, unit="seconds", default=1.5)
    """Time after a turn when its words so far count: Deepgram does not answer every ``Finalize``.
    """
    keep_alive_s: float = bounded(above=0, high=3600, unit="seconds", default=4.0)
    """Interval of ``KeepAlive`` while nothing is sent; after 10 s without Deepgram closes."""
    behind_s: float = bounded(above=0, high=3600, unit="seconds", default=10.0)
    """Audio that may wait to be sent (backpressure); beyond that the turn is lost."""
    longest_s: float = bounded(above=0, high=3600, unit="seconds", default=300.0)
    """Audio of one turn that is kept for retransmission after a lost connection."""

    def __post_init__(self) -> None:
        where = "a WebSocket", "wss://HOST/v1/listen", "the environment"
        parts = check_service_url(self.url, ("ws", "wss"), *where)
        if taken := sorted(RESERVED_PARAMETERS.intersection(dict(parse_qsl(parts.query)))):
            raise ValueError(f"url: {', '.join(taken)} cannot be set there; leave it out")
        _check_service(self.api_key, self.languages)
        check_fields(self)

    @property
    def shown(self) -> str:
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))

    @property
    def address(self) -> str:
        parts = urlsplit(self.url)
        asked = {
            "model": self.model,
            "language": self.languages[0] if len(self.languages) == 1 else MULTILINGUAL,
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
        return key_variable(self.url)

    def headers(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        key = key_for(self.url, self.api_key, environ)
        return {"Authorization": f"Token {key}"} if key else {}


def deepgram_options(text: str) -> dict[str, Any] | None:
    """Return the fields in ``deepgram``, ``deepgram:MODEL`` or ``deepgram:URL``, or None."""
    kind, colon, rest = text.partition(":")
    rest = rest.strip()
    if kind.lower() != "deepgram" or (colon and not rest):
        return None
    if not rest:
        return {}
    return {"url" if rest.lower().startswith(("ws:", "wss:")) else "model": rest}
