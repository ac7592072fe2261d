"""Tiny checkpoints in the published layout, one for each task: ``make tiny-models``.

A few megabytes each, made in about a second, the same for the same seed. They load wherever the
published ones do and speak much faster than real time on one CPU thread; what they say is noise
that lasts as long as its text would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from safetensors.torch import save_file

from qwen3tts_engine.qwen3.model.config import Task
from qwen3tts_engine.qwen3.model.config_fields import JsonFields
from qwen3tts_engine.qwen3.model.config_reader import read_config
from tests.tiny_models import tokenizer as tiny_tokenizer
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import tiny_codec, tiny_model

Json = dict[str, Any]

HIDDEN = 32
SIZES: Mapping[Task, str] = {"custom_voice": "1b7", "voice_design": "1b7", "base": "0b6"}
"""The size that a tiny checkpoint claims to be: it decides whether instructions count."""
SPEAKERS = ("serena", "ryan", "uncle_fu", "eric", "dylan")
"""Of the published ones; the last two speak dialects."""


def write_json_files(
    folder: Path, task: Task, *, entries: int, ids: Mapping[str, int], assistant: int
) -> None:
    """Write ``config.json``, ``generation_config.json`` and the speech tokenizer's two files.

    Args:
        folder: Exists, as does ``speech_tokenizer`` in it.
        task: Of the checkpoint.
        entries: Rows of the text embedding.
        ids: Of the text track's special tokens.
        assistant: The id of that word.
    """
    _write(folder / "config.json", _config(task, entries, ids, assistant))
    _write(folder / "generation_config.json", _GENERATION)
    codec = folder / "speech_tokenizer"
    _write(codec / "config.json", _CODEC)
    _write(codec / "preprocessor_config.json", _PREPROCESSOR)


def _write(file: Path, value: Json) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _layers(layers: int) -> Json:
    return {
        "attention_bias": False,
        "attention_dropout": 0,
        "head_dim": 16,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_code_groups": 16,
        "num_hidden_layers": layers,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1_000_000,
        "sliding_window": None,
        "use_cache": True,
        "use_sliding_window": False,
    }


def _config(task: Task, entries: int, ids: Mapping[str, int], assistant: int) -> Json:
    like = PUBLISHED["1.7b-custom_voice"].talker
    named = task == "custom_voice"
    speakers = {name: like.speakers[name] for name in SPEAKERS} if named else {}
    predictor = _layers(1) | {
        "max_position_embeddings": 65_536,
        "model_type": "qwen3_tts_talker_code_predictor",
        "rope_scaling": None,
        "vocab_size": 2048,
    }
    talker = _layers(2) | {
        "code_predictor_config": predictor,
        "codec_bos_id": like.ids.bos,
        "codec_eos_token_id": like.ids.eos,
        "codec_language_id": {
            name: number
            for name, number in like.languages.items()
            if named or "dialect" not in name
        },
        "codec_nothink_id": like.ids.nothink,
        "codec_pad_id": like.ids.pad,
        "codec_think_bos_id": like.ids.think_bos,
        "codec_think_eos_id": like.ids.think_eos,
        "codec_think_id": like.ids.think,
        "max_position_embeddings": 32_768,
        "model_type": "qwen3_tts_talker",
        "position_id_per_seconds": 13,
        "rope_scaling": {
            "interleaved": True,
            "mrope_section": [4, 2, 2],
            "rope_type": "default",
            "type": "default",
        },
        "spk_id": speakers,
        "spk_is_dialect": {name: like.dialects.get(name, False) for name in speakers},
        "text_hidden_size": HIDDEN,
        "text_vocab_size": entries,
        "vocab_size": like.vocab,
    }
    config: Json = {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "assistant_token_id": assistant,
        "im_end_token_id": ids["<|im_end|>"],
        "im_start_token_id": ids["<|im_start|>"],
        "model_type": "qwen3_tts",
        "talker_config": talker,
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "transformers_version": "4.57.3",
        "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"],
        "tts_model_size": SIZES[task],
        "tts_model_type": task,
        "tts_pad_token_id": ids["<tts_pad>"],
    }
    if task == "base":
        # All of it, unlike the published file, since these are not the architecture's own sizes.
        config["speaker_encoder_config"] = {
            "enc_attention_channels": 8,
            "enc_channels": [16, 16, 16, 16, 48],
            "enc_dilations": [1, 2, 3, 4, 1],
            "enc_dim": HIDDEN,
            "enc_kernel_sizes": [5, 3, 3, 3, 1],
            "enc_res2net_scale": 8,
            "enc_se_channels": 8,
            "mel_dim": 128,
            "sample_rate": 24_000,
        }
    return config


_GENERATION: Json = {
    "do_sample": True,
    "max_new_tokens": 8192,
    "repetition_penalty": 1.05,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_k": 50,
    "subtalker_top_p": 1.0,
    "temperature": 0.9,
    "top_k": 50,
    "top_p": 1.0,
}

_PREPROCESSOR: Json = {
    "chunk_length_s": None,
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "overlap": None,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 24_000,
}

_CODEC: Json = {
    "architectures": ["Qwen3TTSTokenizerV2Model"],
    "decode_upsample_rate": 1920,
    "decoder_config": {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "codebook_dim": 16,
        "codebook_size": 2048,
        "decoder_dim": 32,
        "head_dim": 8,
        "hidden_act": "silu",
        "hidden_size": 16,
        "intermediate_size": 32,
        "latent_dim": 16,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_quantizers": 16,
        "num_semantic_quantizers": 1,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10_000,
        "semantic_codebook_size": 4096,
        "sliding_window": 72,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "vector_quantization_hidden_dimension": 16,
    },
    "encode_downsample_rate": 1920,
    "encoder_config": {
        "_frame_rate": 12.5,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "audio_channels": 1,
        "codebook_dim": 8,
        "codebook_size": 2048,
        "compress": 2,
        "dilation_growth_rate": 2,
        "head_dim": 8,
        "hidden_act": "gelu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": 64,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "model_type": "mimi",
        "norm_eps": 1e-05,
        "num_attention_heads": 4,
        "num_filters": 4,
        "num_hidden_layers": 1,
        "num_key_value_heads": 4,
        "num_quantizers": 16,
        "num_residual_layers": 1,
        "num_semantic_quantizers": 1,
        "pad_mode": "constant",
        "residual_kernel_size": 3,
        "rope_theta": 10_000.0,
        "sampling_rate": 24_000,
        "sliding_window": 250,
        "trim_right_ratio": 1.0,
        "upsample_groups": HIDDEN,
        "upsampling_ratios": [8, 6, 5, 4],
        "use_cache": False,
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "use_streaming": False,
        "vector_quantization_hidden_dimension": 8,
    },
    "encoder_valid_num_quantizers": 16,
    "input_sample_rate": 24_000,
    "model_type": "qwen3_tts_tokenizer_12hz",
    "output_sample_rate": 24_000,
    "transformers_version": "4.57.3",
}


def make_tiny(out: Path, *, seed: int = 0) -> dict[str, Path]:
    """Write a checkpoint for each task to ``out``; the folder of each."""
    return {task: _make(out / task, task, seed) for task in get_args(Task)}


def _make(folder: Path, task: Task, seed: int) -> Path:
    codec = folder / "speech_tokenizer"
    codec.mkdir(parents=True, exist_ok=True)
    ids = tiny_tokenizer.write(folder)
    words = JsonFields.read(folder / "vocab.json")
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
