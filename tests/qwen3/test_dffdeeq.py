"""The fork's names over the Python API, and the examples, with tiny checkpoints."""

from __future__ import annotations

import runpy
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_engine.qwen3.dffdeeq import Qwen3TTSModel
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.messages import Sampling
from tests.qwen3.engine.engine_world import assert_same, recording

TEXT = "Good morning."
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def base(tiny: dict[str, Path]) -> Iterator[Qwen3TTSModel]:
    with Qwen3TTSModel.from_pretrained(str(tiny["base"]), device_map="cpu") as model:
        yield model.enable_streaming_optimizations(decode_window_frames=40)


@pytest.fixture(scope="module")
def custom(tiny: dict[str, Path]) -> Iterator[Qwen3TTSModel]:
    with Qwen3TTSModel.from_pretrained(str(tiny["custom_voice"]), dtype="float32") as model:
        yield model


def test_a_clone_is_streamed_in_chunks_of_as_many_frames_as_asked_for(base: Qwen3TTSModel) -> None:
    prompt = base.create_voice_clone_prompt(recording(), "What is said.")
    assert prompt[0].icl_mode
    assert prompt[0].ref_code is not None
    chunks = list(
        base.stream_generate_voice_clone(
            TEXT,
            "English",
            voice_clone_prompt=prompt,
            emit_every_frames=4,
            decode_window_frames=80,
            overlap_samples=512,
            max_frames=20,
            use_optimized_decode=False,
            do_sample=False,
        )
    )
    assert {rate for _, rate in chunks} == {24_000}
    assert {len(pcm) for pcm, _ in chunks[:-1]} == {4 * 1920}
    assert len(np.concatenate([pcm for pcm, _ in chunks])) <= 20 * 1920


def test_a_recording_and_its_prompt_are_the_same_voice(base: Qwen3TTSModel) -> None:
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 15}
    prompt = base.create_voice_clone_prompt(recording(), x_vector_only_mode=True)
    assert (prompt[0].ref_code, prompt[0].icl_mode) == (None, False)
    [one], rate = base.generate_voice_clone(TEXT, voice_clone_prompt=prompt, **options)
    [other], _ = base.generate_voice_clone(
        TEXT, ref_audio=recording(), x_vector_only_mode=True, **options
    )
    assert rate == 24_000
    assert_same(one, other)
    streamed = [
        pcm for pcm, _ in base.stream_generate_pcm(TEXT, voice_clone_prompt=prompt, **options)
    ]
    assert_same(np.concatenate(streamed), one)


def test_a_batch_has_a_speaker_language_and_style_for_each_text(
    custom: Qwen3TTSModel, tiny: dict[str, Path]
) -> None:
    sounds, _ = custom.generate_custom_voice(
        [TEXT, "Guten Morgen."],
        speaker=["ryan", "eric"],
        language=["English", "Auto"],
        temperature=0.0,
        max_new_tokens=12,
    )
    assert len(sounds) == 2
    with Qwen3TTS.load(str(tiny["custom_voice"])) as tts:
        alone, _ = tts.generate(
            TEXT, voice="ryan", language="English", sampling=Sampling(temperature=0.0),
            max_new_tokens=12, non_streaming_mode=False,
        )  # fmt: skip
    assert_same(sounds[0], alone)
    assert "ryan" in custom.get_supported_speakers()
    assert custom.get_supported_languages()[0] == "auto"


def test_a_described_voice_speaks(tiny: dict[str, Path]) -> None:
    with Qwen3TTSModel.from_pretrained(str(tiny["voice_design"])) as model:
        [sound], _ = model.generate_voice_design(TEXT, "A calm old man.", max_new_tokens=10)
        streamed = list(model.stream_generate_pcm(TEXT, instruct="A calm old man.", max_frames=8))
    assert len(sound)
    assert streamed


def test_what_does_not_fit_is_refused(base: Qwen3TTSModel, custom: Qwen3TTSModel) -> None:
    with pytest.raises(BadRequest, match="one text"):
        custom.stream_generate_pcm([TEXT])  # type: ignore[arg-type]
    for name in ("emit_every_frames", "max_frames", "decode_window_frames"):
        with pytest.raises(BadRequest, match=f"{name}=0"):
            base.stream_generate_voice_clone(TEXT, ref_audio=recording(), **{name: 0})  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="overlap_samples"):
        base.stream_generate_voice_clone(TEXT, ref_audio=recording(), overlap_samples=-1)
    with pytest.raises(TypeError, match="num_beams"):
        custom.stream_generate_pcm(TEXT, num_beams=4)  # type: ignore[call-arg]
    with pytest.raises(BadRequest, match="Neither"):
        base.generate_voice_clone(TEXT)
    with pytest.raises(BadRequest, match="2 texts for 1"):
        base.create_voice_clone_prompt(recording(), ["one", "two"])
    with pytest.raises(BadRequest, match="compile_mode"):
        custom.enable_streaming_optimizations(compile_mode="fastest")


@pytest.mark.parametrize(
    ("name", "task", "arguments"),
    [
        ("stream_clone", "base", ["--audio", "voice.wav", "--text-of-audio", "What is said."]),
        ("speak_deltas", "custom_voice", ["--delta-ms", "1", "--speed", "1.2"]),
        ("generate_batch", "custom_voice", []),
    ],
)
def test_an_example_runs_on_a_tiny_checkpoint(
    name: str,
    task: str,
    arguments: list[str],
    tiny: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples, rate = recording()
    pcm = np.rint(samples * 32767).astype(np.int16)
    (tmp_path / "voice.wav").write_bytes(wav_bytes(pcm, rate))
    monkeypatch.chdir(tmp_path)
    script = EXAMPLES / f"{name}.py"
    options = ["--model", str(tiny[task]), "--max-frames", "12", "--out", "out.wav"]
    monkeypatch.setattr(sys, "argv", [str(script), *options, *arguments])
    runpy.run_path(str(script), run_name="__main__")
    made = Path("out.wav")
    for file in made.iterdir() if made.is_dir() else [made]:
        with wave.open(str(file)) as sound:
            assert sound.getframerate() == 24_000
            assert sound.getnframes() > 0
