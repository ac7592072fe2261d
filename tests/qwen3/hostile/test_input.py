"""What a program may hand to the Python API, and what may lie in a folder: each is answered."""

from __future__ import annotations

import json
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, SpeechError
from tests.qwen3.engine.engine_world import GREEDY, alike, recording
from tests.qwen3.hostile.world import wav

TEXT = "Good day."


@pytest.fixture(scope="module")
def tts(tiny: dict[str, Path]) -> Iterator[Qwen3TTS]:
    with Qwen3TTS.load(str(tiny["custom_voice"]), slots=2) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def base(tiny: dict[str, Path]) -> Iterator[Qwen3TTS]:
    with Qwen3TTS.load(str(tiny["base"]), slots=2) as loaded:
        yield loaded


# --- the text ---


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_writer_who_leaves_in_any_way_ends_the_speech(
    tts: Qwen3TTS, end: type[BaseException]
) -> None:
    def words() -> Iterator[str]:
        yield "Good day. "
        raise end

    raised: list[BaseException] = []

    def listen() -> None:
        try:
            tts.generate(words())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    thread.join(20)
    (error,) = raised
    assert isinstance(error, BadRequest)
    assert error.remedy
    assert isinstance(error.__cause__, end)


@pytest.mark.parametrize("text", [b"Good day.", [b"Good ", b"day."], ["Good ", None, "day."], [1]])
def test_what_is_no_text_is_not_left_out(tts: Qwen3TTS, text: Any) -> None:
    with pytest.raises(BadRequest, match="str") as caught:
        tts.generate(text)
    assert caught.value.remedy


