"""Records, diagnosis, calling again and answering machines, on calls between two phones."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.audio.answering import Answerer, MachineReady, who_answered
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.diagnosis.diagnose import diagnose
from qwen3tts_phone.diagnosis.outcome import Outcome
from qwen3tts_phone.dialling.retries import RetryPolicy, attempt_call, place_with_retries
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.records.log import read_records
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from tests.phone.sounds import quiet, speech, tone

pytestmark = pytest.mark.network
NO_SERVER = "ws://127.0.0.1:1/v1/speech"


def phone(folder: Path | None = None) -> Phone:
    records = RecordSettings(log=folder / "calls.jsonl") if folder is not None else None
    return Phone(PhoneSettings(records=records), link=SpeechLink(NO_SERVER))


async def hung_up(call: Call) -> None:
    await call.hangup()


async def test_a_call_leaves_a_record_on_both_sides(tmp_path: Path) -> None:
    for name in ("out", "in"):
        (tmp_path / name).mkdir()
    async with (
        asyncio.timeout(30),
        phone(tmp_path / "out") as agent,
        phone(tmp_path / "in") as desk,
    ):
        call = await agent.dial(desk.uri)
        theirs = await anext(desk.incoming())
        await theirs.answer()
        await call.answered()
        assert await call.play(speech(0.5), 8000)
        await call.hangup()
        await theirs.ended()
    (ours,), (other,) = (list(read_records(tmp_path / n / "calls.jsonl")) for n in ("out", "in"))
    assert ours.id == other.id == call.id
    assert [each.values["direction"] for each in (ours, other)] == ["out", "in"]
    assert [each.outcome for each in (ours, other)] == ["answered", "answered"]
    assert [each.values["end"]["by"] for each in (ours, other)] == ["local", "remote"]
    for each in (ours, other):
        assert each.values["codec"] == "PCMU"
        assert each.values["quality"]["in"]["mos"] > 4
        assert each.values["quality"]["in"]["packets"] > 10
        assert 0 <= each.values["answered_s"] <= each.values["ended_s"]
        assert each.values["first_rtp_in_s"] is not None
        assert each.values["first_rtp_out_s"] is not None


async def test_a_record_has_the_words_that_were_heard_where_they_are_asked_for(
    tmp_path: Path,
) -> None:
    settings = RecordSettings(log=tmp_path / "calls.jsonl", transcript=True)
    async with (
        asyncio.timeout(60),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url, records=settings)) as agent,
        phone() as desk,
    ):
        call = await agent.dial(desk.uri)
        theirs = await anext(desk.incoming())
        await theirs.answer()
        await call.answered()
        await call.say("One two.")
        call.facts.note_heard("Three four.", agent.clock.now())
        await call.hangup()
    (record,) = list(read_records(tmp_path / "calls.jsonl"))
    lines = record.values["transcript"]
    assert [(line["who"], line["text"]) for line in lines] == [
        ("agent", "One two."),
        ("caller", "Three four."),
    ]
    assert record.values["utterances"] == 1


async def test_a_busy_line_is_called_until_it_answers() -> None:
    async with asyncio.timeout(30), phone() as agent, phone() as desk:

        async def answer() -> None:
            count = 0
            async for call in desk.incoming():
                count += 1
                await (call.reject(486) if count < 3 else call.answer())

        waits: list[float] = []

        async def pass_over(at: float) -> None:
            waits.append(at - agent.clock.now())

        answering = asyncio.create_task(answer())
        placed = await place_with_retries(
            lambda number: attempt_call(lambda: agent.dial(desk.uri), hung_up),
            RetryPolicy(attempts=5, waits_s=(60.0, 300.0)),
            now=agent.clock.now,
            sleep_until=pass_over,
        )
        answering.cancel()
    assert placed.outcomes == [Outcome.BUSY, Outcome.BUSY, Outcome.ANSWERED]
    assert [round(wait) for wait in waits] == [60, 300]


async def test_a_port_where_nothing_listens_is_named_with_what_to_do() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    async with asyncio.timeout(60), phone() as agent:
        call = await agent.dial(f"sip:nobody@127.0.0.1:{port}")
        with pytest.raises(CallError):
            await call.answered()
        await call.ended()
        found = diagnose(call.facts)
    assert [each.code for each in found] == ["port_closed"]
    assert str(port) in found[0].words
    assert "transport" in found[0].remedy


async def test_a_machine_is_heard_on_a_real_call_by_its_beep() -> None:
    sound = np.concatenate([speech(0.6), quiet(0.2), tone(1000.0, 0.3), quiet(0.6)])
    async with asyncio.timeout(30), phone() as agent, phone() as desk:
        call = await agent.dial(desk.uri)
        theirs = await anext(desk.incoming())
        heard = asyncio.create_task(until_ready(call))
        await theirs.answer()
        await call.answered()
        await theirs.play(sound, 8000)
        answerer, ready = await heard
        await call.hangup()
    assert (answerer.kind, answerer.words) == ("machine", "a beep")
    assert ready.beeped


async def until_ready(call: Call) -> tuple[Answerer, MachineReady]:
    answerer: Answerer | None = None
    async for each in who_answered(call.audio(steady=True)):
        if isinstance(each, MachineReady):
            assert answerer is not None
            return answerer, each
        answerer = each
    raise AssertionError("the call ended before anything was known")
