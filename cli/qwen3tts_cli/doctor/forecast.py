"""Forecast of Qwen3-TTS on this machine's CPU, measured in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from qwen3tts_cli.doctor.checks import Check, Level

NAME = "Qwen3-TTS on this CPU"
COMMAND = (sys.executable, "-m", "qwen3tts_engine.qwen3.kernels.cpu_forecast")
TIMEOUT_S = 120.0
KINDS = {"none": "bfloat16", "int8": "int8", "int4": "int4"}
OPTIONS = {"none": "--dtype bfloat16", "int8": "--quantize int8", "int4": "--quantize int4"}
Factors = Mapping[str, Mapping[str, float]]


def cpu_forecast(
    command: Sequence[str] = COMMAND, which: Callable[[str], str | None] = shutil.which
) -> Check:
    """Measure how fast published checkpoints would speak; none with a GPU."""
    if which("nvidia-smi") is not None:
        return Check(NAME, Level.OK, "not measured; a GPU is many times as fast, so use it")
    if find_spec("torch") is None:
        return Check(NAME, Level.OK, "not measured without torch (the extra qwen3)")
    remedy = "Try again when the machine is idle; --no-forecast leaves this out."
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(NAME, Level.WARN, f"no result within {TIMEOUT_S:.0f} s", remedy)
    except OSError as error:
        return Check(NAME, Level.WARN, f"not measured: {error.strerror}", remedy)
    try:
        found = json.loads(done.stdout.splitlines()[-1])
        return _check(found["factors"], found["threads"])
    except (IndexError, KeyError, ValueError, TypeError, AttributeError):
        last = (done.stderr.strip() or f"ended with {done.returncode}").splitlines()[-1][:200]
        return Check(NAME, Level.WARN, f"not measured: {last}", remedy)


def _check(factors: Factors, threads: Mapping[str, str]) -> Check:
    figures = {
        f"rtf_{size}_{kind}": value
        for size, each in factors.items()
        for kind, value in each.items()
    }
    chosen = {size: choice(each) for size, each in factors.items()}
    fastest = min(each[chosen[size]] for size, each in factors.items())
    sizes = "; ".join(
        f"{size}: {', '.join(f'{each[kind]:.2g} in {KINDS[kind]}' for kind in each)}"
        f" (take {OPTIONS[chosen[size]]})"
        for size, each in factors.items()
    )
    verdict = (
        "below 1 is faster than speech"
        if fastest < 1
        else "slower than speech, so use a GPU, or another voice"
    )
    found = f"seconds of work for a second of one call's speech: {sizes}; {verdict};"
    used = threads[chosen[next(iter(factors))]]
    return Check(NAME, Level.OK, f"{found} threads: {used}", figures=figures)


def choice(factors: Mapping[str, float]) -> str:
    """Return int4, the least exact, only if it alone keeps up."""
    exact = {kind: value for kind, value in factors.items() if kind != "int4"} or factors
    kind = min(exact, key=lambda each: exact[each])
    return "int4" if factors.get("int4", 1.0) < 1.0 <= factors[kind] else kind
