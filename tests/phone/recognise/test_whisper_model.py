from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_phone.recognise.whisper_model import ModelMissing, WhisperModel
from qwen3tts_phone.recognise.whisper_settings import WhisperSettings
from tests.conftest import require_package
from tests.phone.recognise.sounds import RATE, tone
from tests.phone.recognise.tiny_whisper import LANGUAGES, LETTERS, tiny_whisper


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    require_package("torch", "pip install torch")
    require_package("transformers", "pip install transformers")


@pytest.fixture(scope="module")
def folder(packages: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_whisper(tmp_path_factory.mktemp("whisper"))


def load(folder: str, **changes: Any) -> WhisperModel:
    return WhisperModel.load(WhisperSettings(folder, offline=True, threads=1, **changes).wishes())


def noises(count: int) -> list[Any]:
    """Sounds that differ: the tiny model hears other letters in each."""
    chance = np.random.default_rng(7)
    return [
        (tone(1.0, hz=100 + 150 * n) + chance.normal(0, 300 * n, RATE)).astype(np.int16)
        for n in range(count)
    ]


def test_it_hears_what_the_librarys_own_decoding_hears(folder: str) -> None:
    torch = importlib.import_module("torch")
    model = load(folder, languages=("de",))
    texts = set()
    for samples in noises(6):
        features = model._processor(
            samples / 32768.0, sampling_rate=RATE, return_tensors="pt"
        ).input_features
        ids = model._model.generate(
            features.to(torch.float32), language="de", task="transcribe", max_length=24
        )
        said = model._processor.batch_decode(ids, skip_special_tokens=True)[0].strip()
        answer = model.hear(samples)
        assert answer is not None
        # How long they go on differs: ours stops when it goes round in circles.
        length = min(len(said), len(answer.text))
        assert length
        assert said[:length] == answer.text[:length]
        texts.add(answer.text[:length])
    assert len(texts) > 1
    assert max(map(len, texts)) > 8


def test_the_language_is_the_likeliest_of_those_allowed(folder: str) -> None:
    assert load(folder).hear(tone(1.0)).language in LANGUAGES  # type: ignore[union-attr]
    for code, name in (("de", "german"), ("fr", "FR"), ("en", "English")):
        assert load(folder, languages=(name,)).hear(tone(1.0)).language == code  # type: ignore[union-attr]
    two = load(folder, languages=("fr", "de"))
    assert {two.hear(samples).language for samples in noises(4)} <= {"fr", "de"}  # type: ignore[union-attr]


def test_a_model_of_one_language_is_asked_for_none(tmp_path: Path) -> None:
    folder = tiny_whisper(tmp_path, multilingual=False)
    answer = load(folder, languages=("en",)).hear(tone(1.0))
    assert answer is not None
    assert set(answer.text) <= set(LETTERS)
    assert answer.language == ""
    with pytest.raises(ModelMissing, match="English only") as caught:
        load(folder, languages=("de",))
    assert ".en" in caught.value.remedy


def test_a_language_that_it_does_not_know_is_named_with_those_it_knows(folder: str) -> None:
    with pytest.raises(ModelMissing, match="'klingon'") as caught:
        load(folder, languages=("klingon",))
    assert "de, en, fr" in caught.value.remedy


def test_it_says_how_sure_it_is_and_whether_anybody_speaks(folder: str) -> None:
    answer = load(folder).hear(tone(1.0))
    assert answer is not None
    assert answer.logprob < 0.0
    assert 0.0 < answer.no_speech < 1.0


def test_it_stops_between_two_tokens_when_nobody_wants_the_text(folder: str) -> None:
    model = load(folder)
    asked = 0

    def wanted() -> bool:
        nonlocal asked
        asked += 1
        return asked < 3

    assert model.hear(tone(1.0), wanted) is None
    assert asked == 3


def test_a_short_sound_has_few_tokens(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "qwen3tts_phone.recognise.whisper_model"
    monkeypatch.setattr(f"{module}.most_tokens", lambda seconds: round(2 * seconds))
    model = load(folder)
    answer = model.hear(tone(2.0))
    assert answer is not None
    assert 0 < len(answer.text) <= 4


def test_where_it_runs_is_told(folder: str) -> None:
    assert load(folder).place == {"device": "cpu", "dtype": "float32", "threads": 1}
    assert load(folder, dtype="bfloat16").hear(tone(1.0)) is not None


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_holds_no_good_model(folder: str, tmp_path: Path, damaged: str) -> None:
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    (copy / damaged).write_bytes(b"{")
    with pytest.raises(ModelMissing, match="could not be loaded") as caught:
        load(str(copy))
    assert "config.json" in caught.value.remedy


@pytest.mark.parametrize("offline", [True, False])
def test_a_model_that_is_not_here_and_cannot_be_fetched(
    monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    hub = importlib.import_module("huggingface_hub")
    asked = []

    def nowhere(self: object, name: str, **given: object) -> None:
        asked.append(name)
        raise OSError("no network")

    monkeypatch.setattr(hub.HfApi, "model_info", nowhere)
    name = "nobody/such-a-whisper"
    wishes = WhisperSettings(name, offline=offline).wishes()
    with pytest.raises(ModelMissing, match="could not be fetched") as caught:
        WhisperModel.load(wishes)
    assert f"hf download {name}" in caught.value.remedy
    assert asked == ([] if offline else [name])


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_package_that_is_not_installed(
    folder: str, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelMissing, match=f"package {package}") as caught:
        load(folder)
    assert caught.value.package == package
    assert "mr_qwen3tts[stt]" in caught.value.remedy


def test_a_device_that_is_not_there(folder: str) -> None:
    with pytest.raises(ModelMissing, match="cannot run on cuda:9"):
        load(folder, device="cuda:9")
