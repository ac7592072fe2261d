"""What `answer` finds at its start: good parts are said, faults that will not pass end it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from qwen3tts_cli.main import run
from qwen3tts_cli.output.exits import ExitCode
from tests.cli.preflight.servers import Servers
from tests.e2e.test_agent_command import running

pytestmark = pytest.mark.network
WITHIN_S = 60
MODEL = ("--llm", "http://127.0.0.1:1/v1", "--check-seconds", "0")


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as there:
        yield there


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("line", ["sip:0", "audiosocket:0", "asterisk:0"])
async def test_words_and_voice_are_said_on_every_line(
    servers: Servers, tmp_path: Path, line: str
) -> None:
    file = tmp_path / "words.txt"
    file.write_text("We are closed today.", "utf-8")
    async with (
        asyncio.timeout(WITHIN_S),
        running(
            *("answer", "--file", str(file), "--line", line, "--server", servers.speech),
        ) as command,
    ):
        await command.tells(r"Waiting for calls at")
    assert command.told.count(f"Text: {file} is ready.") == 1
    (voice,) = re.findall(r"Voice: .* at (\S+) is ready\.", command.told)
    assert voice == servers.speech


async def test_a_recogniser_that_may_come_later_is_said_and_waited_for(servers: Servers) -> None:
    stt = f"ws://127.0.0.1:{closed_port()}/"
    async with (
        asyncio.timeout(WITHIN_S),
        running(
            *("answer", *MODEL, "--stt", stt, "--port", "0", "--server", servers.speech)
        ) as command,
    ):
        await command.tells(r"Recogniser: not ready\. .*")
        await command.tells(r"Waiting for calls at")


def told_and_ended(capsys: pytest.CaptureFixture[str], sentence: str) -> None:
    """Standard error holds the sentence once, with a remedy, and no address to call."""
    told = " ".join(capsys.readouterr().err.split())
    assert told.count(sentence) == 1, told
    assert told.count("Remedy: ") == 1, told
    assert "Waiting for calls" not in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "words.txt is empty"),
        (b"***", "words.txt has no speakable text"),
        (b"Good morning.\n\xe9", "words.txt is not UTF-8 text: see byte 14"),
    ],
)
def test_a_file_that_cannot_be_spoken_ends_the_start(
    servers: Servers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    sentence: str,
) -> None:
    file = tmp_path / "words.txt"
    file.write_bytes(content)
    ended = run(["answer", "--file", str(file), "--port", "0", "--server", servers.speech])
    assert ended == ExitCode.USAGE
    told_and_ended(capsys, sentence)


def test_a_recogniser_that_cannot_work_ends_the_start(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stt = ("--stt", f"whisper:{tmp_path}")
    ended = run(["answer", *MODEL, *stt, "--port", "0", "--server", servers.speech])
    assert ended == ExitCode.UNAVAILABLE
    told_and_ended(capsys, "holds no Whisper model for CTranslate2")


@pytest.mark.parametrize("line", ["sip:0", "audiosocket:0"])
def test_a_voice_that_is_none_ends_the_start(
    servers: Servers, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    arguments = ["answer", "--say", "Hello.", "--line", line, "--server", servers.speech]
    assert run([*arguments, "--voice", "none"]) == ExitCode.USAGE
    told_and_ended(capsys, "'none'")


@pytest.mark.parametrize("line", ["sip:0", "audiosocket:0"])
def test_a_speech_server_that_is_not_there_ends_the_start(
    capsys: pytest.CaptureFixture[str], line: str
) -> None:
    server = f"ws://127.0.0.1:{closed_port()}/v1/speech"
    ended = run(["answer", "--say", "Hello.", "--line", line, "--server", server])
    assert ended == ExitCode.UNAVAILABLE
    told_and_ended(capsys, "No speech server answers")
