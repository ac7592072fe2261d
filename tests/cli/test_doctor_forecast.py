"""What ``doctor`` says of Qwen3-TTS on this CPU."""

from __future__ import annotations

import json
import sys
from importlib import util
from typing import Any

import pytest

from qwen3tts_cli.doctor import command as doctor
from qwen3tts_cli.doctor import forecast
from qwen3tts_cli.doctor.checks import Check, Level
from qwen3tts_cli.doctor.forecast import choice, cpu_forecast
from qwen3tts_cli.main import run


@pytest.fixture(autouse=True)
def torch_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is not installed, the program that measures is still the test's."""
    monkeypatch.setattr(forecast, "find_spec", lambda name: util.find_spec("sys"))


def answered(text: str, *, code: int = 0, gpu: bool = False, error: str = "") -> Check:
    program = f"import sys; print({text!r}); print({error!r}, file=sys.stderr); sys.exit({code})"
    return cpu_forecast([sys.executable, "-c", program], lambda name: name if gpu else None)


def measured(small: dict[str, float], large: dict[str, float]) -> str:
    found: dict[str, Any] = {"threads": {"none": "2, in turn", "int8": "1 and 1"}, "seconds": 2.0}
    return json.dumps(found | {"factors": {"0.6B": small, "1.7B": large}})


def test_it_says_the_factors_and_what_to_take() -> None:
    check = answered(
        "a line of another library\n"
        + measured(
            {"none": 1.5, "int8": 0.81, "int4": 0.79}, {"none": 2.25, "int8": 1.1, "int4": 0.9}
        )
    )
    assert check.level is Level.OK
    assert "0.6B: 1.5 in bfloat16, 0.81 in int8, 0.79 in int4 (take --quantize int8)" in check.found
    assert "1.7B: 2.2 in bfloat16, 1.1 in int8, 0.9 in int4 (take --quantize int4)" in check.found
    assert "faster than speech" in check.found
    assert check.found.endswith("threads: 1 and 1")
    assert check.figures["rtf_0.6B_int8"] == 0.81


def test_a_cpu_that_is_too_slow_is_said_to_be() -> None:
    check = answered(measured({"none": 4.0, "int8": 2.0}, {"none": 7.0, "int8": 3.0}))
    assert check.level is Level.OK
    assert "slower than speech, so use a GPU" in check.found


def test_a_gpu_is_to_be_used() -> None:
    check = answered("never run", gpu=True)
    assert check.level is Level.OK
    assert "use it" in check.found


def test_without_torch_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    find = util.find_spec
    monkeypatch.setattr(forecast, "find_spec", lambda name: None if name == "torch" else find(name))
    check = answered("never run")
    assert check.level is Level.OK
    assert "without torch" in check.found


@pytest.mark.parametrize("text", ["", "no JSON", "{}", "[]", '{"factors": 3, "threads": 1}', "1"])
def test_a_measurement_that_breaks_off_is_a_warning_with_its_reason(text: str) -> None:
    check = answered(text, code=1, error="first\nMemoryError: no room")
    assert check.level is Level.WARN
    assert "MemoryError: no room" in check.found
    assert "--no-forecast" in check.remedy


def test_a_program_that_cannot_be_started_or_hangs_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cpu_forecast(["/nonexistent"], lambda _: None).level is Level.WARN
    monkeypatch.setattr(forecast, "TIMEOUT_S", 0.01)
    hangs = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    check = cpu_forecast(hangs, lambda _: None)
    assert check.level is Level.WARN
    assert "no result" in check.found


@pytest.mark.parametrize(
    ("factors", "taken"),
    [
        ({"none": 1.5, "int8": 0.9, "int4": 0.5}, "int8"),
        ({"none": 1.5, "int8": 1.1, "int4": 0.9}, "int4"),
        ({"none": 2.5, "int8": 1.4, "int4": 1.2}, "int8"),
        ({"none": 1.0, "int8": 1.2, "int4": 1.3}, "none"),
        ({"int4": 1.9}, "int4"),
    ],
)
def test_int4_is_taken_only_where_it_alone_is_faster_than_speech(
    factors: dict[str, float], taken: str
) -> None:
    assert choice(factors) == taken


@pytest.mark.parametrize(
    ("options", "wanted"), [(["--forecast"], 1), (["--no-forecast"], 0), ([], 0)]
)
def test_the_command_measures_unless_it_is_left_out(
    options: list[str], wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests' environment leaves it out."""
    made: list[Check] = []

    def forecast_made() -> Check:
        made.append(Check("speed", Level.OK, "as found"))
        return made[-1]

    monkeypatch.setattr(doctor, "all_checks", lambda *_: iter(()))
    monkeypatch.setattr(forecast, "cpu_forecast", forecast_made)
    assert run(["doctor", "--stt", "none", *options]) == 0
    assert len(made) == wanted
