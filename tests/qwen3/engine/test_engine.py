from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from qwen3tts_engine.base import ClonesVoices, SynthesisRequest, TakesEmbeddings
from qwen3tts_engine.qwen3.engine import engine as engine_module
from qwen3tts_engine.qwen3.engine import loaded as loaded_module
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.loaded import LoadedModel
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.voices.content import ClonedVoice
from qwen3tts_engine.qwen3.voices.store import VoiceStore
from qwen3tts_engine.qwen3.voices.transcribe import check_whisper
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import (
    BadRequest,
    BadText,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)
from qwen3tts_wire.messages import Sampling
from tests.fakes import settle
from tests.qwen3.engine.engine_world import (
    DESCRIPTION,
    GREEDY,
    TEXT,
    alike,
    assert_same,
    growing,
    made,
    push,
    recording,
    said,
    sound,
    spoken,
)


@pytest.fixture(scope="module")
def engine(tiny: dict[str, Path]) -> Iterator[Qwen3Engine]:
    """Of the CustomVoice checkpoint. It serves whatever event loop asks it."""
    started = made(tiny["custom_voice"])
    asyncio.run(started.start())
    yield started
    asyncio.run(started.close())


@pytest.fixture(scope="module")
def base(tiny: dict[str, Path]) -> Iterator[Qwen3Engine]:
    """Of the Base checkpoint."""
    started = made(tiny["base"])
    asyncio.run(started.start())
    yield started
    asyncio.run(started.close())


# --- what speaks ---


async def test_a_custom_voice_checkpoint_offers_its_speakers(engine: Qwen3Engine) -> None:
    voices = {voice.id: voice for voice in engine.voices()}
    assert (voices["ryan"].language, voices["ryan"].gender) == ("en", "male")
    assert voices["eric"].description == "sichuan dialect"
    assert engine.modes("ryan") == ("clause", "live")
    assert engine.options >= {"instructions", "sampling", "seed", "lead", "speed"}
    assert engine.model == "Qwen3-TTS 1.7B CustomVoice"


async def test_a_checkpoint_in_a_folder_is_known_by_its_published_id_and_the_folders_name(
    engine: Qwen3Engine, base: Qwen3Engine, tiny: dict[str, Path]
) -> None:
    hub = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
    assert engine.model_ids == (hub, hub[5:], tiny["custom_voice"].name)
    assert base.model_ids[0] == "Qwen/Qwen3-TTS-12Hz-0.6B-Base"
    assert Qwen3Engine(Qwen3Settings(model=hub)).model_ids == (hub, hub[5:])


async def test_the_voice_for_a_language_is_one_whose_own_it_is(engine: Qwen3Engine) -> None:
    english = await said(engine, language="en", sampling=GREEDY)
    assert_same(english, await said(engine, voice="RYAN", language="en", sampling=GREEDY))


async def test_the_default_voice_is_as_set(tiny: dict[str, Path]) -> None:
    set_to = made(tiny["custom_voice"], voice="Ryan")
    await set_to.start()
    assert set_to.voices()[0].id == "ryan"
    await set_to.close()


async def test_a_default_voice_that_does_not_exist_keeps_it_from_starting(
    tiny: dict[str, Path],
) -> None:
    with pytest.raises(UnknownVoice):
        await made(tiny["custom_voice"], voice="absent").start()


async def test_a_voice_design_checkpoint_speaks_as_its_instructions_say(
    tiny: dict[str, Path],
) -> None:
    design = made(tiny["voice_design"])
    await design.start()
    try:
        assert [voice.id for voice in design.voices()] == ["design"]
        calm = await said(design, instructions=DESCRIPTION, sampling=GREEDY)
        other = await said(design, instructions="A loud child.", sampling=GREEDY)
        assert len(calm) > 0
        assert not alike(calm, other)
        undescribed = await said(design, sampling=GREEDY)
        assert_same(undescribed, await said(design, sampling=GREEDY, instructions=" \n"))
        assert not alike(calm, undescribed)
        with pytest.raises(UnknownVoice, match="generates voices"):
            await spoken(design, voice="ryan", instructions=DESCRIPTION)
    finally:
        await design.close()


