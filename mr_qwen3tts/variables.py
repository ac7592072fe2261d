"""Environment variables: sources, kinds, bounds."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from qwen3tts_speech.record_sinks import endpoint_of

YES = ("1", "true", "yes", "on", "y", "t", "enabled")
NO = ("0", "false", "no", "off", "n", "f", "disabled")
SHOWN_CHARS = 60
"""Characters of a value in an error."""
SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
"""WebSocket by written scheme."""
SPEECH_PATH = "/v1/speech"


class SettingsError(ValueError):
    """A variable has an invalid value."""

    def __init__(self, variable: str, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.variable = variable
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Kind and bounds."""

    wanted: str
    """Valid form as a request: ``Write a whole number …``."""
    read: Callable[[str], Any]
    """Parser; raises ValueError."""
    good: Callable[[Any], bool]
    """Test of a value."""


def flag() -> Rule:
    def read(text: str) -> bool:
        word = text.lower()
        if word not in YES + NO:
            raise ValueError(word)
        return word in YES

    return Rule("Write 1 or 0.", read, lambda value: isinstance(value, bool))


def whole(low: int, high: int, step: int = 1) -> Rule:
    """Take ``low`` to ``high`` in multiples of ``step``."""

    def read(text: str) -> int:
        # "60.0" is what a number of an agent's file may have become.
        number = float(text) if len(text) < SHOWN_CHARS and "." in text else int(text)
        if number != int(number):
            raise ValueError(text)
        return int(number)

    def good(value: Any) -> bool:
        number = isinstance(value, int) and not isinstance(value, bool)
        return number and low <= value <= high and value % step == 0

    stepped = f", a multiple of {step}" if step > 1 else ""
    return Rule(f"Write a whole number from {low} to {high}{stepped}.", read, good)


def real(low: float, high: float) -> Rule:
    """A number from ``low`` to ``high``."""

    def good(value: Any) -> bool:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and math.isfinite(value) and low <= value <= high

    return Rule(f"Write a number from {low:g} to {high:g}.", float, good)


def one_of(*words: str) -> Rule:
    """One of a few words, in any case."""
    return Rule(f"Write one of: {', '.join(words)}.", str.lower, lambda value: value in words)


def words(most: int, *, lines: bool = False) -> Rule:
    """Take 1 to ``most`` characters; ``lines``: with line breaks."""

    def good(value: Any) -> bool:
        fits = isinstance(value, str) and 0 < len(value) <= most
        if not fits or not (lines or value.isprintable()):
            return False
        # Half a surrogate pair cannot be sent; bytes that are no UTF-8 come as such.
        return not any("\ud800" <= char <= "\udfff" for char in value)

    return Rule(f"Write at most {most} {'' if lines else 'printable '}characters.", str, good)


def address() -> Rule:
    """Take a server address; complete scheme, port, path."""

    def read(text: str) -> str:
        scheme, separator, rest = text.partition("://")
        scheme = SCHEMES.get(scheme.lower(), scheme)
        host, slash, path = rest.partition("/")
        return f"{scheme}{separator}{host}{slash + path if path else SPEECH_PATH}"

    def good(value: Any) -> bool:
        try:
            parts = urlsplit(value)
            if not value.isprintable() or " " in value:
                return False
            return parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
        except (ValueError, TypeError, AttributeError):  # brackets that do not close; no text
            return False

    return Rule("It looks like ws://127.0.0.1:8765/v1/speech.", read, good)


def collector() -> Rule:
    """Address of a collector of OpenTelemetry, or yes or no."""

    def good(value: Any) -> bool:
        try:
            endpoint_of(value)
        except (ValueError, AttributeError):  # no text
            return False
        return isinstance(value, str)

    return Rule("It looks like http://127.0.0.1:4318; or 1 or 0.", str, good)


def listening() -> Rule:
    """Take ``HOST``, ``HOST:PORT`` or ``:PORT``."""

    def good(value: Any) -> bool:
        host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
        if not colon or value.endswith("]"):  # no port; an IPv6 address has its own colons
            host, port = value, "0"
        number = port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536
        return number and bool(value) and host.isprintable() and not set(host) & set(" /@")

    return Rule("Write HOST:PORT, such as 127.0.0.1:5060.", str, good)


def host_name() -> Rule:
    """A host, without scheme or port."""

    def good(value: Any) -> bool:
        plain = isinstance(value, str) and 0 < len(value) < 256 and value.isprintable()
        return plain and not set(value) & set(" /@;") and (":" not in value or value[0] == "[")

    return Rule("Write a host alone, such as 203.0.113.5: no scheme, no port.", str, good)


