"""The page as a file and in a real browser."""

from __future__ import annotations

import builtins
import re
import stat
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import pytest

from qwen3tts_cli.rehearsal_page import JinjaMissing, write_page
from qwen3tts_cli.rehearsal_page.page import MAX_CALLS
from qwen3tts_rehearsal.results import RehearsalResult, TurnSpan
from tests.conftest import require_package
from tests.rehearsal.results_made import HOSTILE, LATE, PASSED, call, recording, rehearsal
from tests.softphone.browser import Chromium
from tests.softphone.conftest import chromium

__all__ = ["chromium"]

READY = "document.documentElement.dataset.ready === 'yes'"
# Functions, as the page's policy lets no text become code.
LOADED = "() => document.querySelector('audio').duration > 0"


@pytest.fixture(autouse=True)
def _needs_jinja() -> None:
    require_package("jinja2", "pip install 'mr_qwen3tts[plots]'")


def hostile(folder: Path) -> RehearsalResult:
    """Texts that try to leave their place, and a recording that is not there."""
    spans = (TurnSpan("agent", 0.0, 1.0, HOSTILE, HOSTILE), TurnSpan("caller", 1.2, 2.0, HOSTILE))
    return rehearsal(
        call(HOSTILE, error=HOSTILE, recording=folder / "missing.wav", spans=spans),
        call(seed=2, verdicts=(PASSED, LATE)),
    )


def addresses(made: str) -> list[str]:
    """What the page's own elements refer to."""
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend(f"{tag} {name}" for name, _ in attrs if name in ("src", "href"))

    Reader().feed(made)
    return found


def test_no_text_leaves_its_place(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    size = write_page(hostile(tmp_path), path, title=HOSTILE, target=HOSTILE)
    made = path.read_text("utf-8")
    assert size == len(path.read_bytes())
    assert made.count("</script") == 2
    assert "<img" not in made
    assert not re.search(r"[\x00-\x08\x1b]", made)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert addresses(made) == []


def test_thousands_of_calls_are_bounded_and_failed_ones_stay(tmp_path: Path) -> None:
    calls = [call(seed=seed) for seed in range(5000)]
    calls[4000:4010] = [call("late", seed=seed, verdicts=(LATE,)) for seed in range(10)]
    path = tmp_path / "page.html"
    assert write_page(rehearsal(*calls), path) < 4_000_000
    made = path.read_text("utf-8")
    assert made.count('"scenario":"late"') == 10
    assert made.count('"scenario":') == MAX_CALLS
    assert f"{5000 - MAX_CALLS:,}".replace(",", "\u202f") in made


def test_sound_beyond_the_bound_is_played_from_its_file(tmp_path: Path) -> None:
    recorded = recording(tmp_path / "call.wav")
    made = rehearsal(*(call(seed=seed, recording=recorded) for seed in range(5)))
    path = tmp_path / "page.html"
    write_page(made, path, max_embedded_bytes=40_000)
    text = path.read_text("utf-8")
    within = text.count('"audio":"data:')
    assert 0 < within < 5
    assert text.count('"audio":"call.wav"') == 5 - within


def test_a_rehearsal_without_calls(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(RehearsalResult((), 0.0, 3), path)
    assert "0 of" in path.read_text("utf-8")


def test_without_jinja_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(JinjaMissing) as raised:
        write_page(rehearsal(call()), tmp_path / "page.html")
    assert "plots" in raised.value.remedy


@pytest.mark.network
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
async def test_the_page_opens_in_every_shape_without_a_complaint(
    chromium: Chromium, tmp_path: Path, theme: Literal["light", "dark"], width: int
) -> None:
    path = tmp_path / "page.html"
    write_page(hostile(tmp_path), path, title=HOSTILE)
    async with chromium.visit(theme=theme, width=width) as visit:
        await visit.goto(path.as_uri())
        await visit.until(READY)
        await visit.page.locator("details.call > summary").last.click()
        assert await visit.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.network
@pytest.mark.asyncio(loop_scope="module")
async def test_a_call_is_drawn_and_played(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    recorded = recording(tmp_path / "call.wav")
    write_page(rehearsal(call(recording=recorded, verdicts=(PASSED, LATE))), path)
    async with chromium.visit() as visit:
        await visit.goto(path.as_uri())
        await visit.until(READY)
        await visit.until(LOADED)  # of a failed call, which is open
        evaluate = visit.page.evaluate
        assert await evaluate("document.querySelector('audio').duration") == pytest.approx(
            7.5, abs=0.1
        )
        assert await evaluate("document.querySelectorAll('svg .wave').length") == 2
        texts = await visit.page.locator(".stage .turn").all_inner_texts()
        assert texts[:2] == ["Hello, how can I help?", "My number is 4 7 1 1."]
        assert await visit.page.locator(".wait.bad").inner_text() == "0.80\u202fs"
        # The turn lies over its part of the picture.
        left = await evaluate(
            "(() => { const s = document.querySelector('.stage').getBoundingClientRect(),"
            " t = document.querySelector('.turn.caller').getBoundingClientRect();"
            " return (t.left - s.left) / s.width; })()"
        )
        assert left == pytest.approx(2.6 / 7.5, abs=0.01)
        await visit.page.locator(".stage").click(position={"x": 10, "y": 150})
        await visit.until("() => document.querySelector('audio').currentTime > 0")


@pytest.mark.network
@pytest.mark.asyncio(loop_scope="module")
async def test_a_recording_beside_the_page_is_played(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    recorded = recording(tmp_path / "call 1.wav")
    write_page(rehearsal(call(recording=recorded, verdicts=(LATE,))), path, max_embedded_bytes=0)
    async with chromium.visit() as visit:
        await visit.goto(path.as_uri())
        await visit.until(READY)
        await visit.page.evaluate("document.querySelector('audio').preload = 'auto'")
        await visit.page.evaluate("document.querySelector('audio').load()")
        await visit.until(LOADED)


@pytest.mark.network
@pytest.mark.asyncio(loop_scope="module")
async def test_failed_calls_and_scenarios_are_chosen(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    calls = [call(seed=seed) for seed in range(150)] + [call("other", verdicts=(LATE,))]
    write_page(rehearsal(*calls), path)
    async with chromium.visit() as visit:
        await visit.goto(path.as_uri())
        await visit.until(READY)
        rows = visit.page.locator("details.call")
        assert await rows.count() == 100
        await visit.page.locator("#more").click()
        assert await rows.count() == 151
        await visit.page.locator("#which").select_option("failed")
        assert await rows.count() == 1
        await visit.page.locator("tr[data-scenario=table] button").click()
        assert await visit.page.locator("#shown").inner_text() == "100 of 150 calls"
