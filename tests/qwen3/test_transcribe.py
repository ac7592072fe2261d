from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qwen3tts_engine.qwen3.reference_audio import Recording, Samples
from qwen3tts_engine.qwen3.transcribe import WhisperTranscriber
from qwen3tts_wire.errors import BadRequest
from tests.conftest import require_package
from tests.qwen3 import formula

SECOND = Recording(formula.voice(24_000), 24_000)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def make_whisper(transformers: Any, folder: Path, *, multilingual: bool = True) -> str:
    """A Whisper of random weights that hears a few letters in everything."""
    tokenizer = transformers.WhisperTokenizer(
        vocab={letter: index for index, letter in enumerate(LETTERS)}, merges=[]
    )
    special = ["startoftranscript", "en", "de", "translate", "transcribe", "notimestamps"]
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|{name}|>" for name in special]})
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in special}
    end = tokenizer.eos_token_id
    config = transformers.WhisperConfig(
        vocab_size=len(tokenizer),
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=16,
        d_model=16,
        max_target_positions=32,
        decoder_start_token_id=ids["startoftranscript"],
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(config)
    languages = {
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": ids["en"], "<|de|>": ids["de"]},
        "task_to_id": {"transcribe": ids["transcribe"], "translate": ids["translate"]},
    }
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=ids["startoftranscript"],
        eos_token_id=end,
        pad_token_id=end,
        bos_token_id=end,
        no_timestamps_token_id=ids["notimestamps"],
        max_length=8,
        suppress_tokens=sorted(ids.values()),
        **(languages if multilingual else {"is_multilingual": False}),
    )
    model.save_pretrained(folder)
    transformers.WhisperProcessor(
        transformers.WhisperFeatureExtractor(feature_size=80), tokenizer
    ).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def transformers() -> Any:
    package = require_package("transformers", "pip install transformers")
    package.utils.logging.set_verbosity_error()
    package.utils.logging.disable_progress_bar()
    return package


@pytest.fixture(scope="module")
def whisper(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_whisper(transformers, tmp_path_factory.mktemp("whisper"))


@pytest.mark.parametrize("language", [None, "german"])
def test_words_are_heard(whisper: str, language: str | None) -> None:
    words = WhisperTranscriber(whisper, language=language).transcribe(SECOND)
    assert words
    assert set(words) <= set(LETTERS)


def test_a_model_of_one_language_is_asked_for_none(transformers: Any, tmp_path: Path) -> None:
    folder = make_whisper(transformers, tmp_path, multilingual=False)
    assert WhisperTranscriber(folder, language="german").transcribe(SECOND)


class FakeWhisper:
    """Model and processor in one, that hear the pieces' numbers."""

    generation_config = None

    def __init__(self, words: str = "word") -> None:
        self.words = words
        self.pieces: list[Samples] = []
        self.input_features = self.attention_mask = torch.zeros(1)

    def __call__(self, samples: Samples, **_: object) -> FakeWhisper:
        self.pieces.append(samples)
        return self

    def generate(self, *_: object, **__: object) -> int:
        return len(self.pieces)

    def batch_decode(self, number: int, **_: object) -> list[str]:
        return [f" {self.words}{number} " if self.words else " "]


def test_a_long_recording_is_heard_in_pieces_cut_where_it_is_quiet() -> None:
    sound = formula.voice(16_000 * 70, 16_000)
    sound[16_000 * 25 : 16_000 * 26] *= 0.01
    fake = FakeWhisper()
    listener = WhisperTranscriber("fake")
    listener._loaded = fake, fake
    assert listener.transcribe(Recording(sound, 16_000)) == "word1 word2 word3"
    assert np.array_equal(np.concatenate(fake.pieces), sound)
    assert 25 * 16_000 < len(fake.pieces[0]) < 26 * 16_000
    assert all(len(piece) <= 30 * 16_000 for piece in fake.pieces)


def test_nothing_is_loaded_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    listener = WhisperTranscriber("openai/whisper-small", language="de")
    assert listener.name == "whisper openai/whisper-small de"
    with pytest.raises(BadRequest, match="needs the package transformers") as caught:
        listener.transcribe(SECOND)
    for word in ("ref_text", "x_vector_only=true", "pip install transformers"):
        assert word in caught.value.remedy


def test_the_name_tells_the_language() -> None:
    assert WhisperTranscriber("tiny").name == "whisper tiny auto"


@pytest.mark.parametrize("damaged", [None, "config.json", "model.safetensors"])
def test_a_model_that_is_missing_or_damaged(
    whisper: str, tmp_path: Path, damaged: str | None
) -> None:
    folder = tmp_path / "model"
    if damaged is not None:
        shutil.copytree(whisper, folder)
        (folder / damaged).write_bytes(b"{")
    with pytest.raises(BadRequest, match="could not be loaded") as caught:
        WhisperTranscriber(str(folder)).transcribe(SECOND)
    assert "ref_text" in caught.value.remedy
    assert "settings" in caught.value.remedy


def test_a_recording_without_words() -> None:
    fake = FakeWhisper(words="")
    listener = WhisperTranscriber("fake")
    listener._loaded = fake, fake
    with pytest.raises(BadRequest, match="No words were heard") as caught:
        listener.transcribe(SECOND)
    assert "x_vector_only" in caught.value.remedy
