"""Fields that a checkpoint may leave out, with the values of the official configuration classes.

Sources: qwen-tts 0.1.1, ``Qwen3TTSConfig`` and its parts; ``MimiConfig`` of transformers for the
codec's encoder; ``Qwen3TTSModel._merge_generate_kwargs`` for sampling. They are not the values of
the published checkpoints. What has no default there (``text_vocab_size``, say) is required.
tests/parity/test_default_parity.py holds them to the installed package.
"""

from __future__ import annotations

from types import MappingProxyType

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
