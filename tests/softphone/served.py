"""A softphone with a voice, served for a test, and somebody who uses its page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qwen3tts_engine.base import Engine, PcmChunk, SynthesisRequest
from qwen3tts_phone.softphone.settings import EngineSettings, SoftphoneSettings
from qwen3tts_server.run import running_server
from tests.conftest import require_package
from tests.peers.recording_engine import RecordingEngine
from tests.softphone.browser import Chromium, Visit

if TYPE_CHECKING:
    from qwen3tts_phone.softphone.server import Softphone

WITHIN_S = 60.0
"""Longer than any test of the page."""


class Voice(RecordingEngine):
    """The embedded voice, with a copy of every sample, and of the requested voices."""

    def __init__(self) -> None:
        super().__init__()
        self.voices_asked: list[str | None] = []

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        self.voices_asked.append(request.voice)
        async for chunk in super().synthesize(request):
            yield chunk


@dataclass
class Served:
    """What a test has of the server."""

    softphone: Softphone
    engine: Voice

    @property
    def url(self) -> str:
        """The page's address with its token."""
        return self.softphone.url


@asynccontextmanager
async def served(
    *further: Engine, parts: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """A softphone with the embedded voice, and with these further engines.

    ``parts``: further arguments of `Softphone`; ``settings``: of `SoftphoneSettings`.
    """
    require_package("aiortc", "pip install 'mr_qwen3tts[webrtc]'")
    from qwen3tts_phone.softphone.server import Softphone

    engine = Voice()
    async with asyncio.timeout(WITHIN_S), AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(running_server(each, host="127.0.0.1", port=0))
            for each in (engine, *further)
        ]
        engines = tuple(EngineSettings(each.url) for each in servers)
        chosen = SoftphoneSettings(engines=engines, **settings)
        softphone = await stack.enter_async_context(Softphone(chosen, **(parts or {})))
        yield Served(softphone, engine)


def measuring(here: Served) -> str:
    """The page's address, with the microphone as it is: no echo canceller works on it."""
    return here.url.replace("#", "?measure=1#")


class Person:
    """Somebody who uses the page: finds things by their role and name, and reads what it says."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.page = visit.page

    async def button(self, name: str) -> None:
        """Press the button of that name."""
        await self.page.get_by_role("button", name=name, exact=True).click()

    async def choose(self, what: str, value: str) -> None:
        """Choose an option of a box: ``value`` is its id."""
        await self.page.get_by_role("combobox", name=what, exact=True).select_option(value)

    async def is_(self, state: str) -> None:
        """Wait until the call stands so."""
        await self.visit.until("state => window.softphone.state === state", state)

    async def ready(self) -> None:
        """Wait until the page has its server."""
        await self.visit.until("() => window.softphone?.connection === 'open'")

    async def call(self, **choices: str) -> None:
        """Press the one button, after these choices (``Codec="PCMU"``); wait for the call.

        All that is heard from then on is kept.
        """
        await self.ready()
        for what, value in choices.items():
            await self.choose(what, value)
        await self.button("Call")
        await self.visit.listen()
        await self.is_("up")

    async def hang_up(self) -> None:
        """End the call."""
        await self.button("Hang up")
        await self.is_("ended")

    async def type(self, text: str, *, enter: bool = True) -> None:
        """Type letter by letter."""
        box = self.page.get_by_role("textbox", name="Type to speak")
        await box.press_sequentially(text)
        if enter:
            await box.press("Enter")

    async def put(self, text: str) -> None:
        """Paste all of it, and press Enter."""
        box = self.page.get_by_role("textbox", name="Type to speak")
        await box.fill(text)
        await box.press("Enter")

    async def captions(self) -> list[dict[str, Any]]:
        """The captions as the page tells them."""
        told: list[dict[str, Any]] = await self.page.evaluate("() => window.softphone.captions()")
        return told

    async def spoken(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many utterances are over; what the server told of them."""
        await self.visit.until(
            "count => window.softphone.captions().filter("
            "each => each.done && each.who !== 'caller').length >= count",
            count,
        )
        return self.visit.messages("spoken")

    async def notice(self, code: str) -> tuple[str, str]:
        """Wait for the notice with that code: what it says, and what to do."""
        notice = self.page.locator(f'#notice[data-code="{code}"]')
        await notice.wait_for()
        said = await notice.locator(".notice-text").inner_text()
        remedy = await notice.locator(".notice-remedy").inner_text()
        return said, remedy


@asynccontextmanager
async def at_the_page(chromium: Chromium, url: str, **options: Any) -> AsyncIterator[Person]:
    """Somebody who has opened the page; ``options`` as `Chromium.visit`."""
    async with chromium.visit(url, **options) as visit:
        yield Person(visit)
