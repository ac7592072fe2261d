"""What both sides compute: data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GREEDY: dict[str, Any] = {"do_sample": False, "subtalker_dosample": False}


@dataclass(frozen=True)
class Variant:
    """A checkpoint shaped unlike the tiny ones; changes to their two config files."""

    name: str
    like: str
    seed: int
    model: dict[str, Any]
    codec: dict[str, Any]


@dataclass(frozen=True)
class Speech:
    """One official call: a batch of one or more rows."""

    name: str
    model: str
    texts: tuple[str, ...]
    languages: tuple[str, ...]
    full: bool
    """The layout with all text in front (`non_streaming_mode`)."""
    speakers: tuple[str, ...] = ()
    instructs: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    reference_texts: tuple[str, ...] = ()
    """Empty string: the speaker vector alone."""
    codes: str = ""
    """Name of codes that are given in place of a reference; ``vector`` comes with them."""
    vector: str = ""
    """Name of a speaker vector that is given in place of a reference."""
    frames: int = 24
    penalty: float | None = None
    """None: the checkpoint's own."""
    sampling: dict[str, Any] = field(default_factory=lambda: dict(GREEDY))
    seed: int = 0
    logits: str | None = None
    """Name of an input [steps, vocab] that takes the place of the talker's logits."""


def custom(name: str, text: str, speaker: str, language: str, **more: Any) -> Speech:
    return Speech(name, more.pop("model", "custom_voice"), (text,), (language,),
                  speakers=(speaker,), instructs=(more.pop("instruct", ""),), **more)  # fmt: skip


def design(name: str, text: str, language: str, instruct: str, **more: Any) -> Speech:
    return Speech(name, "voice_design", (text,), (language,), instructs=(instruct,), **more)


def clone(name: str, text: str, language: str, reference: str, said: str, **more: Any) -> Speech:
    return Speech(name, more.pop("model", "base"), (text,), (language,),
                  references=(reference,), reference_texts=(said,), **more)  # fmt: skip


SHORT = "Good morning, how may I help you?"
LONG = (
    "The train to Oxford leaves at half past nine from platform four, and the next one, which "
    "also stops at Reading and Didcot, forty minutes later; please keep your ticket at hand."
)
GERMAN = "Der Zug fährt um 9:30 Uhr von Gleis 4 ab; größere Koffer bitte hinten einladen."
CHINESE = "你好，请问有什么可以帮您？"  # noqa: RUF001
JAPANESE = "お電話ありがとうございます。"
SAID = "This is how my voice sounds on a quiet day."

SPEECH = (
    custom("cv_stream_english", LONG, "ryan", "english", full=False, frames=60),
    custom("cv_full_english", LONG, "ryan", "english", full=True, frames=30),
    custom("cv_stream_german_auto", GERMAN, "serena", "auto", full=False),
    custom("cv_full_instructed", SHORT, "Uncle_Fu", "Auto", full=True, instruct="Happy, fast."),
    custom("cv_stream_instructed", GERMAN, "serena", "German", full=False, instruct="Whisper."),
    custom("cv_dialect_auto", CHINESE, "eric", "auto", full=False),
    custom("cv_dialect_chinese", CHINESE, "dylan", "chinese", full=True),
    custom("cv_dialect_english", SHORT, "eric", "english", full=False, frames=12),
    custom("cv_stream_one_token", "a", "ryan", "korean", full=False, frames=12),
    custom("cv_full_one_token", "a", "serena", "japanese", full=True, frames=12),
    custom("cv_stream_no_speaker", SHORT, "", "english", full=False),
    custom("cv_full_no_speaker", CHINESE, "", "auto", full=True),
    custom("cv_no_penalty", SHORT, "ryan", "english", full=False, penalty=1.0),
    custom("cv_strong_penalty", SHORT, "ryan", "english", full=True, penalty=1.7),
    design("vd_full", JAPANESE, "japanese", "A calm old man with a deep voice.", full=True),
    design("vd_stream", SHORT, "auto", "A young woman, out of breath.", full=False),
    design("vd_stream_uninstructed", GERMAN, "german", "", full=False),
    clone("base_vector_stream", SHORT, "english", "voiced", "", full=False),
    clone("base_vector_full", CHINESE, "auto", "voiced", "", full=True),
    clone("base_icl_long_reference", "Yes.", "english", "long", SAID, full=False, frames=12),
    clone("base_icl_stream", LONG, "english", "voiced", SAID, full=False),
    clone("base_icl_full", GERMAN, "auto", "voiced", SAID, full=True),
    custom("narrow_stream", LONG, "ryan", "auto", full=False, frames=40, model="narrow"),
    custom("narrow_full", CHINESE, "eric", "auto", full=True, frames=16, model="narrow"),
    clone("wide_icl_stream", SHORT, "auto", "voiced", SAID, full=False, frames=30, model="wide"),
    clone("wide_vector_full", GERMAN, "german", "long", "", full=True, frames=16, model="wide"),
    Speech("cv_batch", "custom_voice", (SHORT, CHINESE, "a"), ("english", "auto", "auto"),
           full=False, speakers=("ryan", "eric", "ryan"), instructs=("", "Sad.", "")),
    Speech("cv_batch_full", "custom_voice", (GERMAN, "a"), ("german", "auto"),
           full=True, speakers=("serena", "uncle_fu"), instructs=("Loud.", "")),
    Speech("base_batch", "base", (SHORT, GERMAN), ("english", "auto"), full=False,
           references=("voiced", "long"), reference_texts=("", SAID), frames=16),
)  # fmt: skip

