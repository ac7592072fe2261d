"""Files found and opened; whatever is wrong with them is named."""

from __future__ import annotations

import builtins
import importlib
import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from qwen3tts_engine.qwen3.model.checkpoint import find_checkpoint, open_weights
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_wire.errors import EngineUnavailable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model of three tensors."""
    path = tmp_path / "model.safetensors"
    save_file(
        {
            "a.weight": torch.arange(6.0).reshape(2, 3),
            "a.bias": torch.ones(2, dtype=torch.bfloat16),
            "b.weight": torch.zeros(1),
        },
        path,
    )
    return path


def refusal(file: Path) -> str:
    with pytest.raises(BadCheckpoint) as caught:
        open_weights(file)
    assert caught.value.remedy
    return caught.value.message


def test_tensors_come_by_name_and_keep_their_kind(file: Path) -> None:
    weights = open_weights(file)
    assert weights["a.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert weights["a.bias"].dtype == torch.bfloat16
    assert weights.take("b.weight", (1,)).shape == (1,)
    assert "b.weight" in weights
    assert "c.weight" not in weights
    assert weights.names() == ["a.bias", "a.weight", "b.weight"]


def test_tensors_become_another_kind_where_asked(file: Path) -> None:
    weights = open_weights(file, dtype=torch.float64)
    assert weights["a.bias"].dtype == torch.float64
    assert open_weights(file, device="meta")["a.bias"].device.type == "meta"


def test_tensors_never_read_are_known(file: Path) -> None:
    weights = open_weights(file)
    part = weights.under("a.")
    assert part.names() == ["bias", "weight"]
    assert "weight" in part
    part.take("weight", (2, 3))
    assert weights.unused() == ["a.bias", "b.weight"]
    assert part.unused() == ["a.bias"]
    assert weights.under("a.").under("b").names() == ["ias"]


def test_weights_that_were_read_outlive_their_file(file: Path) -> None:
    tensor = open_weights(file)["a.weight"]
    with file.open("r+b") as stream:
        stream.truncate(0)
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("new", [b"", b"0" * 4096])
def test_a_file_that_is_overwritten_while_it_is_loaded_is_refused(file: Path, new: bytes) -> None:
    weights = open_weights(file)
    with file.open("r+b") as stream:
        stream.truncate(0)
        stream.write(new)
    with pytest.raises(BadCheckpoint, match="was changed while it was read") as caught:
        weights["a.weight"]
    assert "rename" in caught.value.remedy


def test_a_file_that_is_replaced_while_it_is_loaded_is_refused(file: Path) -> None:
    weights = open_weights(file)
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    other.rename(file)
    with pytest.raises(BadCheckpoint, match="was changed while it was read"):
        weights["a.weight"]
    file.unlink()
    with pytest.raises(BadCheckpoint, match="cannot be read any more"):
        weights["a.weight"]


def test_a_missing_tensor_is_named(file: Path) -> None:
    with pytest.raises(BadCheckpoint) as caught:
        open_weights(file).under("a.")["scale"]
    assert f"{file}: tensor a.scale is missing" in caught.value.message


def test_a_wrong_shape_is_named_with_both(file: Path) -> None:
    with pytest.raises(BadCheckpoint) as caught:
        open_weights(file).under("a.").take("weight", (3, 2))
    assert "tensor a.weight has shape [2, 3] where [3, 2] is expected" in caught.value.message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_no_number_is_named_with_its_tensor(tmp_path: Path, value: float) -> None:
    path = tmp_path / "model.safetensors"
    large = torch.full((3,), torch.finfo(torch.float32).max)
    save_file({"good": large, "bad": torch.tensor([1.0, value])}, path)
    weights = open_weights(path)
    assert torch.equal(weights["good"], large)
    with pytest.raises(BadCheckpoint, match=r"tensor bad holds values that are not finite"):
        weights.take("bad", (2,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_are_checked_without_a_copy_of_the_tensor(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(1 << 18, dtype=dtype)}, path)
    weights = open_weights(path)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as seen:
        size = weights["a"].nbytes
    taken = sum(max(0, event.self_cpu_memory_usage) for event in seen.events())
    assert size <= taken < 1.25 * size


def test_integers_are_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(2, dtype=torch.int8)}, path)
    assert "tensor a is I8" in refusal(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "model.safetensors is missing" in refusal(tmp_path / "model.safetensors")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    assert "model.safetensors" in refusal(tmp_path / "model.safetensors")


@pytest.mark.parametrize("keep", [0, 4, 8, 40, -1])
def test_a_file_cut_short_is_damaged(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])
    assert "no safetensors file, or is damaged" in refusal(file)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 400), byte=st.integers(0, 255))
def test_one_wrong_byte_is_read_or_refused(file: Path, at: int, byte: int) -> None:
    whole = file.read_bytes()
    spoiled = file.with_name("spoiled.safetensors")
    spoiled.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    try:
        weights = open_weights(spoiled)
    except BadCheckpoint:
        return
    for name in weights.names():
        assert weights[name].is_floating_point()


def test_a_header_that_claims_more_than_there_is(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}})
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header.encode() + b"\0" * 16)
    assert "damaged" in refusal(file)


def shards(folder: Path, table: object) -> Path:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return folder / "model.safetensors"


def test_shards_are_found_by_their_index(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": torch.ones(2)}, tmp_path / "model-00002-of-00002.safetensors")
    table = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    file = shards(tmp_path, table)
    for name in (file, tmp_path / "model.safetensors.index.json"):
        weights = open_weights(name)
        assert weights.names() == ["a", "b"]
        assert weights["b"].shape == (2,)


def test_the_file_itself_goes_before_an_index(file: Path) -> None:
    shards(file.parent, {"a": "gone.safetensors"})
    assert "a.weight" in open_weights(file)


@pytest.mark.parametrize(
    "name",
    [
        "../other.safetensors",
        "/etc/passwd",
        "sub/x.safetensors",
        "..\\x.safetensors",
        ".safetensors",
        "model.bin",
        "x.safetensors\n",
        "",
    ],
)
def test_an_index_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    assert "names a shard" in refusal(shards(tmp_path, {"a": name}))


def test_a_senseless_index_is_refused(tmp_path: Path) -> None:
    assert "names no shards" in refusal(shards(tmp_path, {}))
    assert "weight_map is [], not an object" in refusal(shards(tmp_path, []))
    assert "weight_map.a is 1, not a string" in refusal(shards(tmp_path, {"a": 1}))
    assert "x.safetensors is missing" in refusal(shards(tmp_path, {"a": "x.safetensors"}))


def test_a_folder_is_found_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_checkpoint(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_checkpoint("~") == tmp_path


@pytest.mark.parametrize(
    "name", ["./absent", "/absent/folder", "a/b/c", "absent", "../x/y", "a b/c", "", "a/..b\n"]
)
def test_a_folder_that_is_not_there_says_what_to_name(name: str, tmp_path: Path) -> None:
    if not name:
        name = str(tmp_path / "absent")
    with pytest.raises(EngineUnavailable) as caught:
        find_checkpoint(name)
    assert "There is no folder" in caught.value.message
    assert "hub id" in caught.value.remedy


def test_a_file_is_no_folder(file: Path) -> None:
    with pytest.raises(BadCheckpoint, match="is not a folder"):
        find_checkpoint(str(file))


def fake_hub(monkeypatch: pytest.MonkeyPatch, answer: object) -> list[dict[str, Any]]:
    """The hub library, answering so; what it is asked."""
    asked: list[dict[str, Any]] = []

    def download(**wanted: object) -> object:
        asked.append(wanted)
        if isinstance(answer, Exception):
            raise answer
        return answer

    real = importlib.import_module

    def load(name: str) -> object:
        return SimpleNamespace(snapshot_download=download) if "hub" in name else real(name)

    monkeypatch.setattr(importlib, "import_module", load)
    return asked


def test_a_hub_id_is_fetched_without_code_or_pickles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = fake_hub(monkeypatch, str(tmp_path))
    assert find_checkpoint("Qwen/Qwen3-TTS-12Hz-0.6B-Base") == tmp_path
    assert find_checkpoint("some/model", cache=tmp_path / "cache") == tmp_path
    first, second = asked
    assert first["repo_id"] == "Qwen/Qwen3-TTS-12Hz-0.6B-Base"
    assert first["cache_dir"] is None
    assert second["cache_dir"] == str(tmp_path / "cache")
    patterns = first["allow_patterns"]
    assert "speech_tokenizer/*.safetensors" in patterns
    assert not [one for one in patterns if one.endswith((".py", ".bin", ".pt", "*"))]


@pytest.mark.parametrize("error", [OSError("offline"), ValueError("bad id"), RuntimeError("http")])
def test_a_hub_that_cannot_be_reached_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fake_hub(monkeypatch, error)
    with pytest.raises(EngineUnavailable) as caught:
        find_checkpoint("some/model")
    assert "some/model could not be fetched" in caught.value.message
    assert "network" in caught.value.remedy
    assert caught.value.__cause__ is error


def test_without_the_hub_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def load(name: str, *rest: Any) -> object:
        if name == "huggingface_hub":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", load)
    with pytest.raises(EngineUnavailable) as caught:
        find_checkpoint("some/model")
    assert "pip install 'mr_qwen3tts[qwen3]'" in caught.value.remedy


def test_the_hub_library_is_the_real_one() -> None:
    """The name and the parameters that are used exist."""
    hub = importlib.import_module("huggingface_hub")
    assert {"repo_id", "allow_patterns", "cache_dir"} <= set(
        hub.snapshot_download.__annotations__ or hub.snapshot_download.__wrapped__.__annotations__
    )
