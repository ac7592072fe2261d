"""docs/recognisers.md says what is so, and its server runs as printed."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_agent.recognition import socket_protocol
from qwen3tts_agent.recognition.kinds import KINDS, recogniser_named
from qwen3tts_agent.recognition.settings import (
    API_KEY_ENV,
    DeepgramSettings,
    SocketSettings,
    TranscriptionSettings,
    WhisperSettings,
)
from tests.agent.recognition.sounds import Talk, tone

PAGE = (Path(__file__).resolve().parents[3] / "docs/recognisers.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("heading", "settings"),
    [
        ("## Whisper", WhisperSettings()),
        ("## OpenAI's transcription route", TranscriptionSettings()),
        ("## Deepgram", DeepgramSettings()),
    ],
)
def test_the_settings_are_those_that_there_are(heading: str, settings: Any) -> None:
    table = PAGE.partition(heading + "\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
    assert named == {field.name for field in dataclasses.fields(settings)}
    assert f"| `model` | `{settings.model}` |" in table


def test_each_kind_is_in_the_first_table() -> None:
    table = PAGE.partition("| name |")[2].partition("\n\n")[0]
    for kind in KINDS:
        assert f"| `{kind.name}" in table


def test_the_figures_are_those_of_the_code() -> None:
    settings = SocketSettings("ws://127.0.0.1/")
    assert API_KEY_ENV in PAGE
    assert socket_protocol.SUBPROTOCOL in PAGE
    assert f"at most {socket_protocol.MOST_BINARY:,} bytes" in PAGE
    assert f"at most {socket_protocol.MOST_TEXT:,} characters" in PAGE
    assert f"within {settings.open_timeout_s:g} s" in PAGE
    assert f"{settings.answer_timeout_s:g} s after its end" in PAGE
    assert f"more than {settings.behind_s:g} s of sound" in PAGE


def test_every_message_has_a_row() -> None:
    source = Path(socket_protocol.__file__).read_text("utf-8")
    sent = set(re.findall(r'"((?:turn\.\w+|start))"', source))
    assert sent
    read = set(re.findall(r'case "(\w+)"', source))
    rows = set(
        re.findall(r"^\| `([\w.]+)` \|", PAGE.partition("### What the call")[2], re.MULTILINE)
    )
    assert rows - {"type"} == sent | read


@pytest.mark.network
async def test_the_server_runs_as_it_is_printed(tmp_path: Path) -> None:
    (script,) = re.findall(r'```python\n("""A recogniser.*?)```', PAGE, re.DOTALL)
    path = tmp_path / "recogniser.py"
    path.write_text(script, "utf-8")
    async with asyncio.timeout(60):
        server = await asyncio.create_subprocess_exec(
            sys.executable, str(path), "0", stdout=asyncio.subprocess.PIPE
        )
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        recogniser = recogniser_named(url)
        await recogniser.warm()
        recognition = await recogniser.open()
        talk = Talk(recognition)
        for seconds in (1.0, 2.0):
            last = talk.turn(tone(seconds), pause_s=0.3)
            recognition.pause(last)
            text = (await recognition.end_turn(last)).text
            assert text == f"{seconds + 0.6:.1f} seconds"
        await recogniser.close()
        server.terminate()
        await server.communicate()
