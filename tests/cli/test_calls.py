from __future__ import annotations

import asyncio
import re
import wave
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_cli import answer, call
from qwen3tts_cli.exits import CutShort
from qwen3tts_cli.manner import Manner
from qwen3tts_cli.talk import Course, Telephone
from qwen3tts_cli.words import Words
from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_server.run import running_server
from qwen3tts_speech.latency import read_log
from tests.engine.fake_engine import FakeEngine

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
        manner=Manner(voice="tone"),
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

    monkeypatch.setattr(answer, "note", listen)
    return told


async def test_call_and_answer_speak_to_each_other_and_both_record_it(
    tmp_path: Path, addresses: asyncio.Queue[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(30), running_server(FakeEngine()) as server:
        words = Words(text="Good morning")
        answering = asyncio.create_task(
            answer.attend(telephone(tmp_path, "agent"), words, Course(), True, server.url)
        )
        uri = await addresses.get()
        longer = Words(text="Good morning, this is Bob", token_ms=5)
        with pytest.raises(CutShort):
            await call.place(uri, telephone(tmp_path, "bob"), longer, Course("42"), server.url)
        await answering
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
                Words(text="Good morning"),
                Course(),
                server.url,
            )
