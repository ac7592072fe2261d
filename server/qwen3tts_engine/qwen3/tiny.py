"""Tiny checkpoints in the published layout, one for each task: ``make tiny-models``.

A few megabytes each, made in about a second, the same for the same seed. They load wherever the
published ones do and speak much faster than real time on one CPU thread; what they say is noise
that lasts as long as its text would.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from safetensors.torch import save_file

from qwen3tts_engine.qwen3 import tiny_tokenizer
from qwen3tts_engine.qwen3.config import read_config
from qwen3tts_engine.qwen3.fields import Fields
from qwen3tts_engine.qwen3.model_config import Task
from qwen3tts_engine.qwen3.tiny_files import write_json_files
from qwen3tts_engine.qwen3.tiny_weights import tiny_codec, tiny_model


def make_tiny(out: Path, *, seed: int = 0) -> dict[str, Path]:
    """Write a checkpoint for each task to ``out``; the folder of each."""
    return {task: _make(out / task, task, seed) for task in get_args(Task)}


def _make(folder: Path, task: Task, seed: int) -> Path:
    codec = folder / "speech_tokenizer"
    codec.mkdir(parents=True, exist_ok=True)
    ids = tiny_tokenizer.write(folder)
    words = Fields.read(folder / "vocab.json")
    write_json_files(
        folder,
        task,
        entries=max(ids.values()) + 1,
        ids=ids,
        assistant=words.integer("assistant", 0),
    )
    config = read_config(folder)
    metadata = {"format": "pt"}
    save_file(tiny_model(config, seed), folder / "model.safetensors", metadata)
    save_file(tiny_codec(config.codec, seed), codec / "model.safetensors", metadata)
    return folder


def main() -> None:
    """Write the tiny checkpoints to the folder named on the command line."""
    parser = argparse.ArgumentParser(prog="qwen3tts_engine.qwen3.tiny", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to make them in")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make_tiny(arguments.out, seed=arguments.seed)


if __name__ == "__main__":
    main()
