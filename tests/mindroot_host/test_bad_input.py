"""What models and users of the host get wrong: it is said as well as it can be, or not at all."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.mindroot_host.call import Call, commands, times
from tests.mindroot_host.conftest import Since
from tests.mindroot_host.hearing import heard_whole, words
from tests.mindroot_host.host import Host

pytestmark = pytest.mark.network

NOTHING: list[Any] = [None, "   \n\t ", [], {}, [None], "**", "<br/>", "``` ```", "\ud83d", True]
MEANT: list[tuple[Any, str]] = [
    ({"text": ["Two parts", "of one reply."]}, "Two parts of one reply."),
    ("A bare string is said, too.", "A bare string is said, too."),
    (["The list of a single sentence."], "The list of a single sentence."),
    ({"text": "Unknown arguments do no harm.", "mood": "glad"}, "Unknown arguments do no harm."),
    ({"text": "This voice is a number.", "voice_id": 17}, "This voice is a number."),
    (
        {"text": "*Stars* and **more stars** are `not` heard."},
        "Stars and more stars are not heard.",
    ),
    ({"text": "Half \ud83d an emoji cannot be pronounced."}, "Half an emoji cannot be pronounced."),
    ({"text": "Whole \U0001f600 ones are left out."}, "Whole ones are left out."),
    ({"text": "First line,\nsecond line,\r\n\tthird."}, "First line, second line, third."),
    ({"text": 42}, "42"),
]
"""What a model gives as the parameters of ``speak``, and what is to be heard."""


async def check_speaks(call: Call, said_now: Since, text: str) -> None:
    """The call can still be spoken on."""
    begun, old = await call.now(), len(said_now())
    await call.speak(text)
    await call.finished()
    heard_whole(await call.silence(after=begun), said_now()[old:], text)


async def test_what_has_no_words_is_not_said_and_no_error(host: Host, said_now: Since) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        for text in NOTHING:
            answer = await admin.client.post(
                f"/cmd/{call.log_id}",
                # As ASCII: half an emoji has no other encoding.
                content=json.dumps({"command": "speak", "args": {"text": text}}),
                headers={"Content-Type": "application/json"},
            )
            assert answer.json() == {"status": "ok", "result": None}, text
        for text in NOTHING:
            asked = len(await call.model())
            await call.say(commands({"speak": {"text": text}}))
            await call.finished()
            assert len(await call.model()) == asked + 1, f"{text!r} went back to the model"
        assert not said_now()
        await call.silence()
        record = await call.record()
        assert len(times(record, "start")) == len(times(record, "end")), "a response stays open"
        await check_speaks(call, said_now, "The call goes on, as these words show.")


async def test_what_the_model_gets_wrong_is_said_as_it_was_meant(
    host: Host, said_now: Since
) -> None:
    async def one(call: Call, params: Any, meant: str) -> None:
        # In pieces of a few characters: half an escape, half an emoji, half a mark.
        await call.say(commands({"speak": params}, token_ms=5, token_chars=3))
        await call.finished()
        heard_whole(await call.silence(), said_now(), meant)

    async with host.visit() as admin:
        calls = [await admin.call() for _ in MEANT]
        await asyncio.gather(*(one(call, *each) for call, each in zip(calls, MEANT, strict=True)))


async def test_a_raw_line_break_in_the_models_string_says_nothing_wrong_and_nothing_twice(
    host: Host, said_now: Since
) -> None:
    text = "The first line of it and\nthe second line of it are one sentence."
    raw = {"text": '[{"speak": {"text": "' + text + '"}}]', "token_ms": 10, "token_chars": 4}
    async with host.visit() as admin:
        call = await admin.call()
        # The host cannot read it, waits for a second or two and asks the model again.
        await call.say(raw, commands({"speak": {"text": text}}, token_ms=10))
        await call.finished()
        playout = await call.silence()
    pieces = [each.text for each in said_now()]
    assert words(" ".join(pieces)) == words(text)
    heard_whole(playout, said_now(), *pieces)


async def test_text_with_blank_lines_around_a_tag_is_heard_whole(
    host: Host, said_now: Since
) -> None:
    async with host.visit() as admin:
        call = await admin.call("xml")
        await call.speak("\n\n  One moment, please.\n", "\n\n  I have found it.  \n")
        await call.finished()
        heard_whole(await call.silence(), said_now(), "One moment, please.", "I have found it.")


@pytest.mark.parametrize("agent", ["json", "xml"])
async def test_a_hundred_thousand_characters_start_at_once_and_can_be_stopped(
    host: Host, said_now: Since, agent: str
) -> None:
    text = "This is one of very many sentences of a reply that has no end. " * 1600
    assert len(text) > 100_000
    async with host.visit() as admin:
        call = await admin.call(agent)
        await call.speak(text, token_ms=1, token_chars=4000)
        await call.frames(25)
        begun = time.monotonic()
        assert (await admin.client.get("/healthz")).status_code == 200
        assert time.monotonic() - begun < 5
        await call.phone("cancel_and_wait")
        await call.silence()
        said = [word for each in said_now() for word in words(each.text)]
        assert len(said) < 1000, "the server says what nobody will hear"
        await check_speaks(call, said_now, "And that was all of it.")


async def test_a_voice_that_is_not_there_is_replaced_and_the_page_says_so(
    host: Host, said_now: Since
) -> None:
    asked_for = {
        "absent": "a voice that nobody has",
        "missing": "/no/such/recording.wav",
        "unborn": "clone:nobody",
        "unreachable": "http://127.0.0.1:9/voice.wav",
        "Vivian": "Vivian",
    }

    async def one(call: Call, name: str) -> None:
        text = f"{name} I may be."
        await call.speak(text)
        await call.finished()
        heard_whole(await call.silence(), said_now(), text)

    for name, voice in asked_for.items():
        host.add_agent(name, voice_id=voice)
    async with host.visit() as admin:
        calls = {name: await admin.call(name) for name in asked_for}
        await asyncio.gather(*(one(call, name) for name, call in calls.items()))
        state = (await admin.client.get("/mr_qwen3tts/state")).json()
        for voice in asked_for.values():
            assert voice in json.dumps(state, ensure_ascii=False)


async def test_the_voice_of_persona_agent_and_argument_is_taken(
    host: Host, said_now: Since
) -> None:
    host.add_agent("bypersona", voice_id="en-us+f1")
    host.add_agent("byagent", env={"MR_QWEN3TTS_VOICE": "en-us+f3"})
    for name, more, voice in (
        ("bypersona", {}, "en-us+f1"),
        ("byagent", {}, "en-us+f3"),
        ("bypersona", {"voice_id": "en-us+m1"}, "en-us+m1"),
    ):
        async with host.visit() as admin:
            call = await admin.call(name)
            # The argument comes first: words are spoken while the rest is still being written.
            await call.say(commands({"speak": {**more, "text": "This is me."}}))
            await call.finished()
            await call.silence()
            assert said_now()[-1].voice == voice
