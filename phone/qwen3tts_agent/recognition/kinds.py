"""Table of recognisers by setting, loaded when used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, cast

from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_agent.recognition.settings import (
    DeepgramSettings,
    SocketSettings,
    TranscriptionSettings,
    WhisperSettings,
    deepgram_options,
    openai_options,
)
from qwen3tts_phone.detection.recogniser import (
    Recognise,
    Recogniser,
    RecogniserCheck,
    RecogniserReport,
)
from qwen3tts_wire.errors import BadRequest


@dataclass(frozen=True, slots=True)
class RecogniserKind:
    """Kind of recognisers: name, settings, class, check."""

    name: str
    written: str
    """As ``--stt`` takes it, for messages and help."""
    settings_class: type[Any]
    module: str
    """Module of the recogniser's class, with `RecogniserCheck` as ``check``."""
    class_name: str
    options: Callable[[str], dict[str, Any] | None]
    """Fields of the settings in a written name; None = it names another kind."""

    def settings(self, options: dict[str, Any]) -> Any:
        known = [field.name for field in fields(self.settings_class)]
        for name in options:
            if name not in known:
                raise BadRequest(
                    f"The recogniser has no option {name[:40]!r}.",
                    remedy=f"Its options are: {', '.join(known)}.",
                )
        try:
            return self.settings_class(**options)
        except (ValueError, TypeError) as error:
            raise BadRequest(f"The recogniser's settings: {error}.") from None

    def recogniser(self, settings: Any) -> Recogniser:
        return cast("Recogniser", getattr(import_module(self.module), self.class_name)(settings))

    async def check(self, settings: Any) -> RecogniserReport:
        check: RecogniserCheck = import_module(self.module).check
        return await check(settings)


def _prefixed(name: str, key: str) -> Callable[[str], dict[str, Any] | None]:

    def options(text: str) -> dict[str, Any] | None:
        kind, colon, rest = text.partition(":")
        if kind.lower() != name or (colon and not rest.strip()):
            return None
        return {key: rest.strip()} if rest else {}

    return options


def _address(text: str) -> dict[str, Any] | None:
    scheme, colon, _ = text.partition(":")
    return {"url": text} if scheme.lower() in ("ws", "wss") and colon else None


KINDS = (
    RecogniserKind(
        "whisper",
        "whisper, whisper:MODEL_OR_FOLDER",
        WhisperSettings,
        "qwen3tts_agent.recognition.whisper",
        "WhisperRecogniser",
        _prefixed("whisper", "model"),
    ),
    RecogniserKind(
        "openai",
        "openai, openai:MODEL, openai:http://HOST:PORT/v1?model=NAME",
        TranscriptionSettings,
        "qwen3tts_agent.recognition.openai",
        "TranscriptionRecogniser",
        openai_options,
    ),
    RecogniserKind(
        "deepgram",
        "deepgram, deepgram:MODEL, deepgram:wss://HOST/v1/listen?model=NAME",
        DeepgramSettings,
        "qwen3tts_agent.recognition.deepgram",
        "DeepgramRecogniser",
        deepgram_options,
    ),
    RecogniserKind(
        "ws",
        "ws://HOST:PORT/PATH, wss://HOST/PATH",
        SocketSettings,
        "qwen3tts_agent.recognition.websocket",
        "SocketRecogniser",
        _address,
    ),
)
WRITTEN = "; ".join(kind.written for kind in KINDS)


def kind_named(text: str, options: dict[str, Any]) -> tuple[RecogniserKind, Any]:
    for kind in KINDS:
        if (found := kind.options(text.strip())) is not None:
            return kind, kind.settings({**found, **options})
    raise BadRequest(f"{text[:100]!r} names no recogniser.", remedy=f"Write one of: {WRITTEN}.")


def recogniser_named(text: str, **options: Any) -> Recogniser:
    """Return a setting's recogniser, idle.

    ``text``: such as ``whisper`` or ``wss://HOST/PATH`` (docs/recognisers.md). ``options``: fields
    of its settings. Raises BadRequest.
    """
    kind, settings = kind_named(text, options)
    return kind.recogniser(settings)


async def check_recogniser(text: str, **options: Any) -> RecogniserReport:
    """Try a setting's recogniser; arguments as `recogniser_named`.

    Raises BadRequest, RecogniserUnavailable, RecognitionFailed.
    """
    kind, settings = kind_named(text, options)
    return await kind.check(settings)


def recogniser_of(given: str | Recognise) -> Recogniser:
    return recogniser_named(given) if isinstance(given, str) else CallbackRecogniser(given)
