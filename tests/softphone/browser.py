"""A real headless Chromium for tests and benchmarks: Debian's, driven by Playwright.

One browser a module (``chromium`` in ``conftest.py``), a context of its own for each page. The
microphone is a WAV file that Chromium reads again each time a page opens it. A page that asks for
anything beyond its own origin, writes an error to its console or throws fails the test.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from tests.conftest import leave_out, require_package, require_program

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, WebSocket

Samples = NDArray[np.int16]
SCRIPTS = [Path(__file__).with_name(name) for name in ("heard.js", "eyes.js")]
"""Run in each page before its own."""
RATE_HZ = 48_000
SILENCE = np.zeros(4800, np.int16)
PROGRAM = "/usr/bin/chromium"
AUDIBLE = 0.01
"""Level from 0 to 1 above which a sample counts as sound (-40 dBFS)."""
PATIENCE_S = 20.0
"""For a condition that a page will meet; a test that waits longer fails."""
LINK_SCHEMES = ("data", "blob", "about")
"""Addresses without a host: nothing goes over a network."""


@dataclass(frozen=True)
class Heard:
    """What a page's loudspeaker was given."""

    samples: Samples
    """Shape [n]: one channel, behind the jitter buffer."""
    rate_hz: int
    """48 kHz."""
    blocks: NDArray[np.float64]
    """Shape [blocks, 3]: milliseconds (Unix, the browser's clock) at which a block came, the rate
    at which it came, and its samples at that rate."""

    def loud_s(self, level: float = AUDIBLE) -> float:
        """Seconds of 10 ms pieces with a sample above ``level`` (0 to 1)."""
        count = self.rate_hz // 100
        whole = self.samples[: len(self.samples) // count * count].astype(int)
        return float((np.abs(whole.reshape(-1, count)).max(axis=1) > level * 32767).sum()) / 100


@dataclass
class Visit:
    """One page in a context of its own, and what it did."""

    page: Page
    context: BrowserContext
    origin: str = ""
    """Scheme, host and port that the page may ask; set by ``goto``."""
    allowed_errors: list[str] = field(default_factory=list)
    """Patterns of console errors that this test brings about itself."""
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    """Messages of the page over its WebSockets, read as JSON."""
    received: list[dict[str, Any]] = field(default_factory=list)
    others: list[Visit] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def goto(self, url: str) -> None:
        """Open ``url``; its origin is the only one that the page may ask."""
        parts = urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        await self.page.goto(url)

    async def another_tab(self, url: str) -> Visit:
        """A second page of the same browser's user; it ends with the first."""
        other = Visit(await self.context.new_page(), self.context)
        self.others.append(other)
        other._watch()
        await other.goto(url)
        return other

    async def message(self, kind: str, *, mine: bool = False, after: int = 0) -> dict[str, Any]:
        """The first message of that ``type`` that the page received (``mine``: sent), from the
        place ``after`` on; waits for it.
        """
        messages = self.sent if mine else self.received
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self._news.clear()
                for each in messages[after:]:
                    if each.get("type") == kind:
                        return each
                await self._news.wait()

    def messages(self, kind: str, *, mine: bool = False) -> list[dict[str, Any]]:
        """All messages of that ``type`` so far."""
        return [each for each in (self.sent if mine else self.received) if each["type"] == kind]

    async def until(self, expression: str, argument: object = None) -> Any:
        """Wait until the JavaScript expression or function is true in the page; its value."""
        waited = await self.page.wait_for_function(
            expression, arg=argument, timeout=PATIENCE_S * 1000
        )
        return await waited.json_value()

    async def sees(self, what: str) -> Any:
        """What ``eyes.js`` finds in the page, such as ``nameless``."""
        return await self.page.evaluate("what => window.testEyes[what]()", what)

    async def listen(self) -> None:
        """Keep what the page's loudspeaker is given from now on, as soon as there is a line."""
        await self.until("() => window.testEars.start()")

    async def heard(self) -> Heard:
        """All since ``listen``."""
        taken = await self.page.evaluate("() => window.testEars.taken()")
        samples = np.frombuffer(base64.b64decode(taken["base64"]), "<i2")
        blocks = np.array(taken["blocks"], float).reshape(-1, 3)
        return Heard(_even(samples, blocks[:, 1:].astype(int)), RATE_HZ, blocks)

    async def sound(self, seconds: float, level: float = AUDIBLE) -> None:
        """Return after this much audio since ``listen``."""
        await self.until(
            "([level, least]) => window.testEars.loudS(level) >= least", [level, seconds]
        )

    async def first_sound_ms(self, level: float = AUDIBLE) -> float:
        """When the first audible sample since ``listen`` was heard: Unix milliseconds."""
        await self.until("level => window.testEars.firstMs(level) !== null", level)
        return float(await self.page.evaluate("level => window.testEars.firstMs(level)", level))

    async def stats(self, kind: str = "inbound-rtp") -> list[dict[str, Any]]:
        """``getStats`` of the page's open connections: the entries of one type."""
        every = await self.page.evaluate("() => window.testEars.stats()")
        return [each for each in every if each["type"] == kind]

    def complaints(self) -> list[str]:
        """Errors of the page, and requests that went beyond its origin."""
        patterns = [re.compile(each) for each in self.allowed_errors]
        errors = [each for each in self.errors if not any(p.search(each) for p in patterns)]
        outside = [each for each in self.requests if not self._inside(each)]
        others = [complaint for other in self.others for complaint in other.complaints()]
        return errors + [f"outside request: {each}" for each in outside] + others

    async def account(self) -> str:
        """What the page did so far, for the report of a test that failed."""
        shown = self.page.locator("#stage, #line, body:not(:has(#stage))")
        texts = await shown.all_inner_texts()
        text = "\n".join(line for line in "\n".join(texts).splitlines() if line.strip())[:1000]
        last = [str(each)[:200] for each in self.received[-5:]]
        return "\n".join([f"errors: {self.errors}", "the page shows:", text, "received:", *last])

    def _inside(self, url: str) -> bool:
        parts = urlsplit(url)
        if parts.scheme in LINK_SCHEMES:
            return True
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        return f"{scheme}://{parts.netloc}" == self.origin or url.startswith(self.origin + "/")

    def _watch(self) -> None:
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(f"thrown: {error}"))
        self.page.on("websocket", self._follow)
        self.page.on("crash", lambda _: self.errors.append("the page crashed"))
        self.page.on(
            "console",
            lambda line: self.errors.append(line.text) if line.type == "error" else None,
        )

    def _follow(self, socket: WebSocket) -> None:
        self.requests.append(socket.url)
        socket.on("framesent", lambda frame: self._read(self.sent, frame))
        socket.on("framereceived", lambda frame: self._read(self.received, frame))

    def _read(self, into: list[dict[str, Any]], frame: str | bytes) -> None:
        message = json.loads(frame)
        assert isinstance(message, dict), message
        into.append(message)
        self._news.set()