async def test_long_instructions_are_read_once(tiny: dict[str, Path]) -> None:
    design = made(tiny["voice_design"])
    await design.start()
    try:
        long = "A calm old man who has seen the world and tells of it by the fire. " * 3
        first = await said(design, instructions=long, sampling=GREEDY)
        runner = design._started().loaded.runner
        made_before = runner.prefill_prefix
        runner.prefill_prefix = None  # type: ignore[method-assign, assignment]
        again = await said(design, instructions=long, sampling=GREEDY)
        runner.prefill_prefix = made_before  # type: ignore[method-assign]
        assert_same(first, again)
    finally:
        await design.close()


# --- cloned voices ---


async def test_a_base_checkpoint_without_voices_says_what_to_do(tiny: dict[str, Path]) -> None:
    empty = made(tiny["base"])
    await empty.start()
    try:
        assert empty.voices() == []
        with pytest.raises(UnknownVoice) as caught:
            empty.check(None, None)
        assert "recording" in caught.value.remedy
        assert empty.modes(None) == ("clause",)
        with pytest.raises(UnknownVoice):
            await spoken(empty)
        with pytest.raises(UnknownVoice):
            await spoken(empty, voice="0" * 64)
    finally:
        await empty.close()


async def test_a_cloned_voice_speaks(base: Qwen3Engine) -> None:
    assert isinstance(base, ClonesVoices)
    voice = await base.load_voice(ref_audio=recording(), x_vector_only=True, name="colour")
    assert not voice.cached
    base.check(voice.voice_id, "en")
    assert [each.id for each in base.voices()] == ["clone:colour"]
    assert base.modes(voice.voice_id) == ("clause", "live")
    by_id = await said(base, voice=voice.voice_id, sampling=GREEDY)
    assert len(by_id) > 0
    assert_same(by_id, await said(base, voice="clone:colour", sampling=GREEDY))
    assert_same(by_id, await said(base, sampling=GREEDY))
    again = await base.load_voice(ref_audio=recording(), x_vector_only=True)
    assert again.cached
    assert again.voice_id == voice.voice_id
    assert (await base.load_voice(voice_id=voice.voice_id)).cached


async def test_a_speaker_embedding_speaks_as_the_recording_that_it_was_taken_from(
    base: Qwen3Engine,
) -> None:
    assert isinstance(base, TakesEmbeddings)
    voice = await base.load_voice(ref_audio=recording(), x_vector_only=True)
    numbers = (await _store_of(base).load(voice.voice_id)).x_vector.tolist()
    assert base.embedding_size() == len(numbers)
    made = await base.load_embedding(numbers)
    assert made.voice_id != voice.voice_id
    assert (await base.load_embedding(numbers)).voice_id == made.voice_id
    base.check(made.voice_id, "en")
    by_recording = await said(base, voice=voice.voice_id, sampling=GREEDY)
    assert_same(by_recording, await said(base, voice=made.voice_id, sampling=GREEDY))
    for bad in (numbers[1:], [*numbers[1:], 1e300]):
        with pytest.raises(BadRequest, match="embedding"):
            await base.load_embedding(bad)


def _store_of(engine: Qwen3Engine) -> VoiceStore:
    store = engine._started().loaded.store
    assert store is not None
    return store


async def test_a_voice_that_goes_on_from_its_recording_needs_all_text_first(
    base: Qwen3Engine,
) -> None:
    words = "A buzz that comes and goes, and comes again, as loud as it was before it went."
    voice = await base.load_voice(ref_audio=recording(), ref_text=words)
    assert voice.ref_text == words
    assert base.modes(voice.voice_id) == ("clause",)
    first = await said(base, voice=voice.voice_id, sampling=GREEDY)
    # With so many words the read prompt is worth keeping.
    store = base._started().loaded.store
    assert store is not None
    assert len(store.find(voice.voice_id).kv) == 1
    assert_same(first, await said(base, voice=voice.voice_id, sampling=GREEDY))
    with pytest.raises(BadRequest, match="before it speaks") as caught:
        await spoken(base, voice=voice.voice_id, more=growing(""))
    assert "clause" in caught.value.remedy


