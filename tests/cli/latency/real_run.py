"""Makes the logs, the page and the pictures of docs/latency.md with real calls.

Two telephones of ours call each other over SIP on this machine, and the embedded voice speaks. The
change between the two logs is a language model that writes a token every 25 ms in place of 60.

    python -m tests.cli.latency.real_run FOLDER [--pictures docs/pictures]
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

from qwen3tts_cli.latency.html import write_page
from qwen3tts_cli.latency.reading import find_logs, read_columns
from qwen3tts_cli.options.common import speech_server
from qwen3tts_phone import Call, CallError, Phone
from qwen3tts_speech.link import VoiceOptions
from tests.softphone.browser import running_chromium

CALLS = 24
AT_ONCE = 4
SENTENCES = (
    "Good morning, this is the pharmacy at the station. What can I do for you?",
    "One moment, please. I am looking for your order.",
    "It has come in, and you can fetch it until six.",
    "We also have it as drops, if you like those better.",
    "No, you need no prescription for that one, it is free.",
    "Thank you for calling. Goodbye.",
)
VOICES = ("en-us+f3", "en-gb")
BEFORE_TOKEN_S, AFTER_TOKEN_S = 0.060, 0.025
READY = "document.documentElement.dataset.ready === 'yes'"
NARROW = ("top",)
"""Of these there is a picture as a telephone shows it, too."""
SHOTS = {
    "top": ("header", "#hops .legend"),
    "hops": ("#hops", "#hops"),
    "compared": ("#compared", "#compared"),
    "spread": ("#distribution", "#distribution"),
    "time": ("#time", "#time"),
    "one": ("#utterances", "#utterances"),
}
"""Pictures: from the top of the one element to the bottom of the other."""


async def tokens(text: str, every_s: float, chance: random.Random) -> AsyncIterator[str]:
    """The text as a language model writes it: the first token takes longest."""
    await asyncio.sleep(chance.uniform(4, 8) * every_s)
    for word in text.split(" "):
        yield f"{word} "
        await asyncio.sleep(chance.uniform(0.5, 1.5) * every_s)


async def speak(call: Call, number: int, token_s: float) -> None:
    """All sentences of one call; now and then the caller cuts in."""
    chance = random.Random(number)
    options = VoiceOptions(voice=VOICES[number % len(VOICES)])
    try:
        await call.answer()
        for sentence in SENTENCES:
            said = call.speak(tokens(sentence, token_s, chance), options)
            if chance.random() < 0.2:
                await asyncio.sleep(chance.uniform(1.2, 1.8))
                call.interrupt()
            await said.spoken()
    finally:
        await call.hangup()


async def desk(phone: Phone, token_s: float) -> None:
    """Take calls as they come."""
    async with asyncio.TaskGroup() as group:
        for number in range(CALLS):
            group.create_task(speak(await anext(aiter(phone)), number, token_s))


async def caller(phone: Phone, target: str, places: asyncio.Semaphore) -> None:
    """Call, and listen until the other end hangs up."""
    async with places:
        try:
            call = await phone.dial(target)
            await call.answered()
            await call.ended()
        except CallError as error:
            print(error)


async def logged(log: Path, url: str, token_s: float) -> None:
    """All calls of one log."""
    log.unlink(missing_ok=True)
    async with (
        Phone(server_url=url, host="127.0.0.1", latency_log=log, max_calls=CALLS) as agent,
        Phone(server_url=url, host="127.0.0.1", max_calls=CALLS) as callers,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(desk(agent, token_s))
        places = asyncio.Semaphore(AT_ONCE)
        for _ in range(CALLS):
            group.create_task(caller(callers, f"sip:desk@127.0.0.1:{agent.port}", places))


async def pictures(page: Path, folder: Path) -> None:
    """The page's parts, light and dark, wide and narrow."""
    folder.mkdir(parents=True, exist_ok=True)
    async with running_chromium(page.parent) as chromium:
        for theme in ("light", "dark"):
            for width in (1120, 390):
                async with chromium.visit(theme=theme, width=width, height=900) as visit:
                    await visit.goto(page.as_uri())
                    await visit.until(READY)
                    await visit.page.wait_for_timeout(500)
                    for name, (first, last) in SHOTS.items():
                        if width < 500 and name not in NARROW:
                            continue
                        top = await visit.page.locator(first).first.bounding_box()
                        bottom = await visit.page.locator(last).first.bounding_box()
                        if top is None or bottom is None:
                            continue
                        y = max(0.0, top["y"] - 12)
                        await visit.page.screenshot(
                            path=folder / f"latency_{name}_{theme}_{width}.png",
                            full_page=True,
                            clip={
                                "x": 0,
                                "y": y,
                                "width": width,
                                "height": bottom["y"] + bottom["height"] + 12 - y,
                            },
                        )


async def main(folder: Path, shown: Path | None, *, run: bool) -> None:
    """Make it all."""
    folder.mkdir(parents=True, exist_ok=True)
    before, after, page = (folder / name for name in ("before.jsonl", "after.jsonl", "page.html"))
    if run:
        async with speech_server(None) as url:
            for log, token_s in ((before, BEFORE_TOKEN_S), (after, AFTER_TOKEN_S)):
                await logged(log, url, token_s)
    columns, old = (read_columns(find_logs([log]).files) for log in (after, before))
    write_page(columns, page, before=old, title="A faster language model")
    print(page)
    if shown is not None:
        await pictures(page, shown)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--logs-are-there", action="store_true")
    given = parser.parse_args()
    asyncio.run(main(given.folder, given.pictures, run=not given.logs_are_there))
