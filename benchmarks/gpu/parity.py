"""A GPU's kernels beside plain torch on a CPU, by Triton's interpreter.

A model of the published widths with few layers, or of few columns, prefills, steps and decodes with
both, in float32: codes must be equal, logits, keys and values close. The codec's kernels are left
to their own tests: on a CPU its weights are packed otherwise. The interpreter must be chosen
before Triton's first import, so it runs in a process of its own; it takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, fields, replace

import torch
from gpu.parts import narrow
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampling import Sampling
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights

LIMIT = 1e-4
"""Largest relative error of numbers near 1."""
ROWS, FRAMES = 2, 1
LAYERS = 1
"""Of talker and predictor."""


@dataclass(frozen=True, slots=True)
class Parity:
    """What a comparison found."""

    text: str
    worst: float
    """Largest relative error."""
    faults: tuple[str, ...]


def interpreted(*, narrow: bool, timeout: float = 3600.0) -> Parity:
    """Compare in a process with Triton's interpreter; ``narrow``: few columns instead."""
    done = subprocess.run(
        [sys.executable, "-m", "gpu.parity", *(["--narrow"] if narrow else [])],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        return Parity("no comparison", float("inf"), (done.stderr.strip()[-2000:],))
    errors: dict[str, float] = json.loads(lines[-1])
    faults = tuple(
        f"{name} by the kernels: error {error:.2g}"
        for name, error in errors.items()
        if not error <= LIMIT
    )
    text = ", ".join(f"{name} {error:.2g}" for name, error in errors.items())
    return Parity(f"relative errors: {text}", max(errors.values()), faults)


def few_layers(config: ModelConfig) -> ModelConfig:
    """A model's widths and vocabularies of codes, with few layers and texts."""
    talker, predictor = config.talker, config.predictor
    ids = {each.name: at for at, each in enumerate(fields(config.text_ids))}
    return replace(
        config,
        text_ids=replace(config.text_ids, **ids),
        talker=replace(
            talker,
            layers=replace(talker.layers, layers=LAYERS),
            text_vocab=512,
            text_hidden=64,
            max_positions=512,
        ),
        predictor=replace(predictor, layers=replace(predictor.layers, layers=LAYERS)),
    )


def compare(config: ModelConfig) -> dict[str, float]:
    """Relative errors by name; of codes, the share that differs."""
    from qwen3tts_engine.qwen3.kernels.triton_kernels import TRITON

    model = Qwen3Model.from_weights(config, *random_weights(config), fused_norm=True)
    found = []
    for kernels in (model.kernels, TRITON):
        model.kernels = kernels
        runner = Runner(model, slots=ROWS, positions=256, launch=LaunchMode(static=True))
        found.append(speak(runner, ROWS, FRAMES))
    want, ours = found
    return {name: error_of(want[name], ours[name]) for name in want}


def speak(runner: Runner, rows: int = 3, frames: int = FRAMES) -> dict[str, Tensor]:
    """Codes, sound and state of rows of different prompts, every second one greedy; on the CPU."""
    draw = torch.Generator().manual_seed(3)
    model, device = runner.model, runner.model.device
    hidden = model.config.talker.layers.hidden
    greedy = Sampling(temperature=0.0, predictor_temperature=0.0)
    prompts = (torch.randn(5 + 9 * at % 80, hidden, generator=draw) * 0.1 for at in range(rows))
    runner.prefill(
        [
            PrefillRow(at, embeds.to(device, model.dtype), greedy if at % 2 else Sampling(), at)
            for at, embeds in enumerate(prompts)
        ]
    )
    steps = [StepRow(at, 7, True) for at in range(rows)]
    tickets = [runner.step(steps) for _ in range(frames)]
    sound = [runner.decode([DecodeRow(at, 0, 1) for at in range(rows)])]
    if frames > 1:
        sound.append(runner.decode([DecodeRow(at, 1, frames - 1) for at in range(rows)]))
    found = {
        "codes": torch.stack([torch.from_numpy(ticket.wait()) for ticket in tickets]),
        "sound": torch.cat([torch.from_numpy(ticket.wait()) for ticket in sound], dim=1),
    }
    runner.reset()
    cache = runner.kv_cache
    state = {"logits": cache.logits[:rows], "hidden": cache.hidden[:rows], "kv": cache.kv[:, :rows]}
    return found | {name: tensor.float().cpu() for name, tensor in state.items()}


def error_of(plain: Tensor, ours: Tensor) -> float:
    """Largest relative error, of integers the share that differs."""
    if not plain.is_floating_point():
        return float((plain != ours).float().mean())
    return float(((plain - ours).abs() / (1 + plain.abs())).max())


def main() -> None:
    """Print the errors as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--narrow", action="store_true", help="few columns")
    config = PUBLISHED["1.7b-custom_voice"]
    config = few_layers(narrow(config) if parser.parse_args().narrow else config)
    torch.set_num_threads(1)
    print(json.dumps(compare(config)))


if __name__ == "__main__":
    main()
