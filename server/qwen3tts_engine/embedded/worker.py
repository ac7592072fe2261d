"""Worker process: ``python -m qwen3tts_engine.embedded.worker LIBRARY DATA``; one turn a job."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from pathlib import Path

from qwen3tts_engine.embedded.library import EspeakLibrary, LibraryMissing, SpeakFailed
from qwen3tts_engine.workers.messages import (
    Done,
    Failed,
    Message,
    Missing,
    Ready,
    Say,
    Sound,
    Stop,
    send,
    worker_inbox,
)
from qwen3tts_wire.child.serving import Inbox, main

HANG_S = 60
"""A job that takes longer ends the process, also when the parent is gone and cannot."""


def speak(library: EspeakLibrary, say: Say, inbox: Inbox[Message], out: int) -> None:
    def on_sound(pcm: bytes, words: list[tuple[int, int]]) -> bool:
        if inbox.has(lambda message: message == Stop(say.job)):
            return False
        send(out, Sound(say.job, pcm, tuple(words)))
        return True

    how = say.options
    signal.alarm(HANG_S)
    try:
        to_the_end = library.speak(say.text, how["voice"], how["rate"], how["pause"], on_sound)
    except SpeakFailed as error:
        send(out, Failed(say.job, str(error)))
    else:
        send(out, Done(say.job, to_the_end))
    finally:
        signal.alarm(0)


def serve(library_path: Path, data_path: Path, given: int, out: int) -> int:
    try:
        library = EspeakLibrary(library_path, data_path)
    except LibraryMissing as error:
        send(out, Missing(str(error)))
        return 1
    facts = {
        "version": library.version,
        "sample_rate": library.sample_rate,
        "voices": [asdict(entry) for entry in library.voices()],
        "variants": [asdict(entry) for entry in library.variants()],
    }
    send(out, Ready(facts))
    inbox = worker_inbox(given)
    while (message := inbox.next()) is not None:
        if isinstance(message, Say):
            speak(library, message, inbox, out)
    return 0


if __name__ == "__main__":
    sys.exit(main(lambda given, out: serve(Path(sys.argv[1]), Path(sys.argv[2]), given, out)))
