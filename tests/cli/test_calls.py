from __future__ import annotations

import asyncio
import json
import re
import socket
import wave
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_cli import call
from qwen3tts_cli.calls import answering
from qwen3tts_cli.calls.call_run import CallPlan
from qwen3tts_cli.calls.lines import LineOptions
from qwen3tts_cli.calls.phone import Telephone
from qwen3tts_cli.calls.text import TextSource
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.exits import CutShort
from qwen3tts_phone.dialling.retries import RedialResult, place_with_retries
from qwen3tts_phone.errors import CalleeUnreachable, CallRefused
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.settings.file import config_from
from qwen3tts_server.run import running_server
from qwen3tts_settings.entries import from_yaml
from qwen3tts_speech.latency import read_log
from qwen3tts_speech.link import SpeechLink
from tests.engine.fake_engine import FakeEngine
from tests.sip.certificates import Authority

pytestmark = pytest.mark.network


def telephone(folder: Path, name: str) -> Telephone:
    return Telephone(
        host="127.0.0.1",
        port=0,
        user=name,
        password_env="NONE",
        registrar=None,
        record=folder / f"{name}.wav",
        latency_log=folder / "calls.jsonl",
        speech_options=SpeechOptions(voice="tone"),
    )


def tracks(path: Path) -> tuple[int, int]:
    """How many samples of the caller's and of the agent's track are sound."""
    with wave.open(str(path)) as wav:
        samples = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").reshape(-1, 2)
    left, right = np.count_nonzero(np.abs(samples) > 500, axis=0)
    return int(left), int(right)


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[str]:
    """The SIP addresses at which ``answer`` waits, as it tells them."""
    told: asyncio.Queue[str] = asyncio.Queue()

    def listen(message: str) -> None:
        if found := re.search(r"Waiting for calls at (\S+)\.$", message):
            told.put_nowait(found[1])

    monkeypatch.setattr(answering, "note", listen)
    return told


async def test_call_and_answer_speak_to_each_other_and_both_record_it(
    tmp_path: Path, addresses: asyncio.Queue[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(30), running_server(FakeEngine()) as server:
        words = TextSource(text="Good morning")
        service = asyncio.create_task(
            answering.answer_calls(
                telephone(tmp_path, "agent"), words, CallPlan(), server.url, LineOptions(once=True)
            )
        )
        uri = await addresses.get()
        longer = TextSource(text="Good morning, this is Bob", token_ms=5)
        with pytest.raises(CutShort):
            await call.place(uri, telephone(tmp_path, "bob"), longer, CallPlan("42"), server.url)
        await service
    shown = capsys.readouterr()
    assert shown.out == "key 4\nkey 2\n"
    assert "Heard: Good morning\n" in shown.err
    for name in ("agent", "bob"):
        left, right = tracks(tmp_path / f"{name}.wav")
        assert left > 1000
        assert right > 1000
    ends = {record.end_reason for record in read_log(tmp_path / "calls.jsonl")}
    assert ends == {"text_end", "interrupted"}


async def test_a_phone_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with asyncio.timeout(60), running_server(FakeEngine()) as server:
        with pytest.raises(CalleeUnreachable):
            await call.place(
                "sip:bob@127.0.0.1:9;transport=tcp",
                telephone(tmp_path, "agent"),
                TextSource(text="Good morning"),
                CallPlan(),
                server.url,
            )


def quickly(waited: list[float]) -> Callable[..., Awaitable[RedialResult]]:
    """Calling again without the wait, which is noted."""

    async def place(*given: Any, now: Callable[[], float], **options: Any) -> RedialResult:
        async def no_wait(deadline: float) -> None:
            waited.append(deadline - now())

        return await place_with_retries(*given, now=now, **{**options, "sleep_until": no_wait})

    return place


async def busy_then_taken(phone: Phone, seen: list[str]) -> None:
    """Refuse the first call, take the second and hang up when something was said."""
    first = True
    async for incoming in phone.incoming():
        seen.append(incoming.headers.get("X-Case") or "")
        if first:
            first = False
            await incoming.reject(486)
            continue
        await incoming.answer()


@asynccontextmanager
async def callee(seen: list[str]) -> AsyncIterator[Phone]:
    link = SpeechLink("ws://127.0.0.1:9/v1/speech")
    async with Phone(PhoneSettings(), link=link) as phone:
        taking = asyncio.create_task(busy_then_taken(phone, seen))
        yield phone
        taking.cancel()
    await link.close()


def with_retries(text: str) -> Telephone:
    config = config_from(from_yaml("listen: {port: 0}\n" + text, "phone.yaml"), {})
    options = (None, None, None, "NONE", None, None, None, SpeechOptions(voice="tone"))
    return Telephone(*options, config=config, calling=True, headers={"X-Case": "7"})


async def test_a_busy_line_is_called_again_as_the_file_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    waited: list[float] = []

    async with asyncio.timeout(60), running_server(FakeEngine()) as server, callee(seen) as other:
        retry = with_retries("outbound: {retry: {attempts: 2, waits_s: [60], causes: [busy]}}")
        with monkeypatch.context() as patch:
            patch.setattr("qwen3tts_phone.dialling.retries.place_with_retries", quickly(waited))
            await call.place(other.uri, retry, TextSource(text="Good"), CallPlan(), server.url)
    assert seen == ["7", "7"]
    assert [round(each) for each in waited] == [60]
    told = capsys.readouterr().err
    assert "the line is busy. Next attempt in 60 s." in told
    assert "Heard: Good" in told


async def test_without_a_rule_a_busy_line_is_called_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[str] = []
    async with asyncio.timeout(60), running_server(FakeEngine()) as server, callee(seen) as other:
        with pytest.raises(CallRefused):
            await call.place(
                other.uri, with_retries(""), TextSource(text="Good"), CallPlan(), server.url
            )
    assert seen == ["7"]


async def test_two_files_of_settings_call_each_other_encrypted(
    tmp_path: Path, addresses: asyncio.Queue[str], capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    ours = authority.sign("desk", "127.0.0.1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tls = f"{{certificate: {ours.certificate}, key: {ours.key}, port: {port}}}"
    desk = f"""
listen: {{port: 0, user: desk, tls: {tls}}}
media: {{codecs: [G722, PCMA], srtp: require}}
records: {{log: {tmp_path}/calls.jsonl}}
"""
    bob = f"""
listen: {{port: 0, user: bob, tls: {{ca: {authority.file}}}}}
media: {{codecs: [PCMU, G722], srtp: require}}
"""
    options = (None, None, None, "NONE", None, None, None, SpeechOptions(voice="tone"))
    phones = [
        Telephone(*options, config=config_from(from_yaml(text, "phone.yaml"), {}))
        for text in (desk, bob)
    ]
    async with asyncio.timeout(60), running_server(FakeEngine()) as server:
        service = asyncio.create_task(
            answering.answer_calls(
                phones[0],
                TextSource(text="Good morning"),
                CallPlan(),
                server.url,
                LineOptions(once=True),
            )
        )
        await addresses.get()
        uri = f"sip:desk@127.0.0.1:{port};transport=tls"
        with pytest.raises(CutShort):
            await call.place(uri, phones[1], TextSource(text="Hello " * 99), CallPlan(), server.url)
        await service
    told = capsys.readouterr().err
    assert "Answered (G722)" in told
    assert "Heard: Good morning" in told
    (record,) = (tmp_path / "calls.jsonl").read_text("utf-8").splitlines()
    kept = json.loads(record)
    assert (kept["transport"], kept["codec"]) == ("tls", "G722")
    assert kept["srtp"]
    assert kept["diagnosis"] == ""
