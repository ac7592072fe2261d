"""Time until a voice can be used: over HTTP, our WebSocket, and WebRTC.

Everything begins with nothing connected. *HTTP* is a TCP connection and the first request answered;
*WebSocket* is a connection, the upgrade, `session.created` and the first answer of the clock;
*WebRTC* is the softphone's signalling (a WebSocket and its hello), the offer with all its
candidates, the answer, ICE and DTLS, until the connection is up. The far ends of WebRTC are aiortc
in this process and a headless Chromium.

*First sound* goes on from there to the first byte of sound of a sentence (HTTP, WebSocket), or to
its first packet (WebRTC): for who wants to hear something and not only to be connected. Round trips
are counted by the protocols (RFC 9293, 6455, 8445, 9147, and our signalling); the projection to a
network adds so many round trips of it to what was measured on this machine.

    python benchmarks/connection_setup.py [--quick] [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from common import Bench

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.softphone.server import Softphone
from qwen3tts_phone.softphone.settings import EngineSettings
from qwen3tts_server.run import running_server
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.events import Audio
from tests.softphone.far_browser import far_browser
from tests.softphone.page_client import PageClient

SENTENCE = "Good morning, how can I help you?"
CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox",
    # Else candidates are names that only multicast DNS knows.
    "--disable-features=WebRtcHideLocalIpsWithMdns",
)
RTTS_MS = (20, 100)
ROUND_TRIPS = {
    "HTTP": (2, "TCP, request"),
    "WebSocket": (4, "TCP, upgrade, session, clock"),
    "WebRTC, aiortc": (7, "TCP, upgrade, hello, offer, ICE, DTLS (2)"),
    "WebRTC, Chromium": (7, "TCP, upgrade, hello, offer, ICE, DTLS (2)"),
}


def since_ms(began: float) -> float:
    """Milliseconds since then."""
    return (time.perf_counter() - began) * 1000


async def http(speech_url: str) -> tuple[float, float]:
    """A list of models is the smallest answer there is; then the sentence as raw sound."""
    base = f"http://{urlsplit(speech_url).netloc}"
    began = time.perf_counter()
    async with aiohttp.ClientSession() as client:
        async with client.get(f"{base}/v1/models") as response:
            await response.read()
        connected = since_ms(began)
        asked = {
            "input": SENTENCE,
            "voice": "en",
            "response_format": "pcm",
            "stream_format": "audio",
        }
        async with client.post(f"{base}/v1/audio/speech", json=asked) as response:
            response.raise_for_status()
            await response.content.readany()
            first = since_ms(began)
            await response.read()
            return connected, first


async def websocket(speech_url: str) -> tuple[float, float]:
    """Our own protocol."""
    began = time.perf_counter()
    async with await SpeechClient.connect(speech_url) as client:
        connected = since_ms(began)
        context = await client.open()
        await context.append(SENTENCE)
        await context.end()
        first = float("nan")
        async for event in context:
            if isinstance(event, Audio):
                first = since_ms(began)
                break
        await context.cancel()
        return connected, first


async def aiortc(softphone: Softphone) -> tuple[float, float]:
    """The softphone's page, played by aiortc in this process; it hangs up again."""
    began = time.perf_counter()
    async with aiohttp.ClientSession() as client, far_browser(microphone=False) as far:
        page = await PageClient(softphone, client).open()
        await page.hello()
        await page.call(far, codec="PCMU", record=False, barge_in=False)
        connected = since_ms(began)
        await page.type(1, SENTENCE)
        sound = await first_sound(far)
        first = (sound - began) * 1000
        await page.send("hangup")
        await page.until("state", state="ended")
        await page.socket.close()
        return connected, first


async def first_sound(far: Any) -> float:
    """Arrival of the first packet that is no silence: 0xFF and 0x7F are zero in µ-law."""
    seen = 0
    while True:
        for packet in far.packets[seen:]:
            if set(packet.payload) - {0xFF, 0x7F, 0xFE, 0x7E}:
                return time.perf_counter()
        seen = len(far.packets)
        await far.until(seen + 1)


