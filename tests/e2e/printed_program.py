"""Runs a printed program as it is; Whisper alone is replaced, by a recogniser with a script.

``python -m tests.e2e.printed_program FILE SERVER TEXT...``: it understands these texts, one a turn,
and the program tells on standard output that its phone can be called. ``SERVER`` stands for the
default address of a speech server, at which another program of this machine may answer.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from qwen3tts_agent.recognition import whisper
from qwen3tts_phone.phone import Phone
from qwen3tts_speech import voice_process
from tests.e2e.agent_parties import Script


def main(path: str, server: str, *texts: str) -> None:
    script = Script(texts)
    replaced: Any = voice_process
    replaced.DEFAULT_URL = server
    enter = Phone.__aenter__

    async def entered(phone: Phone) -> Phone:
        entering = await enter(phone)
        print(phone.uri, flush=True)
        return entering

    replaced = whisper
    replaced.WhisperRecogniser = lambda settings: script.recogniser
    setattr(Phone, "__aenter__", entered)  # noqa: B010 - it is a method, to mypy
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
