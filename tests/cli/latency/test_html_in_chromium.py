"""The report in a real browser: it opens without a complaint and shows what the logs hold."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from qwen3tts_cli.latency.columns import Columns, columns_of
from qwen3tts_cli.latency.html import write_page
from qwen3tts_cli.latency.tables import percentile
from qwen3tts_speech.latency import Mark
from tests.cli.latency.pages import hostile_records, made
from tests.conftest import require_package
from tests.softphone.browser import Chromium
from tests.softphone.conftest import chromium

__all__ = ["chromium"]

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]
READY = "document.documentElement.dataset.ready === 'yes'"


def written(folder: Path, columns: Columns, before: Columns | None = None) -> str:
    """The address of their page."""
    require_package("plotly", "pip install 'mr_qwen3tts[plots]'")
    path = folder / "page.html"
    write_page(columns, path, before=before, title="Tuesday", with_text=True)
    return path.as_uri()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
async def test_the_page_opens_in_every_shape_without_a_complaint(
    chromium: Chromium, tmp_path: Path, theme: Literal["light", "dark"], width: int
) -> None:
    url = written(tmp_path, made(utterances=400, calls=40), made(1, utterances=400, calls=40))
    async with chromium.visit(theme=theme, width=width) as visit:
        await visit.goto(url)
        await visit.until(READY)
        for plot in ("forest", "spread", "within", "course"):
            await visit.until(f"document.querySelector('#{plot} svg.main-svg') !== null")
        assert await visit.page.evaluate("document.documentElement.scrollWidth") <= width
        wide = await visit.page.evaluate(
            "[...document.querySelectorAll('.svg-container')].map("
            "each => each.getBoundingClientRect().right)"
        )
        assert max(wide) <= width
        colour = await visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(int(part) for part in colour[4:-1].split(",")) > 3 * 128
        assert light == (theme == "light")


async def test_it_shows_what_the_log_holds(chromium: Chromium, tmp_path: Path) -> None:
    columns = made(utterances=300, gap_share=0.1)
    first = columns.first_sound_ms
    first = first[np.isfinite(first)]
    async with chromium.visit() as visit:
        await visit.goto(written(tmp_path, columns))
        await visit.until(READY)
        lead = await visit.page.locator(".lead").inner_text()
        assert f"{percentile(first, 50):.0f}" in lead
        row = visit.page.locator("table.hops tbody tr", has_text="slot → first_pcm")
        engine = columns.between_ms(Mark.SLOT, Mark.FIRST_PCM)
        engine = engine[np.isfinite(engine)]
        numbers = (await row.inner_text()).split()
        for percent in (50, 95, 99):
            assert _shown(percentile(engine, percent)) in numbers
        # The plot draws the same distribution: at 50 % the median.
        drawn = await visit.page.evaluate(
            "(() => { const line = document.getElementById('within').data[0];"
            " return line.x[line.y.indexOf(50)]; })()"
        )
        assert drawn == pytest.approx(percentile(first, 50), rel=1e-3)
        bars = await visit.page.evaluate(
            "document.getElementById('course').data.find(each => each.type === 'bar').y"
        )
        assert max(bars) == pytest.approx(columns.longest_gap_ms.max(), rel=1e-3)
        await visit.page.select_option("#quantity", label="silence before the sound")
        await visit.until("Math.max(...document.getElementById('within').data[0].x) <= 40")


def _shown(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 99.95 else f"{ms:.1f}" if ms >= 0.995 else f"{ms:.2f}"


async def test_utterances_are_chosen_by_keyboard_and_by_click(
    chromium: Chromium, tmp_path: Path
) -> None:
    columns = made(text="One moment, please.")
    slowest = int(np.nanargmax(columns.first_sound_ms))
    async with chromium.visit() as visit:
        await visit.goto(written(tmp_path, columns))
        await visit.until(READY)
        record = columns.record_at(slowest)
        heading = visit.page.locator("#fall h3")
        assert await heading.inner_text() == f"{record.call_id}/{record.context}"
        assert await visit.page.locator("#fall .said").inner_text() == "One moment, please."
        rows = await visit.page.locator("#fall .fall-row:not(.axis-row)").all_inner_texts()
        assert rows[0].startswith("first text")
        assert rows[-1].startswith("silence before speech")
        assert [row for row in rows if "±0.40" in row] == [
            row for row in rows if row.startswith("network")
        ]
        options = visit.page.locator("#chooser [role=option]")
        await visit.page.get_by_role("listbox").focus()
        await visit.page.keyboard.press("ArrowDown")
        assert await options.nth(1).get_attribute("aria-selected") == "true"
        assert await options.nth(0).get_attribute("aria-selected") == "false"
        second = await heading.inner_text()
        assert second == await options.nth(1).locator(".row span").first.inner_text()
        await visit.page.keyboard.press("End")
        await options.nth(3).click()
        assert await options.nth(3).get_attribute("aria-selected") == "true"


async def test_tables_by_name_are_tabs(chromium: Chromium, tmp_path: Path) -> None:
    async with chromium.visit() as visit:
        await visit.goto(written(tmp_path, made()))
        await visit.until(READY)
        tabs = visit.page.get_by_role("tab")
        assert await visit.page.get_by_role("tabpanel").count() == 1
        await tabs.first.focus()
        await visit.page.keyboard.press("ArrowRight")
        assert await tabs.nth(1).get_attribute("aria-selected") == "true"
        panel = await visit.page.get_by_role("tabpanel").inner_text()
        assert "en\t" in panel
        assert "de\t" in panel


async def test_the_theme_can_be_chosen(chromium: Chromium, tmp_path: Path) -> None:
    async with chromium.visit(theme="light") as visit:
        await visit.goto(written(tmp_path, made(utterances=50)))
        await visit.until(READY)
        line = "document.getElementById('within').data[0].line.color"
        light = await visit.page.evaluate(line)
        button = visit.page.get_by_role("button", name="Theme: auto")
        await button.click()
        await visit.page.get_by_role("button", name="Theme: light").click()
        await visit.until(f"{line} !== {light!r}")


async def test_hostile_names_are_text(chromium: Chromium, tmp_path: Path) -> None:
    """A script of theirs would be refused by the page's policy: an error that fails the test."""
    columns = columns_of(hostile_records())
    async with chromium.visit() as visit:
        await visit.goto(written(tmp_path, columns, before=columns))
        await visit.until(READY)
        options = visit.page.locator("#chooser [role=option]")
        for place in range(await options.count()):
            await options.nth(place).click()
        for place in range(await visit.page.get_by_role("tab").count()):
            await visit.page.get_by_role("tab").nth(place).click()
        assert await visit.page.locator("img").count() == 0
        assert await visit.page.locator("a[href]").count() == 0
        assert await visit.page.evaluate("document.scripts.length") == 3


@pytest.mark.parametrize("columns", [columns_of([]), made(failed_share=1.0), made(utterances=1)])
async def test_odd_logs_open_too(chromium: Chromium, tmp_path: Path, columns: Columns) -> None:
    async with chromium.visit(width=390) as visit:
        await visit.goto(written(tmp_path, columns))
        await visit.until(READY)
        assert await visit.page.get_by_role("heading", level=1).inner_text() == "Tuesday"
