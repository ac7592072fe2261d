"""Child process exchanging messages: the parent's side.

Its first answer is ``ready`` with facts, or ``missing`` with reason and remedy. It ends with its
standard input, so never outlives its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import qwen3tts_wire
from qwen3tts_wire.child.messages import BadMessage, Decoder, Message
from qwen3tts_wire.process import child_environment


class StartFailed(Exception):
    """The child did not become ready."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class StartTimeout(StartFailed):
    """The child did not become ready in time."""


class ChildUnable(StartFailed):
    """The child cannot work, with its own reason and remedy."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of ``module``; ``-P`` imports nothing from the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(module: str, *, also: Iterable[str] = ()) -> dict[str, str]:
    """Return a child's environment: none of our keys, our import roots.

    Args:
        module: of our packages, installed or not.
        also: further variables.
    """
    package = import_module(module.partition(".")[0])
    roots = [str(Path(each.__path__[0]).resolve().parent) for each in (package, qwen3tts_wire)]
    return child_environment(also=also, roots=roots)


class ChildProcess:
    """One child process.

    Args:
        command: starts it.
        environment: its variables.
        on_message: receives messages after the first; may raise BadMessage, which kills the
            child.
        on_end: called once with the ``reason``.
        name: of its tasks.
        end_s: time to end once its standard input is closed.
        keep_errors: characters of standard error to keep; 0: none.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        on_message: Callable[[Message], None],
        on_end: Callable[[], None],
        name: str = "child process",
        end_s: float = 2.0,
        keep_errors: int = 0,
    ) -> None:
        self._command = command
        self._environment = environment
        self._on_message = on_message
        self._on_end = on_end
        self._name = name
        self._end_s = end_s
        self._keep_errors = keep_errors
        self.errors = ""
        """End of its standard error."""
        self.reason = ""
        """Reason of its end; empty while it works."""
        self.lost = False
        """True if it ended after ready while this process goes on."""
        self.ended = False
        self._process: asyncio.subprocess.Process | None = None
        self._ready: asyncio.Future[dict[str, Any]] | None = None
        self._readers: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the process has not been started")
        return self._process.pid

    @property
    def exited(self) -> bool:
        """True if the process has exited, even if its output was not read to the end."""
        if self._process is None or self._process.returncode is not None:
            return self._process is not None
        if not hasattr(os, "waitid"):
            return False
        try:
            # WNOWAIT leaves its status to the event loop.
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    async def start(self, timeout_s: float) -> dict[str, Any]:
        """Start, wait until ready, return its facts.

        Raises:
            StartFailed: it did not become ready; nothing is left.
        """
        keep = self._keep_errors > 0
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE if keep else asyncio.subprocess.DEVNULL,
                env=dict(self._environment),
            )
        except OSError as error:
            self.ended = True
            raise StartFailed(f"no process can be started: {error}") from error
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        name = f"{self._name} {self.pid}"
        self._readers = [loop.create_task(self._read(self._process), name=name)]
        if keep:
            self._readers.append(loop.create_task(self._read_errors(), name=f"{name}, errors"))
        started = False
        try:
            async with asyncio.timeout(timeout_s):
                facts = await asyncio.shield(self._ready)
            started = True
            return facts
        except TimeoutError as error:
            raise StartTimeout(f"it did not get ready within {timeout_s:g} s") from error
        finally:
            if not started:
                self.kill("it did not get ready")
                self._ready.cancel()
                await asyncio.wait(self._readers)

    def send(self, message: Message) -> None:
        """Send a message; dropped once it is ending."""
        stdin = None if self._process is None else self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(message.encode())

    def kill(self, reason: str) -> None:
        """Kill it if it has not ended."""
        self.reason = self.reason or reason
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """Close its standard input; kill it if it does not end."""
        process = self._process
        if process is None or process.stdin is None:
            return
        self.reason = self.reason or "it was closed"
        process.stdin.close()
        _, late = await asyncio.wait(self._readers, timeout=self._end_s)
        if late:
            self.kill("it did not end")
            await asyncio.wait(late)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        decoder = Decoder()
        cancelled = False
        try:
            while data := await process.stdout.read(1 << 16):
                for message in decoder.push(data):
                    self._take(message)
        except BadMessage as error:
            self.kill(f"it sent no message: {error}")
            with contextlib.suppress(TimeoutError):  # a paused pipe closes once it has been read
                async with asyncio.timeout(self._end_s):
                    while await process.stdout.read(1 << 16):
                        pass
        except asyncio.CancelledError:
            # The loop ends without a close: no process is left behind.
            cancelled = True
            self.kill("its reader was cancelled")
            raise
        finally:
            status = await self._reap(process)
            self._end(status, cancelled)

    def _take(self, message: Message) -> None:
        ready = self._ready
        if message.kind not in ("ready", "missing"):
            self._on_message(message)
        elif ready is not None and not ready.done():
            if message.kind == "ready":
                ready.set_result(message.fields)
            else:
                reason, remedy = message.fields.get("reason"), message.fields.get("remedy")
                ready.set_exception(ChildUnable(str(reason or ""), str(remedy or "")))

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(1 << 12):
            self.errors = (self.errors + data.decode("utf-8", "replace"))[-self._keep_errors :]

    async def _reap(self, process: asyncio.subprocess.Process) -> int:
        try:
            async with asyncio.timeout(self._end_s):
                return await process.wait()
        except TimeoutError:
            self.kill("it did not end")
            return await process.wait()

    def _end(self, status: int, cancelled: bool) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        how = _how(status)
        self.reason = self.reason or how
        ready = self._ready
        if ready is not None:
            if not ready.done():
                ready.set_exception(StartFailed(f"it ended at its start: {how}"))
                ready.exception()  # also where its start was given up
            elif not ready.cancelled() and ready.exception() is None:
                self.lost = not cancelled
        self.ended = True
        self._on_end()


def _how(status: int) -> str:
    if status >= 0:
        return f"it ended with status {status}"
    try:
        return f"it was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was ended by signal {-status}"