PROMPTED = (
    Speech("prompt_icl_stream", "base", (SHORT,), ("english",), full=False,
           reference_texts=(SAID,), codes="codes_13", vector="vector"),
    Speech("prompt_icl_full", "base", (GERMAN,), ("auto",), full=True,
           reference_texts=(SAID,), codes="codes_90", vector="vector"),
    Speech("prompt_vector", "base", (SHORT,), ("auto",), full=False, vector="vector"),
)  # fmt: skip
"""Clone prompts of the caller's own."""
LIKELIEST = {"do_sample": False, "subtalker_dosample": True, "subtalker_top_k": 1}
OTHERS = (
    custom("subtalker_top_k", SHORT, "ryan", "english", full=True, sampling=LIKELIEST),
    custom("subtalker_greedy", SHORT, "serena", "auto", full=False),
)
"""The code predictor's own sampling, where the result needs no random numbers."""

WIDE = Variant(
    "wide",
    like="base",
    seed=11,
    model={
        "tts_model_size": "1b7",
        "talker_config": {
            "hidden_size": 96,
            "text_hidden_size": 80,
            "intermediate_size": 136,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "rope_theta": 1_000_000.0,
            "rope_scaling": {"interleaved": True, "mrope_section": [8, 4, 4], "type": "default"},
            # Narrower than the talker, as in 1.7B: a projection with bias stands between them.
            "code_predictor_config": {
                "hidden_size": 64,
                "intermediate_size": 72,
                "num_hidden_layers": 2,
                "num_attention_heads": 6,
                "num_key_value_heads": 3,
                "head_dim": 16,
                "rope_theta": 20_000.0,
            },
        },
        "speaker_encoder_config": {
            "enc_dim": 96,
            "enc_channels": [32, 32, 32, 32, 96],
            "enc_attention_channels": 24,
            "enc_se_channels": 16,
        },
    },
    codec={
        "decoder_config": {
            "latent_dim": 48,
            "codebook_dim": 32,
            "decoder_dim": 64,
            "hidden_size": 40,
            "intermediate_size": 56,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 16,
        },
        "encoder_config": {
            "num_filters": 8,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 16,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
            "upsample_groups": 64,
            # As published: more books than are used.
            "num_quantizers": 32,
            # Narrower than the longer references.
            "sliding_window": 40,
        },
    },
)
NARROW = Variant(
    "narrow",
    like="custom_voice",
    seed=12,
    model={
        "talker_config": {
            "hidden_size": 48,
            "text_hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "rope_scaling": {"interleaved": True, "mrope_section": [2, 1, 1], "type": "default"},
            "code_predictor_config": {
                "hidden_size": 48,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "head_dim": 8,
            },
        }
    },
    codec={"decoder_config": {"num_hidden_layers": 1, "sliding_window": 12}},
)
VARIANTS = (WIDE, NARROW)


def sampled(number: int, **sampling: Any) -> Speech:
    """Twelve draws from prescribed logits (the talker's) and from the model's own (the rest)."""
    options = {"do_sample": True, "subtalker_dosample": True, **sampling}
    return custom(f"sampled_{number}", SHORT, "ryan", "english", full=False, frames=11,
                  model="narrow", sampling=options, seed=number,
                  penalty=options.pop("repetition_penalty", 1.05),
                  logits=f"logits_{number}")  # fmt: skip


SAMPLED = (
    sampled(0),
    sampled(1, temperature=0.3, subtalker_temperature=1.8),
    sampled(2, top_k=0, top_p=0.9, subtalker_top_k=0, subtalker_top_p=0.5),
    sampled(3, top_k=5, top_p=0.7, repetition_penalty=1.8, subtalker_top_p=0.95),
    sampled(4, top_k=3000, top_p=0.05, subtalker_top_k=1),
    sampled(5, top_k=1, temperature=2.0, subtalker_top_k=2, subtalker_top_p=0.6),
    sampled(6, top_k=100, top_p=0.99, temperature=1.3, repetition_penalty=0.8),
    sampled(7, top_k=20),
)
"""7: logits as coarse as bfloat16's, so that values at the border of top_k are equal."""
EXACT_TIES = 7

REFERENCES = ("voiced", "long", "short", "whole_frames")
LISTEN = tuple((f"listen_{model}_{name}", model, name)
               for model in ("base", "wide") for name in REFERENCES)  # fmt: skip
DECODE_FRAMES = (1, 2, 13, 90, 330)
"""330: beyond the 300 that the official call decodes at once."""
DECODE = tuple((f"decode_{model}_{frames}", model, f"codes_{frames}")
               for model in ("custom_voice", "wide", "narrow")
               for frames in DECODE_FRAMES)  # fmt: skip
