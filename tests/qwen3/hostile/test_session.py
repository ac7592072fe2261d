"""The engine behind the real server, for callers who keep to no good manners."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_wire.client import Alignment, Audio, Done, SpeechClient, Started
from qwen3tts_wire.messages import Sampling
from tests.engine.waiting import until
from tests.qwen3.hostile.server import engines_of, heard, pcm_of, raw, samples, talking
from tests.qwen3.hostile.world import LAST_BIT, check_spans

pytestmark = pytest.mark.network

LINES = {
    "en": "Good day. This is it. Bye!",
    "de": "Guten Tag, Sie da.",
    "zh": "早上好。你好吗。",
    "fr": "Bonjour, \u00e7a va\u00a0? Oui.",
    None: "**Good** day 😀,\r\ne\u0301t\u00e9.",
}


@pytest.fixture(scope="module")
def engines(tiny: dict[str, Path]) -> Iterator[dict[str, Qwen3Engine]]:
    with engines_of(tiny) as made_here:
        yield made_here


# --- contexts side by side ---


async def test_two_contexts_letter_by_letter_on_one_connection_do_not_mix(
    engines: dict[str, Qwen3Engine],
) -> None:
    texts = {1: "Good morning to you.", 2: "One, two. Three."}
    how: dict[str, Any] = {"mode": "live", "sampling": {"temperature": 0}, "pause_flush_ms": 0}
    async with raw(engines["custom_voice"]) as line:
        alone = {}
        for no, text in texts.items():
            await line.open(no, **how)
            await line.say("text.append", context_id=f"c{no}", text=text)
            await line.say("text.end", context_id=f"c{no}")
            await line.until("context.done", context_id=f"c{no}")
            alone[no] = line.sound(no)
        for no in texts:
            await line.open(no + 10, **how)
        left = dict(texts)
        while any(left.values()):
            for no, text in left.items():
                if text:
                    await line.say("text.append", context_id=f"c{no + 10}", text=text[0])
                    left[no] = text[1:]
                    if not left[no]:
                        await line.say("text.end", context_id=f"c{no + 10}")
        done: set[str] = set()
        while len(done) < 2:
            done.add((await line.until("context.done"))["context_id"])
        for no in texts:
            one, other = samples(alone[no]), samples(line.sound(no + 10))
            assert len(one) == len(other) > 0
            assert np.abs(one - other).max() <= LAST_BIT


@pytest.mark.parametrize("mode", ["auto", "clause", "live"])
async def test_every_word_is_reported_once_and_before_it_has_sounded(
    engines: dict[str, Qwen3Engine], mode: str
) -> None:
    async def checked(client: SpeechClient, language: str | None) -> None:
        text = LINES[language]
        context = await client.open(mode=mode, language=language, lead_ms=10_000)
        for char in text:
            await context.append(char)
        await context.end()
        events = await heard(context)
        done = events[-1]
        assert isinstance(done, Done)
        assert done.reason == "text_end"
        assert done.chars == len(text)
        check_spans(context.words, text)
        assert context.words[-1].end <= done.samples == context.received
        # They come with the clause that they belong to, not at the end.
        sounds = [at for at, event in enumerate(events) if isinstance(event, Audio)]
        told = [at for at, event in enumerate(events) if isinstance(event, Alignment)]
        assert told[0] < sounds[-1]

    async with talking(engines["custom_voice"]) as client:
        await asyncio.gather(*(checked(client, language) for language in LINES))


async def test_what_was_heard_and_what_remains_are_the_text(
    engines: dict[str, Qwen3Engine],
) -> None:
    text = "Good morning 😀, one two three. And **this** is e\u0301t\u00e9."

    async def checked(client: SpeechClient, mode: str, share: float) -> None:
        context = await client.open(mode=mode, lead_ms=10_000)
        await context.append(text)
        await context.end()
        got = 0
        async for event in context:
            if isinstance(event, Audio):
                got += len(event.pcm) // 2
                if got > 40_000:
                    break
        position = round(got * share)
        answer = await context.cancel(position)
        assert answer.confirmed
        assert answer.text_heard + answer.text_remaining == text
        halfway = [(word.start + word.end) / 2 <= position for word in context.words]
        assert bool(answer.text_heard) == any(halfway)
        if any(halfway):
            last = context.words[halfway.count(True) - 1]
            assert len(answer.text_heard) >= last.char_end

    async with talking(engines["custom_voice"]) as client:
        await asyncio.gather(
            *(checked(client, mode, share) for mode in ("auto", "live") for share in (0, 0.4, 1))
        )


# --- cancel ---


async def test_a_cancel_in_any_state_is_the_last_word(engines: dict[str, Qwen3Engine]) -> None:
    async with raw(engines["custom_voice"]) as line:
        text = "Good morning. This is it."

        async def nothing(_id: str) -> None: ...

        async def half_a_word(context_id: str) -> None:
            await line.say("text.append", context_id=context_id, text="Go")

        async def begun(context_id: str) -> None:
            await line.say("text.append", context_id=context_id, text="Good morning to ")
            await line.until("audio")

        async def ended(context_id: str) -> None:
            await line.say("text.append", context_id=context_id, text=text)
            await line.say("text.end", context_id=context_id)

        async def speaking(context_id: str) -> None:
            await ended(context_id)
            await line.until("audio")

        async def flushed(context_id: str) -> None:
            await line.say("text.append", context_id=context_id, text="Good")
            await line.say("text.flush", context_id=context_id)

        async def done(context_id: str) -> None:
            await ended(context_id)
            await line.until("context.done", context_id=context_id)

        cases = (nothing, half_a_word, begun, ended, speaking, flushed, done)
        modes = ("auto", "live")
        for number, (case, mode) in enumerate(((c, m) for c in cases for m in modes), 1):
            await line.open(number, seed=1, mode=mode)
            await case(f"c{number}")
            await line.say("context.cancel", context_id=f"c{number}", played=0)
            answer = await line.until("context.cancelled", context_id=f"c{number}")
            assert answer["text_heard"] == ""
            # A second one is a fault of the client, and brings nothing to life.
            await line.say("context.cancel", context_id=f"c{number}")
            mark = len(line.events)
            await line.settled()
            later = line.events[mark:]
            assert {e["type"] for e in later} <= {"error", "pong"}
            assert all(e["ends"] == "none" for e in later if e["type"] == "error")
        # Nothing of any of them came late.
        over: set[int] = set()
        for event in line.events:
            if event["type"] == "context.cancelled":
                over.add(int(event["context_id"][1:]))
            assert event.get("no") not in over


async def test_instructions_seed_and_sampling_reach_the_model(
    engines: dict[str, Qwen3Engine],
) -> None:
    async with talking(engines["voice_design"]) as client:

        async def say(instructions: str, **fields: Any) -> bytes:
            context = await client.open(lead_ms=10_000, instructions=instructions, **fields)
            await context.append("Yes.")
            await context.end()
            events = await heard(context)
            assert isinstance(events[0], Started)
            assert events[0].ignored == ()
            return pcm_of(events)

        greedy = Sampling(temperature=0.0)
        calm, calm_again, loud = await asyncio.gather(
            *(say(how, sampling=greedy) for how in ("A calm man.", "A calm man.", "A loud child."))
        )
        assert np.abs(samples(calm) - samples(calm_again)).max() <= LAST_BIT
        assert calm != loud
        seven, seven_again, eight = [await say("A calm man.", seed=seed) for seed in (7, 7, 8)]
        assert np.abs(samples(seven) - samples(seven_again)).max() <= LAST_BIT
        assert seven != eight


# --- the listener's position ---


async def test_a_row_rests_while_its_listener_has_enough_and_goes_on_by_report(
    engines: dict[str, Qwen3Engine],
) -> None:
    engine = engines["custom_voice"]
    text = "Good morning to all of you, one two three four five six seven eight nine ten eleven."
    async with raw(engine) as line:
        await line.open(1, seed=1, lead_ms=400, mode="clause")
        await line.say("text.append", context_id="c1", text=text)
        await line.say("text.end", context_id="c1")
        await line.until("audio")
        # The listener stands still: what is made is what he may have ahead, and no more.
        await line.say("playout.report", context_id="c1", played=0, state="held")
        worker = engine._started().worker
        await until(lambda: not worker._batch.waits and worker._scheduler.active == 1)
        await line.settled()
        (job,) = worker._batch.jobs
        assert job.lead is not None
        played = 0
        for _ in range(3):
            rested = job.launched
            made_s = (len(line.sound(1)) // 2 - played) / 24_000
            assert made_s <= 0.4 + 3 * 0.08
            assert job.total is None
            # He has heard all of it, and waits again.
            played = len(line.sound(1)) // 2
            await line.say("playout.report", context_id="c1", played=played, state="held")
            await until(lambda before=rested: job.launched > before and not worker._batch.waits)  # type: ignore[misc]
            await line.settled()
        await line.say("playout.report", context_id="c1", played=played, state="playing")
        await line.say("context.cancel", context_id="c1")
        await line.until("context.cancelled", context_id="c1")
