"""The published checkpoints' configurations, for random weights of the real size. No torch.

Values: copies of the published ``config.json`` files in public repositories, which agree with each
other; the counts of parameters and tensors that follow from them are those reported for the files.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from qwen3tts_engine.qwen3.model.config import (
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    ControlIds,
    GenerationConfig,
    LayersConfig,
    ModelConfig,
    PredictorConfig,
    SpeakerEncoderConfig,
    TalkerConfig,
    Task,
    TextIds,
)

_LANGUAGES = {
    "chinese": 2055,
    "english": 2050,
    "german": 2053,
    "italian": 2070,
    "portuguese": 2071,
    "spanish": 2054,
    "japanese": 2058,
    "korean": 2064,
    "french": 2061,
    "russian": 2069,
}
_DIALECT_LANGUAGES = {"beijing_dialect": 2074, "sichuan_dialect": 2062}
_SPEAKERS = {
    "serena": 3066,
    "vivian": 3065,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}
_CODEC = CodecConfig(
    decoder=CodecDecoderConfig(
        codebook_size=2048,
        codebook_dim=512,
        num_quantizers=16,
        latent_dim=1024,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=64,
        sliding_window=72,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        decoder_dim=1536,
        upsample_rates=(8, 5, 4, 3),
        upsampling_ratios=(2, 2),
    ),
    encoder=CodecEncoderConfig(
        sampling_rate=24_000,
        hidden_size=512,
        num_filters=64,
        num_residual_layers=1,
        upsampling_ratios=(8, 6, 5, 4),
        kernel_size=7,
        last_kernel_size=3,
        residual_kernel_size=3,
        dilation_growth_rate=2,
        compress=2,
        codebook_size=2048,
        codebook_dim=256,
        num_quantizers=32,
        num_semantic_quantizers=1,
        vector_quantization_hidden_dimension=256,
        num_hidden_layers=8,
        intermediate_size=2048,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=64,
        norm_eps=1e-5,
        rope_theta=10_000.0,
        sliding_window=250,
    ),
)


def _layers(hidden: int, ffn: int, layers: int) -> LayersConfig:
    return LayersConfig(
        hidden=hidden,
        ffn=ffn,
        layers=layers,
        heads=16,
        kv_heads=8,
        head_dim=128,
        rms_eps=1e-6,
        rope_theta=1_000_000.0,
    )


def _published(size: str, task: Task) -> ModelConfig:
    hidden = {"0b6": 1024, "1b7": 2048}[size]
    named = task == "custom_voice"
    return ModelConfig(
        task=task,
        size=size,
        text_ids=TextIds(
            im_start=151_644,
            im_end=151_645,
            tts_pad=151_671,
            tts_bos=151_672,
            tts_eos=151_673,
            assistant=77_091,
            user=872,
            newline=198,
        ),
        talker=TalkerConfig(
            layers=_layers(hidden, 3 * hidden, 28),
            vocab=3072,
            text_vocab=151_936,
            text_hidden=2048,
            code_groups=16,
            max_positions=32_768,
            ids=ControlIds(
                pad=2148,
                bos=2149,
                eos=2150,
                think=2154,
                nothink=2155,
                think_bos=2156,
                think_eos=2157,
            ),
            languages=MappingProxyType(_LANGUAGES | (_DIALECT_LANGUAGES if named else {})),
            speakers=MappingProxyType(_SPEAKERS if named else {}),
            dialects=MappingProxyType(
                {"eric": "sichuan_dialect", "dylan": "beijing_dialect"} if named else {}
            ),
        ),
        predictor=PredictorConfig(layers=_layers(1024, 3072, 5), vocab=2048, groups=15),
        speaker=(
            SpeakerEncoderConfig(enc_dim=hidden, sample_rate=24_000) if task == "base" else None
        ),
        codec=_CODEC,
        generation=GenerationConfig(
            temperature=0.9,
            top_k=50,
            top_p=1.0,
            repetition_penalty=1.05,
            predictor_temperature=0.9,
            predictor_top_k=50,
            predictor_top_p=1.0,
            max_frames=8192,
        ),
    )


PUBLISHED: Final = MappingProxyType(
    {
        "0.6b-custom_voice": _published("0b6", "custom_voice"),
        "1.7b-custom_voice": _published("1b7", "custom_voice"),
        "1.7b-voice_design": _published("1b7", "voice_design"),
        "0.6b-base": _published("0b6", "base"),
        "1.7b-base": _published("1b7", "base"),
    }
)
"""By size and task."""
