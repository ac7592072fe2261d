"""A real Whisper hears the embedded voice over a telephone."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_wire.whisper import models
from qwen3tts_wire.whisper.guards import UnknownLanguage, token_limit, usual_tokens
from qwen3tts_wire.whisper.model import LEAST_WINDOW_S, RATE_HZ, WINDOW_S, WhisperModel, window_s
from qwen3tts_wire.whisper.models import ModelMissing
from tests.agent.recognition.real_whisper import Samples, real_whisper, said
from tests.conftest import require_package

TEXT = "What time do you open tomorrow?"


@pytest.fixture(scope="module")
def folder() -> str:
    require_package("faster_whisper", "pip install faster-whisper")
    return real_whisper()


@pytest.fixture(scope="module")
def model(folder: str) -> WhisperModel:
    return WhisperModel.load(folder, ("English",), device="cpu", threads=1)


@pytest.fixture(scope="module")
def question() -> Samples:
    return asyncio.run(said(TEXT))[0]


def test_a_turn_is_understood(model: WhisperModel, question: Samples) -> None:
    answer = model.hear(question)
    assert answer is not None
    assert "open tomorrow" in answer.text.lower()
    assert answer.language == "en"
    assert answer.no_speech < 0.5
    assert answer.confidence > 0.3


def test_silence_and_no_samples_are_no_speech(model: WhisperModel) -> None:
    for samples in (np.zeros(RATE_HZ, np.int16), np.zeros(0, np.int16)):
        answer = model.hear(samples)
        assert answer is not None
        assert answer.no_speech > 0.6


def test_a_text_that_is_not_wanted_is_not_decoded(
    model: WhisperModel, question: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Encoder:
        """Has no decoder."""

        feature_extractor = model._model.feature_extractor
        encode = staticmethod(model._model.encode)

    monkeypatch.setattr(model, "_model", Encoder)
    assert model.hear(question, lambda: False) is None


def test_where_it_runs_is_told(model: WhisperModel, folder: str) -> None:
    place = model.place
    assert (place["model"], place["source"]) == (folder, "folder")
    assert (place["device"], place["threads"], place["languages"]) == ("cpu", 1, ["en"])
    assert place["dtype"].startswith("int8")


def test_a_model_of_english_alone_with_another_language(folder: str) -> None:
    with pytest.raises(ModelMissing, match="knows English only, and de is asked for") as caught:
        WhisperModel.load(folder, ("German",), device="cpu", threads=1)
    assert "stt-offline-languages" in caught.value.remedy
    with pytest.raises(ModelMissing, match="does not know the language 'klingon'"):
        WhisperModel.load(folder, ("klingon",))


def test_a_device_that_is_not_there(folder: str) -> None:
    with pytest.raises(ModelMissing, match="cannot run on cuda:9"):
        WhisperModel.load(folder, device="cuda:9")


@pytest.mark.parametrize(("damaged", "size"), [("model.bin", 4000), ("tokenizer.json", 2)])
def test_a_damaged_model(folder: str, tmp_path: Path, damaged: str, size: int) -> None:
    for name in models.FILES:
        shutil.copyfile(Path(folder, name), tmp_path / name)
    with (tmp_path / damaged).open("r+b") as file:
        file.truncate(size)
    with pytest.raises(ModelMissing, match="could not be loaded") as caught:
        WhisperModel.load(str(tmp_path), device="cpu", threads=1)
    assert "damaged" in caught.value.remedy


def test_a_recording_longer_than_a_window_has_its_segments(
    model: WhisperModel, question: Samples
) -> None:
    gap = np.zeros(RATE_HZ * 30, np.int16)
    sound = np.concatenate([question, gap, question]).astype(np.float32) / np.float32(32768)
    segments = list(model.recording(sound))
    assert sum("open" in each.text.lower() for each in segments) == 2
    assert segments[-1].start_s > 28
    assert all(0 <= each.start_s < each.end_s for each in segments)
    assert list(model.recording(sound[:0])) == []


def test_the_window_is_as_long_as_the_sound_and_some_silence() -> None:
    lengths = [window_s(seconds) for seconds in np.arange(0.0, 40.0, 0.1)]
    assert (lengths[0], lengths[-1]) == (LEAST_WINDOW_S, WINDOW_S)
    assert lengths == sorted(lengths)
    assert all(window_s(seconds) > seconds for seconds in (7.5, 12.0, 27.5))
    assert [window_s(seconds, 15) for seconds in (1.0, 13.0, 13.5, 40.0)] == [15, 15, 16, 30]


class OldEncoder:
    """Takes windows of 30 s alone."""

    class model:  # noqa: N801 - as the library calls it
        is_multilingual = False

    supported_languages = ("en",)

    class hf_tokenizer:  # noqa: N801
        token_to_id = staticmethod(len)

    windows: list[int] = []  # noqa: RUF012

    @staticmethod
    def feature_extractor(sound: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.zeros((80, len(sound) // 160 + 1), np.float32)

    @classmethod
    def encode(cls, features: NDArray[np.float32]) -> str:
        cls.windows.append(features.shape[1])
        if features.shape[1] != 3000:
            raise ValueError("invalid input features shape")
        return "encoded"


def test_an_encoder_that_takes_30_s_alone_is_given_them() -> None:
    loaded: Any = OldEncoder
    model = WhisperModel(loaded, models.FoundModel("tiny.en", Path("x"), ""), ("en",), {}, 10)
    assert model.place["window_s"] == 10
    for _ in range(2):
        assert model._encode(np.zeros(RATE_HZ, np.int16)) == "encoded"
    assert OldEncoder.windows == [1000, 3000, 3000]
    assert model.place["window_s"] == WINDOW_S


def test_an_encoder_that_takes_no_window_has_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(features: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(OldEncoder, "encode", encode)
    loaded: Any = OldEncoder
    model = WhisperModel(loaded, models.FoundModel("tiny.en", Path("x"), ""), (), {})
    with pytest.raises(RuntimeError, match="no memory"):
        model._encode(np.zeros(RATE_HZ, np.int16))


class Writer:
    """Writes the words that it is made with, as many as it may."""

    supported_languages = ("en",)
    max_length = 448

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.limits: list[int] = []
        self.model = self
        self.hf_tokenizer = self
        self.is_multilingual = False

    def token_to_id(self, name: str) -> int:
        return 0

    def feature_extractor(self, sound: NDArray[np.float32]) -> NDArray[np.float32]:
        return OldEncoder.feature_extractor(sound)

    def encode(self, features: NDArray[np.float32]) -> str:
        return "encoded"

    def generate(self, encoded: str, prompts: list[list[int]], **options: Any) -> list[Any]:
        limit = options["max_length"] - len(prompts[0])
        self.limits.append(limit)
        found = self.words[: limit - 2]  # as CTranslate2 counts
        ids = [self.words.index(word) for word in found]
        return [SimpleNamespace(sequences_ids=[ids], scores=[-0.1], no_speech_prob=0.0)]

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        return " ".join(self.words[token] for token in tokens)


@pytest.mark.parametrize(
    ("words", "text", "passes"),
    [
        (["yes"] * 3, "yes yes yes", 1),
        ([f"word{number}" for number in range(35)], None, 2),  # fast, and nothing repeats
        (["no", "entry", "matches", "your", "search"] * 20, "no entry matches your search", 1),
        (["well"] + ["you", "know"] * 40, "well you know", 1),
    ],
)
def test_a_text_that_repeats_without_end_is_stopped_early(
    words: list[str], text: str | None, passes: int
) -> None:
    writer: Any = Writer(words)
    model = WhisperModel(writer, models.FoundModel("tiny.en", Path("x"), ""), ("en",), {})
    answer = model.hear(np.zeros(2 * RATE_HZ, np.int16))
    assert answer is not None
    assert answer.text == (" ".join(words) if text is None else text)
    assert writer.limits == [usual_tokens(2.0), token_limit(2.0)][:passes]


class Multilingual:
    """The language's part of a model that knows several."""

    class model:  # noqa: N801 - as the library calls it
        is_multilingual = True

        @staticmethod
        def detect_language(encoded: object) -> list[list[tuple[str, float]]]:
            return [[("<|fr|>", 0.5), ("<|de|>", 0.3), ("<|en|>", 0.2)]]

    supported_languages = ("en", "de", "fr")

    class hf_tokenizer:  # noqa: N801
        @staticmethod
        def token_to_id(name: str) -> int | None:
            known = ("<|startoftranscript|>", "<|notimestamps|>", "<|transcribe|>")
            names = (*known, "<|en|>", "<|de|>", "<|fr|>")
            return names.index(name) if name in names else None


