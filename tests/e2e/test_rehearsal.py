"""Rehearsals of our own agent: real SIP, RTP and speech, a model and a recogniser by a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_rehearsal.rehearsal import Rehearsal, RehearsalParts, plan
from qwen3tts_rehearsal.results import RehearsalResult
from qwen3tts_rehearsal.scenario import scenario_of
from qwen3tts_rehearsal.sip_line import SipLine
from qwen3tts_rehearsal.sounds import SoundBook
from qwen3tts_server.run import running_server
from qwen3tts_settings.entries import from_yaml
from qwen3tts_speech.link import SpeechLink
from tests.agent.endpoint import Answer, ChatEndpoint, says
from tests.e2e.agent_parties import spoken

pytestmark = pytest.mark.network

QUIET = AgentSettings(quiet_s=0.0, hang_up_tool=False)
LONG = (
    "We have rye bread, spelt bread, bread with walnuts, white bread, pretzels, buns with poppy"
    " seed, buns with sesame, and cakes of many kinds."
)


async def synthesise(text: str, voice: str, language: str) -> tuple[NDArray[np.int16], int]:
    return await spoken(text), 8000


@asynccontextmanager
async def agent(*answers: Answer, calls: int = 1) -> AsyncIterator[RehearsalParts]:
    """Our agent, and what calls it."""
    async with (
        asyncio.timeout(90.0),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(*answers * calls) as endpoint,
        Phone(PhoneSettings(server_url=server.url, codecs=("PCMU", "G722")), announce=None) as ours,
        Phone(PhoneSettings(), link=SpeechLink(server.url), announce=None) as theirs,
        Agent(
            endpoint.url,
            stt=CallbackRecogniser(lambda samples, rate: "something"),
            greeting="Bakery Miller, good morning.",
            settings=QUIET,
        ) as answering,
    ):
        serving = asyncio.create_task(answering.serve(ours))
        try:
            yield RehearsalParts(SipLine(theirs, ours.uri), SoundBook(synthesise))
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def rehearsed(
    parts: RehearsalParts, text: str, *, repeat: int = 1, at_once: int = 1, **changes: Any
) -> RehearsalResult:
    planned = plan(
        [(scenario_of(from_yaml(text, "t"), "t"), Path("t"))], repeat=repeat, same_seed=True
    )
    return await Rehearsal(replace(parts, **changes), planned).run(at_once)


TALK = """
steps:
  - wait: quiet
  - say: I would like
  - hesitate: 0.3
  - say: a table for two.
  - wait: quiet
  - hang_up: true
expect:
  first_response_s: 10
  response_s: 10
  cut_offs: 0
  talk_over_s: 0.5
  codec: G722
  hang_up: {by: caller}
line: {codec: G722, noise: street, snr_db: 30}
"""


async def test_our_agent_greets_answers_and_is_hung_up_on(tmp_path: Path) -> None:
    async with agent(says("Certainly, for two.")) as parts:
        result = await rehearsed(parts, TALK, folder=tmp_path)
    (call,) = result.calls
    assert call.error == ""
    assert call.passed, call.failed
    assert [span.side for span in call.spans] == ["agent", "caller", "agent"]
    assert call.spans[1].text == "I would like … a table for two."
    waited = call.spans[2].start_s - call.spans[1].end_s
    assert call.figures["response_max_s"] == pytest.approx(waited, abs=0.002)
    assert (tmp_path / "t-1.wav").stat().st_size > 16_000 * 4 * 3


OVER = """
steps:
  - wait: quiet
  - say: Which bread do you have?
  - barge_in: {say: "No, wait, that is too much for me.", after_s: 1.0}
  - wait: quiet
expect:
  interruption_ms: 5000
  response_s: 10
"""


async def test_an_interruption_is_made_and_timed() -> None:
    async with agent(says(LONG), says("Sorry.")) as parts:
        (call,) = (await rehearsed(parts, OVER)).calls
    assert call.error == ""
    assert call.passed, call.failed
    assert 0.0 < call.figures["interruption_max_ms"] < 5000.0
    over = next(span for span in call.spans if span.note == "barge_in")
    before = next(span for span in call.spans if span.end_s > over.start_s and span.side == "agent")
    assert over.start_s - before.start_s == pytest.approx(1.0, abs=0.4)


BAD_LINE = TALK.replace("codec: G722, noise", "loss: 4, burst: 2, jitter_ms: 40, noise").replace(
    "  codec: G722\n", ""
)


async def test_repeated_calls_over_a_bad_line_have_the_same_verdicts() -> None:
    async with agent(says("Certainly, for two."), calls=3) as parts:
        result = await rehearsed(parts, BAD_LINE, repeat=3, at_once=3)
    assert [call.error for call in result.calls] == ["", "", ""]
    assert len({tuple((v.name, v.passed) for v in call.verdicts) for call in result.calls}) == 1
    assert len({call.name for call in result.calls}) == 3
