"""Assembly and writing of the page."""

from __future__ import annotations

import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qwen3tts_cli.output.markup import content_policy, count, plural, script_json, text
from qwen3tts_cli.output.writable import whole_file
from qwen3tts_cli.rehearsal_page.calls import call_data, scenario_rows, verdict_names
from qwen3tts_cli.rehearsal_page.sound import (
    NoRecording,
    embedded,
    relative_address,
    waveform,
)
from qwen3tts_rehearsal.results import CallResult, RehearsalResult

if TYPE_CHECKING:
    from jinja2 import Template

MAX_CALLS: Final = 2000
"""Calls with their turns in the page; failed ones come first."""
MAX_DRAWN: Final = 500
"""Calls with a waveform."""
MAX_EMBEDDED_BYTES: Final = 24_000_000
"""Sound within the page; recordings beyond it are played from their files."""
MEDIA: Final = "media-src data: blob: file: 'self'; "


class JinjaMissing(ImportError):
    remedy = "Install it: pip install 'mr_qwen3tts[plots]'"

    def __init__(self) -> None:
        super().__init__("The page needs the Python package Jinja2.")


def write_page(
    result: RehearsalResult,
    path: Path,
    *,
    title: str = "Rehearsal",
    target: str = "",
    max_embedded_bytes: int = MAX_EMBEDDED_BYTES,
) -> int:
    """Write the page, mode 0600; return its bytes. Raises JinjaMissing, OSError.

    Args:
        result: all calls; recordings that cannot be read are named as such.
        path: the HTML file.
        title: heading.
        target: address that was called.
        max_embedded_bytes: sound within the page; 0 = it plays the recordings' files.
    """
    content = page(
        result, path, title=title, target=target, max_embedded_bytes=max_embedded_bytes
    ).encode("utf-8", "replace")
    # As private as the recordings.
    with whole_file(path) as file:
        file.write(content)
    return len(content)


def page(
    result: RehearsalResult,
    path: Path,
    *,
    title: str = "Rehearsal",
    target: str = "",
    max_embedded_bytes: int = MAX_EMBEDDED_BYTES,
) -> str:
    template = _template()
    # Failed calls first, the rest in the order of the plan.
    calls = sorted(result.calls, key=lambda each: each.passed)[:MAX_CALLS]
    script = _asset(__package__, "page.js")
    passed = sum(each.passed for each in result.calls)
    made: str = template.render(
        title=title,
        target=target,
        policy=content_policy(script, more=MEDIA),
        css=_asset("qwen3tts_cli.latency.html", "page.css") + _asset(__package__, "page.css"),
        script=script,
        data=script_json({"calls": _calls(calls, path, max_embedded_bytes)}),
        result=result,
        passed=passed,
        begun=_when(result),
        errors=sum(bool(each.error) for each in result.calls),
        names=verdict_names(result),
        rows=scenario_rows(result),
        left_out=len(result.calls) - len(calls),
    )
    return made


def _calls(calls: list[CallResult], path: Path, budget: int) -> list[dict[str, object]]:
    found = []
    for number, call in enumerate(calls):
        data = call_data(call)
        sound = _sound(call, path, drawn=number < MAX_DRAWN, budget=budget)
        budget -= len(str(sound.get("audio", ""))) if sound.pop("embedded", False) else 0
        found.append({**data, **sound})
    return found


def _sound(call: CallResult, page_path: Path, *, drawn: bool, budget: int) -> dict[str, object]:
    if call.recording is None:
        return {"no_sound": "The call has no recording."}
    recording = call.recording
    found: dict[str, object] = {"file": str(recording)}
    try:
        if drawn:
            wave = waveform(recording)
            found |= {"peaks": wave.encoded(), "recorded_s": wave.seconds}
        elif not recording.is_file():
            return {**found, "no_sound": "The recording is missing."}
        if drawn and budget > 0:
            address = embedded(recording)
            if len(address) <= budget:
                return {**found, "audio": address, "embedded": True}
    except NoRecording as error:
        return {**found, "no_sound": str(error)}
    return {**found, "audio": relative_address(recording, page_path)}


def _when(result: RehearsalResult) -> str:
    if not result.calls:
        return ""
    first = min(each.started for each in result.calls)
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(first))


def _template() -> Template:
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise JinjaMissing from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # `text` escapes, and replaces what cannot be printed.
    environment.filters["shown"] = lambda value: Markup(text(value))
    environment.filters["raw"] = Markup
    environment.filters["count"] = count
    environment.globals["plural"] = plural
    return environment.from_string(_asset(__package__, "page.jinja2"))


def _asset(package: str, name: str) -> str:
    return (files(package) / name).read_text("utf-8")
