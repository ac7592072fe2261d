"""What models and users of the host get wrong: it is said as well as it can be, or not at all."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.mindroot_host.conftest import Since
from tests.mindroot_host.hearing import heard_whole, words
from tests.mindroot_host.host import Call, Host, commands, speaking, xml

pytestmark = pytest.mark.network


async def check_speaks(call: Call, said_now: Since, text: str) -> None:
    """The call can still be spoken on."""
    before = len((await call.playout()).responses)
    old = len(said_now())
    await call.say(speaking(text))
    await call.finished()
    playout = await call.silence()
    playout.responses = playout.responses[before:]
    heard_whole(playout, said_now()[old:], text)


NOTHING: list[Any] = [
    None,
    "",
    "   \n\t ",
    [],
    {},
    [None],
    "**",
    "<br/>",
    "``` ```",
    "\ud83d",
    True,
]


@pytest.mark.parametrize("how", ["by the host's route", "by the model"])
async def test_what_has_no_words_is_not_said_and_no_error(
    host: Host, said_now: Since, how: str
) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        for text in NOTHING:
            if how == "by the model":
                await call.say(commands({"speak": {"text": text}}))
                await call.finished()
                assert len(await call.model()) <= 1 + NOTHING.index(text)
            else:
                answer = await admin.client.post(
                    f"/cmd/{call.log_id}",
                    content=json.dumps({"command": "speak", "args": {"text": text}}),
                    headers={"Content-Type": "application/json"},
                )
                assert answer.json() == {"status": "ok", "result": None}, text
        assert not said_now()
        await check_speaks(call, said_now, "The call goes on, as these words show.")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"text": ["Two parts", "of one reply."]}, "Two parts of one reply."),
        ("A bare string is said, too.", "A bare string is said, too."),
        (["A list of one string."], "A list of one string."),
        (
            {"text": "Unknown arguments do no harm.", "mood": "glad"},
            "Unknown arguments do no harm.",
        ),
        ({"text": "A voice that is a number.", "voice_id": 17}, "A voice that is a number."),
        (
            {"text": "*Stars* and **more stars** are `not` said."},
            "Stars and more stars are not said.",
        ),
        ({"text": "Half \ud83d an emoji is no word."}, "Half an emoji is no word."),
        ({"text": "A whole \U0001f600 one is none either."}, "A whole one is none either."),
        ({"text": "First line,\nsecond line,\r\n\tthird."}, "First line, second line, third."),
    ],
)
async def test_what_the_model_gets_wrong_is_said_as_it_was_meant(
    host: Host, said_now: Since, params: Any, said: str
) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        # In pieces of a few characters: half an escape, half an emoji, half a mark.
        await call.say(commands({"speak": params}, token_ms=5, token_chars=3))
        await call.finished()
        heard_whole(await call.silence(), said_now(), said)


async def test_a_raw_line_break_in_the_models_string_is_not_heard(
    host: Host, said_now: Since
) -> None:
    text = "The first line of it and\nthe second line of it are one sentence."
    raw = '[{"speak": {"text": "' + text + '"}}]'
    async with host.visit() as admin:
        call = await admin.call()
        await call.say({"text": raw, "token_ms": 10, "token_chars": 4})
        await call.frames(20)
        playout = await call.silence(1.5)
        heard_whole(playout, said_now(), text)


async def test_a_number_is_read_out(host: Host, said_now: Since) -> None:
    async with host.visit() as admin:
        call = await admin.call()
        await call.say(commands({"speak": {"text": 42}}))
        await call.finished()
        heard_whole(await call.silence(), said_now(), "42")


async def test_text_with_leading_blank_lines_before_a_tag_is_heard_whole(
    host: Host, said_now: Since
) -> None:
    async with host.visit() as admin:
        call = await admin.call("xml")
        await call.say(xml("\n\n  One moment, please.\n<nothing/>\n\n  I have found it.  \n"))
        await call.finished()
        heard_whole(await call.silence(), said_now(), "One moment, please.", "I have found it.")


async def test_a_hundred_thousand_characters_start_at_once_and_can_be_stopped(
    host: Host, said_now: Since
) -> None:
    text = "This is one of very many sentences of a reply that has no end. " * 1600
    assert len(text) > 100_000
    async with host.visit() as admin:
        call = await admin.call()
        await call.say(speaking(text, token_ms=1, token_chars=4000))
        await call.frames(50)
        async with httpx.AsyncClient(base_url=host.url, timeout=10) as client:
            begun = time.monotonic()
            assert (await client.get("/healthz")).status_code == 200
            assert time.monotonic() - begun < 5
        await call.phone("cancel_and_wait")
        await call.silence()
        said = [word for each in said_now() for word in words(each.text)]
        assert len(said) < 1000, "the server says what nobody will hear"
        await check_speaks(call, said_now, "And that was all of it.")


@pytest.mark.parametrize(
    "voice",
    [
        "a voice that nobody has",
        "/no/such/recording.wav",
        "clone:nobody",
        "http://127.0.0.1:9/voice.wav",
        "Vivian",
    ],
)
async def test_a_voice_that_is_not_there_is_replaced_and_the_page_says_so(
    host: Host, said_now: Since, voice: str
) -> None:
    name = "".join(filter(str.isalnum, voice)).lower()
    host.add_agent(name, voice_id=voice)
    text = "Whoever was asked for, somebody says this sentence."
    async with host.visit() as admin:
        call = await admin.call(name)
        await call.say(speaking(text))
        await call.finished()
        heard_whole(await call.silence(), said_now(), text)
        state = (await admin.client.get("/mr_qwen3tts/state")).json()
        assert voice in json.dumps(state, ensure_ascii=False)


async def test_the_voice_of_persona_agent_and_argument_is_taken(
    host: Host, said_now: Since
) -> None:
    host.add_agent("bypersona", voice_id="en-us+f4")
    host.add_agent("byagent", env={"MR_QWEN3TTS_VOICE": "en-us+f3"})
    async with host.visit() as admin:
        for name, more, voice in (
            ("bypersona", {}, "en-us+f4"),
            ("byagent", {}, "en-us+f3"),
            ("bypersona", {"voice_id": "en-us+m4"}, "en-us+m4"),
        ):
            call = await admin.call(name)
            # The argument comes first: words are spoken while the rest is still being written.
            await call.say(
                commands({"speak": {**more, "text": f"I speak as {voice[-1]} was set."}})
            )
            await call.finished()
            await call.silence()
            assert said_now()[-1].voice == voice
