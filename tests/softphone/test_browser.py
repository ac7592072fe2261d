"""The tests' own instruments: the browser hears what was sent, and a page that errs is caught."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import require_package
from tests.softphone.browser import Chromium, running_chromium

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

PAGE = (
    "<!doctype html><title>loop</title><audio id=ear autoplay></audio><script src=loop.js></script>"
)
LOOP = """
async function open() {
  const voice = await navigator.mediaDevices.getUserMedia(
    { audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false } });
  const [near, far] = [new RTCPeerConnection(), new RTCPeerConnection()];
  near.onicecandidate = ({ candidate }) => far.addIceCandidate(candidate);
  far.onicecandidate = ({ candidate }) => near.addIceCandidate(candidate);
  far.ontrack = ({ streams }) => { document.getElementById("ear").srcObject = streams[0]; };
  near.addTrack(voice.getTracks()[0], voice);
  await near.setLocalDescription();
  await far.setRemoteDescription(near.localDescription);
  await far.setLocalDescription();
  await near.setRemoteDescription(far.localDescription);
}
window.outcome = null;
open().then(() => { window.outcome = "open"; }, (error) => { window.outcome = error.name; });
"""
STRICT = "default-src 'self'"
LAX = "default-src * data: blob: 'unsafe-inline'"


@asynccontextmanager
async def site(script: str, policy: str = STRICT) -> AsyncIterator[str]:
    """A page with that script, under that policy."""
    web = require_package("aiohttp.web", "pip install 'mr_qwen3tts[webrtc]'")

    async def answer(request: object) -> object:
        name = getattr(request, "path", "")
        kind = "text/javascript" if name.endswith(".js") else "text/html"
        text = script if name.endswith(".js") else PAGE
        headers = {"content-security-policy": policy}
        return web.Response(text=text, content_type=kind, headers=headers)

    app = web.Application()
    app.router.add_get("/{name:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        listener = web.TCPSite(runner, "127.0.0.1", 0)
        await listener.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/"
    finally:
        await runner.cleanup()


def tone(hz: float, seconds: float) -> NDArray[np.int16]:
    time_s = np.arange(int(48_000 * seconds)) / 48_000
    return (8000 * np.sin(2 * np.pi * hz * time_s)).astype(np.int16)


@pytest.mark.parametrize("hz", [440.0, 1000.0])
async def test_what_the_microphone_says_is_what_comes_out_of_a_line(
    chromium: Chromium, hz: float
) -> None:
    chromium.says(tone(hz, 4.0), 48_000)
    async with site(LOOP) as url, chromium.visit(url) as visit:
        await visit.listen()
        await visit.sound(1.0)
        heard = await visit.heard()
        stats = await visit.stats()
    assert heard.rate_hz == 48_000
    assert heard.loud_s() >= 1.0
    seconds = (heard.blocks[:, 2] / heard.blocks[:, 1]).sum()
    assert seconds == pytest.approx(len(heard.samples) / 48_000)
    spectrum = np.abs(np.fft.rfft(heard.samples[-24_000:]))
    assert np.argmax(spectrum) * 2 == pytest.approx(hz, abs=4)
    assert [each["kind"] for each in stats] == ["audio"]


async def test_a_page_may_be_refused_the_microphone(chromium: Chromium) -> None:
    async with site(LOOP) as url, chromium.visit(url, microphone="refused") as visit:
        assert await visit.until("() => window.outcome") == "NotAllowedError"


async def test_a_machine_may_have_no_microphone(tmp_path: Path) -> None:
    async with (
        running_chromium(tmp_path, microphone=False) as deaf,
        site(LOOP) as url,
        deaf.visit(url) as visit,
    ):
        assert await visit.until("() => window.outcome") == "NotFoundError"


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("window.outcome = 1; console.error('no good');", "no good"),
        ("window.outcome = 1; throw new Error('broken');", "broken"),
        (
            "fetch('http://outside.example/').catch(() => {}).then(() => { window.outcome = 1; });",
            "outside request: http://outside.example/",
        ),
        (
            "new RTCPeerConnection({iceServers: [{urls: 'stun:outside.example'}]});"
            "window.outcome = 1;",
            "stun:outside.example",
        ),
        (
            "new WebSocket('ws://outside.example/').onerror = () => { window.outcome = 1; };",
            "outside request: ws://outside.example/",
        ),
    ],
)
async def test_a_page_that_errs_or_asks_others_is_caught(
    chromium: Chromium, script: str, complaint: str
) -> None:
    async with site(script, LAX) as url:
        with pytest.raises(AssertionError, match=complaint):
            async with chromium.visit(url) as visit:
                await visit.until("() => window.outcome")


async def test_a_page_that_would_break_its_own_policy_is_caught(chromium: Chromium) -> None:
    script = "fetch('http://outside.example/').catch(() => {}).then(() => { window.outcome = 1; });"
    async with site(script) as url:
        with pytest.raises(AssertionError, match="violates"):
            async with chromium.visit(url) as visit:
                await visit.until("() => window.outcome")


async def test_an_error_that_a_test_brings_about_may_be_allowed(chromium: Chromium) -> None:
    script = "window.outcome = 1; console.error('as meant');"
    async with site(script) as url, chromium.visit(url, allowed_errors=["as meant"]) as visit:
        await visit.until("() => window.outcome")
