"""Local ports of a call's media: RTP on an even one, RTCP on the next (RFC 3550 section 11)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import qwen3tts_pacer
import qwen3tts_wire
from qwen3tts_pacer.memory import CallMemory
from qwen3tts_phone.errors import PortBusy
from qwen3tts_phone.media.admission import Pacing, PacingAdmission
from qwen3tts_phone.media.control import Control, MediaLost, MediaRefused
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.loop import MESSAGE_MOST
from qwen3tts_phone.media.receiver import SO_TIMESTAMPNS
from qwen3tts_phone.media.reports import MediaLoad
from qwen3tts_phone.media.srtp import library_paths
from qwen3tts_phone.media.types import LegSpec, MediaSettings
from qwen3tts_wire.process import child_environment

TRIES = 64
EXPEDITED = 0xB8
"""Type of service: DSCP EF (RFC 3246)."""
RECEIVE_BYTES = 256 * 1024
"""Socket buffer, so that a stall of the machine loses nothing; the kernel may grant less."""


def open_pair(
    host: str, port_range: tuple[int, int] = (0, 0)
) -> tuple[socket.socket, socket.socket]:
    """Bind non-blocking RTP and RTCP sockets. Raises PortBusy.

    In a range, pairs are tried from a random one on, so that a port is not reused immediately.
    """
    low, high = port_range
    if (low, high) == (0, 0):
        for _ in range(TRIES):
            pair = _try(host, 0)
            if pair is not None:
                return pair
        raise PortBusy(f"The system gave no pair of UDP ports on {host} in {TRIES} tries.")
    evens = list(range(low + low % 2, high, 2))
    start = random.randrange(len(evens)) if evens else 0
    for port in evens[start:] + evens[:start]:
        pair = _try(host, port)
        if pair is not None:
            return pair
    raise PortBusy(
        f"No even UDP port with a free one above it on {host} from {low} to {high}.",
        remedy="End the program that uses them, or choose a wider range of RTP ports.",
    )


def _try(host: str, port: int) -> tuple[socket.socket, socket.socket] | None:
    with contextlib.ExitStack() as stack:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            rtp = stack.enter_context(socket.socket(kind, socket.SOCK_DGRAM))
            rtcp = stack.enter_context(socket.socket(kind, socket.SOCK_DGRAM))
            if kind == socket.AF_INET6:  # :: stands for both families, any other for its own
                for sock in (rtp, rtcp):
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
            rtp.bind((host, port))
            port = rtp.getsockname()[1]
            if port % 2 or port == 65535:
                return None
            rtcp.bind((host, port + 1))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            exhausted = error.errno in (errno.EMFILE, errno.ENFILE)
            raise PortBusy(
                f"UDP port {port} on {host} cannot be opened: {error.strerror}.",
                remedy="Raise the limit of open files (ulimit -n, LimitNOFILE)."
                if exhausted
                else "Give an address of this machine, and ports above 1023.",
            ) from error
        rtp.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for sock in (rtp, rtcp):
            sock.setblocking(False)
            if kind == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, EXPEDITED)
            if kind == socket.AF_INET or host == "::":
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EXPEDITED)
        rtp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        stack.pop_all()
        return rtp, rtcp
    raise AssertionError("unreachable")


log = logging.getLogger(__name__)

LEARNT_MOST = MESSAGE_MOST // 2
"""Bytes of the policies' knowledge that are kept: it goes to each call in one message."""
REPORTS = 5
"""Load reports within the time limit of answers."""
END_S = 5.0
"""Longest end of the process before it is killed."""