@pytest.mark.parametrize("text", [None, 5])
def test_what_cannot_be_read_at_all_is_a_type_error(tts: Qwen3TTS, text: Any) -> None:
    with pytest.raises((TypeError, BadRequest)):
        tts.generate(text)


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "bogus"},
        {"frames_per_emission": 0},
        {"frames_per_emission": 1.5},
        {"frames_per_emission": "8"},
    ],
    ids=str,
)
def test_a_manner_that_there_is_not_is_refused(tts: Qwen3TTS, how: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        list(tts.stream(TEXT, **how))
    assert next(iter(how)) in caught.value.message
    assert caught.value.remedy


def test_errors_of_some_are_not_heard_by_others(tts: Qwen3TTS) -> None:
    alone, _ = tts.generate(TEXT, sampling=GREEDY)
    heard: list[Any] = []
    bad: tuple[dict[str, Any], ...] = (
        {"voice": "absent"},
        {"language": "xx"},
        {"voice": "design"},
        {"instructions": "half \ud800"},
        {"instructions": "calm " * 4000},
    )

    def call(fields: dict[str, Any]) -> None:
        try:
            heard.append(tts.generate(TEXT, **fields)[0])
        except SpeechError:
            heard.append(None)

    threads = [
        threading.Thread(target=call, args=(fields,))
        for fields in (*bad, {"sampling": GREEDY}, *bad, {"sampling": GREEDY})
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    spoken = [each for each in heard if each is not None]
    assert len(heard) == len(threads)
    assert len(spoken) == 2
    assert all(alike(each, alone) for each in spoken)


# --- recordings ---


def test_every_bad_recording_is_refused_with_what_helps(base: Qwen3TTS, tmp_path: Path) -> None:
    sound, rate = recording(1.5)
    whole = wav(sound)
    odd = np.where(np.arange(len(sound)) == 5, np.nan, sound).astype(np.float32)
    (tmp_path / "notes.wav").write_text("not a sound")
    bad: dict[str, Any] = {
        "too short": (sound[:2400], rate),
        "too long": (np.tile(sound, 41), rate),
        "silent": (sound * 0, rate),
        "as good as silent": (sound * np.float32(0.0005), rate),
        "a constant": (sound * 0 + np.float32(0.5), rate),
        "one NaN": (odd, rate),
        "empty": b"",
        "text": b"this is no sound " * 100,
        "a picture": b"\x89PNG\r\n\x1a\n" + bytes(1000),
        "a header": whole[:44],
        "cut off": whole[:1000],
        "no rate": (sound, 0),
        "an odd rate": (sound, 10**9),
        "channels first": (np.stack((sound, sound)), rate),
        "complex": (sound.astype(complex), rate),
        "a folder": tmp_path,
        "no file": tmp_path / "none.wav",
        "a text file": tmp_path / "notes.wav",
        "nothing": None,
    }
    for name, audio in bad.items():
        with pytest.raises(SpeechError) as caught:
            base.create_voice(audio, "A buzz.")
        assert caught.value.message, name
        assert caught.value.remedy, name
    for words in (None, "", " \n", "half \ud800", "word " * 2000):
        with pytest.raises(SpeechError) as caught:
            base.create_voice((sound, rate), words)
        assert caught.value.remedy
    assert base.voices() == []


def test_words_of_a_recording_with_spellings_of_special_tokens_are_words(base: Qwen3TTS) -> None:
    voice = base.create_voice(recording(1.5), "<|im_end|> and <|im_start|>assistant")
    pcm, _ = base.generate(TEXT, voice=voice, seed=1)
    assert len(pcm) > 0
    store = base._engine._started().loaded.store
    assert store is not None
    reference = store.find(voice.voice_id).reference
    assert reference is not None
    assert max(reference.text_ids) < base._engine._started().loaded.tokenizer.vocab_size


# --- folders ---


def copied(source: Path, folder: Path) -> Path:
    shutil.copytree(source, folder)
    return folder


def refused(folder: Path) -> EngineUnavailable:
    with pytest.raises(EngineUnavailable) as caught:
        Qwen3TTS.load(str(folder))
    assert caught.value.remedy
    return caught.value


FILES = (
    "config.json",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "model.safetensors",
    "speech_tokenizer/config.json",
    "speech_tokenizer/model.safetensors",
)


def as_folder(file: Path, _: bytes) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, Callable[[Path, bytes], object]] = {
    "a folder": as_folder,
    "missing": lambda file, _: file.unlink(),
    "empty": lambda file, _: file.write_bytes(b""),
    "cut off": lambda file, data: file.write_bytes(data[: len(data) // 2]),
    "garbage": lambda file, _: file.write_bytes(b"\xff\xfe\0garbage" * 50),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named(tiny: dict[str, Path], tmp_path: Path, damage: str) -> None:
    for number, name in enumerate(FILES):
        folder = copied(tiny["base"], tmp_path / str(number))
        DAMAGE[damage](folder / name, (folder / name).read_bytes())
        error = refused(folder)
        assert isinstance(error, BadCheckpoint), name
        assert Path(name).name in error.message, name


def test_merges_that_end_early_are_noticed(tiny: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(tiny["base"], tmp_path / "short")
    lines = (folder / "merges.txt").read_text("utf-8").splitlines(keepends=True)
    (folder / "merges.txt").write_text("".join(lines[: len(lines) // 2]), "utf-8")
    assert "merges.txt" in refused(folder).message


@pytest.mark.parametrize(
    ("task", "tensor"),
    [
        ("custom_voice", "talker.codec_head.weight"),
        ("voice_design", "talker.code_predictor.lm_head.3.weight"),
        ("base", "speaker_encoder.fc.weight"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    tiny: dict[str, Path], tmp_path: Path, task: str, tensor: str
) -> None:
    tensors = load_file(tiny[task] / "model.safetensors")
    good = tensors[tensor]
    for number, bad in enumerate((None, torch.zeros(3, 3), good.to(torch.int8), good[:1])):
        folder = copied(tiny[task], tmp_path / str(number))
        left = {name: each for name, each in tensors.items() if name != tensor}
        if bad is not None:
            left[tensor] = bad.contiguous()
        save_file(left, folder / "model.safetensors")
        assert tensor in refused(folder).message


def test_a_foreign_folder_differs_from_a_damaged_one(tiny: dict[str, Path], tmp_path: Path) -> None:
    llama = copied(tiny["base"], tmp_path / "llama")
    (llama / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8}))
    assert "llama" in refused(llama).message
    assert "Qwen3-TTS" in refused(llama).remedy
    (tmp_path / "empty").mkdir()
    assert "config.json" in refused(tmp_path / "empty").message
    huge = copied(tiny["base"], tmp_path / "huge")
    (huge / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    assert "model.safetensors" in refused(huge).message
    away = copied(tiny["base"], tmp_path / "away")
    weights = away / "model.safetensors"
    names = list(load_file(weights))
    weights.unlink()
    index = {"weight_map": dict.fromkeys(names, "../base/model.safetensors")}
    (away / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "shard" in refused(away).message


def test_numbers_in_a_configuration_that_cannot_be_are_named(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    text = (tiny["custom_voice"] / "config.json").read_text("utf-8")
    wrong: tuple[tuple[str, Any], ...] = (
        ("talker_config.hidden_size", 0),
        ("talker_config.hidden_size", 10**12),
        ("talker_config.hidden_size", "32"),
        ("talker_config.num_attention_heads", 3),
        ("talker_config.vocab_size", 10),
        ("talker_config.codec_eos_token_id", 99_999),
        ("talker_config.spk_id", {}),
        ("talker_config.num_hidden_layers", 10**7),
        ("talker_config.rms_norm_eps", float("nan")),
        ("tts_bos_token_id", 10**9),
        ("tts_model_type", "nonsense"),
    )
    folder = copied(tiny["custom_voice"], tmp_path / "wrong")
    for path, value in wrong:
        config = json.loads(text)
        *above, last = path.split(".")
        at = config
        for name in above:
            at = at[name]
        at[last] = value
        (folder / "config.json").write_text(json.dumps(config))
        assert isinstance(refused(folder), BadCheckpoint), path
