"""`call --listen SECONDS`: what the other side says and presses after our words, or while one types
them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qwen3tts_cli.main import run
from qwen3tts_cli.output.exits import ExitCode
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.phone import Phone
from qwen3tts_server.run import running_server
from tests.agent.endpoint import ChatEndpoint, says
from tests.conftest import require_package
from tests.e2e.recogniser_server import recogniser_server
from tests.e2e.test_agent_command import Command, running

WITHIN_S = 60
QUESTION = "Will you come on Friday?"
LONG_GREETING = "This is the bakery Miller in Station Road, a very good morning to you!"


@asynccontextmanager
async def calling(
    uri: str, server: str, *options: str, words: tuple[str, ...] = ("--say", QUESTION)
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qwen3tts_cli.main", "call", uri, "--server", server),
        *("--host", "127.0.0.1", *words, *options),
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "COLUMNS": "200"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def greeting_agent(
    endpoint: ChatEndpoint, recogniser: str, server: str, greeting: str, *options: str
) -> AsyncIterator[tuple[Command, str]]:
    """`answer` with an agent that greets; the command, and where it can be called."""
    async with running(
        *("answer", "--llm", endpoint.url, "--stt", recogniser, "--port", "0", "--once"),
        *("--greeting", greeting, "--server", server, *options),
    ) as command:
        yield command, await command.tells(r"Waiting for calls at (\S+)\.")


async def listens(process: asyncio.subprocess.Process) -> str:
    """Wait until it says that it listens; all that it has said."""
    assert process.stderr is not None
    told = ""
    while line := await process.stderr.readline():
        told += line.decode()
        if b"Listening for" in line:
            return told
    raise AssertionError("it has ended")


@pytest.mark.network
async def test_what_is_said_and_pressed_then_is_a_result() -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        recogniser_server(["yes, I will"]) as recogniser,
        Phone(server_url=server.url, announce=None) as far,
        calling(far.uri, server.url, "--listen", "60", "--stt", recogniser) as process,
    ):
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
async def test_a_whisper_that_was_not_asked_for_and_does_not_load_leaves_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_package("faster_whisper", "pip install 'mr_qwen3tts[stt]'")
    damaged_model(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(server_url=server.url, announce=None) as far,
        calling(far.uri, server.url, "--listen", "60", "--language", "en") as process,
    ):
        call = await anext(far.incoming())
        await call.answer()
        told = await listens(process)
        await call.send_dtmf("7", duration_ms=80)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"key 7\n"
        await call.hangup()
        assert await process.wait() == ExitCode.OK
    assert "Recogniser: not ready." in told


def damaged_model(cache: Path) -> None:
    """Write a Whisper model that is found in this hub's cache and cannot be loaded."""
    repository = cache / "models--Systran--faster-whisper-base.en"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123")
    files = repository / "snapshots" / "0123"
    files.mkdir(parents=True)
    (files / "model.bin").write_bytes(b"\x06\x00\x00\x00\x0c\x00WhisperSpec\0")
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (files / name).write_text("{}")


@pytest.mark.network
async def test_a_greeting_does_not_cut_off_what_we_say() -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(says("Yes, at ten.")) as endpoint,
        recogniser_server([QUESTION]) as callers,
        recogniser_server(["the greeting and the answer"]) as agents,
        # It speaks over all that we say: our voice does not end its greeting.
        greeting_agent(endpoint, callers, server.url, LONG_GREETING, "--no-barge-in") as (_, uri),
        calling(uri, server.url, "--listen", "8", "--stt", agents) as process,
    ):
        out, told = await process.communicate()
        assert process.returncode == ExitCode.OK, told.decode()
    assert "The caller interrupts" not in told.decode()
    assert f"Heard: {QUESTION}" in told.decode()
    assert b"heard the greeting and the answer" in out


@pytest.mark.network
@pytest.mark.parametrize("option", [(), ("--barge-in",)])
async def test_replies_to_what_is_typed_leave_alone_what_is_typed_next(
    option: tuple[str, ...],
) -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(says("Yes, at ten.")) as endpoint,
        recogniser_server(["typed"] * 9) as callers,
        recogniser_server(["reply"] * 9) as agents,
        greeting_agent(endpoint, callers, server.url, "Bakery Miller!") as (agent, uri),
        calling(
            uri, server.url, "--listen", "0.5", "--stt", agents, *option, words=("--stdin",)
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        await agent.tells(r"the greeting")
        for line in ("Will you come?\n", "Is there bread?\n"):
            assert await process.stdout.readline() == b"heard reply\n"
            process.stdin.write(line.encode())
        await agent.tells(r"Turn 3 \(an answer\)")
        process.stdin.close()
        out, err = await process.communicate()
        told = err.decode()
        assert process.returncode == ExitCode.OK, told
    assert b"heard reply" in out
    assert "The caller interrupts" not in told
    assert "Not heard" not in told
    assert "Will you come?" in told
    assert "Is there bread?" in told


@pytest.mark.network
async def test_when_the_time_is_over_it_hangs_up() -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(server_url=server.url, announce=None) as far,
        calling(far.uri, server.url, "--listen", "0.5") as process,
    ):
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
            "the agent listens already",
        ),
    ],
)
def test_options_that_contradict_each_other_are_told(
    options: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["call", "sip:bob@127.0.0.1:9", *options]) == ExitCode.USAGE
    assert named in " ".join(capsys.readouterr().err.replace("│", " ").split())
