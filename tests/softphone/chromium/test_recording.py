"""Recordings and voices of one's own: what the page downloads, uploads and records."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_engine.base import Engine
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from tests.conftest import require_package
from tests.e2e.far_ends import speech
from tests.softphone.browser import SILENCE, Chromium, Samples
from tests.softphone.served import Person, at_the_page, measuring, served
from tests.softphone.sound import Sound, Wanted

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

TEXT = "This sentence goes through the line as it was spoken, whatever the line may be made of."
ROUNDS = 2
"""On a machine that is busy slots are missed; one sentence of these goes out unharmed."""
REFERENCE = "The quick brown fox jumps over the lazy dog, and then it goes to sleep in the sun."


async def words(text: str) -> Samples:
    """A caller's, 8 kHz."""
    engine = EmbeddedEngine()
    await engine.start()
    try:
        return await speech(engine, text)
    finally:
        await engine.close()


async def test_a_recording_is_downloaded_with_both_sides(
    chromium: Chromium, tmp_path: Path
) -> None:
    caller = await words("I say something while the other one speaks.")
    chromium.says(np.tile(np.concatenate([np.zeros(8000, np.int16), caller]), ROUNDS + 1), 8000)
    said: list[Samples] = []
    async with served() as here, at_the_page(chromium, measuring(here)) as person:
        await person.ready()
        await person.page.get_by_role("checkbox", name="Record the call").check()
        await person.page.get_by_role("checkbox", name="Stop the voice when I speak").uncheck()
        await person.call()
        for count in range(1, ROUNDS + 1):
            before = len(here.engine.spoken)
            await person.put(TEXT)
            await person.spoken(count)
            said.append(here.engine.pcm(before))
        await person.hang_up()
        async with person.page.expect_download() as download:
            await person.page.get_by_role("button", name="Download the recording").click()
        file = tmp_path / "recording.wav"
        await (await download.value).save_as(file)
        assert (await download.value).suggested_filename.endswith(".wav")
    with wave.open(str(file), "rb") as whole:
        rate = whole.getframerate()
        assert (whole.getnchannels(), whole.getsampwidth()) == (2, 2)
        both = np.frombuffer(whole.readframes(whole.getnframes()), "<i2").reshape(-1, 2)
    wanted = Wanted()
    wanted.listen("ours", said, 24_000, Sound(both[:, 1], rate))
    wanted.listen("the caller's", [caller], 8000, Sound(both[:, 0], rate))
    assert not wanted.missing


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint that clones voices."""
    require_package("torch", "pip install 'mr_qwen3tts[qwen3]'")
    from tests.tiny_models.checkpoint import make_tiny

    return make_tiny(tmp_path_factory.mktemp("tiny"))["base"]


def tiny(checkpoint: Path) -> Engine:
    """A real Qwen3 engine."""
    from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
    from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings

    engine: Engine = Qwen3Engine(Qwen3Settings(str(checkpoint)))
    return engine


async def choose_clone(person: Person) -> None:
    await person.ready()
    options = await person.page.locator("#engine option").evaluate_all(
        "options => options.map((each) => each.value)"
    )
    await person.choose("Engine", options[-1])
    await person.page.locator("#own-voice summary").click()


async def speaks_with_it(person: Person) -> None:
    """The new voice is chosen, and a call is spoken with it."""
    voice = await person.visit.until("() => document.querySelector('#voice').value")
    await person.call()
    await person.type("Good morning.")
    [spoken] = await person.spoken()
    await person.hang_up()
    assert spoken.get("error") is None
    assert spoken["heard"] == "Good morning."
    assert (await person.visit.heard()).loud_s() > 0.1
    call = person.visit.messages("call", mine=True)[-1]
    assert call["voice"] == voice


async def test_a_reference_voice_is_uploaded_and_spoken_with(
    chromium: Chromium, checkpoint: Path
) -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as into:
        into.setnchannels(1)
        into.setsampwidth(2)
        into.setframerate(8000)
        into.writeframes((await words(REFERENCE)).tobytes())
    async with served(tiny(checkpoint)) as here, at_the_page(chromium, here.url) as person:
        await choose_clone(person)
        await person.page.locator("#voice-file").set_input_files(
            {"name": "me.wav", "mimeType": "audio/wav", "buffer": file.getvalue()}
        )
        await person.page.get_by_role("textbox", name="What is said in it").fill(REFERENCE)
        await person.button("Use this voice")
        await speaks_with_it(person)


async def test_a_reference_voice_is_recorded_and_spoken_with(
    chromium: Chromium, checkpoint: Path
) -> None:
    chromium.says(await words(REFERENCE), 8000)
    async with served(tiny(checkpoint)) as here, at_the_page(chromium, here.url) as person:
        await choose_clone(person)
        await person.button("Record my voice")
        await person.page.locator("#voice-chosen").filter(has_text="Recording: 4").wait_for()
        await person.button("Stop recording")
        await person.page.get_by_role("textbox", name="What is said in it").fill(REFERENCE)
        await person.button("Use this voice")
        chromium.says(SILENCE, 48_000)
        await speaks_with_it(person)


async def test_a_file_that_is_no_sound_is_refused_in_words(
    chromium: Chromium, checkpoint: Path
) -> None:
    async with (
        served(tiny(checkpoint)) as here,
        at_the_page(chromium, here.url, allowed_errors=["status of 4"]) as person,
    ):
        await choose_clone(person)
        status = person.page.locator("#voice-status[data-grave=true]")
        for content, complaint in ((b"no sound at all", "audio"), (b"", "empty")):
            await person.page.locator("#voice-file").set_input_files(
                {"name": "me.wav", "mimeType": "audio/wav", "buffer": content}
            )
            await person.button("Use this voice")
            await status.filter(has_text=complaint).wait_for()
        await person.call()
        await person.hang_up()
