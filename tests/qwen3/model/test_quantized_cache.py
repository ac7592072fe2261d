"""The cache of quantized checkpoints: keyed by content, whole or not there, bounded."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_engine.qwen3.model import quantized_cache as module
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.quantized import MemoryStore, Packing, Quantization
from qwen3tts_engine.qwen3.model.quantized_cache import CachedTensors, default_folder

WEIGHTS = "weights.bin"


def loaded(folder: Path, cache: Path, quantize: Quantization = "int8") -> Qwen3Model:
    return Qwen3Model.load(folder, quantize=quantize, quantize_cache=cache)


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("int*"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the matrices that were quantized, not read from the cache."""
    names: list[str] = []
    get = CachedTensors.get

    def noted(
        self: CachedTensors, name: str, make: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        def counted() -> dict[str, Tensor]:
            names.append(name)
            return make()

        return get(self, name, counted)

    monkeypatch.setattr(CachedTensors, "get", noted)
    return names


@pytest.fixture
def checkpoint(tiny: dict[str, Path], tmp_path: Path) -> Path:
    """A copy that may be written to."""
    return Path(shutil.copytree(tiny["custom_voice"], tmp_path / "checkpoint"))


def test_a_second_load_reads_what_the_first_wrote(
    tiny: dict[str, Path], tmp_path: Path, made: list[str]
) -> None:
    first = loaded(tiny["custom_voice"], tmp_path)
    assert "talker.model.layers.1.gate_up" in made
    made.clear()
    second = loaded(tiny["custom_voice"], tmp_path)
    assert made == second.notes == first.notes == []
    x = torch.randn(3, second.config.talker.layers.hidden)
    for one, other in zip(first.talker.stack.layers, second.talker.stack.layers, strict=True):
        assert not isinstance(one.qkv, Tensor)
        assert not isinstance(other.qkv, Tensor)
        assert torch.equal(one.qkv.multiply(x), other.qkv.multiply(x))
    assert [path.name[:5] for path in kept(tmp_path)] == ["int8-"]
    assert not list(tmp_path.glob("packing-*"))


def test_other_weights_and_another_quantization_have_other_folders(
    checkpoint: Path, tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    loaded(checkpoint, cache)
    loaded(checkpoint, cache, "int4")
    file = checkpoint / "model.safetensors"
    tensors = load_file(file)
    tensors["talker.codec_head.weight"][0, 0] += 1
    save_file(tensors, file)
    made.clear()
    loaded(checkpoint, cache)
    assert made
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    loaded(checkpoint, cache)
    assert [path.name[:4] for path in kept(cache)] == ["int4", "int8", "int8", "int8"]


def test_a_copy_of_a_checkpoint_has_the_same_folder(
    checkpoint: Path, tmp_path: Path, made: list[str]
) -> None:
    loaded(checkpoint, tmp_path / "cache")
    made.clear()
    loaded(Path(shutil.copytree(checkpoint, tmp_path / "copy")), tmp_path / "cache")
    assert made == []


def flipped(folder: Path) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[5] ^= 1
    (folder / WEIGHTS).write_bytes(data)


def shortened(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size // 2)


def without_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def no_json(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def changed(value: object, *path: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        at = manifest
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return change


HEAD = ("tensors", "head", "values")


@pytest.mark.parametrize(
    "damage",
    [
        flipped,
        shortened,
        without_weights,
        no_json,
        changed({}, "tensors"),
        changed(None, "tensors"),
        changed("float128", *HEAD, "dtype"),
        changed([-1, 3], *HEAD, "shape"),
        changed(-1, *HEAD, "offset"),
        changed(1 << 60, *HEAD, "offset"),
        changed("0", *HEAD, "crc"),
        changed(None, *HEAD),
    ],
)
def test_a_damaged_folder_is_named_and_removed(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    def filled() -> list[str]:
        store = CachedTensors(tmp_path, "int8-x")
        for name in ("head", "other"):
            values = store.get(name, lambda: {"values": torch.arange(100)})["values"]
            assert torch.equal(values, torch.arange(100))
        store.finish(1 << 30)
        return store.notes

    assert filled() == []
    folder = tmp_path / "int8-x"
    damage(folder)
    (note,) = filled()
    assert str(folder) in note
    assert "damaged" in note
    assert filled() == []
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_others_may_write_is_packed_once_more(
    tiny: dict[str, Path], tmp_path: Path, made: list[str]
) -> None:
    loaded(tiny["custom_voice"], tmp_path)
    (folder,) = kept(tmp_path)
    folder.chmod(0o777)
    made.clear()
    (note,) = loaded(tiny["custom_voice"], tmp_path).notes
    assert "this user alone" in note
    assert made


def test_a_load_that_fails_leaves_nothing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    save_file(tensors | {"talker.more": torch.zeros(1)}, checkpoint / "model.safetensors")
    with pytest.raises(BadCheckpoint, match="does not know"):
        loaded(checkpoint, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    with pytest.raises(BadCheckpoint, match="does not know"):
        loaded(checkpoint, tmp_path / "cache")


@pytest.mark.parametrize("fails", ["mkdir", "write", "rename"])
def test_without_a_cache_every_load_quantizes(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    cache = tmp_path / "cache"
    if fails == "mkdir":
        cache.write_text("")
    elif fails == "write":
        monkeypatch.setattr(CachedTensors, "_write", full)
    else:
        monkeypatch.setattr(Path, "rename", full)
    model = loaded(tiny["custom_voice"], cache)
    (note,) = model.notes
    assert str(cache) in note
    assert "at every start" in note
    assert not isinstance(model.talker.head, Tensor)
    assert fails == "mkdir" or not [path for path in cache.iterdir() if path.is_dir()]


def test_the_least_recently_used_are_removed(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(tiny["custom_voice"], tmp_path)
    (first,) = kept(tmp_path)
    loaded(tiny["custom_voice"], tmp_path, "int4")
    second = next(path for path in kept(tmp_path) if path != first)
    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    size = sum(file.stat().st_size for file in second.iterdir())
    stale = tmp_path / "packing-old"
    stale.mkdir()
    os.utime(stale, (1, 1))
    module._keep_within(tmp_path, size, keep=second)
    assert kept(tmp_path) == [second]
    assert not stale.exists()
    module._keep_within(tmp_path, 0, keep=second)
    assert kept(tmp_path) == [second]


def test_loads_side_by_side_are_all_right(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have packed before either gives the folder its name."""
    barrier = threading.Barrier(2, timeout=60)
    finish = CachedTensors.finish

    def together(self: CachedTensors, bound_bytes: int) -> None:
        barrier.wait()
        finish(self, bound_bytes)

    monkeypatch.setattr(CachedTensors, "finish", together)
    models: list[Qwen3Model] = []
    threads = [
        threading.Thread(target=lambda: models.append(loaded(tiny["custom_voice"], tmp_path)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [model.notes for model in models] == [[], []]
    assert len(kept(tmp_path)) == 1
    assert not list(tmp_path.glob("packing-*"))


def test_a_write_to_a_mapped_tensor_does_not_reach_the_file(tmp_path: Path) -> None:
    store = CachedTensors(tmp_path, "int8-x")
    mapped = store.get("a", lambda: {"values": torch.arange(8), "none": torch.empty(0)})
    store.finish(1 << 30)
    mapped["values"][3] = 77
    again = CachedTensors(tmp_path, "int8-x").get("a", dict)
    assert again["values"].tolist() == list(range(8))
    assert again["none"].shape == (0,)


def test_the_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "mr_qwen3tts" / "quantized"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder() == Path.home() / ".cache" / "mr_qwen3tts" / "quantized"


def test_a_quantized_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    file = checkpoint / "model.safetensors"
    tensors = load_file(file)
    name = "talker.model.layers.0.mlp.down_proj.weight"
    save_file(tensors | {name: tensors[name].to(torch.int8)}, file)
    with pytest.raises(BadCheckpoint, match="is I8") as caught:
        loaded(checkpoint, tmp_path / "cache")
    assert "not a quantized one" in caught.value.remedy


def test_notes_reach_the_operator(tiny: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with Qwen3TTS.load(
        str(tiny["custom_voice"]), quantize="int8", quantize_cache=tmp_path / "cache"
    ) as tts:
        assert any("at every start" in note for note in tts._engine.notes)


def test_names_lead_to_packings() -> None:
    packing = Packing("int8", MemoryStore()).under("talker.").under("model.")
    assert packing.prefix == "talker.model."
