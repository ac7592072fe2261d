"""The media process of a phone: its reports close and open the door, and it is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from qwen3tts_phone.media import admission
from qwen3tts_phone.media.admission import GOOD_REPORTS, LONG_REPORTS
from qwen3tts_phone.media.control import MediaRefused
from qwen3tts_phone.media.process import MediaKeeper
from qwen3tts_phone.media.reports import MediaLoad
from qwen3tts_phone.media.types import LegSpec, MediaSettings
from tests.media.peer import PATIENCE_S

CALLS = 60
pytestmark = pytest.mark.network


async def test_it_reports_its_load_and_refuses_calls_while_it_cannot_pace_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "LEAST_CALLS", 0)
    keeper = await MediaKeeper.start(MediaSettings(answer_timeout_s=60.0))
    try:
        load = MediaLoad(at_ns=1)
        report = keeper.process.on_load
        for second in range(1, 4):
            load = replace(load, at_ns=10**9 * second, cpu_ns=10**9 * second, calls=CALLS)
            report(load)
        with pytest.raises(MediaRefused, match=f"{CALLS} calls") as refused:
            await keeper.open(LegSpec())
        assert refused.value.remedy
        for _ in range(GOOD_REPORTS + LONG_REPORTS):
            load = replace(load, at_ns=load.at_ns + 10**9, calls=0)
            report(load)
        await (await keeper.open(LegSpec())).close()
    finally:
        await keeper.close()


async def test_a_process_that_is_lost_while_calls_were_refused_is_replaced_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "LEAST_CALLS", 0)
    keeper = await MediaKeeper.start(MediaSettings())
    try:
        for second in range(1, 4):
            keeper.process.on_load(
                MediaLoad(10**9 * second, 10**9 * second, CALLS, slots=1000 * second)
            )
        assert keeper.is_full
        lost = keeper.pid
        os.kill(lost, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await keeper.process.lost.wait()
            leg = await keeper.open(LegSpec())
        assert keeper.pid != lost
        await leg.close()
    finally:
        await keeper.close()
