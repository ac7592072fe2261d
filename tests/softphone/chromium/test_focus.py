"""The keyboard's focus around a call, a softphone that was started again, the mark of gaps."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.softphone.browser import Chromium
from tests.softphone.served import Person, at_the_page, served

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

ERRORS = [r"WebSocket connection to .* failed", "ERR_CONNECTION"]
"""What Chromium writes to its console when a server is away."""
GAP_MARKS = """async () => {
  const { Figures } = await import("/static/figures.js");
  const phone = Object.assign(new EventTarget(), { stats: { latest: {} }, line: {} });
  document.getElementById("figures").replaceChildren();
  document.getElementById("line").hidden = false;
  const figures = new Figures(phone);
  return [0, 2, 0].map((gaps) => {
    phone.line = { starvations: gaps, longest_gap_ms: 80 };
    figures.update();
    return getComputedStyle(document.querySelector(".figure.gaps dt"), "::after").content;
  });
}"""


async def focused(person: Person) -> str:
    found: str = await person.visit.sees("focused")
    return found


async def test_keys_pressed_again_neither_end_a_call_nor_make_one_and_only_gaps_are_marked(
    chromium: Chromium,
) -> None:
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.ready()
        keyboard = person.page.keyboard
        await person.page.locator("#call").focus()
        for key in ("Space", "Space", "Enter"):
            await keyboard.press(key)
        await person.is_("up")
        for key in ("Space", "Enter"):
            await keyboard.press(key)
        assert await focused(person) == "type"
        assert await person.page.evaluate("() => window.softphone.state") == "up"
        await person.page.locator("#hang-up").focus()
        for key in ("Space", "Space", "Enter"):
            await keyboard.press(key)
        await person.is_("ended")
        assert await focused(person) == "controls"
        await keyboard.press("Tab")
        assert await focused(person) == "call"
        # A focus that the person has put elsewhere stays there.
        await person.page.locator("#voice").focus()
        await person.page.evaluate("() => document.getElementById('call').click()")
        await person.is_("up")
        assert await focused(person) == "voice"
        await person.page.evaluate("() => document.getElementById('hang-up').click()")
        await person.is_("ended")
        assert await focused(person) == "voice"
        assert await person.page.evaluate(GAP_MARKS) == ["none", '""', "none"]


async def test_the_typing_box_is_next_after_the_call_button_on_a_touch_screen(
    chromium: Chromium,
) -> None:
    options = {"width": 390, "has_touch": True, "is_mobile": True}
    async with served() as here, at_the_page(chromium, here.url, **options) as person:
        await person.ready()
        await person.page.locator("#call").focus()
        await person.page.keyboard.press("Space")
        await person.is_("up")
        assert await focused(person) == "typing"
        await person.page.keyboard.press("Space")
        await person.page.keyboard.press("Tab")
        assert await focused(person) == "type"
        assert await person.page.evaluate("() => window.softphone.state") == "up"


async def test_after_a_restart_the_page_asks_for_the_address_that_is_printed_now(
    chromium: Chromium,
) -> None:
    async with chromium.visit(allowed_errors=ERRORS) as visit:
        person = Person(visit)
        async with served() as here:
            await visit.goto(here.url)
            await person.ready()
        _, remedy = await person.notice("server_away")
        assert "started again, open the address that it prints now" in remedy
        async with served(port=urlsplit(here.url).port) as again:
            said, remedy = await person.notice("token_wrong")
            assert "started again" in said
            assert "Open the address that it prints now" in remedy
            await person.page.get_by_role("textbox", name="Link or token").fill(again.url)
            await person.button("Connect")
            await person.call()


async def test_one_calls_again_after_a_restart_with_the_same_token(chromium: Chromium) -> None:
    async with chromium.visit(allowed_errors=ERRORS) as visit:
        person = Person(visit)
        async with served(token="the-same-token") as here:
            await visit.goto(here.url)
            await person.call()
        await person.is_("ended")
        async with served(port=urlsplit(here.url).port, token="the-same-token"):
            await person.ready()
            await person.call()
