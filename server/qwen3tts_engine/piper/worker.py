"""Worker process: ``python -m qwen3tts_engine.piper.worker VOICES``.

VOICES is a JSON array of (network, settings, id). A turn is one chunk of one clause, chosen by the
engine (workers/messages.py).
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.piper.voice import PiperVoice, SpeechSettings
from qwen3tts_engine.piper.voice_files import VoiceFiles
from qwen3tts_engine.workers.messages import (
    Done,
    Failed,
    Go,
    Missing,
    Note,
    Paused,
    Ready,
    Say,
    Sound,
    send,
    worker_inbox,
)
from qwen3tts_wire.child.serving import main
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_engine.piper.voice import Clause


@dataclass(slots=True)
class _Speaking:
    clause: Clause
    reported: int = 0
    """Words reported so far."""


def turn(job: int, speaking: _Speaking, out: int) -> bool:
    """Synthesize one chunk; True: the clause is over."""
    chunk = speaking.clause.next()
    if len(chunk):
        send(out, Sound(job, pcm_of(chunk).astype("<i2").tobytes()))
    words = speaking.clause.words[speaking.reported :]
    if words:
        speaking.reported += len(words)
        reported = tuple(
            (word.char_start, word.char_end, word.start, word.end, int(word.precision == "exact"))
            for word in words
        )
        send(out, Sound(job, b"", reported))
    return not len(chunk) or speaking.clause.ended


def pcm_of(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    clipped: NDArray[np.int16] = np.clip(np.rint(sound * 32767.0), -32768, 32767).astype(np.int16)
    return clipped


def begun(voices: dict[str, PiperVoice], say: Say) -> _Speaking:
    how = dict(say.options)
    voice = voices[how.pop("voice")]
    return _Speaking(voice.clause(say.text, SpeechSettings(**how)))


def serve(files: list[VoiceFiles], given: int, out: int) -> int:
    voices: dict[str, PiperVoice] = {}
    for each in files:
        try:
            voices[each.id] = PiperVoice.load(each, threads=1)
            voices[each.id].network.forget_graphs()
        except SpeechError as error:
            send(out, Missing(f"Voice {each.id}: {error.message}", error.remedy))
            return 1
    _trim()
    send(out, Ready({"voices": [_facts(name, voice) for name, voice in voices.items()]}))
    inbox = worker_inbox(given)
    speaking: dict[int, _Speaking] = {}
    while (message := inbox.next()) is not None:
        job = message.job  # type: ignore[union-attr]  # the engine sends SAY, GO and STOP
        if not isinstance(message, Say | Go):
            speaking.pop(job, None)
            continue
        try:
            if isinstance(message, Say):
                speaking[job] = begun(voices, message)
                name = message.options["voice"]
                if unknown := voices[name].newly_unknown():
                    send(out, Note({"voice": name, "unknown": unknown}))
            over = turn(job, speaking[job], out)
        except SpeechError as error:
            speaking.pop(job, None)
            send(out, Failed(job, error.message, error.code, error.remedy))
            continue
        if over:
            del speaking[job]
        send(out, Done(job) if over else Paused(job))
    return 0


def _trim() -> None:
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def _facts(name: str, voice: PiperVoice) -> dict[str, object]:
    return {
        "id": name,
        "rate": voice.sample_rate,
        "language": voice.language,
        "speakers": voice.speaker_names,
        "unknown": voice.newly_unknown(),
    }


if __name__ == "__main__":
    # Texts are callers' words; a voice's warnings name phonemes of them.
    logging.disable(logging.CRITICAL)
    named = [
        VoiceFiles(Path(network), Path(config), name)
        for network, config, name in json.loads(sys.argv[1])
    ]
    sys.exit(main(lambda given, out: serve(named, given, out)))
