"""Transcription of uploads in a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from qwen3tts_engine.base import Engine
from qwen3tts_engine.recogniser import LanguageUnknown, Recogniser, TranscribedStretch
from qwen3tts_engine.wrapped import recogniser_of
from qwen3tts_wire.child.process import command, environment
from qwen3tts_wire.errors import EngineUnavailable, ServerBusy, SpeechError, error_from_wire
from qwen3tts_wire.whisper.models import AUTO, installed_model, variables_for

NICER = 10
STOP_S = 0.1
"""Interval of cancellation checks."""
STOPPED_S = 300.0
"""Timeout of a stop (end of a segment or model load), and of the child's read."""
MODEL_S = 600.0
"""Timeout of the model's download and load."""
SLOWEST = 10.0
"""Seconds of work a second of a recording."""


class RecognitionProcess:
    """Recogniser in a child, started on first use; for one thread."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection
        self._closed = False
        self._lock = threading.Lock()
        """Guards child, pipe and ``_closed``."""

    def hear(
        self, audio: bytes, language: str | None, *, max_s: float, stopped: Callable[[], bool]
    ) -> tuple[float, Sequence[TranscribedStretch]]:
        watch = _Watch()
        try:
            pipe, child = self._started()
            watch.kill(child, STOPPED_S)
            pipe.send_bytes(json.dumps({"language": language, "max_s": max_s}).encode())
            pipe.send_bytes(audio)
            watch.kill(child, MODEL_S + SLOWEST * max_s)
            stop_sent = False
            while not pipe.poll(STOP_S):
                if not stop_sent and stopped():
                    stop_sent = True
                    watch.kill(child, STOPPED_S)
                    pipe.send_bytes(b"")
            answer = json.loads(pipe.recv_bytes())
        except (EOFError, OSError) as error:
            with self._lock:
                self._end()
            what = "did not answer in time" if watch.killed else "ended"
            raise EngineUnavailable(
                f"The recogniser's process {what}.", remedy="Send the recording again."
            ) from error
        finally:
            watch.cancel()
        return _answered(answer)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            self._pipe.close()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def _started(self) -> tuple[Connection, subprocess.Popen[bytes]]:
        with self._lock:
            if self._closed:
                raise EngineUnavailable(
                    "The recogniser is closed: the server is ending.",
                    remedy="Send the recording again later.",
                )
            if self._child is None:
                self._pipe, theirs = Pipe()
                with theirs:
                    fd = theirs.fileno()
                    self._child = subprocess.Popen(
                        command(__name__, str(fd), self.model),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[fd],
                        env=environment(__name__, also=variables_for(self.model)),
                    )
            return self._pipe, self._child


class _Watch:
    def __init__(self) -> None:
        self.killed = False
        self._timer: threading.Timer | None = None

    def kill(self, child: subprocess.Popen[bytes], after_s: float) -> None:
        def late() -> None:
            self.killed = True
            child.kill()

        self.cancel()
        self._timer = threading.Timer(after_s, late)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _answered(answer: dict[str, Any]) -> tuple[float, Sequence[TranscribedStretch]]:
    if "code" not in answer:
        return float(answer["seconds"]), tuple(
            TranscribedStretch(*each) for each in answer["heard"]
        )
    if answer["language"]:
        raise LanguageUnknown(answer["message"], remedy=answer["remedy"])
    raise error_from_wire(answer["code"], answer["message"], remedy=answer["remedy"])


def main(fd: int, model: str) -> None:
    from qwen3tts_engine.qwen3.voices.transcribe import WhisperTranscriber

    # Ctrl-C goes to the whole group; the parent finishes what is being said.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICER)
    pipe, transcriber = Connection(fd), WhisperTranscriber(model)
    while True:
        head = pipe.recv_bytes()
        if not head:
            continue  # a stop that came after its recording's end
        asked = json.loads(head)
        answer: dict[str, Any]
        try:
            # While a recording is heard, nothing but a stop comes.
            seconds, heard = transcriber.hear(
                pipe.recv_bytes(), asked["language"], max_s=asked["max_s"], stopped=pipe.poll
            )
        except SpeechError as error:
            unknown = isinstance(error, LanguageUnknown)
            answer = {"code": error.code, "message": error.message, "remedy": error.remedy}
            answer["language"] = unknown
        else:
            answer = {"seconds": seconds, "heard": [[e.start_s, e.end_s, e.text] for e in heard]}
        pipe.send_bytes(json.dumps(answer).encode())


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        main(int(sys.argv[1]), sys.argv[2])


MOST_WAITING = 8
"""Recordings queued."""


class Recognition:
    """Transcription one by one, in a thread."""

    def __init__(self, engine: Engine, whisper: str | None) -> None:
        """Take ``whisper``: folder, size or hub id.

        ``auto``: the engine's, else a packaged one; None: the engine's.
        """
        self._engine = engine
        self._whisper = whisper
        self._own: RecognitionProcess | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hear a recording")
        self._here = 0

    def start(self) -> None:
        if self._whisper == AUTO:
            model = installed_model()
            self._own = None if model is None else RecognitionProcess(model)
        elif self._whisper is not None:
            from qwen3tts_engine.qwen3.voices.transcribe import check_whisper

            if find_spec("faster_whisper") is None:
                raise EngineUnavailable(
                    "The recogniser needs the package faster-whisper.",
                    remedy="pip install 'mr_qwen3tts[stt]', or leave openai.whisper out.",
                )
            check_whisper(self._whisper)
            self._own = RecognitionProcess(self._whisper)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._own is not None:
            self._own.close()

    def recogniser(self) -> Recogniser | None:
        of_engine = recogniser_of(self._engine)
        if self._whisper == AUTO:
            return of_engine or self._own
        return self._own or of_engine

    async def hear(
        self, recogniser: Recogniser, audio: bytes, language: str | None, max_s: float
    ) -> tuple[float, Sequence[TranscribedStretch]]:
        if self._here > MOST_WAITING:
            raise ServerBusy(f"{self._here} recordings are being heard.", remedy="Try again later.")
        stopped = threading.Event()
        self._here += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._pool,
                lambda: recogniser.hear(audio, language, max_s=max_s, stopped=stopped.is_set),
            )
        finally:
            stopped.set()
            self._here -= 1
