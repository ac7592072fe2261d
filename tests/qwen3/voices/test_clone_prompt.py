"""The codec, and voices of one's own codes and embedding, in the Python API."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qwen3tts_engine.qwen3.api import NO_SPEAKER, ClonePrompt, Qwen3TTS
from qwen3tts_wire.errors import BadRequest, BadText, LimitExceeded, UnknownVoice
from tests.qwen3.engine.engine_world import GREEDY, assert_same, recording

TEXT, SAID = "Good morning.", "This is how I sound."
CODES = np.arange(13 * 16).reshape(13, 16)
VECTOR = np.linspace(-1, 1, 32, dtype=np.float32)


@pytest.fixture(scope="module")
def tts(tiny: dict[str, Path]) -> Iterator[Qwen3TTS]:
    with Qwen3TTS.load(str(tiny["base"])) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def custom(tiny: dict[str, Path]) -> Iterator[Qwen3TTS]:
    with Qwen3TTS.load(str(tiny["custom_voice"])) as loaded:
        yield loaded


def test_a_recording_is_encoded_and_codes_are_decoded(tts: Qwen3TTS) -> None:
    samples, rate = recording(0.5)
    codes = tts.encode(samples, rate)
    assert codes.shape == (7, 16)
    assert codes.dtype == np.int64
    sound, found_rate = tts.decode(codes)
    assert sound.shape == (7 * 1920,)
    assert sound.dtype == np.float32
    assert found_rate == 24_000
    assert np.abs(sound).max() <= 1
    for same in (torch.from_numpy(codes), codes.tolist(), codes.astype(np.uint16)):
        np.testing.assert_array_equal(tts.decode(same)[0], sound)
    np.testing.assert_array_equal(tts.encode((samples, rate)), codes)


def test_any_checkpoint_encodes_at_any_rate_and_silence_too(custom: Qwen3TTS) -> None:
    assert custom.encode(np.zeros((8000, 2), np.int16), 8000).shape == (13, 16)


def test_a_long_decode_is_the_decode_of_its_parts(tts: Qwen3TTS) -> None:
    codes = np.tile(CODES, (6, 1))
    sound, _ = tts.decode(codes)
    np.testing.assert_allclose(sound[: 20 * 1920], tts.decode(codes[:20])[0], atol=1e-5)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (None, "whole numbers"),
        ("codes", "whole numbers"),
        (CODES.astype(np.float32), "whole numbers"),
        ([[1, 2], [3]], "array"),
        (np.zeros((0, 16), np.int64), "shape"),
        (CODES[:, :15], "shape"),
        (CODES[0], "shape"),
        (CODES[None], "shape"),
        (np.full((3, 16), 2048), "Code 0 of frame 0 is 2048"),
        (np.full((3, 16), -1), "is -1"),
    ],
)
def test_codes_that_cannot_be_are_refused(tts: Qwen3TTS, codes: Any, expected: str) -> None:
    for call in (tts.decode, lambda bad: tts.create_voice_from(ClonePrompt(VECTOR, bad, SAID))):
        if call != tts.decode and codes is None:
            continue
        with pytest.raises(BadRequest, match=expected) as caught:
            call(codes)
        assert caught.value.remedy


@pytest.mark.parametrize(
    ("audio", "rate"),
    [
        (np.zeros(0, np.float32), 24_000),
        (np.zeros((2, 2, 2), np.float32), 24_000),
        (np.zeros(2400, np.complex64), 24_000),
        (np.full(2400, np.nan, np.float32), 24_000),
        (np.full(2400, 100, np.float32), 24_000),
        (np.zeros(2400, np.float32), None),
        (np.zeros(2400, np.float32), 0),
        (np.zeros(2400, np.float32), 24_000.5),
        (np.zeros(2400, np.float32), "24000"),
        ((np.zeros(2400, np.float32), 24_000), 24_000),
        ("not there.wav", None),
        (b"RIFF", None),
        ([0.0] * 2400, None),
        (5, None),
        (None, None),
    ],
)
def test_a_recording_that_cannot_be_encoded_is_refused(
    tts: Qwen3TTS, audio: Any, rate: Any
) -> None:
    with pytest.raises(BadRequest) as caught:
        tts.encode(audio, rate)
    assert caught.value.remedy


def test_a_recording_to_encode_has_a_bound(tts: Qwen3TTS) -> None:
    with pytest.raises(LimitExceeded, match="600"):
        tts.encode(np.zeros(601 * 4000, np.int8), 4000)


def test_a_voice_of_no_kind_is_refused(tts: Qwen3TTS) -> None:
    bad: Any = 5
    for make in (tts.create_voice, tts.create_voice_from, tts.clone_prompt):
        with pytest.raises(BadRequest):
            make(bad)


@pytest.mark.parametrize("field", ["text", "name"])
def test_a_field_of_another_type_is_named(tts: Qwen3TTS, field: str) -> None:
    bad: Any = {"text": SAID, field: 5}
    with pytest.raises(BadRequest, match=f"{field}=5"):
        tts.create_voice(recording(), **bad)


@pytest.mark.parametrize("x_vector_only", [False, True])
def test_a_voice_made_from_its_own_prompt_speaks_alike(tts: Qwen3TTS, x_vector_only: bool) -> None:
    voice = tts.create_voice(recording(), SAID, x_vector_only=x_vector_only)
    prompt = tts.clone_prompt(voice)
    assert (prompt.codes is None) == (prompt.text is None) == x_vector_only
    again = tts.create_voice_from(prompt, name="again")
    assert again.voice_id != voice.voice_id
    assert again.ref_text == prompt.text
    assert tts.create_voice_from(prompt).cached
    first, _ = tts.generate(TEXT, voice=voice, sampling=GREEDY)
    assert_same(tts.generate(TEXT, voice="clone:again", sampling=GREEDY)[0], first)
    other = dataclasses.replace(prompt, embedding=VECTOR)
    changed, _ = tts.generate(TEXT, voice=tts.create_voice_from(other), sampling=GREEDY)
    assert changed.shape != first.shape or not np.array_equal(changed, first)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (ClonePrompt(VECTOR, CODES), "without their words"),
        (ClonePrompt(VECTOR, CODES, "  "), "without their words"),
        (ClonePrompt(VECTOR, None, SAID), "no codes"),
        (ClonePrompt(VECTOR[:31]), "shape"),
        (ClonePrompt(VECTOR[None]), "shape"),
        (ClonePrompt(None), "embedding"),
        (ClonePrompt(np.full(32, np.inf)), "finite"),
        (ClonePrompt(np.full(32, 1e300)), "finite"),
    ],
)
def test_a_prompt_that_cannot_be_is_refused(
    tts: Qwen3TTS, prompt: ClonePrompt, expected: str
) -> None:
    with pytest.raises(BadRequest, match=expected) as caught:
        tts.create_voice_from(prompt)
    assert caught.value.remedy


def test_words_name_and_length_of_a_prompt_are_checked(tts: Qwen3TTS) -> None:
    with pytest.raises(BadText):
        tts.create_voice_from(ClonePrompt(VECTOR, CODES, "\ud83d"))
    with pytest.raises(BadRequest, match="name"):
        tts.create_voice_from(ClonePrompt(VECTOR), name="")
    with pytest.raises(LimitExceeded, match="750"):
        tts.create_voice_from(ClonePrompt(VECTOR, np.zeros((751, 16), np.int64), SAID))
    with pytest.raises(LimitExceeded, match="4096"):
        tts.create_voice_from(ClonePrompt(VECTOR, CODES, "a" * 4097))
    with pytest.raises(UnknownVoice):
        tts.clone_prompt("clone:unheard of")


def test_a_voice_made_from_a_prompt_is_kept_in_the_folder(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    prompt = ClonePrompt(VECTOR, CODES, SAID)
    for loads in range(2):
        with Qwen3TTS.load(str(tiny["base"]), voice_folder=tmp_path) as tts:
            if not loads:
                tts.create_voice_from(prompt, name="me")
            found = tts.clone_prompt("clone:me")
            np.testing.assert_array_equal(found.codes, CODES)
            np.testing.assert_array_equal(found.embedding, VECTOR)
            assert found.text == SAID


def test_only_a_base_checkpoint_takes_a_prompt(custom: Qwen3TTS) -> None:
    with pytest.raises(BadRequest, match="cannot clone"):
        custom.create_voice_from(ClonePrompt(VECTOR))
    with pytest.raises(BadRequest, match="cannot clone"):
        custom.clone_prompt("ryan")


def test_a_custom_voice_checkpoint_speaks_without_a_speaker(
    custom: Qwen3TTS, tts: Qwen3TTS
) -> None:
    without, _ = custom.generate(TEXT, voice=NO_SPEAKER, sampling=GREEDY)
    default, _ = custom.generate(TEXT, sampling=GREEDY)
    assert_same(default, custom.generate(TEXT, voice=custom.voices()[0].id, sampling=GREEDY)[0])
    assert without.shape != default.shape or not np.array_equal(without, default)
    assert NO_SPEAKER not in [each.id for each in custom.voices()]
    with pytest.raises(UnknownVoice):
        tts.generate(TEXT, voice=NO_SPEAKER)
