"""Process that runs Whisper; see `whisper_process`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from qwen3tts_wire.child.messages import Decoder, Message
from qwen3tts_wire.child.serving import BackgroundInbox, main, write
from qwen3tts_wire.whisper.model import RATE_HZ, WhisperModel
from qwen3tts_wire.whisper.models import ModelMissing

NICENESS = 5
"""The media of calls have the processor first."""


def serve(messages: int, answers: int) -> int:
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    # Its thread sees the parent's end while this one is deep in a matrix product.
    inbox = BackgroundInbox(messages, Decoder().push)
    options = json.loads(sys.argv[1])
    began = time.monotonic()
    try:
        model = WhisperModel.load(options.pop("model"), options.pop("languages"), **options)
        model.hear(np.zeros(RATE_HZ, np.int16))  # the first piece takes longer than any other
    except ModelMissing as error:
        _send(answers, "missing", reason=error.reason, remedy=error.remedy, package=error.package)
        return 1
    _send(answers, "ready", load_s=time.monotonic() - began, **model.place)
    while True:
        message = inbox.next()
        if message.kind == "hear":  # a drop that is read here came too late
            recognise(model, inbox, message, answers)


def recognise(
    model: WhisperModel, inbox: BackgroundInbox[Message], message: Message, answers: int
) -> None:
    job = int(message.fields["job"])

    def wanted() -> bool:
        return not inbox.has(lambda each: each.kind == "drop" and each.fields["job"] >= job)

    try:
        samples = np.frombuffer(message.data, np.int16)
        answer = model.hear(samples, wanted) if wanted() else None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        _send(answers, "failed", job=job, reason=f"{type(error).__name__} ({where})")
        return
    if answer is None:
        _send(answers, "dropped", job=job)
    else:
        _send(
            answers,
            "text",
            job=job,
            text=answer.text,
            language=answer.language,
            logprob=answer.logprob,
            no_speech=answer.no_speech,
        )


def _send(answers: int, kind: str, **fields: Any) -> None:
    write(answers, Message(kind, fields).encode())


if __name__ == "__main__":
    sys.exit(main(serve))