class MediaProcess:
    """Process that owns the RTP sockets of all calls."""

    def __init__(
        self,
        settings: MediaSettings,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        notice: int,
    ) -> None:
        self.settings = settings
        self.rt = ""
        """Scheduler: fifo, nice or plain."""
        self.srtp: tuple[str, ...] = ()
        self.lost = asyncio.Event()
        """Set when the process ended unexpectedly, or was killed because it hung; see `cause`."""
        self.load = MediaLoad()
        self.on_load: Callable[[MediaLoad], None] = lambda load: None
        """Called with each report, five times within ``answer_timeout_s``."""
        self.learnt: dict[str, Any] = dict(settings.learnt)
        """Knowledge of ended calls' filling policies."""
        self._process = process
        self._notice = notice
        self._loop = asyncio.get_running_loop()
        self._control = Control(
            control,
            settings.answer_timeout_s,
            message=self._message,
            ended=self._gone,
            hung=self._kill,
        )
        self._loop.add_reader(notice, self._noticed)
        self._ready: asyncio.Future[str] = self._loop.create_future()
        self._legs: dict[int, MediaLeg] = {}
        self._abandoning: set[asyncio.Task[None]] = set()
        self._count = 0
        self._fatal = ""
        self._hung = ""
        self._closing = False
        self._ended: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, settings: MediaSettings | None = None) -> MediaProcess:
        """Start the process (about 0.1 s). Raises MediaLost.

        It ends with this process. Start it from the main thread, else a crash of the main thread
        alone does not end it.
        """
        settings = settings or MediaSettings()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        notice = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            process = _spawn(settings, theirs.fileno(), notice)
        except OSError as error:
            ours.close()
            os.close(notice)
            raise MediaLost(f"The media process cannot be started: {error}.") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self = cls(settings, process, ours, notice)
        try:
            async with asyncio.timeout(settings.start_timeout_s):
                self.rt = await self._ready
        except TimeoutError:
            await self.close()
            raise MediaLost(
                f"The media process did not come up in {settings.start_timeout_s} s."
            ) from None
        except BaseException:
            await self.close()  # also a cancelled start: the process is known only here
            raise
        self._control.watch()
        return self

    @property
    def cause(self) -> MediaLost | None:
        return self._control.cause

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def legs(self) -> Sequence[MediaLeg]:
        return tuple(self._legs.values())

    async def open(self, spec: LegSpec | None = None) -> MediaLeg:
        """Open the sockets of a call. Raises PortBusy, MediaLost."""
        spec = spec or LegSpec()
        if self.cause is not None:
            raise self.cause
        rtp, rtcp = open_pair(spec.local_host, spec.port_range)
        with rtp, rtcp:
            memory = CallMemory.create(
                out_slots=max(128, spec.ring_slots), out_bytes=max(128, spec.ring_slots) * 512
            )
            self._count += 1
            leg = MediaLeg(self, self._count, spec, memory, rtp.getsockname()[:2])
            self._legs[leg.number] = leg
            try:
                await self.request(
                    {"type": "open", "leg": leg.number, "spec": asdict(spec)},
                    (memory.fd, rtp.fileno(), rtcp.fileno()),
                )
            except BaseException:
                self._legs.pop(leg.number, None)
                memory.close()
                self._abandon(leg.number)
                raise
        return leg

    async def request(
        self, message: dict[str, Any], fds: Sequence[int] = (), *, limited: bool = True
    ) -> dict[str, Any]:
        return await self._control.request(message, fds, limited=limited)

    def forget(self, leg: MediaLeg, learnt: dict[str, Any]) -> None:
        self._legs.pop(leg.number, None)
        for key, state in learnt.items():  # the latest last
            self.learnt.pop(key, None)
            self.learnt[key] = state
        while len(json.dumps(self.learnt)) > LEARNT_MOST:
            del self.learnt[next(iter(self.learnt))]

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            for leg in list(self._legs.values()):
                with contextlib.suppress(MediaLost, MediaRefused):
                    await leg.close()
            if self._ended is None:
                self._control.shut()  # the process ends when it sees this
        if self._ended is None:
            self._ended = self._loop.create_task(self._end())
        await asyncio.shield(self._ended)

    async def __aenter__(self) -> MediaProcess:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _abandon(self, leg: int) -> None:
        async def close() -> None:
            with contextlib.suppress(MediaLost, MediaRefused):
                await self.request({"type": "close", "leg": leg})

        if self.cause is None and not self._closing:
            task = self._loop.create_task(close(), name="close an abandoned leg")
            self._abandoning.add(task)
            task.add_done_callback(self._abandoning.discard)

    def _gone(self) -> None:
        if self._ended is None:
            self._ended = self._loop.create_task(self._end())

    def _kill(self, why: str) -> None:
        if not self._hung:
            self._hung = why
            log.error("the media process (%d) %s and is killed", self.pid, why)
        self._process.kill()

    def _message(self, message: dict[str, Any]) -> None:
        kind = message.pop("type")
        if kind == "ready":
            if not self._ready.done():
                self.srtp = tuple(message["srtp"])
                self._ready.set_result(message["rt"])
        elif kind == "fatal":
            self._fatal = message["cause"]
        elif kind == "load":
            self.load = MediaLoad(**message)
            self.on_load(self.load)
        elif (leg := self._legs.get(message.pop("leg"))) is not None:
            leg.message(kind, message)

    def _noticed(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._notice)
        for leg in self._legs.values():
            leg.noticed()

    async def _end(self) -> None:
        """Handle the end of the process: take its last messages, and tell all legs."""
        status = await asyncio.to_thread(self._reap)
        self._loop.remove_reader(self._notice)
        os.close(self._notice)
        if self._closing:
            cause = MediaLost("The media process was closed.")
        else:
            cause = MediaLost(
                f"The media process {self._hung or _how(status)}; its calls are silent.",
                remedy="Start another one and place the calls again.",
            )
            if self._fatal:
                cause.add_note(self._fatal)
            self.lost.set()
        self._control.close(cause)
        if not self._ready.done():
            self._ready.set_exception(cause)
            self._ready.exception()  # retrieved, also where the start was cancelled
        for leg in list(self._legs.values()):
            leg.gone(cause)

    def _reap(self) -> int:
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _spawn(settings: MediaSettings, control: int, notice: int) -> subprocess.Popen[bytes]:
    main_thread = threading.current_thread() is threading.main_thread()
    settings_sent = {
        "scheduling": settings.scheduling,
        "priority": settings.priority,
        "groups": settings.groups,
        "receive_every_s": settings.receive_every_s,
        "report_every_s": settings.answer_timeout_s / REPORTS,
        "libraries": library_paths(),
        # PR_SET_PDEATHSIG fires when the thread that spawned ends.
        "parent": os.getpid() if main_thread else 0,
    }
    # It imports three light packages of this project and nothing else: no site, no other path. The
    # library of SRTP is looked for in its own folder, once.
    own_root = str(Path(__file__).parents[2])
    others = [str(Path(each.__path__[0]).parent) for each in (qwen3tts_pacer, qwen3tts_wire)]
    roots = [own_root, *others]
    environment = child_environment()
    environment.pop("PYTHONHOME", None)
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(roots))
    environment["PYTHONWARNINGS"] = "ignore"
    command = [sys.executable, "-S", "-P", "-m", "qwen3tts_phone.media"]
    return subprocess.Popen(
        [*command, str(control), str(notice), json.dumps(settings_sent)],
        pass_fds=(control, notice),
        stdin=subprocess.DEVNULL,
        env=environment,
        # A signal for the parent's group, as Ctrl-C, is the parent's to handle.
        start_new_session=False,
    )


