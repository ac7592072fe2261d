"""`answer --llm URL --stt NAME` is a complete agent, over SIP and over a PBX's stream."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import struct
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_cli.output.exits import ExitCode
from qwen3tts_engine.base import SAMPLE_RATE
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_server.run import running_server
from tests.agent.endpoint import Answer, ChatEndpoint, Uses, says
from tests.agent.recognition.real_whisper import natural_speech, real_whisper
from tests.conftest import require_package
from tests.e2e.agent_parties import spoken
from tests.e2e.parties import Ear
from tests.e2e.recogniser_server import recogniser_server

pytestmark = pytest.mark.network

QUESTION = "Do you have rye bread today?"
GREETING = "Bakery Miller, good morning!"
GOODBYE = Answer(["Yes, and it is warm. Good bye.", Uses("hang_up")], finish="tool_calls")


class Command:
    """``mr-qwen3tts`` as a process; what it tells."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told = ""

    async def tells(self, pattern: str) -> str:
        """Wait for a line that fits; its last group."""
        assert self.process.stderr is not None
        while True:
            line = (await self.process.stderr.readline()).decode()
            assert line, f"it ended: {self.told}"
            self.told += line
            if found := re.search(pattern, line):
                return found[found.re.groups]

    async def rest(self) -> str:
        """All that it tells to its end."""
        assert self.process.stderr is not None
        self.told += (await self.process.stderr.read()).decode()
        await self.process.wait()
        return self.told


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Command]:
    """``mr-qwen3tts`` with these arguments."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qwen3tts_cli.main", *arguments),
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "COLUMNS": "200"},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_the_command_is_a_whole_agent_on_the_telephone(tmp_path: Path) -> None:
    log = tmp_path / "talks.jsonl"
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(GOODBYE) as endpoint,
        recogniser_server([QUESTION]) as recogniser,
        running(
            *("answer", "--llm", endpoint.url, "--stt", recogniser, "--greeting", GREETING),
            *("--system", "You sell bread.", "--port", "0", "--server", server.url, "--once"),
            *("--conversation-log", str(log), "--transcript"),
        ) as command,
        Phone(PhoneSettings(server_url=server.url)) as phone,
    ):
        call = await phone.dial(await command.tells(r"Waiting for calls at (\S+)\."))
        await call.answered()
        ear = Ear(call)
        await ear.sound(0.5)
        await command.tells(r"the greeting")
        await call.say(QUESTION)
        assert await call.ended() == "the other side hung up"
        told = await command.rest()
        assert command.process.returncode == 0, told
    assert f"Caller: {QUESTION}" in told
    assert "Agent: Yes, and it is warm. Good bye." in told
    assert re.search(r"heard \d+ ms after the caller's last word", told)
    assert endpoint.requests[0].messages[0]["content"].startswith("You sell bread.")
    assert endpoint.requests[0].said[-2:] == [("assistant", GREETING), ("user", QUESTION)]
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert lines[1]["words"]["caller"] == QUESTION


async def test_a_real_whisper_understands_who_calls_the_command() -> None:
    require_package("faster_whisper", "pip install faster-whisper")
    whisper = f"whisper:{real_whisper()}"
    (asks,) = await natural_speech("Good morning. Do you have fresh bread today?")
    async with (
        asyncio.timeout(180),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(GOODBYE) as endpoint,
        running(
            *("answer", "--llm", endpoint.url, "--stt", whisper, "--greeting", "Hello."),
            *("--port", "0", "--server", server.url, "--once", "--language", "en-GB"),
        ) as command,
        Phone(PhoneSettings(server_url=server.url)) as phone,
    ):
        call = await phone.dial(await command.tells(r"Waiting for calls at (\S+)\."))
        await call.answered()
        await command.tells(r"the greeting")
        assert await call.play(asks, SAMPLE_RATE)
        await call.ended()
        told = await command.rest()
        assert command.process.returncode == 0, told
    users = " ".join(text for role, text in endpoint.requests[-1].said if role == "user")
    assert "good morning" in users.lower()


async def test_nobodys_words_are_told_or_written_unless_that_is_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "talks.jsonl"
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(GOODBYE) as endpoint,
        recogniser_server([QUESTION]) as recogniser,
        running(
            *("answer", "--llm", endpoint.url, "--stt", recogniser, "--port", "0", "--once"),
            *("--server", server.url, "--prompt", "Say nothing.", "--greeting", "Hello."),
            *("--conversation-log", str(log)),
        ) as command,
        Phone(PhoneSettings(server_url=server.url)) as phone,
    ):
        call = await phone.dial(await command.tells(r"Waiting for calls at (\S+)\."))
        await call.answered()
        await command.tells(r"the greeting")
        await call.say(QUESTION)
        await call.ended()
        told = await command.rest()
    for text in (told, log.read_text("utf-8")):
        assert "rye" not in text
        assert "warm" not in text
    assert "Turn 2 (an answer): heard" in told


async def test_the_command_answers_what_asterisk_streams_to_it(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(GOODBYE) as endpoint,
        recogniser_server([QUESTION]) as recogniser,
        running(
            *("answer", "--llm", endpoint.url, "--stt", recogniser, "--greeting", GREETING),
            *("--line", "audiosocket:0", "--server", server.url, "--once"),
            *("--call-log", str(tmp_path / "calls.jsonl")),
        ) as command,
    ):
        address = await command.tells(r"Waiting for calls at (\S+) \(audiosocket\)\.")
        question = await spoken(QUESTION)
        async with AudioSocketChannel.connect(address) as channel:
            await channel.hears_sound()
            await command.tells(r"the greeting")
            channel.say(question)
            await channel.hung_up()
        told = await command.rest()
        assert command.process.returncode == 0, told
    assert endpoint.requests[0].said[-1] == ("user", QUESTION)
    record = json.loads((tmp_path / "calls.jsonl").read_text("utf-8"))
    assert (record["line"], record["turns"]) == ("audiosocket", 1)


async def test_the_command_calls_somebody_and_talks_with_him() -> None:
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(says("Good morning, how was the day?"), GOODBYE) as endpoint,
        recogniser_server(["It was fine."]) as recogniser,
        Phone(PhoneSettings(server_url=server.url)) as phone,
        running(
            *("call", phone.uri, "--llm", endpoint.url, "--stt", recogniser),
            *("--prompt", "Ask how the day was.", "--server", server.url),
        ) as command,
    ):
        call = await anext(phone.incoming())
        await call.answer()
        await command.tells(r"the greeting")
        await call.say("It was fine, thank you.")
        assert await call.ended() == "the other side hung up"
        told = await command.rest()
        assert command.process.returncode == 0, told
    first, second = endpoint.requests
    assert first.said == [("user", "Ask how the day was.")]
    assert second.said[-2:] == [
        ("assistant", "Good morning, how was the day?"),
        ("user", "It was fine."),
    ]


async def test_a_model_that_is_not_there_is_told_and_is_an_error_of_its_own() -> None:
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        recogniser_server([]) as recogniser,
        running(
            *("answer", "--llm", "http://127.0.0.1:9/v1", "--stt", recogniser, "--port", "0"),
            *("--server", server.url, "--once"),
        ) as command,
        Phone(PhoneSettings(server_url=server.url)) as phone,
    ):
        await command.tells(r"(Language model: not ready\. .* cannot be reached)")
        call = await phone.dial(await command.tells(r"Waiting for calls at (\S+)\."))
        await command.tells(r"(cannot be reached)")
        await call.hangup()
        told = await command.rest()
        assert command.process.returncode == ExitCode.UNAVAILABLE
    assert "Check that it runs and that host and port are right." in told


async def test_several_lines_are_answered_by_one_agent_and_drained_together() -> None:
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(says("Hello.")) as endpoint,
        recogniser_server([]) as recogniser,
        running(
            *("answer", "--llm", endpoint.url, "--stt", recogniser, "--greeting", GREETING),
            *("--line", "sip:0", "--line", "audiosocket:0", "--line", "asterisk:0"),
            *("--server", server.url, "--drain-seconds", "30"),
        ) as command,
        Phone(PhoneSettings(server_url=server.url)) as phone,
    ):
        sip = await command.tells(r"Waiting for calls at (sip:\S+)\.")
        assert (await command.tells(r"Waiting for calls at (ws:\S+)\.")).endswith("/asterisk")
        tcp = await command.tells(r"Waiting for calls at (\S+) \(audiosocket\)\.")
        async with AudioSocketChannel.connect(tcp) as channel:
            await channel.hears_sound()
            call = await phone.dial(sip)
            await Ear(call).sound(0.3)
            command.process.send_signal(signal.SIGTERM)
            await command.tells(r"2 calls may still run")
            await call.hangup()
        await command.rest()
        assert command.process.returncode == 0


class AudioSocketChannel:
    """A channel of Asterisk that runs AudioSocket: 8 kHz, a frame each 20 ms."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sound: asyncio.Queue[NDArray[np.int16]] = asyncio.Queue()
        self._over = asyncio.Event()
        self._sounding = asyncio.Event()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._talk())]

    @classmethod
    @asynccontextmanager
    async def connect(cls, address: str) -> AsyncIterator[AudioSocketChannel]:
        """A call; it is hung up with the block."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(struct.pack("!BH", 0x01, 16) + uuid.uuid4().bytes)
        channel = cls(reader, writer)
        try:
            yield channel
        finally:
            for task in channel._tasks:
                task.cancel()
            await asyncio.gather(*channel._tasks, return_exceptions=True)
            with suppress(ConnectionError):
                writer.write(struct.pack("!BH", 0x00, 0))
                writer.close()
                await writer.wait_closed()

    def say(self, samples: NDArray[np.int16]) -> None:
        self._sound.put_nowait(samples)

    async def hears_sound(self) -> None:
        await self._sounding.wait()

    async def hung_up(self) -> None:
        await self._over.wait()

    async def _read(self) -> None:
        try:
            while True:
                kind, size = struct.unpack("!BH", await self._reader.readexactly(3))
                payload = await self._reader.readexactly(size)
                if kind == 0x00:
                    break
                if np.abs(np.frombuffer(payload, "<i2").astype(int)).max(initial=0) > 200:
                    self._sounding.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        self._over.set()

    async def _talk(self) -> None:
        """The telephone's clock: silence where nothing is said."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        rest = np.zeros(0, np.int16)
        while not self._over.is_set():
            if not len(rest) and not self._sound.empty():
                rest = self._sound.get_nowait()
            frame, rest = rest[:160], rest[160:]
            padded = np.pad(frame, (0, 160 - len(frame))).astype("<i2").tobytes()
            self._writer.write(struct.pack("!BH", 0x10, len(padded)) + padded)
            due += 0.02
            await asyncio.sleep(max(0.0, due - loop.time()))
