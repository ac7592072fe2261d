"""What goes wrong around a page: it says what and what to do, and no button is dead after it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.relay import relay
from tests.softphone.browser import Chromium, running_chromium
from tests.softphone.served import Person, Served, at_the_page, served

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

REFUSED = r"WebSocket connection to .* failed"
"""What Chromium itself writes to the console when a socket fails."""


async def listens_and_types(person: Person) -> None:
    """A call without a microphone still speaks."""
    await person.visit.listen()
    await person.is_("up")
    await person.type("One may listen.")
    [spoken] = await person.spoken()
    assert spoken["heard"] == "One may listen."
    assert (await person.visit.heard()).loud_s() > 0.3
    await person.hang_up()


async def test_a_refused_microphone_is_told_and_one_may_listen_and_type(
    chromium: Chromium,
) -> None:
    async with served() as here, at_the_page(chromium, here.url, microphone="refused") as person:
        await person.ready()
        await person.button("Call")
        said, remedy = await person.notice("microphone_refused")
        assert said
        assert "allow" in remedy
        await listens_and_types(person)


async def test_a_missing_microphone_is_told_and_one_may_listen_and_type(tmp_path: Path) -> None:
    async with (
        running_chromium(tmp_path, microphone=False) as deaf,
        served() as here,
        at_the_page(deaf, here.url) as person,
    ):
        await person.ready()
        await person.button("Call")
        said, remedy = await person.notice("microphone_missing")
        assert said
        assert "connect" in remedy
        await listens_and_types(person)


async def test_a_microphone_in_use_is_told(chromium: Chromium) -> None:
    busy = """navigator.mediaDevices.getUserMedia = () => Promise.reject(
      new DOMException("Could not start audio source", "NotReadableError"));"""
    async with served() as here, chromium.visit() as visit:
        await visit.context.add_init_script(busy)
        await visit.goto(here.url)
        person = Person(visit)
        await person.ready()
        await person.button("Call")
        await person.notice("microphone_in_use")
        await listens_and_types(person)


async def test_a_browser_without_webrtc_is_told(chromium: Chromium) -> None:
    async with served() as here, chromium.visit() as visit:
        await visit.context.add_init_script("delete window.RTCPeerConnection;")
        await visit.goto(here.url)
        person = Person(visit)
        if await visit.page.get_by_role("button", name="Call", exact=True).is_enabled():
            await person.button("Call")
        said, remedy = await person.notice("no_webrtc")
        assert "WebRTC" in said
        assert remedy


@pytest.mark.parametrize(("token", "code"), [("", "token_missing"), ("nobody", "token_wrong")])
async def test_a_page_without_the_right_token_says_so_and_takes_it(
    chromium: Chromium, token: str, code: str
) -> None:
    async with served() as here:
        bare = here.url.partition("#")[0]
        url = f"{bare}#token={token}" if token else bare
        async with at_the_page(chromium, url, allowed_errors=[REFUSED]) as person:
            said, remedy = await person.notice(code)
            assert said
            assert remedy
            await person.page.get_by_role("textbox", name="Link or token").fill(here.url)
            await person.button("Connect")
            await person.ready()
            await person.page.locator("#notice").wait_for(state="hidden")
            await person.call()
            await person.hang_up()


async def test_a_second_tab_is_told_that_the_first_is_in_a_call(chromium: Chromium) -> None:
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.call()
        other = Person(await person.visit.another_tab(here.url))
        await other.ready()
        await other.button("Call")
        said, remedy = await other.notice("other_tab")
        assert said
        assert remedy
        assert await person.page.evaluate("() => window.softphone.state") == "up"
        await person.hang_up()


async def test_a_page_loaded_anew_ends_the_call_and_can_call_again(chromium: Chromium) -> None:
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.call()
        await person.type("A long story begins here, and the caller will not hear how it ends." * 2)
        await person.visit.sound(0.3)
        await person.page.reload()
        await person.ready()
        await person.notice("reloaded")
        await nobody_calls(here)
        await person.call()
        await person.type("Here I am again.")
        await person.spoken()
        await person.hang_up()


async def nobody_calls(here: Served) -> None:
    """Wait until the server has no call."""
    for call in list(here.softphone.calls):
        await call.ended()


async def test_a_call_outlives_its_pages_connection(chromium: Chromium) -> None:
    async with served() as here:
        parts = urlsplit(here.url)
        assert parts.port is not None
        async with relay(parts.port) as way:
            url = here.url.replace(f":{parts.port}", f":{way.port}")
            async with at_the_page(chromium, url, allowed_errors=[REFUSED]) as person:
                await person.call()
                session = await person.page.evaluate("() => window.softphone.session")
                await person.type("One two three four five six seven eight nine ten eleven.")
                await person.visit.sound(0.3)
                before = len(person.visit.received)
                way.cut()
                again = await person.visit.message("hello", after=before)
                assert (again["session"], again["resumed"]) == (session, True)
                await person.is_("up")
                [spoken] = await person.spoken()
                assert not spoken["interrupted"]
                await person.type("Still here.")
                [_, after] = await person.spoken(2)
                assert after["heard"] == "Still here."
                await person.hang_up()


async def test_a_server_that_is_gone_is_told_and_found_again(chromium: Chromium) -> None:
    async with served() as here:
        parts = urlsplit(here.url)
        assert parts.port is not None
        async with relay(parts.port) as way:
            url = here.url.replace(f":{parts.port}", f":{way.port}")
            async with at_the_page(
                chromium, url, allowed_errors=[REFUSED, "ERR_CONNECTION"]
            ) as person:
                await person.ready()
                way.to = 1  # no server there
                way.cut()
                said, remedy = await person.notice("server_away")
                assert said
                assert remedy
                way.to = parts.port
                await person.ready()
                await person.page.locator("#notice").wait_for(state="hidden")
                await person.call()
                await person.hang_up()