async def test_its_sound_goes_on_from_the_recording(
    base: Qwen3Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = await base.load_voice(ref_audio=recording(pitch=180), ref_text="Another buzz.")
    loaded = base._started().loaded
    jobs = []

    def noted(*given: Any) -> Any:
        jobs.append(make_job(*given))
        return jobs[-1]

    make_job = loaded.job
    monkeypatch.setattr(loaded, "job", noted)
    streamed = await said(base, voice=voice.voice_id, sampling=GREEDY)
    assert loaded.store is not None
    kept = loaded.store.find(voice.voice_id).reference
    assert kept is not None
    codes = torch.tensor([*kept.codes, *(frame.tolist() for frame in jobs[0].codes)])
    whole = loaded.model.decoder.decode(codes).numpy()
    assert_same(streamed, whole[-len(streamed) :])


async def test_it_goes_on_from_the_recording_where_there_is_no_room_to_keep_its_state(
    base: Qwen3Engine, tiny: dict[str, Path]
) -> None:
    heard = []
    voice = await base.load_voice(ref_audio=recording(pitch=170), ref_text="A buzz.")
    store = base._started().loaded.store
    assert store is not None
    room = store.find(voice.voice_id).content.bytes
    for bound in (1 << 30, room + 10):
        engine = made(tiny["base"], voices_bytes=bound)
        await engine.start()
        again = await engine.load_voice(ref_audio=recording(pitch=170), ref_text="A buzz.")
        heard.append(await said(engine, voice=again.voice_id, sampling=GREEDY))
        await engine.close()
    assert_same(*heard)


async def test_a_reference_that_finds_no_memory_is_reported(
    base: Qwen3Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_room(_slots: int) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")

    monkeypatch.setattr(base._started().loaded.model.decoder, "new_state", without_room)
    with pytest.raises(EngineFailed, match="out of memory"):
        await base.load_voice(ref_audio=recording(pitch=190), ref_text="Another.")


async def test_growing_text_for_which_there_is_no_room_is_left_for_another_generation(
    tiny: dict[str, Path],
) -> None:
    engine = made(tiny["voice_design"], positions=64)
    await engine.start()
    more, text = growing(""), "Good morning. " * 5
    chunks = await spoken(engine, text, more=more, instructions="Old.")
    assert chunks[-1].end == "text_end"
    left = "".join(part for part, _ in more.take())
    assert left
    assert text.endswith(left)
    with pytest.raises(LimitExceeded, match="positions"):
        await spoken(engine, text, instructions=DESCRIPTION)
    with pytest.raises(LimitExceeded, match="instructions"):
        await spoken(engine, more=growing(""), instructions="A calm old man. " * 10)
    more = LiveText()
    text = " And then it went on, and on." * 3
    push(more, text, 5)
    more.end()
    chunks = await spoken(engine, "Good.", more=more, instructions="Old.")
    assert chunks[-1].end == "text_end"
    left = "".join(part for part, _ in more.take())
    assert left
    assert text.endswith(left)
    await engine.close()


async def test_the_static_step_of_a_gpu_sounds_the_same(
    engine: Qwen3Engine, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = (TEXT, "One, two, three.", "This is the line.")
    monkeypatch.setattr(
        loaded_module, "Runner", functools.partial(Runner, launch=LaunchMode(static=True))
    )
    static = made(tiny["custom_voice"], slots=5)
    await static.start()
    alone = [await said(engine, text, sampling=GREEDY) for text in texts]
    # Three rows of which two are voices of growing text: buckets of four, with padding.
    together = await asyncio.gather(*(said(static, text, sampling=GREEDY) for text in texts))
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)
    grown = await said(static, "Good", more=growing(" morning."), sampling=GREEDY)
    assert_same(grown, await said(engine, "Good", more=growing(" morning."), sampling=GREEDY))
    await static.close()


@pytest.mark.parametrize("frames", [0, -1, 1.5, True])
async def test_a_first_chunk_of_no_whole_number_of_frames_is_refused(
    engine: Qwen3Engine, frames: Any
) -> None:
    with pytest.raises(BadRequest, match="initial_codec_chunk_frames"):
        await spoken(engine, initial_codec_chunk_frames=frames)


async def test_a_voice_that_was_not_cloned_is_refused_early(base: Qwen3Engine) -> None:
    for voice in ("clone:absent", "f" * 64):
        with pytest.raises(UnknownVoice):
            base.check(voice, None)


async def test_what_a_voice_of_the_folder_can_is_known_before_it_is_loaded(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    modes: list[Any] = []
    for _ in range(2):
        engine = made(tiny["base"], voice_folder=tmp_path)
        await engine.start()
        if not modes:
            await engine.load_voice(ref_audio=recording(), x_vector_only=True, name="colour")
            await engine.load_voice(ref_audio=recording(), ref_text="A buzz.", name="whole")
        modes.append([engine.modes(f"clone:{name}") for name in ("colour", "whole", "none")])
        engine.check("clone:whole", None)
        await engine.close()
    assert modes[0] == modes[1] == [("clause", "live"), ("clause",), ("clause",)]


async def test_a_start_after_one_that_was_cancelled_waits_for_its_end(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = threading.Event()
    go_on = threading.Event()
    at_once: list[int] = []
    under_way = itertools.count(1)

    class Slow(LoadedModel):
        def __init__(self, *given: Any) -> None:
            at_once.append(next(under_way))
            loading.set()
            assert go_on.wait(30)
            super().__init__(*given)

        def close(self) -> None:
            at_once.append(-1)
            super().close()

    monkeypatch.setattr(engine_module, "LoadedModel", Slow)
    engine = made(tiny["custom_voice"])
    first = asyncio.create_task(engine.start())
    await asyncio.to_thread(loading.wait)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(engine.start())
    await settle()
    assert at_once == [1]
    go_on.set()
    await second
    assert at_once == [1, -1, 2]
    await engine.close()


async def test_what_is_wrong_with_a_recording_is_said(base: Qwen3Engine) -> None:
    for audio, error in (
        (recording(0.2), BadRequest),
        (recording(61.0), LimitExceeded),
        ((np.zeros(48_000, np.float32), 24_000), BadRequest),
        (b"this is no sound file", BadRequest),
    ):
        with pytest.raises(error) as caught:
            await base.load_voice(ref_audio=audio, x_vector_only=True)
        assert caught.value.remedy
    with pytest.raises(BadRequest) as caught:
        await base.load_voice(ref_audio=recording())
    assert "x_vector_only" in caught.value.remedy
    with pytest.raises(BadRequest):
        await base.load_voice()


async def test_another_checkpoint_does_not_clone(engine: Qwen3Engine) -> None:
    with pytest.raises(BadRequest, match="cannot clone"):
        await engine.load_voice(ref_audio=recording(), x_vector_only=True)


async def test_a_speaker_vector_of_no_numbers_fails_its_request_alone(base: Qwen3Engine) -> None:
    voice = await base.load_voice(ref_audio=recording(pitch=200), x_vector_only=True)
    store = base._started().loaded.store
    assert store is not None
    kept: ClonedVoice = store.find(voice.voice_id)
    good = await base.load_voice(ref_audio=recording(pitch=210), x_vector_only=True)
    alone = await said(base, voice=good.voice_id, sampling=GREEDY)
    kept.x_vector.fill_(float("nan"))
    broken, other = await asyncio.gather(
        spoken(base, voice=voice.voice_id),
        said(base, voice=good.voice_id, sampling=GREEDY),
        return_exceptions=True,
    )
    assert isinstance(broken, EngineFailed)
    assert "not finite" in broken.message
    assert isinstance(other, np.ndarray)
    assert_same(other, alone)


# --- what is said ---


async def test_a_seed_gives_one_speech(engine: Qwen3Engine) -> None:
    one, same, other = [await said(engine, seed=seed) for seed in (1, 1, 2)]
    assert_same(one, same)
    assert not alike(one, other)


async def test_without_a_seed_each_is_another(engine: Qwen3Engine) -> None:
    one, other = [await said(engine) for _ in range(2)]
    assert not alike(one, other)


async def test_at_temperature_zero_seeds_do_not_matter(engine: Qwen3Engine) -> None:
    one, same = [await said(engine, seed=seed, sampling=GREEDY) for seed in (1, 2)]
    assert_same(one, same)


async def test_sampling_is_as_asked_for(engine: Qwen3Engine) -> None:
    usual = await said(engine, seed=1)
    wanted = Sampling(temperature=1.2, top_k=3, top_p=0.9, repetition_penalty=1.3)
    assert not alike(usual, await said(engine, seed=1, sampling=wanted))


async def test_others_change_nothing(engine: Qwen3Engine) -> None:
    text = f"{TEXT} This is the line."
    alone = await said(engine, text, sampling=GREEDY)

    async def cancelled(index: int) -> None:
        async with aclosing(engine.synthesize(SynthesisRequest(f"Number {index}."))) as chunks:
            async for _ in chunks:
                if index % 2:
                    break

    others = asyncio.gather(*(cancelled(index) for index in range(8)))
    assert_same(await said(engine, text, sampling=GREEDY), alone)
    await others


@pytest.mark.parametrize("size", [1, 9])
async def test_late_text_sounds_as_early_text(engine: Qwen3Engine, size: int) -> None:
    text = "Good morning to all of you."
    early = await said(engine, text, more=growing(""), sampling=GREEDY)
    more = LiveText()
    task = asyncio.create_task(said(engine, "", more=more, sampling=GREEDY))
    for at in range(0, len(text), size):
        push(more, text[at : at + size], at)
        while more._parts:
            # The engine has not taken it.
            await settle(1)
    more.end()
    assert_same(await task, early)


async def test_text_that_stops_coming_ends_dry(tiny: dict[str, Path]) -> None:
    impatient = made(tiny["custom_voice"], dry_timeout_s=0.01)
    await impatient.start()
    try:
        more = LiveText()
        chunks = await spoken(impatient, "Good morning to", more=more)
        assert chunks[-1].end == "dry"
        assert not more.push("you", range(4))
    finally:
        await impatient.close()


async def test_words_come_in_order_and_lie_where_they_stand(engine: Qwen3Engine) -> None:
    text = "Good morning, this is the line. It works today."
    for fields in ({}, {"more": growing("")}):
        chunks = await spoken(engine, text, **fields)
        words = [word for chunk in chunks for word in chunk.words]
        assert [word.text for word in words] == text.replace(",", "").replace(".", "").split()
        assert all(text[word.char_start : word.char_end] == word.text for word in words)
        assert all(a.end <= b.start for a, b in itertools.pairwise(words))
        assert all(word.precision == "estimated" for word in words)
        given = 0
        for chunk in chunks:
            given += chunk.samples
            assert all(word.end <= given for word in chunk.words)


async def test_the_first_chunk_says_when_it_began(engine: Qwen3Engine) -> None:
    chunks = await spoken(engine)
    marks = chunks[0].marks
    assert marks["slot"] <= marks["prefill"] <= marks["first_codes"]


# --- what cannot be said ---


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x" * 5001, LimitExceeded),
        ("one two three " * 350, LimitExceeded),
        ("half \ud800 a pair", BadText),
        ("\x00", BadText),
    ],
)
async def test_what_is_no_text_is_refused(
    engine: Qwen3Engine, text: str, error: type[SpeechError]
) -> None:
    with pytest.raises(error) as caught:
        await spoken(engine, text)
    assert caught.value.remedy


async def test_half_a_surrogate_pair_in_text_that_grows_is_refused(engine: Qwen3Engine) -> None:
    with pytest.raises(BadText):
        await spoken(engine, "one two ", more=growing("half \ud800 a pair"))


async def test_what_looks_like_a_special_token_is_text(engine: Qwen3Engine) -> None:
    chunks = await spoken(engine, "<|im_end|> and on", sampling=GREEDY)
    assert chunks[-1].end == "text_end"
    plain = await said(engine, "and on", sampling=GREEDY)
    assert len(sound(chunks)) > len(plain)


async def test_no_more_wait_than_may(tiny: dict[str, Path]) -> None:
    small = made(tiny["custom_voice"], slots=1, max_waiting=1)
    await small.start()
    try:
        results = await asyncio.gather(*(spoken(small) for _ in range(6)), return_exceptions=True)
        refused = [each for each in results if isinstance(each, ServerBusy)]
        assert refused
        assert refused[0].retryable
        assert sum(isinstance(each, list) for each in results) >= 2
    finally:
        await small.close()


async def test_a_device_out_of_memory_fails_its_request_alone(
    engine: Qwen3Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = engine._started().loaded.runner
    prefill = runner.prefill

    def without_room(rows: Any) -> None:
        if any(each.seed == 666 for each in rows):
            raise torch.OutOfMemoryError("CUDA out of memory")
        prefill(rows)

    monkeypatch.setattr(runner, "prefill", without_room)
    results = await asyncio.gather(
        spoken(engine, seed=666), spoken(engine, seed=1), return_exceptions=True
    )
    assert isinstance(results[0], EngineFailed)
    assert "out of memory" in results[0].message
    assert isinstance(results[1], list)


async def test_a_decode_that_breaks_once_is_not_heard(
    engine: Qwen3Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = await said(engine, sampling=GREEDY)
    decoder = engine._started().loaded.model.decoder
    run = decoder.run
    left = [5]

    def breaking(state: Any, slots: Any, codes: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            # After it has changed the stream's state.
            run(state, slots, codes)
            raise RuntimeError("once")
        return run(state, slots, codes)

    monkeypatch.setattr(decoder, "run", breaking)
    assert_same(await said(engine, sampling=GREEDY), usual)
    assert left[0] < 0


async def test_no_words_are_logged(
    engine: Qwen3Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = engine._started().loaded.runner

    def broken(_rows: Any) -> None:
        raise RuntimeError("a fault")

    with caplog.at_level(logging.DEBUG):
        await spoken(engine, "confidential")
        monkeypatch.setattr(runner, "prefill", broken)
        with pytest.raises(EngineFailed):
            await spoken(engine, "confidential")
    assert "a fault" in caplog.text
    assert "confidential" not in caplog.text


# --- start and close ---


async def test_a_damaged_checkpoint_is_named(tiny: dict[str, Path], tmp_path: Path) -> None:
    for missing in ("config.json", "model.safetensors", "speech_tokenizer/model.safetensors"):
        folder = tmp_path / missing.replace("/", "-")
        copy(tiny["custom_voice"], folder)
        (folder / missing).unlink()
        with pytest.raises(EngineUnavailable) as caught:
            await made(folder).start()
        assert Path(missing).name in caught.value.message
        assert caught.value.remedy


@pytest.mark.parametrize("damage", ["missing", "another shape"])
async def test_a_tensor_that_does_not_fit_is_named(
    tiny: dict[str, Path], tmp_path: Path, damage: str
) -> None:
    copy(tiny["custom_voice"], tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = "talker.model.norm.weight"
    weight = tensors.pop(name)
    if damage != "missing":
        tensors[name] = torch.cat((weight, weight))
    save_file(tensors, file)
    with pytest.raises(EngineUnavailable) as caught:
        await made(tmp_path).start()
    assert name in caught.value.message
    assert damage in caught.value.message or "shape" in caught.value.message


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        await made(tmp_path / "none").start()
    assert "none" in caught.value.message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
async def test_a_device_that_is_not_there_is_named(tiny: dict[str, Path]) -> None:
    with pytest.raises(EngineUnavailable, match="no device cuda") as caught:
        await made(tiny["custom_voice"], device="cuda").start()
    assert "doctor" in caught.value.remedy


async def test_progress_is_reported(tiny: dict[str, Path]) -> None:
    told: list[tuple[str, int, int]] = []
    told_engine = Qwen3Engine(made(tiny["custom_voice"]).settings, lambda *what: told.append(what))
    await told_engine.start()
    await told_engine.close()
    assert [what for what, _, _ in told][:2] == ["finding the checkpoint", "loading"]
    assert told[-1][1] == told[-1][2]
    assert any("warm" in what for what, _, _ in told)


async def test_it_can_be_warmed_up_later(tiny: dict[str, Path]) -> None:
    cold = made(tiny["custom_voice"], warmup=False)
    with pytest.raises(EngineUnavailable):
        await cold.warmup()
    await cold.start()
    await cold.warmup()
    assert len(await said(cold)) > 0
    await cold.close()


async def test_a_start_that_is_cancelled_leaves_nothing_behind(tiny: dict[str, Path]) -> None:
    given_up = made(tiny["custom_voice"])
    task = asyncio.create_task(given_up.start())
    await settle(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await given_up.start()
    assert len(await said(given_up)) > 0
    await given_up.close()


async def test_a_start_that_is_cancelled_and_fails_is_quiet(tmp_path: Path) -> None:
    given_up = made(tmp_path / "none")
    task = asyncio.create_task(given_up.start())
    await settle(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(EngineUnavailable):
        await given_up.start()


@pytest.mark.parametrize("whisper", ["/nope", "./nope", "no such folder", "a/b/c", ""])
async def test_a_whisper_folder_that_is_not_there_is_refused_at_the_start(
    tiny: dict[str, Path], whisper: str
) -> None:
    with pytest.raises(EngineUnavailable, match="Whisper") as caught:
        await made(tiny["base"], whisper=whisper).start()
    assert caught.value.remedy


def test_a_whisper_size_or_hub_id_is_believed_and_a_folder_looked_into(tmp_path: Path) -> None:
    for name in ("openai/whisper-small", "tiny"):
        check_whisper(name)
    with pytest.raises(EngineUnavailable, match=r"model\.bin"):
        check_whisper(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(EngineUnavailable):
        check_whisper(str(tmp_path / "file"))


async def test_what_it_takes_is_known(engine: Qwen3Engine) -> None:
    memory = engine.memory
    slots = engine._started().loaded.runner.slots
    assert memory.slots == slots
    assert memory.state == memory.per_slot * (slots + 1)
    assert not engine.notes, "a start without complaints"
    assert engine.under_way == 0


def copy(source: Path, folder: Path) -> None:
    for file in source.rglob("*"):
        if file.is_file():
            to = folder / file.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(file.read_bytes())