IN_THE_PAGE = """async ([url, token, protocol]) => {
  const began = performance.now();
  const socket = new WebSocket(url, protocol);
  const waiting = new Map();
  const told = (kind) => new Promise((resolve) => waiting.set(kind, resolve));
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    waiting.get(message.type)?.(message);
  };
  await new Promise((resolve, reject) => { socket.onopen = resolve; socket.onerror = reject; });
  const hello = told("hello");
  socket.send(JSON.stringify({type: "hello", token}));
  await hello;
  const peer = new RTCPeerConnection();
  peer.addTransceiver("audio", {direction: "recvonly"});
  await peer.setLocalDescription(await peer.createOffer());
  while (peer.iceGatheringState !== "complete")
    await new Promise((resolve) => peer.addEventListener("icegatheringstatechange", resolve));
  const answer = told("answer");
  const wishes = {codec: "opus", record: false, barge_in: false};
  socket.send(JSON.stringify({type: "call", sdp: peer.localDescription.sdp, ...wishes}));
  await peer.setRemoteDescription({type: "answer", sdp: (await answer).sdp});
  while (peer.connectionState !== "connected")
    await new Promise((resolve) => peer.addEventListener("connectionstatechange", resolve));
  const ms = performance.now() - began;
  const ended = told("state");
  socket.send(JSON.stringify({type: "hangup"}));
  await ended;
  peer.close();
  socket.close();
  return ms;
}"""


async def setup_times(
    speech_url: str, softphone: Softphone, rounds: int, page: Any = None
) -> dict[str, list[tuple[float, float]]]:
    """Times of all ways by turns, so that what the machine does meanwhile meets each alike.

    ``page``: a page of Playwright's at the softphone's address; None = without Chromium.
    """
    from qwen3tts_phone.softphone.messages import PROTOCOL

    async def chromium() -> tuple[float, float]:
        url = f"ws://127.0.0.1:{softphone.port}/ws"
        ms = await page.evaluate(IN_THE_PAGE, [url, softphone.token, PROTOCOL])
        return float(ms), float("nan")

    ways: dict[str, Callable[[], Awaitable[tuple[float, float]]]] = {
        "HTTP": lambda: http(speech_url),
        "WebSocket": lambda: websocket(speech_url),
        "WebRTC, aiortc": lambda: aiortc(softphone),
    }
    if page is not None:
        ways["WebRTC, Chromium"] = chromium
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            async with asyncio.timeout(60):
                times = await way()
            if number:  # the first round loads code
                taken[name].append(times)
    return taken


def rows(taken: dict[str, list[tuple[float, float]]]) -> list[list[Any]]:
    """A line a way: what was measured, and what networks make of it."""
    made = []
    for name, times in taken.items():
        connected = sorted(each for each, _ in times)
        p50 = statistics.median(connected)
        sound = statistics.median(each for _, each in times)
        trips, which = ROUND_TRIPS[name]
        far = [p50 + trips * rtt for rtt in RTTS_MS]
        p95 = connected[min(len(connected) - 1, round(0.95 * len(connected)))]
        made.append([name, p50, p95, "-" if sound != sound else sound, trips, *far, which])
    return made


COLUMNS = (
    *("way", "connected p50 ms", "p95 ms", "first sound p50 ms", "round trips"),
    *(f"at {rtt} ms RTT" for rtt in RTTS_MS),
    "which",
)
TITLE = "From nothing to a voice that can be used"


async def measured(bench: Bench, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Server, softphone and browser, and so many rounds."""
    async with (
        running_server(EmbeddedEngine()) as server,
        Softphone(engines=(EngineSettings(server.url),), port=0) as softphone,
    ):
        if shutil.which(CHROMIUM) is None:
            bench.note(f"{CHROMIUM} is not there: no browser in the table.")
            return await setup_times(server.url, softphone, rounds)
        from playwright.async_api import async_playwright

        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            page = await browser.new_page()
            await page.goto(f"http://127.0.0.1:{softphone.port}/static/icon.svg")
            return await setup_times(server.url, softphone, rounds, page)


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=0)
    bench = Bench("connection_setup", "from nothing to a voice that can be used", parser)
    rounds = bench.args.rounds or (5 if bench.quick else 40)
    taken = asyncio.run(measured(bench, rounds))
    bench.table(TITLE, COLUMNS, rows(taken))
    figures = {
        f"{name.lower().replace(', ', '_')}_ms_p50": round(
            statistics.median(x for x, _ in times), 1
        )
        for name, times in taken.items()
    }
    bench.figure(**figures)


if __name__ == "__main__":
    main()
