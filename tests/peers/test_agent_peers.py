"""Callers who talk over an agent: SIPp, with a telephone's sound beside it, and a real baresip."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_server.run import running_server
from qwen3tts_text.segmenter import Segmenter
from tests.agent.endpoint import Answer, ChatEndpoint, Uses, says
from tests.e2e.agent_parties import Script, spoken
from tests.peers.baresip_runner import baresip, tone
from tests.peers.sipp_runner import sipp

pytestmark = pytest.mark.network

WITHIN_S = 60.0
GREETING = (
    "You have reached the bakery one two three four five six seven eight nine ten eleven twelve"
    " thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty."
)
QUESTION = "When do you close today?"
ANSWER = "We close at six. Good bye."
GOODBYE = Answer([ANSWER, Uses("hang_up")], finish="tool_calls")
SILENCE = np.zeros(8000 * 60, np.int16)
"""Long enough: baresip hangs up where its file ends."""
SETTINGS = AgentSettings(quiet_s=0.0, hang_up_tool=True)


async def middles(text: str) -> list[int]:
    """The middle of each word of it, in samples at 24 kHz, by the engine alone."""
    engine, segmenter = EmbeddedEngine(), Segmenter()
    await engine.start()
    found: list[int] = []
    base = 0
    try:
        for piece in [*segmenter.push(text), *segmenter.end()]:
            length = 0
            async for chunk in engine.synthesize(SynthesisRequest(piece.text, final=piece.final)):
                length += chunk.samples
                found += [base + (word.start + word.end) // 2 for word in chunk.words]
            base += length
    finally:
        await engine.close()
    return found


@asynccontextmanager
async def bakery(
    *answers: Answer, understood: list[str], **options: Any
) -> AsyncIterator[tuple[Agent, ChatEndpoint, Phone]]:
    """An agent, what its model is asked, and the phone at which it can be called."""
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(*answers) as endpoint,
        Phone(PhoneSettings(server_url=server.url)) as phone,
        Agent(
            endpoint.url,
            stt=Script(understood).recogniser,
            settings=SETTINGS,
            **options,
        ) as agent,
    ):
        yield agent, endpoint, phone


@pytest.mark.usefixtures("need_sipp")
async def test_a_sipp_caller_talks_over_the_agent_and_it_knows_what_was_heard(
    tmp_path: Path,
) -> None:
    talker: Any = importlib.import_module("benchmarks.talker")
    question = await spoken(QUESTION)
    async with (
        bakery(GOODBYE, understood=[QUESTION], greeting=GREETING) as (agent, endpoint, phone),
        talker.Line.open() as line,
        sipp(
            "uac_sounds_elsewhere",
            tmp_path,
            call=phone.port,
            keys={"rtp_port": str(line.port)},
            timeout_s=int(WITHIN_S),
        ) as peer,
    ):
        call = await anext(phone.incoming())
        assert call.facts.media.local is not None
        line.talk_to(call.facts.media.local[1])
        conversing = asyncio.create_task(agent.answer(call))
        await line.came(lambda packets: sounding(packets) >= 100)  # 2 s of the greeting
        await line.say(question)
        conversation = await conversing
        await peer.succeeded()
        packets = line.packets
    greeted, answered = conversation.turns
    assert greeted.interrupted
    assert answered.barge_in
    assert answered.heard.split() == ANSWER.split()
    # The packets say by themselves how much of the greeting came.
    first = next(index for index, each in enumerate(packets) if each.first >= 0)
    last = first
    for index, each in enumerate(packets[first:], start=first):
        if each.first >= 0 and index - last < 25:
            last = index
    heard = sum(middle <= (last - first) * 480 for middle in await middles(GREETING))
    assert 3 < heard < len(GREETING.split())
    assert abs(len(greeted.heard.split()) - heard) <= 1
    assert endpoint.requests[0].said[-1] == ("user", QUESTION)
    role, told = endpoint.requests[0].said[-2]
    assert role == "assistant"
    assert told.startswith(greeted.heard.strip())
    assert len(told.split()) <= len(greeted.heard.split()) + 1
    record = CallRecord.of(call.facts).values
    assert (record["turns"], record["barge_ins"], record["findings"]) == (1, 1, [])


def sounding(packets: Any) -> int:
    return sum(each.first >= 0 for each in packets)


@pytest.mark.usefixtures("need_sipp")
async def test_a_sipp_caller_whose_line_hums_and_echoes_does_not_stop_the_agent(
    tmp_path: Path,
) -> None:
    talker: Any = importlib.import_module("benchmarks.talker")
    greeted = asyncio.Event()
    options = {"greeting": GREETING, "on_turn": lambda *_: greeted.set()}
    async with (
        bakery(GOODBYE, understood=["nothing"], **options) as (agent, endpoint, phone),
        talker.Line.open() as line,
        sipp(
            "uac_sounds_elsewhere",
            tmp_path,
            call=phone.port,
            keys={"rtp_port": str(line.port)},
            timeout_s=int(WITHIN_S),
        ) as peer,
    ):
        line.noise(tone(100.0, 10.0) // 8)
        line.echo(20.0, 60.0)
        call = await anext(phone.incoming())
        assert call.facts.media.local is not None
        line.talk_to(call.facts.media.local[1])
        conversing = asyncio.create_task(agent.answer(call))
        await greeted.wait()
        await call.hangup()
        conversation = await conversing
        await peer.succeeded()
    assert [each.interrupted for each in conversation.turns] == [False]
    assert conversation.heard.split() == GREETING.split()
    assert endpoint.requests == []


@pytest.mark.usefixtures("need_baresip")
async def test_a_baresip_caller_talks_over_the_agent(tmp_path: Path) -> None:
    second = np.zeros(8000, np.int16)
    speech = np.concatenate([*[second] * 4, await spoken(QUESTION), SILENCE])
    async with (
        bakery(GOODBYE, understood=[QUESTION], greeting=GREETING) as (agent, endpoint, phone),
        baresip(tmp_path / "peer", speech=speech) as peer,
    ):
        await peer.dial(phone.uri)
        call = await anext(phone.incoming())
        conversation = await agent.answer(call)
        await peer.event("CALL_CLOSED")
    greeted, answered = conversation.turns
    assert greeted.interrupted
    assert 0 < len(greeted.heard.split()) < len(GREETING.split())
    assert answered.heard.split() == ANSWER.split()
    assert endpoint.requests[0].said[-1] == ("user", QUESTION)
    heard = peer.recording("dec")
    frames = heard[: len(heard) // 160 * 160].reshape(-1, 160).astype(int)
    sounding_s = int((np.abs(frames).max(axis=1) > 200).sum()) * 0.02
    all_s = len(await spoken(f"{GREETING} {ANSWER}")) / 8000
    assert 1.0 < sounding_s < all_s - 1.0


@pytest.mark.usefixtures("need_baresip")
async def test_a_baresip_caller_who_says_nothing_at_all_is_told_good_bye(tmp_path: Path) -> None:
    settings = AgentSettings(
        quiet_s=0.5, reprompts=1, reprompt="Hello?", hang_up_when_quiet=True, goodbye="Good bye."
    )
    async with (
        bakery(says("?"), understood=[], greeting="Hello.") as (agent, endpoint, phone),
        baresip(tmp_path / "peer", speech=SILENCE) as peer,
    ):
        agent.settings = settings
        await peer.dial(phone.uri)
        conversation = await agent.answer(await anext(phone.incoming()))
        await peer.event("CALL_CLOSED")
    assert conversation.heard.split() == ["Hello.", "Hello?", "Good", "bye."]
    assert endpoint.requests == []


@pytest.mark.usefixtures("need_baresip")
async def test_keys_of_a_baresip_caller_are_turns(tmp_path: Path) -> None:
    async with (
        bakery(
            GOODBYE,
            understood=[],
            greeting="Please enter your number.",
            listen=ListenSettings(keys_until="#"),
        ) as (agent, endpoint, phone),
        baresip(tmp_path / "peer", speech=SILENCE) as peer,
    ):
        await peer.dial(phone.uri)
        call = await anext(phone.incoming())
        conversing = asyncio.create_task(agent.answer(call))
        await call.answered()
        await peer.press("123#")
        conversation = await conversing
    assert endpoint.requests[0].said[-1] == ("user", "[keys: 123#]")
    assert conversation.turns[-1].heard.split() == ANSWER.split()
