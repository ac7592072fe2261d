"""Constraints of settings, declared beside their defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest

from qwen3tts_server.settings import (
    AccessSettings,
    OpenAISettings,
    RunvncSettings,
    ServerSettings,
    VllmOmniSettings,
    VoiceSettings,
)
from qwen3tts_settings.building import build
from qwen3tts_settings.constraints import (
    FieldError,
    bounded,
    check_fields,
    check_request,
    matching,
    one_of,
)
from qwen3tts_settings.entries import BadConfiguration, from_yaml
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.messages import Limits

INF, NAN = float("inf"), float("nan")
INVALID: dict[Callable[..., object], list[tuple[str, Any]]] = {
    ServerSettings: [
        ("port", 70_000),
        ("port", -1),
        ("frame_ms", 0.0),
        ("frame_ms", 5000.0),
        ("pause_flush_ms", -1.0),
        ("drain_timeout_s", INF),
        ("ahead_ms", 0.0),
        ("max_connections", 0),
        ("ping_interval_s", 0.0),
        ("limits", Limits(max_window_ms=100_000)),
        ("limits", Limits(max_window_ms=10)),
        ("limits", Limits(max_append_chars=0)),
        ("limits", Limits(max_text_chars=10**6)),
    ],
    AccessSettings: [
        ("max_sockets", -1),
        ("head_timeout_s", 0.0),
        ("body_timeout_s", INF),
        ("origins", ("example.org",)),
        ("origins", ("https://example.org/",)),
        ("open_paths", ("metrics",)),
        ("api_keys", ("a b",)),
        ("tls_key", "k"),
        ("tls_min", "1.0"),
    ],
    VoiceSettings: [
        ("max_bytes", 0),
        ("fetch_timeout_s", NAN),
        ("fetch_ports", (0,)),
        ("fetch_hosts", ("a b",)),
        ("fetch_hosts", "example.com"),
        ("file_folders", ("media",)),
        ("store", ""),
        ("openai_voices", {"bob": "tone"}),
    ],
    OpenAISettings: [
        ("stream_default", "both"),
        ("default_format", "exe"),
        ("max_input_chars", 0),
        ("max_body_bytes", -1),
        ("send_timeout_s", NAN),
        ("model_aliases", "tts-1"),
        ("model_aliases", ("",)),
        ("whisper", ""),
        ("max_recording_s", 3601.0),
        ("batch_slots", 1.5),
    ],
    RunvncSettings: [
        ("max_init_bytes", 0),
        ("max_message_chars", 0),
        ("max_waiting", 0),
        ("idle_s", -1),
        ("generate_frame_ms", NAN),
    ],
    VllmOmniSettings: [
        *((name, value) for name in ("max_config_chars", "max_file_s") for value in (-1, 0, INF)),
        *(("max_message_chars", value) for value in (-1, 0, INF)),
        ("max_waiting_chars", 100),
    ],
}


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [(settings, *row) for settings, rows in INVALID.items() for row in rows],
)
def test_an_invalid_value_is_refused_by_name(
    settings: Callable[..., object], name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        settings(**{name: value})
    assert "a b" not in str(caught.value) or name != "api_keys"


def test_zero_is_no_bound_where_that_is_documented() -> None:
    assert VllmOmniSettings(idle_timeout_s=0, config_timeout_s=0).idle_timeout_s == 0
    assert RunvncSettings(generate_frame_ms=0, idle_s=0).idle_s == 0


def test_the_defaults_are_good() -> None:
    assert ServerSettings().host == "127.0.0.1"


@dataclass(frozen=True)
class Example:
    port: int = bounded(0, 65_535, default=5060)
    wait_s: float = bounded(above=0, high=3600, unit="seconds", default=1.5)
    calls: int | None = bounded(1, default=None)
    share: float = bounded(high=1, default=0.5)
    waits_s: tuple[float, ...] = bounded(1, 10, default=(1.0, 2.0))
    expires_s: int = bounded(90, default=1800, also=(0,))
    mode: Literal["raw", "sse"] = one_of(("raw", "sse"), default="raw")
    api_key: str | None = matching("[!-~]+", "visible ASCII characters", default=None)
    free: float = -1.0

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("port", -1, "port=-1 must be from 0 to 65535"),
        ("port", 65_536, "port=65536 must be from 0 to 65535"),
        ("port", 1.0, "port=1.0 must be a whole number from 0 to 65535"),
        ("port", True, "port=True must be a number from 0 to 65535"),
        ("port", None, "port=None must be a number from 0 to 65535"),
        ("port", "80", "port='80' must be a number from 0 to 65535"),
        ("wait_s", 0, "wait_s=0 must be above 0 and at most 3600 seconds"),
        ("wait_s", 3601.0, "wait_s=3601.0 must be above 0 and at most 3600 seconds"),
        ("wait_s", float("nan"), "wait_s=nan must be above 0 and at most 3600 seconds"),
        ("calls", 0, "calls=0 must be at least 1"),
        ("calls", float("inf"), "calls=inf must be a whole number at least 1"),
        ("share", 1.5, "share=1.5 must be at most 1"),
        ("share", float("-inf"), "share=-inf must be at most 1"),
        ("waits_s", (2.0, 11.0), "waits_s: 11.0 must be from 1 to 10"),
        ("expires_s", 89, "expires_s=89 must be at least 90 or 0"),
        ("expires_s", False, "expires_s=False must be a number at least 90 or 0"),
        ("mode", "wav", "mode='wav' must be one of raw, sse"),
        ("api_key", "hidden key", "api_key must be visible ASCII characters"),
    ],
)
def test_a_violation_names_field_value_and_bounds(name: str, value: Any, error: str) -> None:
    with pytest.raises(FieldError) as caught:
        Example(**{name: value})
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "valid",
    [
        {},
        {"port": 0},
        {"port": 65_535},
        {"wait_s": 3600},
        {"calls": 10**30},
        {"calls": None},
        {"waits_s": ()},
        {"expires_s": 0},
        {"mode": "sse"},
        {"api_key": "k-1"},
        {"free": float("nan")},
    ],
    ids=str,
)
def test_valid_values_pass(valid: dict[str, Any]) -> None:
    Example(**valid)


def test_a_constrained_field_keeps_its_default_and_metadata() -> None:
    @dataclass
    class Kept:
        rate: int = bounded(1, 2, default=1, metadata={"secret": True})

    (rate,) = fields(Kept)
    assert rate.default == 1
    assert rate.metadata["secret"] is True


def test_a_request_out_of_bounds_is_a_bad_request_with_the_bounds_as_remedy() -> None:
    @dataclass(frozen=True)
    class Request:
        speed: float = bounded(0.5, 2.5, default=1.0)

        def __post_init__(self) -> None:
            check_request(self)

    with pytest.raises(BadRequest) as caught:
        Request(speed=9.0)
    assert caught.value.message == "speed=9.0 is out of range."
    assert caught.value.remedy == "Choose from 0.5 to 2.5."


def test_a_violation_in_a_file_names_its_line() -> None:
    entry = from_yaml("port: 5060\nwait_s: 0\n", "phone.yaml")
    with pytest.raises(BadConfiguration, match=r"wait_s=0.* must be above 0 .*phone.yaml:2"):
        build(Example, entry, "phone")
