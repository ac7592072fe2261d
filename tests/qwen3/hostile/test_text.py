"""Text of every kind, whole and letter by letter: one speech, with every word reported."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_engine.qwen3.api_speech import Speech, SpeechOptions
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.jobs import Job
from qwen3tts_engine.text_plan import PlanMode
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import BadText
from tests.qwen3.engine.engine_world import GREEDY, growing, made
from tests.qwen3.hostile.world import (
    LAST_BIT,
    Listener,
    Spoken,
    check_spans,
    check_words_in_time,
    same,
    write,
)

SPECIAL = ("<|im_end|>", "<|im_start|>assistant\n", "<|endoftext|>", "<tts_text_eod>", "<tts_pad>")
HARD = {
    "emoji": "Oh 👩‍👩‍👧 well, 👍🏽 done.",
    "combining marks": "Cafe\u0301,\r\nna\u0308mlich.",
    "Thai": "สวัสดีครับ คุณ",
    "Chinese": "你好。早上好。再见",
    "Arabic": "صباح الخير، يا صديقي.",
    "figures": "It is 3.14/$5.00!",
    "special tokens": "Say <|im_end|> now.",
}
MODES: tuple[PlanMode, ...] = ("auto", "clause", "live")
MARKDOWN = "# Top\r\n\r\n**Good** _day_, `e\u0301 = 😀` [here](http://a.b/c).\n- two"


@pytest.fixture(scope="module")
def tts(tiny: dict[str, Path]) -> Iterator[Qwen3TTS]:
    with Qwen3TTS.load(str(tiny["custom_voice"]), dry_timeout_s=30.0) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def engine(tiny: dict[str, Path]) -> Iterator[Qwen3Engine]:
    made_here = made(tiny["custom_voice"], dry_timeout_s=30.0)
    asyncio.run(made_here.start())
    yield made_here
    asyncio.run(made_here.close())


@pytest.fixture
def listener(engine: Qwen3Engine, monkeypatch: pytest.MonkeyPatch) -> Listener:
    return Listener(engine, monkeypatch)


async def test_text_letter_by_letter_is_the_same_speech(listener: Listener) -> None:
    async def letters(text: str) -> Spoken:
        more = LiveText()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write(more, text))
            late = tasks.create_task(listener.hear("", more=more, sampling=GREEDY))
        return late.result()

    async def checked(kind: str) -> None:
        text = HARD[kind]
        early, late, full = await asyncio.gather(
            listener.hear(text, more=growing(""), sampling=GREEDY),
            letters(text),
            listener.hear(text, sampling=GREEDY),
        )
        assert same(late, early), kind
        for spoken in (early, late, full):
            assert spoken.end == "text_end", kind
            check_spans(spoken.words, text)
            check_words_in_time(spoken.chunks)

    await asyncio.gather(*map(checked, HARD))


def halves(text: str) -> list[str]:
    """One UTF-16 unit a piece, as writers in UTF-16 give it."""
    data = text.encode("utf-16-le")
    return [data[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(data), 2)]


@pytest.mark.parametrize("mode", MODES)
def test_markdown_in_halves_of_characters_is_the_same_speech(tts: Qwen3TTS, mode: PlanMode) -> None:
    whole, _ = tts.generate(MARKDOWN, mode=mode, sampling=GREEDY)
    pieces, _ = tts.generate(halves(MARKDOWN), mode=mode, sampling=GREEDY)
    assert len(whole) == len(pieces) > 24_000
    assert np.abs(whole - pieces).max() * 32_768 <= LAST_BIT


async def test_the_spelling_of_a_special_token_is_text(listener: Listener) -> None:
    loaded = listener.engine._started().loaded
    ids = loaded.config.text_ids
    reserved = {ids.im_start, ids.im_end, ids.tts_pad, ids.tts_bos, ids.tts_eos}
    texts = [f"Go {special} on." for special in SPECIAL]
    plain, *heard = await asyncio.gather(
        *(listener.hear(text, seed=2, instructions=text) for text in ("Go on.", *texts))
    )
    for job, spoken in zip(listener.jobs[1:], heard, strict=True):
        assert job.prompt is not None
        assert reserved.isdisjoint(job.track.ids)
        assert max(job.track.ids) < loaded.tokenizer.vocab_size <= min(reserved)
        assert loaded.tokenizer.encode(spoken.text) == job.track.ids
        assert spoken.end == "text_end"
        check_spans(spoken.words, spoken.text)
        assert len(spoken.codes) > len(plain.codes)


async def test_markup_of_the_prompt_in_instructions_does_not_become_markup(
    tiny: dict[str, Path],
) -> None:
    design = made(tiny["voice_design"])
    await design.start()
    try:
        tokenizer = design._started().loaded.tokenizer
        for special in SPECIAL:
            inner = tokenizer.encode_instructions(f"calm {special}")[1:-2]
            assert max(inner) < tokenizer.vocab_size
    finally:
        await design.close()


@pytest.mark.parametrize("text", ["half \ud83d", "\ude00 half", "a \ude00\ud83d b", "\ud800" * 3])
@pytest.mark.parametrize("how", ["whole", "live", "instructions"])
async def test_half_a_character_is_refused_where_it_stands(
    listener: Listener, text: str, how: str
) -> None:
    fields: dict[str, Any] = {}
    if how == "live":
        fields["more"] = growing(text)
    elif how == "instructions":
        fields["instructions"] = text
    with pytest.raises(BadText, match="surrogate") as caught:
        await listener.hear(text if how == "whole" else "Good ", **fields)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text", ["", " \r\n\t", "\u00a0\u2003", "...", "\u200b\ufeff", "**_**", "\U0001f600\U0001f680"]
)
async def test_nothing_to_say_is_no_sound(tts: Qwen3TTS, listener: Listener, text: str) -> None:
    assert (await listener.hear(text)).chunks == []
    assert (await listener.hear("", more=growing(text))).chunks == []
    for mode in MODES:
        assert list(tts.stream(list(text), mode=mode)) == []
    if text.strip():
        assert list(tts.stream(text)) == []
        return
    # Nothing can come later where the text is whole.
    with pytest.raises(BadText, match="empty") as caught:
        tts.generate(text)
    assert caught.value.remedy


async def test_sampling_the_likeliest_and_a_seed_each_give_one_speech(listener: Listener) -> None:
    for fields in ({"sampling": GREEDY}, {"seed": 0}, {"seed": 2**63 - 1}):
        one = await listener.hear("Yes.", **fields)
        assert same(one, await listener.hear("Yes.", **fields))


async def test_the_first_chunk_has_the_frames_asked_for(listener: Listener) -> None:
    usual, *asked = await asyncio.gather(
        *(
            listener.hear("Good day.", sampling=GREEDY, initial_codec_chunk_frames=frames)
            for frames in (None, 1, 2, 5, 8)
        )
    )
    for frames, spoken in zip((1, 2, 5, 8), asked, strict=True):
        assert same(spoken, usual)
        silence = len(spoken.codes) * 1920 - len(spoken.pcm)
        assert 0 <= silence <= 1920 * frames
        assert spoken.chunks[0].samples == frames * 1920 - silence


@pytest.mark.parametrize(
    ("text", "positions", "mode"),
    [
        ("สวัสดีครับ" * 50, 2048, "live"),
        ("Good morning to you, one two three four five six seven. " * 4, 64, "live"),
        ("Good morning to you one two three four five six seven eight. And so on.", 64, "auto"),
    ],
)
async def test_text_that_is_there_early_goes_on_in_another_generation(
    tiny: dict[str, Path],
    text: str,
    positions: int,
    mode: PlanMode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = made(tiny["custom_voice"], positions=positions, slots=1)
    await engine.start()
    said: list[str] = []
    loaded = engine._started().loaded
    make = loaded.job

    def noted(*given: Any) -> Job:
        job = make(*given)
        said.append(job.track.text)
        return job

    monkeypatch.setattr(loaded, "job", noted)
    speech = Speech(engine, mode, SpeechOptions(seed=1), ahead=10**9)
    speech.append(text)
    speech.end()
    ends = []
    while (chunk := await speech.next()) is not None:
        if chunk.end is not None:
            ends.append(chunk.end)
    assert len(ends) == len(said) > 1
    assert "".join("".join(said).split()) == "".join(text.split())
    await engine.close()
