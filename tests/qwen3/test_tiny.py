"""The tiny checkpoints: small, the same each time, audible, and they come to an end."""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from qwen3tts_engine.qwen3.model.checkpoint import open_weights
from qwen3tts_engine.qwen3.model.codec_decoder import CodecDecoder
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import Layout, Prompt, Reference, build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step, prefill
from tests.tiny_models.checkpoint import make_tiny

FILES = {
    "config.json",
    "generation_config.json",
    "merges.txt",
    "model.safetensors",
    "speech_tokenizer/config.json",
    "speech_tokenizer/model.safetensors",
    "speech_tokenizer/preprocessor_config.json",
    "tokenizer_config.json",
    "vocab.json",
}
GREEDY = Sampling(
    temperature=0.0,
    top_k=50,
    top_p=1.0,
    repetition_penalty=1.05,
    predictor_temperature=0.0,
    predictor_top_k=50,
    predictor_top_p=1.0,
)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_the_layout_is_the_published_one_and_small(tiny: dict[str, Path]) -> None:
    assert set(tiny) == {"custom_voice", "voice_design", "base"}
    for folder in tiny.values():
        files = [file for file in folder.rglob("*") if file.is_file()]
        assert {str(file.relative_to(folder)) for file in files} == FILES
        assert sum(file.stat().st_size for file in files) < 8 << 20


def test_the_same_seed_makes_the_same_files(tiny: dict[str, Path], tmp_path: Path) -> None:
    again = make_tiny(tmp_path / "again")
    assert {task: digests(folder) for task, folder in again.items()} == {
        task: digests(folder) for task, folder in tiny.items()
    }
    other = digests(make_tiny(tmp_path / "other", seed=1)["base"])
    same = digests(tiny["base"])
    assert {name for name in other if other[name] != same[name]} == {
        "model.safetensors",
        "speech_tokenizer/model.safetensors",
    }


def test_the_command_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: dict[str, Path]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tiny", str(tmp_path), "--seed", "0"])
    monkeypatch.delitem(sys.modules, "tests.tiny_models.__main__", raising=False)
    runpy.run_module("tests.tiny_models", run_name="__main__")
    assert digests(tmp_path / "base") == digests(tiny["base"])


def test_the_words_of_the_prompt_are_one_token_each(tiny: dict[str, Path]) -> None:
    vocab = json.loads((tiny["base"] / "vocab.json").read_text())
    assert {"assistant", "user", "\u010a"} <= set(vocab)
    assert sorted(vocab.values()) == list(range(len(vocab)))


@pytest.fixture(scope="module")
def models(tiny: dict[str, Path]) -> dict[str, Qwen3Model]:
    return {task: Qwen3Model.load(str(folder)) for task, folder in tiny.items()}


SHORT = "Hello there."
LONG = "Guten Tag, hier ist die Hotline. Wie kann ich Ihnen heute helfen?"


def prompt_for(model: Qwen3Model, text: str, layout: Layout, *, reference: bool) -> Prompt:
    assert model.tokenizer is not None
    task = model.config.task
    said = Reference(
        tuple(model.tokenizer.encode("Hello, this is the hotline.")),
        tuple(tuple((7 * frame + 131 * book) % 2048 for book in range(16)) for frame in range(20)),
    )
    return build_prompt(
        model.config,
        text_ids=model.tokenizer.encode(text),
        language="german",
        speaker="ryan" if task == "custom_voice" else None,
        has_x_vector=task == "base",
        layout=layout,
        reference=said if reference else None,
    )


def frames(model: Qwen3Model, prompt: Prompt, sampling: Sampling, cap: int = 400) -> int:
    """How many frames come before the end."""
    positions = len(prompt) + cap + 1
    kv_cache = KvCache(model.config, slots=1, positions=positions)
    kv_cache.reset(0, sampling, 7)
    slot, length = torch.zeros(1, dtype=torch.int64), torch.tensor([len(prompt)])
    x_vector = 0.5 * torch.ones(model.config.talker.layers.hidden)
    embeds = model.embed(prompt, x_vector=x_vector if model.config.task == "base" else None)
    prefill(model, kv_cache, slot, embeds[None], length, torch.zeros_like(slot))
    text = [*prompt.trailing, *[model.config.text_ids.tts_pad] * cap]
    for made in range(cap):
        codes = frame_step(
            model,
            kv_cache,
            slot,
            torch.tensor([text[made]]),
            torch.ones(1, dtype=torch.bool),
            positions,
        )
        if int(codes[0, 0]) == model.config.talker.ids.eos:
            return made
    return cap


CASES: list[tuple[str, Layout, bool]] = [
    ("custom_voice", "streaming", False),
    ("custom_voice", "full", False),
    ("voice_design", "full", False),
    ("base", "streaming", False),
    ("base", "streaming", True),
    ("base", "full", True),
]


@pytest.mark.parametrize(("task", "layout", "reference"), CASES)
def test_speech_lasts_as_long_as_its_text(
    models: dict[str, Qwen3Model], task: str, layout: Layout, reference: bool
) -> None:
    """In every layout, greedy and drawn: one to six frames for each piece of text and a run-out;
    a longer text takes longer."""
    model = models[task]
    assert model.tokenizer is not None
    lasted = []
    for text, sampling in ((SHORT, Sampling()), (SHORT, GREEDY), (LONG, GREEDY)):
        pieces = len(model.tokenizer.encode(text))
        made = frames(model, prompt_for(model, text, layout, reference=reference), sampling)
        assert pieces < made < 6 * pieces + 25
        lasted.append(made)
    assert lasted[2] > 2 * lasted[1]


@pytest.fixture(scope="module")
def sound(tiny: dict[str, Path], tiny_config: Callable[[str], ModelConfig]) -> torch.Tensor:
    """Sixty frames of codes drawn at random, decoded, [n]."""
    decoder = CodecDecoder.from_weights(
        tiny_config("base").codec.decoder,
        open_weights(tiny["base"] / "speech_tokenizer" / "model.safetensors"),
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    draw = torch.Generator().manual_seed(0)
    return decoder.decode(torch.randint(0, 2048, (60, 16), generator=draw))


def test_it_is_heard_and_does_not_clip(sound: torch.Tensor) -> None:
    assert 0.04 < sound.square().mean().sqrt() < 0.2
    assert sound.abs().max() < 1.0
    assert abs(sound.mean()) < 0.002
    per_frame = sound.reshape(60, 1920).square().mean(1).sqrt()
    assert per_frame.min() > 0.01


def test_its_samples_are_smooth(sound: torch.Tensor) -> None:
    """A step between samples is smaller than the sound is loud, or clicks would drown in it."""
    assert sound.diff().square().mean().sqrt() < 0.8 * sound.square().mean().sqrt()
