"""A real baresip as the other side of a call, driven over its control socket."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

MODULES = Path("/usr/lib/baresip/modules")
CONFIG = """\
poll_method epoll
sip_listen 127.0.0.1:{sip_port}
audio_player aubridge,nil
audio_source {source}
audio_alert aubridge,nil
ausrc_srate 8000
auplay_srate 8000
call_max_calls 4
call_local_timeout 30
rtp_ports {rtp_port}-{rtp_last}
jitter_buffer_delay 1-5
module_path {modules}
{codec_modules}
module srtp.so
module aubridge.so
module aufile.so
module stdio.so
module sndfile.so
module_tmp uuid.so
module_tmp account.so
module_app menu.so
module_app ctrl_tcp.so
ctrl_tcp_listen 127.0.0.1:{control_port}
snd_path {folder}
{tls}
"""
CODECS = ("g711.so", "g722.so", "opus.so")


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tone(hz: float, seconds: float) -> NDArray[np.int16]:
    """A sine at 8 kHz, a quarter of full scale."""
    wave_form = 8000 * np.sin(2 * np.pi * hz * np.arange(int(8000 * seconds)) / 8000)
    return wave_form.astype(np.int16)


STARTS = 3
"""Another program may take a port between its choice and its use."""


class EndedEarly(Exception):
    """It ended while it started, with this output."""


class Baresip:
    """One running baresip: commands out, events in, the files that it recorded."""

    def __init__(self, folder: Path, sip_port: int, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self.uri = f"sip:bob@127.0.0.1:{sip_port}"
        self.tls_uri = f"sip:bob@127.0.0.1:{sip_port + 1};transport=tls"
        self.process = process
        self.events: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self, port: int) -> None:
        assert self.process.stdout is not None
        said = b""
        async with asyncio.timeout(10):
            while b"baresip is ready" not in said:
                line = await self.process.stdout.readline()
                if not line:
                    raise EndedEarly(said.decode("utf-8", "replace"))
                said += line
        self._drain = asyncio.create_task(self._discard(self.process.stdout))
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._listen = asyncio.create_task(self._events())

    @staticmethod
    async def _discard(stream: asyncio.StreamReader) -> None:
        while await stream.read(4096):
            pass

    async def _events(self) -> None:
        """Netstrings: decimal length, colon, payload, comma."""
        try:
            while True:
                size = int((await self._reader.readuntil(b":"))[:-1])
                message = json.loads(await self._reader.readexactly(size))
                await self._reader.readexactly(1)
                async with self._changed:
                    self.events.append(message)
                    self._changed.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def command(self, command: str, params: str = "") -> None:
        payload = json.dumps({"command": command, "params": params, "token": "t"}).encode()
        self._writer.write(b"%d:%s," % (len(payload), payload))
        await self._writer.drain()

    async def event(self, kind: str, *, seen: int = 0, within_s: float = 10.0) -> dict[str, Any]:
        """The first event of this type after the ``seen`` first ones of it."""

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events if event.get("type") == kind][seen:]

        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(found)
        return found()[0]

    async def dial(self, uri: str) -> None:
        await self.command("dial", uri)

    async def hangup(self) -> None:
        await self.command("hangup")

    async def press(self, digits: str) -> None:
        """Type keys, as on the phone; baresip sends them by RFC 4733."""
        assert self.process.stdin is not None
        for digit in digits:
            self.process.stdin.write(digit.encode())
            await self.process.stdin.drain()
            await asyncio.sleep(0.25)  # how fast a person types: baresip needs the pause

    def recording(self, side: str, call: int = 0) -> NDArray[np.int16]:
        """What it sent (``enc``) or what it heard (``dec``), 8 kHz samples, shape [n].

        ``call``: which of several, in order of their beginning.
        """
        paths = self.folder.glob(f"dump-*-{side}.wav")
        path = sorted(paths, key=lambda path: path.stat().st_ino)[call]
        with wave.open(str(path), "rb") as file:
            rate_hz, channels = file.getframerate(), file.getnchannels()
            samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        mono = samples.reshape(-1, channels)[:, 0].copy()
        if rate_hz == 8000:
            return mono
        down = resample_poly(mono.astype(float), 1, rate_hz // 8000, window=("kaiser", 8.0))
        clipped: NDArray[np.int16] = np.clip(np.rint(down), -32768, 32767).astype(np.int16)
        return clipped

    async def stop(self) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()
        if self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(5):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        for task in ("_listen", "_drain"):
            if hasattr(self, task):
                await getattr(self, task)


async def _started(program: str, folder: Path, config: dict[str, object]) -> Baresip:
    for _ in range(STARTS - 1):
        try:
            return await _start(program, folder, config)
        except EndedEarly:
            continue
    return await _start(program, folder, config)


async def _start(program: str, folder: Path, config: dict[str, object]) -> Baresip:
    sip_port, control_port = free_port(), free_port(socket.SOCK_STREAM)
    rtp_port = min(free_port() // 2 * 2, 65000)
    ports = {"sip_port": sip_port, "control_port": control_port}
    (folder / "config").write_text(
        CONFIG.format(**config, **ports, rtp_port=rtp_port, rtp_last=rtp_port + 40)
    )
    process = await asyncio.create_subprocess_exec(
        program,
        "-f",
        str(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    peer = Baresip(folder, sip_port, process)
    try:
        await peer.connect(control_port)
    except BaseException:
        await peer.stop()
        raise
    return peer


@asynccontextmanager
async def baresip(
    folder: Path,
    *,
    speech: NDArray[np.int16] | None = None,
    answer: str = "auto",
    account: str = "<sip:bob@127.0.0.1>;regint=0",
    codecs: Sequence[str] = CODECS[:1],
    certificate: Path | None = None,
    authority: Path | None = None,
) -> AsyncIterator[Baresip]:
    """Run baresip in ``folder`` until the block ends; it says ``speech`` (8 kHz), or a tone.

    Args:
        account: its line of the accounts file, without the answer mode.
        codecs: the modules that it loads, in its order of preference.
        certificate: its own key and certificate for TLS, in one file.
        authority: whose certificates it believes.
    """
    program = shutil.which("baresip")
    assert program is not None
    folder.mkdir(parents=True, exist_ok=True)
    if speech is None:
        speech = tone(440.0, 20.0)
    with wave.open(str(folder / "speech.wav"), "wb") as file:
        # Its Opus has two channels, and takes no file with one.
        channels = 2 if codecs[0].startswith("opus") else 1
        file.setparams((channels, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.repeat(speech.astype("<i2"), channels).tobytes())
    tls = [f"sip_certificate {certificate}"] if certificate is not None else []
    tls += [f"sip_cafile {authority}"] if authority is not None else []
    (folder / "accounts").write_text(f"{account};answermode={answer}\n")
    (folder / "contacts").write_text("")
    peer = await _started(
        program,
        folder,
        {
            "source": f"aufile,{folder}/speech.wav",
            "modules": MODULES,
            "folder": folder,
            "codec_modules": "\n".join(f"module {name}" for name in codecs),
            "tls": "\n".join(tls),
        },
    )
    try:
        yield peer
    finally:
        await peer.stop()
