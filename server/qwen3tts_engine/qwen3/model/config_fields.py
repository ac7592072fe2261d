"""Typed access to a checkpoint's JSON, with official defaults. No torch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from qwen3tts_wire.errors import EngineUnavailable

NO_DEFAULTS: Mapping[str, object] = MappingProxyType({})
REMEDY = "Download the checkpoint again, or compare it with the published one."


class BadCheckpoint(EngineUnavailable):
    """Damaged or unsupported checkpoint; names file and field or tensor."""


class JsonFields:
    """Object of a JSON file; raises BadCheckpoint with the field's path."""

    def __init__(
        self,
        file: Path,
        path: str,
        values: Mapping[str, object],
        defaults: Mapping[str, object] = NO_DEFAULTS,
    ) -> None:
        self.file = file
        self.path = path
        self._values = values
        self._defaults = defaults

    @classmethod
    def read(cls, file: Path, defaults: Mapping[str, object] = NO_DEFAULTS) -> JsonFields:
        try:
            # utf-8-sig: some editors put a byte order mark in front.
            values = json.loads(file.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise BadCheckpoint(f"{file} is missing.", remedy=REMEDY) from None
        except OSError as error:
            raise BadCheckpoint(
                f"{file} cannot be read: {error.strerror}.", remedy=REMEDY
            ) from None
        except (ValueError, RecursionError) as error:
            raise BadCheckpoint(f"{file} is not JSON: {error}.", remedy=REMEDY) from None
        if not isinstance(values, dict):
            raise BadCheckpoint(f"{file} holds no JSON object.", remedy=REMEDY)
        return cls(file, "", values, defaults)

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def known(self, name: str) -> bool:
        return name in self or name in self._defaults

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def where(self, name: str) -> str:
        return f"{self.file}: {self.path}{name}"

    def refuse(self, name: str, problem: str) -> NoReturn:
        raise BadCheckpoint(f"{self.where(name)} {problem}.", remedy=REMEDY)

    def _value(self, name: str) -> object:
        if name in self._values:
            return self._values[name]
        if name not in self._defaults:
            self.refuse(name, "is missing")
        return self._defaults[name]

    def section(self, name: str, defaults: Mapping[str, object] = NO_DEFAULTS) -> JsonFields:
        """Return a nested object; with ``defaults`` it may be absent or null."""
        value = self._values.get(name) if defaults else self._value(name)
        if value is None and defaults:
            value = {}
        if not isinstance(value, dict):
            self.refuse(name, f"is {_shown(value)}, not an object")
        return JsonFields(self.file, f"{self.path}{name}.", value, defaults)

    def integer(self, name: str, low: int = 1, high: int = 1 << 31) -> int:
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, f"is {_shown(value)}, not a whole number")
        if not low <= value <= high:
            self.refuse(name, f"is {_shown(value)}, not from {low} to {high}")
        return value

    def number(self, name: str, low: float = 0.0, high: float = math.inf) -> float:
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, f"is {_shown(value)}, not a number")
        # Compared before it becomes a float: a whole number may be too large for one.
        if not low <= value <= min(high, 1e300):
            self.refuse(name, f"is {_shown(value)}, not a finite number from {low} to {high}")
        return float(value)

    def boolean(self, name: str) -> bool:
        value = self._value(name)
        if not isinstance(value, bool):
            self.refuse(name, f"is {_shown(value)}, not true or false")
        return value

    def is_false(self, name: str) -> bool:
        return self._value(name) is False

    def text(self, name: str, choices: tuple[str, ...] = ()) -> str:
        value = self._value(name)
        if not isinstance(value, str):
            self.refuse(name, f"is {_shown(value)}, not a string")
        if choices and value not in choices:
            self.refuse(name, f"is {_shown(value)}, not one of {', '.join(choices)}")
        return value

    def integers(self, name: str, *, low: int = 1, high: int = 1 << 31) -> tuple[int, ...]:
        """Return a list of 1 to 64 integers."""
        value = self._value(name)
        if not isinstance(value, list) or not value or len(value) > 64:
            self.refuse(name, f"is {_shown(value)}, not a list of 1 to 64 whole numbers")
        inner = JsonFields(
            self.file, f"{self.path}{name}.", {str(at): one for at, one in enumerate(value)}
        )
        return tuple(inner.integer(at, low, high) for at in inner)

    def must_be(self, name: str, wanted: object) -> None:
        """Refuse any value but ``wanted``; absent is accepted."""
        value = self._values.get(name, self._defaults.get(name, wanted))
        if value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            self.refuse(name, f"is {_shown(value)}; this engine knows only {_shown(wanted)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_model_kind(top: JsonFields, name: str, wanted: str) -> None:
    found = top.text(name) if name in top else "absent"
    if found != wanted:
        raise BadCheckpoint(
            f"{top.file} is of another kind of model: {name} is {found!r}, not {wanted!r}.",
            remedy="Name the folder of a Qwen3-TTS 12 Hz checkpoint: CustomVoice, VoiceDesign or "
            "Base, of 0.6B or 1.7B.",
        )


def head_dim(at: JsonFields, width: int, heads: int) -> int:
    return at.integer("head_dim", 2, 1024) if at.known("head_dim") else width // heads


def check_heads(at: JsonFields, heads: int, kv_heads: int, head_dim: int) -> None:
    if heads % kv_heads:
        at.refuse("num_key_value_heads", f"is {kv_heads}, no divisor of {heads} heads")
    if head_dim % 2:
        at.refuse("head_dim", f"is {head_dim}, which is odd")


# Defaults of the official configuration classes, not the published checkpoints' values: qwen-tts
# 0.1.1 (``Qwen3TTSConfig``, ``Qwen3TTSModel._merge_generate_kwargs``), ``MimiConfig`` of
# transformers. Fields without one are required. Held by tests/parity/test_default_parity.py.
_LAYERS = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000,
    "num_code_groups": 32,
}
TOP = MappingProxyType(
    {
        "im_start_token_id": 151_644,
        "im_end_token_id": 151_645,
        "tts_pad_token_id": 151_671,
        "tts_bos_token_id": 151_672,
        "tts_eos_token_id": 151_673,
    }
)
TALKER = MappingProxyType(
    _LAYERS
    | {
        "vocab_size": 3072,
        "intermediate_size": 2048,
        "num_hidden_layers": 20,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "text_hidden_size": 2048,
        "codec_eos_token_id": 4198,
        "codec_think_id": 4202,
        "codec_nothink_id": 4203,
        "codec_think_bos_id": 4204,
        "codec_think_eos_id": 4205,
        "codec_pad_id": 4196,
        "codec_bos_id": 4197,
    }
)
PREDICTOR = MappingProxyType(
    _LAYERS
    | {
        "vocab_size": 2048,
        "intermediate_size": 3072,
        "num_hidden_layers": 5,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }
)
SPEAKER_ENCODER = MappingProxyType({"enc_dim": 1024, "sample_rate": 24_000})
CODEC = MappingProxyType(
    {
        "encoder_valid_num_quantizers": 16,
        "output_sample_rate": 24_000,
        "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920,
    }
)
CODEC_DECODER = MappingProxyType(
    {
        "codebook_size": 2048,
        "hidden_size": 1024,
        "latent_dim": 1024,
        "rope_theta": 10_000,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "sliding_window": 72,
        "intermediate_size": 3072,
        "rms_norm_eps": 1e-5,
        "num_hidden_layers": 8,
        "num_quantizers": 16,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "decoder_dim": 1536,
    }
)
CODEC_ENCODER = MappingProxyType(
    {
        "sampling_rate": 24_000,
        "hidden_size": 512,
        "num_filters": 64,
        "num_residual_layers": 1,
        "upsampling_ratios": [8, 6, 5, 4],
        "kernel_size": 7,
        "last_kernel_size": 3,
        "residual_kernel_size": 3,
        "dilation_growth_rate": 2,
        "compress": 2,
        "codebook_size": 2048,
        "codebook_dim": 256,
        "num_quantizers": 32,
        "num_semantic_quantizers": 1,
        "vector_quantization_hidden_dimension": 256,
        "num_hidden_layers": 8,
        "intermediate_size": 2048,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "sliding_window": 250,
    }
)
GENERATION = MappingProxyType(
    {
        "do_sample": True,
        "top_k": 50,
        "top_p": 1.0,
        "temperature": 0.9,
        "repetition_penalty": 1.05,
        "subtalker_dosample": True,
        "subtalker_top_k": 50,
        "subtalker_top_p": 1.0,
        "subtalker_temperature": 0.9,
        "max_new_tokens": 2048,
    }
)
