"""docs/calls.md: its code runs as it is printed, and names what there is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import qwen3tts_agent
import qwen3tts_phone
from qwen3tts_agent import CallbackRecogniser
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone import Call, CallEnded, Phone, PhoneCall
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink

pytestmark = pytest.mark.network

PAGE = (Path(__file__).parents[2] / "docs" / "calls.md").read_text("utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def printed(name: str) -> Any:
    """The function of that name, as the page prints it."""
    (code,) = [each for each in CODE if f"def {name}(" in each]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/calls.md", "exec"), names)
    return names[name]


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async with running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as running:
        yield running.url


def mute() -> Phone:
    return Phone(link=SpeechLink("ws://127.0.0.1:1/v1/speech"))


async def coming(phone: Phone) -> PhoneCall:
    async with asyncio.timeout(10):
        return await anext(aiter(phone))


def test_every_name_on_the_page_is_there() -> None:
    table = PAGE.split("| | |")[1].split("| error |")[0]
    members = set(re.findall(r"`(?:call)?\.?(\w+)(?:\([^`]*\))?`", table))
    exported = {*dir(qwen3tts_phone), *dir(qwen3tts_agent)}
    known = {*dir(PhoneCall), *dir(Call), *exported, "call"}
    assert members - known == set()
    for name in re.findall(r"`([A-Z]\w+)`", PAGE):
        assert name in exported


async def test_somebody_is_called_and_greeted(server: str) -> None:
    async with mute() as other:
        greeting = asyncio.create_task(printed("greet")(server, other.uri))
        call = await coming(other)
        async with asyncio.timeout(20):
            await call.answer()
            assert await greeting == "Good morning. This is a machine."
            await call.ended()


async def test_a_caller_enters_a_number(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with Phone(server_url=server) as phone, mute() as other:
        reception = asyncio.create_task(printed("reception")(phone))
        async with asyncio.timeout(20):
            call = await other.dial(phone.uri)
            await call.answered()
            await call.send_dtmf("471#", duration_ms=60, gap_ms=40)
            assert await call.ended() == "the other side hung up"
        reception.cancel()
        with suppress(asyncio.CancelledError):
            await reception
    assert "heard of the question:" in capsys.readouterr().out


async def test_a_caller_chooses_and_enters_a_number(server: str) -> None:
    async with Phone(server_url=server) as phone, mute() as other:
        call = await other.dial(phone.uri)
        far = await coming(phone)
        async with asyncio.timeout(20):
            await far.answer()
            await call.answered()
            menu = asyncio.create_task(printed("menu")(far))
            await call.send_dtmf("2", duration_ms=60, gap_ms=40)
            await call.send_dtmf("471#", duration_ms=60, gap_ms=40)
            assert await menu == "2: 3 keys"
            await call.hangup()


async def test_what_the_far_end_says_is_repeated(server: str) -> None:
    said = iter(["hello", "goodbye"])

    async def next_words(samples: NDArray[np.int16], rate_hz: int) -> str:
        return next(said, "goodbye")

    async with Phone(server_url=server) as phone, Phone(server_url=server) as other:
        call = await other.dial(phone.uri)
        recogniser = CallbackRecogniser(next_words)
        repeating = asyncio.create_task(printed("repeat")(await coming(phone), recogniser))
        async with asyncio.timeout(30):
            await call.answered()
            while not repeating.done() and not call.over:
                await call.say("These are the words that are to be repeated.")
                await asyncio.wait({repeating}, timeout=2)
            await repeating
        await recogniser.close()
        await call.ended()
    assert next(said, "none is left") == "none is left"


async def test_a_part_is_recorded_and_the_events_are_told(server: str, tmp_path: Path) -> None:
    async with Phone(server_url=server) as phone, mute() as other:
        call = await other.dial(phone.uri)
        async with asyncio.timeout(20):
            events = await printed("keep")(await coming(phone), tmp_path)
            await call.ended()
    assert (tmp_path / "question.opus").read_bytes().startswith(b"OggS")
    assert isinstance(events[-1], CallEnded)
