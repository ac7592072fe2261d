"""The call of ``make demo``, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.network
WITHIN_S = 120
"""It takes some 20 s."""


async def test_the_demo_leaves_a_recording_in_which_both_speak(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qwen3tts_cli.demo", "--out", str(tmp_path)),
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "COLUMNS": "120"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WITHIN_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "interrupts with a question" in out.decode()
    with wave.open(str(tmp_path / "call.wav")) as file:
        both = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
        seconds = np.count_nonzero(np.abs(both.astype(int)) > 500, axis=0) / file.getframerate()
    caller, agent = seconds
    assert caller > 0.1
    assert agent > 0.5
    assert (tmp_path / "latency.jsonl").stat().st_size