def several(*languages: str) -> WhisperModel:
    found = models.FoundModel("base", Path("base"), "hub")
    loaded: Any = Multilingual
    return WhisperModel(loaded, found, languages, {})


def test_the_language_is_the_likeliest_of_those_allowed() -> None:
    assert several()._language(None) == "fr"
    assert several("de", "en")._language(None) == "de"
    assert several("en")._language(None) == "en"
    assert several().place["languages"] == []
    assert several("de", "en").place["languages"] == ["de", "en"]
    with pytest.raises(ModelMissing, match="'yue'"):
        several("yue")
    with pytest.raises(UnknownLanguage):
        next(several().recording(np.zeros(9, np.float32), "yue"))


def test_neither_torch_nor_transformers_is_needed(folder: str) -> None:
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers']))\n"
        "import numpy as np; from qwen3tts_wire.whisper.model import WhisperModel\n"
        "import qwen3tts_engine.qwen3.voices.transcribe\n"
        "import qwen3tts_agent.recognition.whisper_worker\n"
        "model = WhisperModel.load(sys.argv[1], ('en',), device='cpu', threads=1)\n"
        "assert model.hear(np.zeros(16000, np.int16)) is not None\n"
        "assert sys.modules['torch'] is None\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, folder],
        check=True,
        timeout=120,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
