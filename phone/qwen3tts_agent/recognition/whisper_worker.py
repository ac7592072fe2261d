"""The process that recognises: ``python -m qwen3tts_agent.recognition.whisper_worker WISHES``.

It hears one piece after the other and ends with its parent: when the pipe that it reads from ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from qwen3tts_agent.recognition.whisper_messages import BadMessage, Decoder, Message
from qwen3tts_wire.whisper.model import RATE_HZ, WhisperModel
from qwen3tts_wire.whisper.models import ModelMissing

NICER = 5
"""Calls' media have the processor first."""


class Inbox:
    """What the parent wants; a thread of its own reads it."""

    def __init__(self, pipe: int) -> None:
        self._jobs: queue.Queue[Message] = queue.Queue()
        self._dropped = 0  # jobs come one after the other: this one and all before it
        self._pipe = pipe
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def next(self) -> Message:
        """The next piece to hear; waits for it."""
        return self._jobs.get()

    def wanted(self, job: int) -> bool:
        """Whether it has not been dropped."""
        return job > self._dropped

    def _read(self) -> None:
        decoder = Decoder()
        with contextlib.suppress(OSError, BadMessage):
            while data := os.read(self._pipe, 1 << 16):
                for message in decoder.push(data):
                    if message.type == "drop":
                        self._dropped = max(self._dropped, int(message.fields["job"]))
                    else:
                        self._jobs.put(message)
        # The parent is gone, however it went; the main thread may be deep in a product of matrices.
        os._exit(0)


def main(argv: list[str]) -> int:
    """Load the model and hear what comes, for as long as the parent lives."""
    # What libraries print must not come between our messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Ctrl-C goes to the whole group; the parent ends its calls and then this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICER)
    inbox = Inbox(0)
    wishes = json.loads(argv[1])
    _say(out, "loading", model=wishes["model"])
    began = time.monotonic()
    try:
        model = WhisperModel.load(wishes.pop("model"), wishes.pop("languages"), **wishes)
        model.hear(np.zeros(RATE_HZ, np.int16))  # the first piece takes longer than any other
    except ModelMissing as error:
        _say(out, "missing", reason=error.reason, remedy=error.remedy, package=error.package)
        return 1
    _say(out, "ready", load_s=time.monotonic() - began, **model.place)
    while True:
        hear(model, inbox, inbox.next(), out)


def hear(model: WhisperModel, inbox: Inbox, message: Message, out: BinaryIO) -> None:
    """One piece; what goes wrong with it is said, without a word of what was heard."""
    job = int(message.fields["job"])
    try:
        samples = np.frombuffer(message.sound, np.int16)
        answer = model.hear(samples, lambda: inbox.wanted(job)) if inbox.wanted(job) else None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        _say(out, "failed", job=job, reason=f"{type(error).__name__} ({where})")
    else:
        if answer is None:
            _say(out, "dropped", job=job)
        else:
            _say(
                out,
                "text",
                job=job,
                text=answer.text,
                language=answer.language,
                logprob=answer.logprob,
                no_speech=answer.no_speech,
            )


def _say(out: BinaryIO, kind: str, **fields: Any) -> None:
    try:
        out.write(Message(kind, fields).encode())
        out.flush()
    except OSError:
        os._exit(0)  # nobody reads it: the parent is gone


if __name__ == "__main__":
    sys.exit(main(sys.argv))