def _even(samples: Samples, blocks: NDArray[np.int_]) -> Samples:
    """All at one rate: Chromium gives a line's sound at its codec's own, once it knows that.

    ``blocks``: shape [blocks, 2], rate and samples of each.
    """
    runs: list[Samples] = []
    at = 0
    for rate_hz, run in groupby(blocks.tolist(), key=itemgetter(0)):
        count = sum(length for _, length in run)
        piece = samples[at : at + count].astype(float)
        at += count
        up = resample_poly(piece, RATE_HZ // 1000, rate_hz // 1000, window=("kaiser", 8.0))
        runs.append(np.clip(np.rint(up), -32768, 32767).astype(np.int16))
    return np.concatenate(runs) if runs else np.zeros(0, np.int16)


class Chromium:
    """A running browser."""

    def __init__(self, browser: Browser, microphone: Path) -> None:
        self.browser = browser
        self._microphone = microphone

    def says(self, samples: Samples, rate_hz: int) -> None:
        """What the microphone of the next visit will hear, from when it is opened; then silence.

        ``samples``: shape [n], one channel.
        """
        fresh = self._microphone.with_suffix(".new")
        with wave.open(str(fresh), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate_hz)
            file.writeframes(samples.astype("<i2").tobytes())
        fresh.replace(self._microphone)

    @asynccontextmanager
    async def visit(
        self,
        url: str | None = None,
        *,
        microphone: Literal["granted", "refused"] = "granted",
        theme: Literal["light", "dark"] = "light",
        width: int = 1280,
        height: int = 800,
        allowed_errors: Sequence[str] = (),
        strict: bool = True,
        **options: Any,
    ) -> AsyncIterator[Visit]:
        """A page, opened at ``url`` if given. ``options`` go to Playwright's ``new_context``.

        Raises: AssertionError at the end, if the page made errors or asked others (``strict``).
        """
        context = await self.browser.new_context(
            color_scheme=theme,
            viewport={"width": width, "height": height},
            permissions=["microphone"] if microphone == "granted" else [],
            accept_downloads=True,
            **options,
        )
        try:
            for script in SCRIPTS:
                await context.add_init_script(path=script)
            visit = Visit(await context.new_page(), context, allowed_errors=list(allowed_errors))
            visit._watch()
            try:
                if url is not None:
                    await visit.goto(url)
                yield visit
            except Exception as error:
                with suppress(Exception):
                    error.add_note(await visit.account())
                raise
            complaints = visit.complaints()
            assert not complaints or not strict, complaints
        finally:
            await context.close()
            self.says(SILENCE, RATE_HZ)


def arguments(microphone: Path | None) -> list[str]:
    """Chromium's command line; without a ``microphone`` the machine has no sound device."""
    flags = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--mute-audio",
        "--autoplay-policy=no-user-gesture-required",
        "--disable-features=WebRtcHideLocalIpsWithMdns",
        # No name but ours is found, whatever a page or the browser itself asks for.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    ]
    if microphone is not None:
        flags += [
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={microphone}%noloop",
        ]
    return flags


@asynccontextmanager
async def running_chromium(folder: Path, *, microphone: bool = True) -> AsyncIterator[Chromium]:
    """Start Chromium, and end it with all its processes.

    ``folder`` keeps the microphone's file; ``microphone`` False: a machine without one. The test
    is left out where Chromium or Playwright is missing.
    """
    require_program("chromium", "chromium")
    require_package("playwright", "pip install playwright")
    from playwright.async_api import Error, async_playwright

    file = folder / "microphone.wav"
    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(
                executable_path=PROGRAM, args=arguments(file if microphone else None)
            )
        except Error as error:
            leave_out(f"Chromium does not start here: {error}")
        chromium = Chromium(browser, file)
        chromium.says(SILENCE, RATE_HZ)
        try:
            yield chromium
        finally:
            await browser.close()
