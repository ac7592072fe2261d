"""``answer`` and ``call`` with the softphone's page beside them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from qwen3tts_cli import call
from qwen3tts_cli import softphone as softphone_told
from qwen3tts_cli.calls import answering
from qwen3tts_cli.calls.call_run import CallPlan
from qwen3tts_cli.calls.lines import LineOptions
from qwen3tts_cli.calls.listening_page import ListeningPageOptions, page_settings
from qwen3tts_cli.calls.text import TextSource
from qwen3tts_cli.options.page import TOKEN_ENV
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from tests.cli.test_calls import telephone
from tests.conftest import require_package
from tests.engine.fake_engine import FakeEngine

require_package("aiortc", "pip install 'mr_qwen3tts[webrtc]'")
require_package("aiohttp", "pip install 'mr_qwen3tts[webrtc]'")


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (None, None),
        ("8780", ("127.0.0.1", 8780)),
        ("0.0.0.0:8443", ("0.0.0.0", 8443)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_where_the_page_is(given: str | None, where: tuple[str, int] | None) -> None:
    options = ListeningPageOptions(given)
    options.check()
    assert options.where == where


@pytest.mark.parametrize("given", ["", "here", "127.0.0.1", ":80", "1.2.3.4:70000", "80:", "٣"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"\[HOST:\]PORT, such as 8780"):
        ListeningPageOptions(given).check()


def test_the_page_speaks_and_keeps_as_the_phone_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_ENV, "a-token-of-ones-own")
    records = RecordSettings(log=tmp_path / "calls.jsonl", audio=tmp_path, consent="tone")
    phone = PhoneSettings(
        server_url="ws://127.0.0.1:1/v1/speech", voice="alba", language="en", records=records
    )
    made = page_settings(("127.0.0.1", 8780), phone)
    assert [each.url for each in made.engines] == [phone.server_url]
    assert (made.voice, made.language, made.token) == ("alba", "en", "a-token-of-ones-own")
    assert made.records == RecordSettings(log=records.log, consent="tone")
    monkeypatch.setenv(TOKEN_ENV, "short")
    with pytest.raises(typer.BadParameter, match="token"):
        page_settings(("127.0.0.1", 8780), phone)


async def hello(url: str) -> dict[str, Any]:
    """What a page is told first."""
    import aiohttp

    address, _, token = url.partition("#token=")
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            f"{address}ws", protocols=["qwen3tts.softphone.v1"], origin=address.rstrip("/")
        ) as socket,
    ):
        await socket.send_json({"type": "hello", "token": token})
        told: dict[str, Any] = await socket.receive_json()
        return told


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[str]:
    """Addresses of the pages that are told."""
    told: asyncio.Queue[str] = asyncio.Queue()

    def tell(page: Any, *, open_it: bool = False) -> None:
        told.put_nowait(page.url)

    monkeypatch.setattr(softphone_told, "print_softphone", tell)
    return told


@pytest.mark.network
async def test_a_page_beside_answer_shows_the_calls_that_run(
    tmp_path: Path, pages: asyncio.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: asyncio.Queue[str] = asyncio.Queue()

    def listen(message: str) -> None:
        if found := re.search(r"Waiting for calls at (\S+)\.$", message):
            addresses.put_nowait(found[1])

    monkeypatch.setattr(answering, "note", listen)
    monkeypatch.delenv(TOKEN_ENV, raising=False)
    async with asyncio.timeout(30), running_server(FakeEngine()) as server:
        service = asyncio.create_task(
            answering.answer_calls(
                telephone(tmp_path, "agent"),
                TextSource(text="Good morning. " * 50),
                CallPlan(),
                server.url,
                LineOptions(once=True),
                page=ListeningPageOptions("0"),
            )
        )
        uri, url = await addresses.get(), await pages.get()
        told = await hello(url)
        assert (told["sip"]["dial"], told["sip"]["listen"], told["calls"]) == (True, True, [])
        async with Phone(link=SpeechLink("ws://127.0.0.1:1/v1/speech")) as caller:
            made = await caller.dial(uri)
            await made.answered()
            [entry] = (await hello(url))["calls"]
            assert (entry["line"], entry["direction"], entry["state"]) == ("sip", "in", "up")
            await made.hangup()
        await asyncio.gather(service, return_exceptions=True)


@pytest.mark.network
async def test_a_page_beside_call_shows_the_call_that_was_made(
    tmp_path: Path, pages: asyncio.Queue[str]
) -> None:
    async with (
        asyncio.timeout(30),
        running_server(FakeEngine()) as server,
        Phone(link=SpeechLink("ws://127.0.0.1:1/v1/speech")) as party,
    ):
        placing = asyncio.create_task(
            call.place(
                party.uri,
                telephone(tmp_path, "bob"),
                TextSource(text="Good morning. " * 50),
                CallPlan(),
                server.url,
                ListeningPageOptions("0"),
            )
        )
        taken = await anext(aiter(party))
        await taken.answer()
        [entry] = (await hello(await pages.get()))["calls"]
        assert (entry["direction"], entry["remote"]) == ("out", party.uri)
        await taken.hangup()
        await asyncio.gather(placing, return_exceptions=True)