def ports() -> Rule:
    """Take ``LOW-HIGH``; (0, 0): any."""

    def read(text: str) -> tuple[int, int]:
        low, _, high = text.partition("-")
        return int(low), int(high)

    def good(value: Any) -> bool:
        return isinstance(value, tuple) and (value == (0, 0) or 0 < value[0] < value[1] < 65536)

    return Rule("Write LOW-HIGH, such as 10000-10100.", read, good)


def budget() -> Rule:
    """Take turns a minute, turns, characters a minute, characters."""

    def read(text: str) -> tuple[int, ...]:
        return tuple(int(each) for each in text.split(","))

    def good(value: Any) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == 4
            and all(isinstance(each, int) and 0 <= each <= 10**12 for each in value)
            and all(each == 0 or each >= 8_000 for each in value[2:])
        )

    return Rule(
        "Write turns a minute, turns, characters a minute, characters: four whole numbers with "
        "commas between them, 0 for no limit, at least 8000 characters.",
        read,
        good,
    )


def patterns() -> Rule:
    """A list between commas, in its order."""

    def read(text: str) -> tuple[str, ...]:
        return tuple(word for each in text.split(",") if (word := each.strip()))

    def good(value: Any) -> bool:
        return isinstance(value, tuple) and all(isinstance(each, str) for each in value)

    return Rule("Write patterns with commas between them, such as +4930*.", read, good)


def codes() -> Rule:
    def good(value: Any) -> bool:
        return isinstance(value, tuple) and all(
            isinstance(each, str) and each.isascii() and each.isalpha() and 2 <= len(each) <= 20
            for each in value
        )

    read = patterns().read
    return Rule("Write codes of languages with commas between them, such as en,de.", read, good)


def names() -> Rule:
    """Take names between commas or blanks; ``none``: empty."""

    def read(text: str) -> frozenset[str]:
        found = frozenset(text.replace(",", " ").split())
        return frozenset() if found == {"none"} else found

    def good(value: Any) -> bool:
        return isinstance(value, frozenset) and all(
            isinstance(each, str) and (each == "*" or each.isidentifier()) for each in value
        )

    return Rule("Write names with commas between them; * is all, none is no command.", read, good)


def wrong(variable: str, rule: Rule, value: object, *, secret: bool = False) -> SettingsError:
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN_CHARS else shown[:SHOWN_CHARS] + "…"
    held = f"{variable} cannot be used" if secret else f"{variable}={shown} cannot be"
    return SettingsError(variable, f"{held}.", remedy=rule.wanted)


def server_of(address: str) -> str | None:
    """Return our protocol's address at another protocol's server."""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None or not host:
        return None
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}{'' if port is None else f':{port}'}{SPEECH_PATH}"


def near(name: str, known: Collection[str], prefix: str) -> str:
    """Return a name with its nearest; the shared ``prefix`` is not compared."""
    ends = [each.removeprefix(prefix) for each in sorted(known)]
    close = difflib.get_close_matches(name.removeprefix(prefix), ends, n=1, cutoff=0.7)
    return f"{name} (did you mean {prefix}{close[0]}?)" if close else name


PREFIX = "MR_QWEN3TTS_"
HOSTS = frozenset({"MR_SPEAK_CMD"})
"""Variables of the host."""
COMMAND_LINE = frozenset(
    {"MR_QWEN3TTS_SERVER", "MR_QWEN3TTS_CONFIG", "MR_QWEN3TTS_CHECKPOINT", "MR_QWEN3TTS_LLM_KEY"}
)
"""Variables of ``mr-qwen3tts``, ignored."""
Getenv = Callable[[str], str | None]


def environment(context: Any = None) -> dict[str, str]:
    """Return our set variables.

    Args:
        context: ChatContext with ``env``, mapping, or None; goes first, an empty value means
            unset.
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
"""By backend, default ``openai``."""
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
"""Older names."""


OLDER = frozenset(
    name
    for ask in (*_ADDRESSES.values(), *_MEANINGLESS, *(ask for ask, _ in _REPLACED))
    if (name := ask(str)) is not None
)


def take_older(getenv: Getenv, written: dict[str, tuple[str, str]]) -> tuple[str, ...]:
    """Add settings of older variables; return the other older names.

    Args:
        getenv: reads a variable.
        written: variable and text by setting.
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
            # Our server has all protocols on one port. An invalid address is reported as written.
            written["url"] = (variable, server_of(text) or text)
    return tuple(sorted(ignored))
