"""The agent of the README and of docs/agent.md, run as it is printed, on a real call."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone import Phone
from qwen3tts_server.run import running_server
from tests.agent.endpoint import ChatEndpoint, says
from tests.e2e.parties import Ear

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
QUESTION = "Do you have rye bread today?"
MODEL_PORT, SIP_PORT = 11434, 5060
"""As printed: a model's and SIP's own."""
NOTHING_THERE = "ws://127.0.0.1:1/v1/speech"


def printed(page: str) -> str:
    """The first program of a page that serves calls."""
    programs: list[str] = re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL
    )
    return next(each for each in programs if "asyncio.run(" in each and ".serve(" in each)


def port_near(port: int) -> int:
    """The port as it is printed; another one where it is taken on this machine."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
        except OSError:
            if not port:
                raise
            return port_near(0)
        return int(tcp.getsockname()[1])


def test_the_program_has_ten_lines_at_most() -> None:
    assert sum(bool(line.strip()) for line in printed("README.md").splitlines()) <= 10


class Printed:
    """A program of a page that runs; its recogniser understands the question."""

    def __init__(self, process: asyncio.subprocess.Process, uri: str) -> None:
        self.process = process
        self.uri = uri

    async def told(self) -> list[str]:
        """End it as Ctrl-C does; what it has written for people."""
        assert self.process.stderr is not None
        self.process.send_signal(signal.SIGINT)
        told = (await self.process.stderr.read()).decode()
        assert "Traceback" not in told
        assert await self.process.wait() == 0
        return told.splitlines()


@asynccontextmanager
async def running(
    page: str, endpoint_port: int, server: str, folder: Path
) -> AsyncIterator[Printed]:
    text = printed(page).replace(str(MODEL_PORT), str(endpoint_port))
    sip = port_near(SIP_PORT)
    program = folder / "agent.py"
    program.write_text(text.replace(str(SIP_PORT), str(sip)), "utf-8")
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    environment.pop("MR_QWEN3TTS_SERVER", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.e2e.printed_program", str(program), server, QUESTION),
        env=environment,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        uri = (await process.stdout.readline()).decode().strip()
        assert uri.endswith(f":{sip}")
        yield Printed(process, uri)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def asked_and_heard(program: Printed, server: str, endpoint: ChatEndpoint) -> None:
    """A caller asks, the model is asked, and speech comes back."""
    async with Phone(server_url=server, announce=None) as phone:
        call = await phone.dial(program.uri)
        ear = Ear(call)
        await call.say(QUESTION)
        request = await endpoint.asked(1)
        await ear.sound(1.0)
        await call.hangup()
    assert request.said[-1] == ("user", QUESTION)
    assert request.messages[0]["role"] == "system"


async def test_the_readmes_agent_is_one_process_to_start_and_says_how_it_stands(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as callers,
        ChatEndpoint(says("Yes, and it is still warm."), port=port_near(MODEL_PORT)) as endpoint,
        running("README.md", endpoint.port, NOTHING_THERE, tmp_path) as program,
    ):
        await asked_and_heard(program, callers.url, endpoint)
        told = await program.told()
    assert [line for line in told if line.startswith("The voice is ")]
    assert [line for line in told if f"Ready: call {program.uri}" in line]
    assert len([line for line in told if line.endswith(" calls.")]) == 1


async def test_the_printed_agent_speaks_by_a_server_that_is_there(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(says("Yes, and it is still warm."), port=port_near(MODEL_PORT)) as endpoint,
        running("docs/agent.md", endpoint.port, server.url, tmp_path) as program,
    ):
        await asked_and_heard(program, server.url, endpoint)
        assert not [line for line in await program.told() if "voice" in line]
