"""Runs SIPp, one scenario at a time, and tells what it saw."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

SCENARIOS = Path(__file__).parent / "sipp"


@dataclass
class SippRun:
    """A SIPp process under way."""

    process: asyncio.subprocess.Process
    port: int
    """Its SIP port on 127.0.0.1."""
    folder: Path

    async def succeeded(self, within_s: float = 25.0) -> None:
        """Wait for its end; all its calls must have gone as the scenario says."""
        async with asyncio.timeout(within_s):
            status = await self.process.wait()
        assert status == 0, f"sipp ended with {status}\n{self.errors()}"

    def errors(self) -> str:
        """What it complained about, shortened."""
        texts = [path.read_text("utf-8", "replace") for path in self.folder.glob("*.err")]
        return "\n".join(texts)[-6000:] or self.messages()[-6000:]

    def messages(self) -> str:
        """All messages that it sent and received."""
        path = self.folder / "messages.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""


@contextlib.asynccontextmanager
async def sipp(
    scenario: str,
    folder: Path,
    *,
    call: int | None = None,
    calls: int = 1,
    rate: int = 10,
    transport: str = "udp",
    options: tuple[str, ...] = (),
    keys: dict[str, str] | None = None,
    timeout_s: int = 20,
) -> AsyncIterator[SippRun]:
    """Run a scenario of ``tests/peers/sipp``; it ends with the block at the latest.

    ``call`` is the port on 127.0.0.1 that SIPp calls; without it SIPp waits for calls, and the
    block is entered when it listens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = ["sipp", *([f"127.0.0.1:{call}"] if call is not None else [])]
    command += ["-sf", str(SCENARIOS / f"{scenario}.xml"), "-i", "127.0.0.1", "-p", str(port)]
    command += ["-t", "t1" if transport == "tcp" else "u1", "-m", str(calls), "-nostdin"]
    command += ["-timeout", f"{timeout_s}s", "-timeout_error"]
    command += ["-trace_err", "-error_file", str(folder / "sipp.err")]
    command += ["-trace_msg", "-message_file", str(folder / "messages.log")]
    if call is not None:
        command += ["-r", str(rate), "-l", str(calls)]
    for name, value in (keys or {}).items():
        command += ["-key", name, value]
    command += options
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    run = SippRun(process, port, folder)
    try:
        if call is None:
            await _listening(run, transport)
        yield run
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def free_port() -> int:
    """A port on 127.0.0.1 that UDP and TCP have free now."""
    for _ in range(50):
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        ):
            udp.bind(("127.0.0.1", 0))
            port = int(udp.getsockname()[1])
            with contextlib.suppress(OSError):
                tcp.bind(("127.0.0.1", port))
                return port
    raise RuntimeError("no free port on 127.0.0.1")


async def _listening(run: SippRun, transport: str) -> None:
    kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
    async with asyncio.timeout(10):
        while run.process.returncode is None:
            with socket.socket(socket.AF_INET, kind) as probe:
                try:
                    probe.bind(("127.0.0.1", run.port))
                except OSError:
                    return
            await asyncio.sleep(0.02)
    raise AssertionError(f"sipp did not start\n{run.errors()}")
