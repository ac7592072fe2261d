"""A tiny checkpoint's engine whose model follows a script: each generation's sound is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.qwen3.engine import loaded
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, ReadyTicket, StepRow
from tests.engine.speech_like import Sound
from tests.qwen3.engine.engine_world import made

FRAME = 1920
Script = Callable[[int, str], Sound]
"""The sound of generation n, given its text; the model ends behind it."""
FirstCode = Callable[[int, int], int]
"""The first code of a generation's frame: of no meaning but that it repeats or does not."""


def varied(_generation: int, frame: int) -> int:
    """Codes of which none is said over and over."""
    return 1 + frame % 29


def requests_of(monkeypatch: pytest.MonkeyPatch) -> list[SynthesisRequest]:
    """The requests of all generations that are begun from now on."""
    found: list[SynthesisRequest] = []
    lay = loaded.LoadedModel.job

    def job(self: loaded.LoadedModel, request: SynthesisRequest, *given: Any) -> Any:
        found.append(request)
        return lay(self, request, *given)

    monkeypatch.setattr(loaded.LoadedModel, "job", job)
    return found


class ScriptedEngine:
    """``engine`` is a started one; ``texts`` are those of its generations, in order."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, script: Script, first_code: FirstCode = varied
    ) -> None:
        self.requests = requests_of(monkeypatch)
        numbers: dict[int, int] = {}
        sounds: dict[int, Sound] = {}
        made_frames: dict[int, int] = {}
        world = self

        class ScriptedRunner(Runner):
            def prefill(self, rows: Sequence[PrefillRow]) -> None:
                for each in rows:
                    number = len(sounds_made)
                    sounds_made.append(each.slot)
                    numbers[each.slot] = number
                    sound = script(number, world.requests[number].text)
                    whole = -(-len(sound) // FRAME) * FRAME
                    sounds[each.slot] = np.pad(sound, (0, whole - len(sound)))
                    made_frames[each.slot] = 0

            def step(self, rows: Sequence[StepRow]) -> ReadyTicket:
                codes = np.full((len(rows), 16), 5, np.int64)
                for index, row in enumerate(rows):
                    codes[index, 0] = first_code(numbers[row.slot], made_frames[row.slot])
                    over = made_frames[row.slot] * FRAME >= len(sounds[row.slot])
                    if over and row.eos_allowed:
                        codes[index, 0] = self.model.config.talker.ids.eos
                    made_frames[row.slot] += 1
                return ReadyTicket(codes)

            def decode(self, rows: Sequence[DecodeRow]) -> ReadyTicket:
                found = np.zeros((len(rows), rows[0].frames * FRAME), np.float32)
                for index, row in enumerate(rows):
                    at = row.first_frame * FRAME
                    part = sounds[row.slot][at : at + found.shape[1]]
                    found[index, : len(part)] = part
                return ReadyTicket(found)

        sounds_made: list[int] = []
        monkeypatch.setattr(loaded, "Runner", ScriptedRunner)

    @property
    def texts(self) -> list[str]:
        return [request.text for request in self.requests]

    async def started(self, folder: Path, **settings: Any) -> Qwen3Engine:
        engine = made(folder, warmup=False, slots=2, **settings)
        await engine.start()
        return engine
