"""The agent of the README and of docs/agent.md, run as it is printed, on a real call."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone import Phone
from qwen3tts_server.run import running_server
from tests.e2e.parties import Ear
from tests.phone.agent.endpoint import ChatEndpoint, says

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
QUESTION = "Do you have rye bread today?"
MODEL_PORT, SPEECH_PORT, SIP_PORT = 11434, 8765, 5060
"""As printed: a model's, the speech server's and SIP's own."""
SPEECH = "ws://127.0.0.1:{}/v1/speech"


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


@pytest.mark.parametrize("page", ["README.md", "docs/agent.md"])
async def test_the_printed_agent_answers_a_call(page: str, tmp_path: Path) -> None:
    text = printed(page)
    ports = {port: port_near(port) for port in (MODEL_PORT, SPEECH_PORT, SIP_PORT)}
    for port, free in ports.items():
        text = text.replace(str(port), str(free))
    if ports[SPEECH_PORT] != SPEECH_PORT:
        text = text.replace("Phone(", f"Phone(server_url='{SPEECH}', ".format(ports[SPEECH_PORT]))
    program = tmp_path / "agent.py"
    program.write_text(text, "utf-8")
    async with (
        asyncio.timeout(90),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=ports[SPEECH_PORT]) as server,
        ChatEndpoint(says("Yes, and it is still warm."), port=ports[MODEL_PORT]) as endpoint,
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.e2e.printed_program", str(program), QUESTION),
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            uri = (await process.stdout.readline()).decode().strip()
            assert uri.endswith(f":{ports[SIP_PORT]}")
            async with Phone(server_url=server.url) as phone:
                call = await phone.dial(uri)
                ear = Ear(call)
                await call.say(QUESTION)
                request = await endpoint.asked(1)
                await ear.sound(1.0)
                await call.hangup()
            assert request.said[-1] == ("user", QUESTION)
            assert request.messages[0]["role"] == "system"
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
