"""Reader of a checkpoint's configuration. No torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from qwen3tts_engine.qwen3.model import config_fields as official_defaults
from qwen3tts_engine.qwen3.model.config import (
    CONTROL_IDS,
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
from qwen3tts_engine.qwen3.model.config_fields import (
    CODEC_DECODER,
    CODEC_ENCODER,
    BadCheckpoint,
    JsonFields,
    check_heads,
    check_model_kind,
    head_dim,
)


def read_codec(top: JsonFields) -> CodecConfig:
    """Read ``speech_tokenizer/config.json``; BadCheckpoint if it is inconsistent."""
    check_model_kind(top, "model_type", "qwen3_tts_tokenizer_12hz")
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


def _decoder(at: JsonFields) -> CodecDecoderConfig:
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
    check_heads(at, config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    if config.codebook_dim % 2:
        at.refuse("codebook_dim", f"is {config.codebook_dim}, which is odd")
    if config.decoder_dim % 2 ** len(config.upsample_rates):
        at.refuse("decoder_dim", "cannot be halved once for each of upsample_rates")
    return config


def _encoder(at: JsonFields) -> CodecEncoderConfig:
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
    check_heads(at, config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    if config.vector_quantization_hidden_dimension != config.codebook_dim:
        at.refuse("vector_quantization_hidden_dimension", "is not codebook_dim")
    return config


BYTE_LINE_FEED = "\u010a"
"""Line feed in the byte alphabet of ``vocab.json``."""


def read_config(folder: Path) -> ModelConfig:
    if not folder.is_dir():
        raise BadCheckpoint(
            f"{folder} is not a folder.", remedy="Name the folder that holds config.json."
        )
    file = folder / "config.json"
    if not file.is_file():
        raise BadCheckpoint(
            f"{folder} holds no config.json.",
            remedy="Name the folder of a Qwen3-TTS checkpoint, as downloaded.",
        )
    top = JsonFields.read(file, official_defaults.TOP)
    check_model_kind(top, "model_type", "qwen3_tts")
    check_model_kind(top, "tokenizer_type", "qwen3_tts_tokenizer_12hz")
    task: Task = next(
        one for one in get_args(Task) if one == top.text("tts_model_type", get_args(Task))
    )
    section = top.section("talker_config", official_defaults.TALKER)
    talker = _talker(section, task)
    codec = read_codec(
        JsonFields.read(folder / "speech_tokenizer" / "config.json", official_defaults.CODEC)
    )
    config = ModelConfig(
        task=task,
        size=top.text("tts_model_size"),
        text_ids=_text_ids(top, JsonFields.read(folder / "vocab.json"), talker.text_vocab),
        talker=talker,
        predictor=_predictor(
            section.section("code_predictor_config", official_defaults.PREDICTOR), talker
        ),
        speaker=(
            _speaker(
                top.section("speaker_encoder_config", official_defaults.SPEAKER_ENCODER), talker
            )
            if task == "base"
            else None
        ),
        codec=codec,
        generation=_generation(
            JsonFields.read(folder / "generation_config.json", official_defaults.GENERATION)
        ),
    )
    if talker.code_groups != codec.quantizers:
        section.refuse(
            "num_code_groups",
            f"is {talker.code_groups}, but the speech tokenizer has {codec.quantizers} codes",
        )
    if talker.codes != codec.decoder.codebook_size:
        section.refuse(
            "vocab_size",
            f"leaves {talker.codes} codes, but the speech tokenizer has "
            f"{codec.decoder.codebook_size}",
        )
    return config


def _layers(at: JsonFields) -> LayersConfig:
    at.must_be("hidden_act", "silu")
    at.must_be("attention_bias", False)
    at.must_be("use_sliding_window", False)
    heads, kv_heads = at.integer("num_attention_heads", 1, 1024), at.integer("num_key_value_heads")
    hidden = at.integer("hidden_size", 1, 1 << 16)
    dim = head_dim(at, hidden, heads)
    check_heads(at, heads, kv_heads, dim)
    return LayersConfig(
        hidden=hidden,
        ffn=at.integer("intermediate_size", 1, 1 << 20),
        layers=at.integer("num_hidden_layers", 1, 1024),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        rms_eps=at.number("rms_norm_eps", 0.0, 1.0),
        rope_theta=at.number("rope_theta", 1.0),
    )


def _talker(at: JsonFields, task: Task) -> TalkerConfig:
    if "rope_scaling" in at:
        # Three sections of positions that are equal for speech: ordinary RoPE.
        rope = at.section("rope_scaling")
        rope.must_be("rope_type", "default")
        rope.must_be("type", "default")
    vocab = at.integer("vocab_size", CONTROL_IDS + 1, 1 << 20)

    def control(name: str) -> int:
        return at.integer(name, vocab - CONTROL_IDS, vocab - 1)

    languages = _ids(at, "codec_language_id", vocab)
    # A checkpoint without named speakers holds empty tables, or none.
    named = task == "custom_voice"
    speakers = _ids(at, "spk_id", vocab) if named else {}
    if named and not speakers:
        at.refuse("spk_id", "names no speaker")
    return TalkerConfig(
        layers=_layers(at),
        vocab=vocab,
        text_vocab=at.integer("text_vocab_size", 1, 1 << 24),
        text_hidden=at.integer("text_hidden_size", 1, 1 << 16),
        code_groups=at.integer("num_code_groups", 2, 64),
        max_positions=at.integer("max_position_embeddings"),
        ids=ControlIds(
            pad=control("codec_pad_id"),
            bos=control("codec_bos_id"),
            eos=control("codec_eos_token_id"),
            think=control("codec_think_id"),
            nothink=control("codec_nothink_id"),
            think_bos=control("codec_think_bos_id"),
            think_eos=control("codec_think_eos_id"),
        ),
        languages=MappingProxyType(languages),
        speakers=MappingProxyType(speakers),
        dialects=MappingProxyType(_dialects(at, speakers, languages) if named else {}),
    )


def _ids(at: JsonFields, name: str, vocab: int) -> dict[str, int]:
    table = at.section(name)
    return {key.lower(): table.integer(key, 0, vocab - 1) for key in table}


def _dialects(
    at: JsonFields, speakers: Mapping[str, int], languages: Mapping[str, int]
) -> dict[str, str]:
    table = at.section("spk_is_dialect")
    keys = {key.lower(): key for key in table}
    dialects = {}
    for speaker in speakers:
        # ``false``, or the name of a language.
        key = keys.get(speaker, speaker)
        if key in table and table.is_false(key):
            continue
        dialect = table.text(key)
        if dialect not in languages:
            table.refuse(key, f"is {dialect!r}, no language of codec_language_id")
        dialects[speaker] = dialect
    return dialects


def _predictor(at: JsonFields, talker: TalkerConfig) -> PredictorConfig:
    if "rope_scaling" in at:
        at.refuse("rope_scaling", "is set; this engine knows only null")
    at.must_be("num_code_groups", talker.code_groups)
    config = PredictorConfig(
        layers=_layers(at),
        vocab=at.integer("vocab_size", 1, 1 << 20),
        groups=at.integer("num_code_groups", 2, 64) - 1,
    )
    if config.vocab != talker.codes:
        at.refuse("vocab_size", f"is {config.vocab}, but the talker has {talker.codes} codes")
    return config


def _text_ids(at: JsonFields, words: JsonFields, text_vocab: int) -> TextIds:
    def one(name: str) -> int:
        return at.integer(name, 0, text_vocab - 1)

    def word(name: str) -> int:
        # The layout of the prompt rests on these being one token each.
        return words.integer(name, 0, text_vocab - 1)

    ids = TextIds(
        im_start=one("im_start_token_id"),
        im_end=one("im_end_token_id"),
        tts_pad=one("tts_pad_token_id"),
        tts_bos=one("tts_bos_token_id"),
        tts_eos=one("tts_eos_token_id"),
        assistant=word("assistant"),
        user=word("user"),
        newline=word(BYTE_LINE_FEED),
    )
    at.must_be("assistant_token_id", ids.assistant)
    return ids


def _speaker(at: JsonFields, talker: TalkerConfig) -> SpeakerEncoderConfig:
    at.must_be("enc_dim", talker.layers.hidden)
    at.must_be("sample_rate", 24_000)
    usual = SpeakerEncoderConfig(
        enc_dim=at.integer("enc_dim"), sample_rate=at.integer("sample_rate")
    )

    def one(name: str, value: int) -> int:
        return at.integer(name, 1, 1 << 16) if name in at else value

    def several(name: str, values: tuple[int, ...]) -> tuple[int, ...]:
        return at.integers(name, high=1 << 16) if name in at else values

    config = dataclasses.replace(
        usual,
        mel_dim=one("mel_dim", usual.mel_dim),
        enc_channels=several("enc_channels", usual.enc_channels),
        enc_kernel_sizes=several("enc_kernel_sizes", usual.enc_kernel_sizes),
        enc_dilations=several("enc_dilations", usual.enc_dilations),
        enc_attention_channels=one("enc_attention_channels", usual.enc_attention_channels),
        enc_res2net_scale=one("enc_res2net_scale", usual.enc_res2net_scale),
        enc_se_channels=one("enc_se_channels", usual.enc_se_channels),
    )
    blocks = len(config.enc_channels)
    if blocks < 3 or {len(config.enc_kernel_sizes), len(config.enc_dilations)} != {blocks}:
        at.refuse(
            "enc_channels", "has not as many entries as kernels and dilations, three at least"
        )
    *inner, last = config.enc_channels
    if any(one % config.enc_res2net_scale for one in inner):
        at.refuse("enc_channels", f"holds one that {config.enc_res2net_scale} does not divide")
    if last != sum(inner[1:]) or len(set(inner)) != 1:
        at.refuse("enc_channels", "does not end with the sum of its inner blocks, all of one width")
    return config


def _generation(at: JsonFields) -> GenerationConfig:
    # Without sampling: greedy, which is temperature 0 here.
    drawn, predictor_drawn = at.boolean("do_sample"), at.boolean("subtalker_dosample")
    return GenerationConfig(
        temperature=at.number("temperature", 0.0, 100.0) if drawn else 0.0,
        top_k=at.integer("top_k", 0),
        top_p=at.number("top_p", 0.0, 1.0),
        repetition_penalty=at.number("repetition_penalty", 0.01, 100.0),
        predictor_temperature=(
            at.number("subtalker_temperature", 0.0, 100.0) if predictor_drawn else 0.0
        ),
        predictor_top_k=at.integer("subtalker_top_k", 0),
        predictor_top_p=at.number("subtalker_top_p", 0.0, 1.0),
        max_frames=at.integer("max_new_tokens"),
    )
