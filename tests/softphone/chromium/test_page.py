"""The page in Chromium before any call: it loads clean, and everybody can use it."""

from __future__ import annotations

import re

import pytest

from tests.softphone.browser import Chromium
from tests.softphone.served import Person, at_the_page, served

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280, 1600])
async def test_the_page_loads_clean_and_fits(chromium: Chromium, theme: str, width: int) -> None:
    async with served() as here:
        options = {"theme": theme, "width": width, "has_touch": width < 500}
        async with at_the_page(chromium, here.url, **options) as person:
            await person.ready()
            sees = person.visit.sees
            assert await sees("overflow") <= 0
            assert await sees("nameless") == []
            assert await sees("poor") == []
            assert await sees("small") == []
            kept = await person.page.evaluate("() => location.href")
            assert "token" not in kept
            inside = [each for each in person.visit.requests if not each.startswith("data:")]
            assert len(inside) > 3


async def test_light_and_dark_are_different_pages(chromium: Chromium) -> None:
    grounds = set()
    for theme in ("light", "dark"):
        async with served() as here, at_the_page(chromium, here.url, theme=theme) as person:
            await person.ready()
            ground = "() => getComputedStyle(document.body).backgroundColor"
            grounds.add(await person.page.evaluate(ground))
    assert len(grounds) == 2


async def finds(person: Person, *wanted: tuple[str, str]) -> None:
    for role, name in wanted:
        found = person.page.get_by_role(role, name=re.compile(f"^{name}"))  # type: ignore[arg-type]
        assert await found.count() == 1, (role, name, await found.count())


async def test_a_screen_reader_finds_everything_by_role_and_name(chromium: Chromium) -> None:
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.ready()
        page = person.page
        assert await page.title()
        assert await page.evaluate("() => document.documentElement.lang") == "en"
        await finds(
            person,
            ("main", ""),
            ("button", "Call$"),
            ("combobox", "Voice"),
            ("combobox", "Codec"),
            ("checkbox", "Record the call"),
            ("checkbox", "Stop the voice when I speak"),
        )
        assert await page.get_by_role("heading", level=1).count() == 1
        assert await page.locator("#status").inner_text() == "Ready"
        live = page.get_by_role("log")
        assert await live.get_attribute("aria-live") == "polite"
        await person.call()
        await finds(
            person,
            ("button", "Hang up"),
            ("button", "Mute"),
            ("button", "Keypad"),
            ("button", "Stop the voice"),
            ("textbox", "Type to speak"),
            ("list", "Captions"),
            ("img", "Picture of the line"),
        )
        assert await page.locator("#status").inner_text() == "In a call"
        await person.button("Keypad")
        keys = page.get_by_role("group", name="Keypad").get_by_role("button")
        assert await keys.count() >= 12
        assert await person.visit.sees("nameless") == []
        assert await person.visit.sees("poor") == []
        await person.hang_up()


async def tab_to(person: Person, target: str) -> None:
    reached = []
    for _ in range(60):
        reached.append(await person.visit.sees("focused"))
        if reached[-1] == target:
            assert await person.visit.sees("focusSeen"), f"the focus on {target} cannot be seen"
            return
        await person.page.keyboard.press("Tab")
    raise AssertionError(f"{target} is not reached by Tab: {reached}")


async def test_a_call_is_made_and_ended_with_the_keyboard_alone(chromium: Chromium) -> None:
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.ready()
        await tab_to(person, "call")
        await person.page.keyboard.press("Enter")
        await person.is_("up")
        assert await person.visit.sees("focused") != "BODY", "the focus was lost"
        await tab_to(person, "type")
        await person.page.keyboard.type("Hello there.")
        await person.page.keyboard.press("Enter")
        await person.spoken()
        await tab_to(person, "hang-up")
        await person.page.keyboard.press("Space")
        await person.is_("ended")
        assert await person.visit.sees("focused") != "BODY", "the focus was lost"


async def test_nothing_moves_by_itself_where_motion_is_not_wanted(chromium: Chromium) -> None:
    async with (
        served() as here,
        at_the_page(chromium, here.url, reduced_motion="reduce") as person,
    ):
        await person.ready()
        assert await person.visit.sees("moving") == []
        await person.call()
        assert await person.visit.sees("moving") == []