def _how(status: int) -> str:
    if status < 0:
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"
    return f"ended with status {status}"


class MediaKeeper:
    """Keeps a media process running and admits calls; made by `start`."""

    def __init__(self, settings: MediaSettings, process: MediaProcess) -> None:
        self.process = process
        self.pacing = PacingAdmission()
        self._settings = settings
        self._replacing = asyncio.Lock()
        process.on_load = self._reported

    @classmethod
    async def start(cls, settings: MediaSettings) -> MediaKeeper:
        """Start the process. Raises MediaLost."""
        return cls(settings, await MediaProcess.start(settings))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_full(self) -> bool:
        return self.process.cause is None and not self.pacing.admits(len(self.process.legs))

    async def open(self, spec: LegSpec) -> MediaLeg:
        """Open ports for one more call; a lost process is replaced.

        Raises MediaRefused, PortBusy, MediaLost.
        """
        if self.is_full:
            raise MediaRefused(
                f"This machine cannot pace another call ({self.pacing.figures}).",
                remedy="Call again when fewer calls are under way, or give it more processors.",
            )
        try:
            return await (await self._running()).open(spec)
        except MediaLost:
            return await (await self._running()).open(spec)

    async def close(self) -> None:
        await self.process.close()

    async def _running(self) -> MediaProcess:
        if self.process.cause is None:
            return self.process
        async with self._replacing:
            if self.process.lost.is_set():  # else another call has replaced it, or it was closed
                log.error("the media process is replaced: %s", self.process.cause)
                self.process = await MediaProcess.start(self._settings)
                self.process.on_load = self._reported
            return self.process

    def _reported(self, load: MediaLoad) -> None:
        if not self.pacing.report(load):
            return
        if self.pacing.state is Pacing.FULL:
            log.warning("no further call is taken: %s", self.pacing.figures)
        else:
            log.info("calls are taken again: %s", self.pacing.figures)
