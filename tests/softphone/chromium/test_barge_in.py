"""Barge-in from the browser: the caller's voice silences the agent, and the captions tell what was
heard."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from tests.e2e.far_ends import speech
from tests.softphone.browser import Chromium
from tests.softphone.served import Person, at_the_page, served

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

STORY = "One two three four five six seven eight nine ten. " * 8
"""Half a minute."""
SILENCE_S = 4.0
"""Time that the caller listens before each barge-in: on a busy machine the first
words may come before the story has begun."""


async def cutting_in(seconds: float = SILENCE_S) -> NDArray[np.int16]:
    """Silence and then a caller who cuts in, several times, 8 kHz."""
    engine = EmbeddedEngine()
    await engine.start()
    try:
        words = await speech(engine, "Stop please, I have a question about that.")
    finally:
        await engine.close()
    return np.tile(np.concatenate([np.zeros(int(8000 * seconds), np.int16), words]), 4)


async def word_states(person: Person) -> list[str]:
    states: list[str] = await person.page.locator("#captions .word").evaluate_all(
        "words => words.map((each) => each.dataset.state)"
    )
    return states


async def silent_again(person: Person) -> None:
    """Wait until nothing is heard any more: half a second of blocks without sound."""
    await person.visit.until(
        "() => Date.now() - (window.testEars.lastMs(0.01) ?? Date.now()) > 500"
    )


async def test_the_callers_voice_silences_the_agent_and_captions_tell_what_was_heard(
    chromium: Chromium,
) -> None:
    chromium.says(await cutting_in(), 8000)
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.call()
        await person.put(STORY)
        await person.visit.message("utterance")
        [spoken] = await person.spoken()
        await silent_again(person)
        heard = await person.visit.heard()
        said = await person.visit.message("caller")
        [caption] = [each for each in await person.captions() if each["who"] == "typed"]
        states = await word_states(person)
        unheard = await person.page.locator("#captions .word[data-state=unheard]").first.evaluate(
            "each => getComputedStyle(each).textDecorationLine"
        )
        tree = await person.page.locator("#captions").aria_snapshot()
        await person.hang_up()
    assert spoken["interrupted"]
    assert spoken["heard"] + spoken["remaining"] == STORY
    assert 0 < len(spoken["heard"]) < len(STORY) / 2
    assert said["speaking"]
    # What the loudspeaker was given is what the server says was heard, but for pauses and tails.
    rate = 24_000
    assert heard.loud_s() < len(here.engine.pcm()) / rate
    assert (caption["heard"], caption["interrupted"]) == (spoken["heard"], True)
    assert states.count("heard") == pytest.approx(len(spoken["heard"].split()), abs=1)
    assert states == sorted(states)  # first what was heard, then what was not
    assert "waiting" not in states
    assert "line-through" in unheard
    assert "not heard" in tree.lower() or "unheard" in tree.lower()


async def test_escape_stops_the_voice(chromium: Chromium) -> None:
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.call()
        await person.put(STORY)
        await person.visit.sound(0.5)
        await person.page.get_by_role("textbox", name="Type to speak").press("Escape")
        [spoken] = await person.spoken()
        await silent_again(person)
        await person.type("And on it goes.")
        [_, after] = await person.spoken(2)
        await person.hang_up()
    assert spoken["interrupted"]
    assert spoken["remaining"]
    assert (after["heard"], after["interrupted"]) == ("And on it goes.", False)


async def test_a_voice_that_may_not_be_interrupted_goes_on(chromium: Chromium) -> None:
    text = "One two three four five six seven eight nine ten eleven twelve."
    chromium.says(await cutting_in(0.5), 8000)
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.ready()
        await person.page.get_by_role("checkbox", name="Stop the voice when I speak").uncheck()
        await person.call()
        await person.type(text)
        [spoken] = await person.spoken()
        await person.hang_up()
    assert (spoken["heard"], spoken["interrupted"]) == (text, False)
    assert any(each["speaking"] for each in person.visit.messages("caller"))
