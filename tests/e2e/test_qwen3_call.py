"""A phone call spoken by the Qwen3-TTS engine, with a tiny checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_cli.main import run
from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.playout import SAMPLE_RATE, PlayoutLead
from qwen3tts_pacer.clock import LoopClock
from qwen3tts_phone.call.text_sources import scripted
from qwen3tts_server.run import running_server
from qwen3tts_speech.latency import Mark, read_log
from qwen3tts_wire.client import Audio, Done, SpeechClient
from qwen3tts_wire.errors import ServerBusy
from tests.conftest import require_package
from tests.e2e.parties import Ear, connected, phone
from tests.engine.waiting import until
from tests.fakes import settle

pytestmark = pytest.mark.network

GREETING = (
    "Good morning, this is the clinic. You are speaking with an assistant. We are open from eight"
    " to five, Monday to Friday. If you would like to book an appointment, tell me your name and"
    " the day that suits you best."
)
ANSWER = "On Saturday we are closed. Goodbye!"
TOKEN_MS = 20.0
LEAD_S = 0.8
"""The engine's setting."""
CHUNK_S = 8 * 0.08
"""The largest chunk of sound."""
AT_THE_SERVER = (
    Mark.REQUEST_RECEIVED,
    Mark.SEGMENT_READY,
    Mark.SLOT,
    Mark.PREFILL,
    Mark.FIRST_CODES,
    Mark.FIRST_PCM,
    Mark.FIRST_AUDIBLE_PCM,
)
AT_THE_CALLER = (
    Mark.FIRST_DELTA,
    Mark.REQUEST_SENT,
    Mark.RECEIVED,
    Mark.RESAMPLED,
    Mark.QUEUED,
    Mark.FIRST_FRAME_WIRE,
    Mark.FIRST_AUDIBLE_WIRE,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CustomVoice checkpoint."""
    require_package("torch", "pip install 'mr_qwen3tts[qwen3]'")
    from tests.tiny_models.checkpoint import make_tiny

    return make_tiny(tmp_path_factory.mktemp("tiny"))["custom_voice"]


def watched(checkpoint: Path, **settings: Any) -> Any:
    """An engine that keeps how far ahead of its listener it was, in seconds, and what it was
    told of the listener, in samples."""
    from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
    from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings

    class Watched(Qwen3Engine):
        def __init__(self) -> None:
            super().__init__(Qwen3Settings(str(checkpoint), **settings))
            self.ahead: list[float] = []
            self.heard: list[int] = []
            self._watched: set[PlayoutLead] = set()

        async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
            lead = request.lead
            assert lead is not None
            if lead not in self._watched:
                self._watched.add(lead)
                self._watch(lead)
            async for chunk in super().synthesize(request):
                # Against what was reported: the server's own guess is not asked.
                self.ahead.append(lead.made_samples / SAMPLE_RATE - self.heard[-1] / SAMPLE_RATE)
                yield chunk

        def _watch(self, lead: PlayoutLead) -> None:
            self.heard.append(0)
            report = lead.report

            def watched_report(played: int, playing: bool, now: float) -> None:
                self.heard.append(played)
                report(played, playing, now)

            lead.report = watched_report  # type: ignore[method-assign]

    return Watched()


async def test_a_call_is_spoken_live_interrupted_and_spoken_again(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One slot and no queue: what follows the interruption is refused unless the slot is free.
    engine = watched(checkpoint, slots=1, max_waiting=0, lead_ms=LEAD_S * 1000)
    log = tmp_path / "calls.jsonl"
    async with (
        asyncio.timeout(60),
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url, latency_log=log, options={"seed": 5}) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        assert agent.ignored == ()
        ear = Ear(theirs)
        greeting = ours.speak(scripted(GREETING, LoopClock(), ms_per_token=TOKEN_MS))
        await ear.sound(3.0)
        ours.interrupt()
        answer = ours.speak(scripted(ANSWER, LoopClock(), ms_per_token=TOKEN_MS))
        spoken = await greeting.spoken()
        assert spoken.interrupted
        assert spoken.heard
        assert spoken.remaining.endswith("suits you best.")
        assert spoken.heard + spoken.remaining == GREETING
        assert engine.heard[-1] > 2 * SAMPLE_RATE
        # Reports are up to 0.1 s old; the rest is room for a machine that stalls.
        assert max(engine.ahead) < LEAD_S + CHUNK_S + 0.5
        spoken = await answer.spoken()
        assert (spoken.heard, spoken.interrupted) == (ANSWER, False)
        while engine.under_way:
            await settle(1)

    records = list(read_log(log))
    assert [each.end_reason for each in records] == ["interrupted", "text_end"]
    for record in records:
        for places in (AT_THE_SERVER, AT_THE_CALLER):
            at = [record.marks[place] for place in places]
            assert at == sorted(at)
    assert run(["latency", str(log)]) == 0
    shown = capsys.readouterr().out
    for stage in ("segment_ready → slot", "slot → prefill", "prefill → first_codes"):
        assert stage in shown


async def test_a_full_server_refuses_one_more_context_and_says_that_it_may_be_tried_again(
    checkpoint: Path,
) -> None:
    engine = watched(checkpoint, slots=1, max_waiting=1)
    async with (
        asyncio.timeout(60),
        running_server(engine, host="127.0.0.1", port=0) as server,
        await SpeechClient.connect(server.url) as client,
    ):

        async def opened(text: str) -> Any:
            context = await client.open()
            await context.append(text)
            await context.end()
            return context

        speaking = await opened(GREETING)
        async for event in speaking:
            if isinstance(event, Audio):
                break
        waiting = await opened("I wait for my turn.")
        refused = await opened("Nobody hears me.")
        with pytest.raises(ServerBusy, match="All 1 slots") as error:
            [_ async for _ in refused]
        assert error.value.retryable
        assert error.value.remedy
        assert (await speaking.cancel()).confirmed
        done = [event async for event in waiting][-1]
        assert isinstance(done, Done)
        assert done.reason == "text_end"


async def test_a_row_that_is_held_rests_after_its_lead_and_one_that_is_dropped_is_free(
    checkpoint: Path,
) -> None:
    engine = watched(checkpoint, slots=1, max_waiting=0, lead_ms=LEAD_S * 1000)
    async with (
        asyncio.timeout(60),
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url, options={"seed": 5}) as agent,
        phone(server.url) as caller,
        connected(agent, caller) as (ours, _theirs),
    ):
        for _ in range(2):
            prepared = ours.prepare(GREETING)
            await asyncio.sleep(1.2)
            made = len(engine.ahead)
            await asyncio.sleep(0.5)
            assert len(engine.ahead) == made
            assert 0 < engine.ahead[-1] < LEAD_S + CHUNK_S + 0.3
            prepared.drop()
            await until(lambda: engine.under_way == 0)
        # The only slot was free after the first drop, and is after the last.
        spoken = await ours.say(ANSWER)
        assert (spoken.heard, spoken.interrupted) == (ANSWER, False)
