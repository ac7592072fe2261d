"""`call --listen SECONDS`: what the other side says and presses after our words."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from qwen3tts_cli.exits import ExitCode
from qwen3tts_cli.main import run
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.phone import Phone
from qwen3tts_server.run import running_server
from tests.e2e.recogniser_server import recogniser_server

WITHIN_S = 60
QUESTION = "Will you come on Friday?"


async def calling(uri: str, server: str, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qwen3tts_cli.main", "call", uri, "--server", server),
        *("--host", "127.0.0.1", "--say", QUESTION, *options),
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def listens(process: asyncio.subprocess.Process) -> None:
    """Wait until it says that it listens."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        if b"Listening for" in line:
            return
    raise AssertionError("it has ended")


@pytest.mark.network
async def test_what_is_said_and_pressed_then_is_a_result() -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        recogniser_server(["yes, I will"]) as recogniser,
        Phone(server_url=server.url, announce=None) as far,
    ):
        process = await calling(far.uri, server.url, "--listen", "60", "--stt", recogniser)
        call = await anext(far.incoming())
        await call.answer()
        await listens(process)
        await call.say("Yes, I will come on Friday, at ten.")
        await call.send_dtmf("7", duration_ms=80)
        assert process.stdout is not None
        told = [(await process.stdout.readline()).decode().strip() for _ in range(2)]
        assert sorted(told) == ["heard yes, I will", "key 7"]
        await call.hangup()
        assert await process.wait() == ExitCode.OK


@pytest.mark.network
async def test_when_the_time_is_over_it_hangs_up() -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(server_url=server.url, announce=None) as far,
    ):
        process = await calling(far.uri, server.url, "--listen", "0.5")
        call = await anext(far.incoming())
        await call.answer()
        assert await call.ended() == "the other side hung up"
        assert await process.wait() == ExitCode.OK


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--say", "Hello.", "--listen", "0"), "--listen"),
        (("--say", "Hello.", "--stt", "ws://127.0.0.1:1/"), "--listen SECONDS"),
        (
            ("--llm", "http://127.0.0.1:1/v1", "--stt", "ws://127.0.0.1:1/", "--listen", "5"),
            "an agent listens already",
        ),
    ],
)
def test_options_that_contradict_each_other_are_told(
    options: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["call", "sip:bob@127.0.0.1:9", *options]) == ExitCode.USAGE
    assert named in " ".join(capsys.readouterr().err.replace("│", " ").split())
