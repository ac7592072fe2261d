"""What is missing on a machine or wrong with a GPU is an error or a note with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from qwen3tts_engine.qwen3.kernels import cuda, requirements
from qwen3tts_engine.qwen3.kernels.requirements import Missing, missing
from qwen3tts_wire.errors import EngineUnavailable

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda _: object())


@pytest.fixture
def headers(tmp_path: Path) -> str:
    (tmp_path / "Python.h").touch()
    return str(tmp_path)


def has(*programs: str) -> Callable[[str], str | None]:
    return lambda name: name if name in programs else None


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_compiler_and_the_headers_are_enough(headers: str, compiler: str) -> None:
    assert missing(which=has(compiler), environment={}, include=headers) is None
    chosen = {"CC": "/opt/cc"}
    assert missing(which=has("/opt/cc"), environment=chosen, include=headers) is None


def test_each_thing_that_is_missing_has_its_remedy(
    headers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = missing(which=has(), environment={}, include=headers)
    assert found == Missing("there is no C compiler", "Install gcc, such as apt-get install gcc.")
    found = missing(which=has("gcc"), environment={"CC": "icc"}, include=headers)
    assert found is not None
    assert "CC=icc" in found.what
    found = missing(which=has("gcc"), environment={}, include=str(tmp_path / "none"))
    assert found is not None
    assert "python3-dev" in found.remedy
    monkeypatch.setattr(requirements, "find_spec", lambda _: None)
    found = missing(which=has("gcc"), environment={}, include=headers)
    assert found is not None
    assert "pip install triton" in found.remedy


class Gpu:
    """In place of torch.cuda."""

    def __init__(self, capability: tuple[int, int], *built: str) -> None:
        self._capability, self._built = capability, list(built)

    def get_device_capability(self, device: torch.device) -> tuple[int, int]:
        return self._capability

    def get_arch_list(self) -> list[str]:
        return self._built

    def get_device_name(self, device: torch.device) -> str:
        return "Tesla V100"


@pytest.mark.parametrize(
    ("capability", "built"),
    [
        ((8, 9), ("sm_80", "sm_90")),
        ((9, 0), ("sm_80", "sm_90a")),
        ((12, 1), ("sm_90", "compute_120")),
        ((10, 3), ("sm_100", "sm_120")),
        ((7, 0), ()),
    ],
    ids=["same major", "exact", "from PTX", "minor", "unknown"],
)
def test_a_gpu_that_torch_is_built_for_is_taken(
    capability: tuple[int, int], built: tuple[str, ...]
) -> None:
    cuda.check_architecture(GPU, Gpu(capability, *built))


@pytest.mark.parametrize(
    ("capability", "built"),
    [((7, 0), ("sm_75", "sm_80")), ((12, 0), ("sm_90", "sm_100")), ((8, 0), ("sm_86", "sm_90a"))],
    ids=["too old", "too new", "later minor"],
)
def test_a_gpu_without_code_is_refused_by_name(
    capability: tuple[int, int], built: tuple[str, ...]
) -> None:
    with pytest.raises(EngineUnavailable, match="Tesla V100") as refused:
        cuda.check_architecture(GPU, Gpu(capability, *built))
    assert built[0] in refused.value.message
    assert "built for this GPU" in (refused.value.remedy or "")


def test_the_device_of_a_setting_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(cuda, "check_architecture", checked.append)
    assert cuda.find_device("cuda:1") == torch.device("cuda", 1)
    assert checked == [torch.device("cuda", 1)]
    with pytest.raises(EngineUnavailable, match="sees 2 GPUs"):
        cuda.find_device("cuda:2")


def test_a_gpu_without_bfloat16_has_a_note() -> None:
    (note,) = cuda.device_notes(GPU, torch.bfloat16, Gpu((7, 5)))
    assert "float16" in note
    assert cuda.device_notes(GPU, torch.float16, Gpu((7, 5))) == []
    assert cuda.device_notes(GPU, torch.bfloat16, Gpu((8, 0))) == []
    assert cuda.device_notes(torch.device("cpu"), torch.bfloat16, Gpu((7, 5))) == []
