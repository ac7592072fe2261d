"""Loading of a checkpoint with random weights, ours beside the official package's: time, memory.

Checkpoints have the published sizes, codec included, in the published dtypes. Each load has a
process of its own, in turn and one thread, with the files in the page cache; imports are left out.
The least of the rounds counts, since other work on the machine only adds. Ours is the whole
engine: 16 slots of 2048 positions, ready to speak, and then a first sound. ``--quick``: 2 layers,
20,000 text ids, a tiny codec, and one round.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from common import Bench
from safetensors.torch import save_file

from qwen3tts_engine.qwen3.model.config_reader import read_config
from tests.tiny_models.checkpoint import make_tiny
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.tensor_names import codec_tensors, model_tensors
from tests.tiny_models.weights import random_weights

ROOT = Path(__file__).resolve().parent.parent
OFFICIAL_PYTHON = ROOT / ".oracle" / "bin" / "python"
TAIL = """
print(json.dumps(found))
"""
HEAD = """
import json, resource, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
def rss():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
"""
CASES = (("0.6b", "float32"), ("0.6b", "bfloat16"), ("1.7b", "bfloat16"))
OURS = """
from qwen3tts_engine.qwen3.api import Qwen3TTS
before, spent, began = rss(), time.process_time(), time.perf_counter()
tts = Qwen3TTS.load(sys.argv[1], dtype=sys.argv[2])
found = {"load_s": time.perf_counter() - began, "rss_mb": rss() - before}
found["load_cpu_s"] = time.process_time() - spent
found["load_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
began = time.perf_counter()
pieces = tts.stream("Good morning.", voice="ryan", frames_per_emission=1)
next(pieces)
found["first_s"] = time.perf_counter() - began
pieces.close()
tts.close()
"""
OFFICIAL = """
from qwen_tts import Qwen3TTSModel
before, spent, began = rss(), time.process_time(), time.perf_counter()
tts = Qwen3TTSModel.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[2]))
found = {"load_s": time.perf_counter() - began, "rss_mb": rss() - before}
found["load_cpu_s"] = time.process_time() - spent
found["load_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
"""


def build(folder: Path, *, size: str = "0.6b", small: bool, task: str = "custom_voice") -> Path:
    """Write a checkpoint of a published size: the model in bfloat16, the codec float32.

    ``small`` takes 2 layers, 20,000 text ids and a tiny codec, so that it is done in seconds.
    """
    like = PUBLISHED[f"{size}-{task}"]
    made = make_tiny(folder)[task]
    file = made / "config.json"
    config = json.loads(file.read_text())
    config["tts_model_size"] = like.size
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    layers = like.talker.layers
    talker = config["talker_config"]
    talker |= heads | {
        "hidden_size": layers.hidden,
        "intermediate_size": layers.ffn,
        "num_hidden_layers": 2 if small else layers.layers,
        "text_hidden_size": like.talker.text_hidden,
        "text_vocab_size": 20_000 if small else like.talker.text_vocab,
    }
    talker["rope_scaling"] |= {"mrope_section": [24, 20, 20]}
    inner = like.predictor.layers
    talker["code_predictor_config"] |= heads | {
        "hidden_size": inner.hidden,
        "intermediate_size": inner.ffn,
        "num_hidden_layers": inner.layers,
    }
    if like.speaker is not None and not small:
        speaker = dataclasses.asdict(like.speaker)
        names = config["speaker_encoder_config"].keys() & speaker.keys()
        config["speaker_encoder_config"] |= {name: speaker[name] for name in names}
    elif like.speaker is not None:
        config["speaker_encoder_config"]["enc_dim"] = layers.hidden
    file.write_text(json.dumps(config))
    if not small:
        file = made / "speech_tokenizer" / "config.json"
        codec = json.loads(file.read_text())
        codec["decoder_config"] |= dataclasses.asdict(like.codec.decoder)
        codec["encoder_config"] |= dataclasses.asdict(like.codec.encoder)
        codec["encoder_config"]["upsample_groups"] = like.codec.encoder.hidden_size
        file.write_text(json.dumps(codec))
    weights, _ = random_weights(read_config(made), dtype=torch.bfloat16)
    save_file({name: weights[name] for name in weights.names()}, made / "model.safetensors")
    if not small:
        _, weights = random_weights(read_config(made))
        file = made / "speech_tokenizer" / "model.safetensors"
        save_file({name: weights[name] for name in weights.names()}, file)
    return made


def weights_mb(folder: Path, dtype: str) -> float:
    """Size of the checkpoint's weights as loaded: the model in ``dtype``, the codec in float32."""
    config = read_config(folder)
    model = sum(map(math.prod, model_tensors(config).values()))
    codec = sum(map(math.prod, codec_tensors(config.codec).values()))
    return (model * {"float32": 4, "bfloat16": 2}[dtype] + codec * 4) / 2**20


def loaded(
    folder: Path, dtype: str, *, rounds: int = 1
) -> tuple[dict[str, float], dict[str, float] | None]:
    """Seconds and MB of ours and of the official package's, None where it is not installed."""
    ours: list[dict[str, float]] = []
    official: list[dict[str, float]] = []
    for _ in range(rounds):
        ours.append(_run(sys.executable, HEAD + OURS + TAIL, folder, dtype))
        if OFFICIAL_PYTHON.exists():
            official.append(_run(str(OFFICIAL_PYTHON), HEAD + OFFICIAL + TAIL, folder, dtype))
    return _least(ours), _least(official) if official else None


def _least(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: min(each[name] for each in found) for name in found[0]}


def _run(python: str, script: str, folder: Path, dtype: str) -> dict[str, float]:
    stubs = str(ROOT / "tests" / "parity" / "stubs")
    paths = {} if python == sys.executable else {"PYTHONPATH": stubs}
    done = subprocess.run(
        [python, "-c", script, str(folder), dtype],
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
        env=os.environ | {"HF_HUB_OFFLINE": "1"} | paths,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Load each case, ours and the official package's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=("0.6b", "1.7b"), help="of this size only")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="in this dtype only")
    parser.add_argument("--rounds", type=int, default=3)
    bench = Bench("checkpoint_load", "loading a checkpoint, beside the official package", parser)
    args = bench.args
    wanted = [args.size, args.dtype]
    cases = [
        case
        for case in (CASES if None in wanted else [tuple(wanted)])
        if all(one in (None, other) for one, other in zip(wanted, case, strict=True))
    ]
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    for size in dict.fromkeys(size for size, _ in cases):
        with tempfile.TemporaryDirectory() as folder:
            made = build(Path(folder), size=size, small=bench.quick)
            for dtype in [each for of, each in cases if of == size]:
                ours, official = loaded(made, dtype, rounds=1 if bench.quick else args.rounds)
                weights = weights_mb(made, dtype)
                key = f"{size.replace('.', '_')}_{dtype}"
                figures |= {
                    f"{key}_load_s": ours["load_s"],
                    f"{key}_load_cpu_s": ours["load_cpu_s"],
                    f"{key}_first_s": ours["first_s"],
                    f"{key}_peak_over_weights_mb": ours["load_peak_mb"] - weights,
                }
                if official is not None:
                    figures[f"{key}_official_s"] = official["load_s"]
                    figures[f"{key}_official_cpu_s"] = official["load_cpu_s"]
                    figures[f"{key}_over_official"] = ours["load_s"] / official["load_s"]
                for side, one in (("ours", ours), ("official", official or {})):
                    peak = one.get("load_peak_mb")
                    over = None if peak is None else peak - weights
                    found = [
                        one.get(name) for name in ("load_s", "load_cpu_s", "first_s", "rss_mb")
                    ]
                    rows.append([f"{size} {dtype}, {side}", *found, peak, over])
    columns = ["", "load s", "CPU s", "first sound s", "MB", "peak MB", "peak over weights MB"]
    bench.table("load" + (", 2 layers" if bench.quick else ""), columns, rows)
    bench.figure(**figures)


if __name__ == "__main__":
    main()
