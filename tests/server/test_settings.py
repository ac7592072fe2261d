from __future__ import annotations

from typing import Any

import pytest

from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.messages import Limits


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 70_000},
        {"port": -1},
        {"frame_ms": 0.0},
        {"frame_ms": 5000.0},
        {"pause_flush_ms": -1.0},
        {"drain_timeout_s": float("inf")},
        {"ahead_ms": 0.0},
        {"max_connections": 0},
        {"ping_interval_s": 0.0},
        {"limits": Limits(max_window_ms=100_000)},
        {"limits": Limits(max_window_ms=10)},
        {"limits": Limits(max_append_chars=0)},
        {"limits": Limits(max_text_chars=10**6)},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        ServerSettings(**wrong)


def test_the_defaults_are_good() -> None:
    assert ServerSettings().host == "127.0.0.1"
