"""Loading of a checkpoint with random weights, ours beside the official package's: time, memory.

Each load has a process of its own, in turn, with the file in the page cache; imports are left out.
Ours is the whole engine: 16 slots of 2048 positions, ready to speak, and then a first sound.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from qwen3tts_engine.qwen3.config import read_config
from qwen3tts_engine.qwen3.random_weights import random_weights
from qwen3tts_engine.qwen3.tiny import make_tiny

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
OURS = """
from qwen3tts_engine.qwen3.api import Qwen3TTS
before, began = rss(), time.perf_counter()
tts = Qwen3TTS.load(sys.argv[1], dtype=sys.argv[2])
found = {"load_s": time.perf_counter() - began, "rss_mb": rss() - before}
began = time.perf_counter()
pieces = tts.stream("Good morning.", voice="ryan", frames_per_emission=1)
next(pieces)
found["first_s"] = time.perf_counter() - began
found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
pieces.close()
tts.close()
"""
OFFICIAL = """
from qwen_tts import Qwen3TTSModel
before, began = rss(), time.perf_counter()
tts = Qwen3TTSModel.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[2]))
found = {"load_s": time.perf_counter() - began, "rss_mb": rss() - before}
"""


def build(folder: Path, *, small: bool) -> Path:
    """Write a CustomVoice checkpoint of the 0.6B sizes in bfloat16, with a tiny codec.

    ``small`` takes 2 layers and 20,000 text ids, so that it is done in seconds.
    """
    made = make_tiny(folder)["custom_voice"]
    file = made / "config.json"
    config = json.loads(file.read_text())
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    sizes = {"hidden_size": 1024, "intermediate_size": 3072, **heads}
    talker = config["talker_config"]
    talker |= sizes | {
        "num_hidden_layers": 2 if small else 28,
        "text_hidden_size": 2048,
        "text_vocab_size": 20_000 if small else 151_936,
    }
    talker["rope_scaling"] |= {"mrope_section": [24, 20, 20]}
    talker["code_predictor_config"] |= sizes | {"num_hidden_layers": 5}
    file.write_text(json.dumps(config))
    weights, _ = random_weights(read_config(made), dtype=torch.bfloat16)
    save_file({name: weights[name] for name in weights.names()}, made / "model.safetensors")
    return made


def loaded(folder: Path, dtype: str) -> tuple[dict[str, float], dict[str, float] | None]:
    """Seconds and MB of ours and of the official package's, None where it is not installed."""
    ours = _run(sys.executable, HEAD + OURS + TAIL, folder, dtype)
    if not OFFICIAL_PYTHON.exists():
        return ours, None
    return ours, _run(str(OFFICIAL_PYTHON), HEAD + OFFICIAL + TAIL, folder, dtype)


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
