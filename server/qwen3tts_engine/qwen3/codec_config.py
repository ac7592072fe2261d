"""Reads what a checkpoint's speech tokenizer says about itself. No torch."""

from __future__ import annotations

import math

from qwen3tts_engine.qwen3.fields import Fields, even_heads, head_dim, right_kind
from qwen3tts_engine.qwen3.model_config import CodecConfig, CodecDecoderConfig, CodecEncoderConfig
from qwen3tts_engine.qwen3.official_defaults import CODEC_DECODER, CODEC_ENCODER


def read_codec(top: Fields) -> CodecConfig:
    """What ``speech_tokenizer/config.json`` says.

    Raises:
        BadCheckpoint: another kind of codec, a missing or senseless field.
    """
    right_kind(top, "model_type", "qwen3_tts_tokenizer_12hz")
    decoder = _decoder(top.section("decoder_config", CODEC_DECODER))
    encoder = _encoder(top.section("encoder_config", CODEC_ENCODER))
    top.must_be("input_sample_rate", 24_000)
    config = CodecConfig(
        decoder=decoder,
        encoder=encoder,
        sample_rate=top.integer("output_sample_rate", 24_000, 24_000),
        samples_per_frame=top.integer("decode_upsample_rate"),
        quantizers=top.integer("encoder_valid_num_quantizers", 2, 64),
    )
    made = math.prod(decoder.upsample_rates) * math.prod(decoder.upsampling_ratios)
    if made != config.samples_per_frame:
        top.refuse(
            "decode_upsample_rate",
            f"is {config.samples_per_frame}, but the decoder's rates multiply to {made}",
        )
    if top.integer("encode_downsample_rate") != 2 * math.prod(encoder.upsampling_ratios):
        top.refuse("encode_downsample_rate", "is not twice the product of the encoder's ratios")
    if encoder.codebook_size != decoder.codebook_size:
        top.refuse(
            "encoder_config.codebook_size",
            f"is {encoder.codebook_size}, but the decoder's book has {decoder.codebook_size}",
        )
    if decoder.num_quantizers != config.quantizers or encoder.num_quantizers < config.quantizers:
        top.refuse(
            "encoder_valid_num_quantizers",
            f"is {config.quantizers}, but the decoder has {decoder.num_quantizers} books and the "
            f"encoder {encoder.num_quantizers}",
        )
    return config


def _decoder(at: Fields) -> CodecDecoderConfig:
    at.must_be("hidden_act", "silu")
    at.must_be("attention_bias", False)
    width, heads = at.integer("hidden_size", 1, 1 << 16), at.integer("num_attention_heads", 1, 1024)
    config = CodecDecoderConfig(
        codebook_size=at.integer("codebook_size", 2, 1 << 20),
        codebook_dim=at.integer("codebook_dim", 2, 1 << 16),
        num_quantizers=at.integer("num_quantizers", 2, 64),
        latent_dim=at.integer("latent_dim", 1, 1 << 16),
        hidden_size=width,
        intermediate_size=at.integer("intermediate_size", 1, 1 << 20),
        num_hidden_layers=at.integer("num_hidden_layers", 1, 1024),
        num_attention_heads=heads,
        num_key_value_heads=at.integer("num_key_value_heads", 1, 1024),
        head_dim=head_dim(at, width, heads),
        sliding_window=at.integer("sliding_window", 2, 1 << 16),
        rms_norm_eps=at.number("rms_norm_eps", 0.0, 1.0),
        rope_theta=at.number("rope_theta", 1.0),
        decoder_dim=at.integer("decoder_dim", 1, 1 << 16),
        upsample_rates=at.integers("upsample_rates", high=1000),
        upsampling_ratios=at.integers("upsampling_ratios", high=1000),
    )
    even_heads(at, config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    if config.codebook_dim % 2:
        at.refuse("codebook_dim", f"is {config.codebook_dim}, which is odd")
    if config.decoder_dim % 2 ** len(config.upsample_rates):
        at.refuse("decoder_dim", "cannot be halved once for each of upsample_rates")
    return config


def _encoder(at: Fields) -> CodecEncoderConfig:
    at.must_be("hidden_act", "gelu")
    at.must_be("attention_bias", False)
    at.must_be("audio_channels", 1)
    at.must_be("use_causal_conv", True)
    at.must_be("use_conv_shortcut", False)
    at.must_be("pad_mode", "constant")
    width, heads = at.integer("hidden_size", 1, 1 << 16), at.integer("num_attention_heads", 1, 1024)
    config = CodecEncoderConfig(
        sampling_rate=at.integer("sampling_rate", 24_000, 24_000),
        hidden_size=width,
        num_filters=at.integer("num_filters", 1, 1 << 16),
        num_residual_layers=at.integer("num_residual_layers", 1, 64),
        upsampling_ratios=at.integers("upsampling_ratios", high=1000),
        kernel_size=at.integer("kernel_size", 1, 1000),
        last_kernel_size=at.integer("last_kernel_size", 1, 1000),
        residual_kernel_size=at.integer("residual_kernel_size", 1, 1000),
        dilation_growth_rate=at.integer("dilation_growth_rate", 1, 1000),
        compress=at.integer("compress", 1, 1 << 16),
        codebook_size=at.integer("codebook_size", 2, 1 << 20),
        codebook_dim=at.integer("codebook_dim", 1, 1 << 16),
        num_quantizers=at.integer("num_quantizers", 2, 64),
        num_semantic_quantizers=at.integer("num_semantic_quantizers", 1, 1),
        vector_quantization_hidden_dimension=at.integer(
            "vector_quantization_hidden_dimension", 1, 1 << 16
        ),
        num_hidden_layers=at.integer("num_hidden_layers", 1, 1024),
        intermediate_size=at.integer("intermediate_size", 1, 1 << 20),
        num_attention_heads=heads,
        num_key_value_heads=at.integer("num_key_value_heads", 1, 1024),
        head_dim=head_dim(at, width, heads),
        norm_eps=at.number("norm_eps", 0.0, 1.0),
        rope_theta=at.number("rope_theta", 1.0),
        sliding_window=at.integer("sliding_window", 2, 1 << 16),
    )
    even_heads(at, config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    if config.vector_quantization_hidden_dimension != config.codebook_dim:
        at.refuse("vector_quantization_hidden_dimension", "is not codebook_dim")
    return config
