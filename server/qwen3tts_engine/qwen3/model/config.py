"""Checkpoint configuration: shapes, ids, voices, defaults. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono audio, full scale ±1."""
FRAME_SAMPLES = 1920
"""Samples of one codec frame: 80 ms at 24 kHz."""
MIN_FRAMES = 2
"""Frames before EOS is allowed: the official ``min_new_tokens``."""
NOT_FINITE = -1
"""In place of code 0: the row's logits hold a NaN or an infinity; the frame is discarded."""

Task = Literal["custom_voice", "voice_design", "base"]
"""Named speakers, voices from a description, or cloning."""

CONTROL_IDS = 1024
"""Control ids at the end of the talker's vocabulary; only EOS of them may be sampled."""


@dataclass(frozen=True, slots=True)
class LayersConfig:
    hidden: int
    ffn: int
    """Width between gate and down projection."""
    layers: int
    heads: int
    """Query heads."""
    kv_heads: int
    """Each serves ``heads / kv_heads`` query heads."""
    head_dim: int
    rms_eps: float
    rope_theta: float
    """Base of the rotary embedding."""


@dataclass(frozen=True, slots=True)
class ControlIds:
    pad: int
    bos: int
    eos: int
    """End of speech, sampled as code 0."""
    think: int
    """Before a language id."""
    nothink: int
    """In its place: automatic language."""
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class TextIds:
    """Control ids of the text track; rows of the text embedding."""

    im_start: int
    im_end: int
    tts_pad: int
    tts_bos: int
    tts_eos: int
    assistant: int
    """The word as one token."""
    user: int
    """Likewise."""
    newline: int
    """A single line feed."""

    @property
    def role(self) -> tuple[int, int, int]:
        """``<|im_start|>assistant`` and a line feed, before every text."""
        return (self.im_start, self.assistant, self.newline)


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    layers: LayersConfig
    vocab: int
    """Codes, then CONTROL_IDS control ids."""
    text_vocab: int
    text_hidden: int
    """Width of the text embedding, before its projection to ``layers.hidden``."""
    code_groups: int
    """Codes in a frame."""
    max_positions: int
    ids: ControlIds
    languages: Mapping[str, int]
    """Language name, lower case, to its id on the codec track; dialects among them."""
    speakers: Mapping[str, int]
    """Speaker name, lower case, to its id on the codec track; only for ``custom_voice``."""
    dialects: Mapping[str, str]
    """Speaker to the dialect that replaces Chinese or automatic language."""

    @property
    def codes(self) -> int:
        return self.vocab - CONTROL_IDS


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """Autoregressive model of codes 1 to ``groups``, given code 0."""

    layers: LayersConfig
    vocab: int
    """Codes of each group."""
    groups: int
    """Embedding tables and heads: codes in a frame minus one."""


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """ECAPA-TDNN over a log mel spectrogram.

    The published file holds only ``enc_dim`` and ``sample_rate``; other defaults are the
    architecture's.
    """

    enc_dim: int
    """Length of the speaker embedding; the talker's hidden size."""
    sample_rate: int
    """Hertz."""
    mel_dim: int = 128
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128
    n_fft: int = 1024
    win_length: int = 1024
    """Samples."""
    hop_length: int = 256
    """Samples."""
    f_min: float = 0.0
    """Hertz."""
    f_max: float = 12_000.0
    """Hertz."""


@dataclass(frozen=True, slots=True)
class CodecDecoderConfig:
    """Codes to samples; names as in ``decoder_config``."""

    codebook_size: int
    codebook_dim: int
    """Width after the output projection; the codebooks are half as wide."""
    num_quantizers: int
    latent_dim: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int
    """Attended positions, the current one included."""
    rms_norm_eps: float
    rope_theta: float
    decoder_dim: int
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CodecEncoderConfig:
    """Samples to codes (Mimi); names as in ``encoder_config``."""

    sampling_rate: int
    """Hertz."""
    hidden_size: int
    num_filters: int
    num_residual_layers: int
    upsampling_ratios: tuple[int, ...]
    """Ratios of Mimi's decoder; the encoder's strides in reverse order."""
    kernel_size: int
    last_kernel_size: int
    residual_kernel_size: int
    dilation_growth_rate: int
    compress: int
    codebook_size: int
    codebook_dim: int
    num_quantizers: int
    """Codebooks in the file; ``CodecConfig.quantizers`` of them are used."""
    num_semantic_quantizers: int
    vector_quantization_hidden_dimension: int
    num_hidden_layers: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    sliding_window: int


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """Speech tokenizer: 12.5 frames a second."""

    decoder: CodecDecoderConfig
    encoder: CodecEncoderConfig
    sample_rate: int = 24_000
    """Hertz."""
    samples_per_frame: int = 1920
    quantizers: int = 16
    """Codes in a frame."""


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """Sampling defaults of the checkpoint; temperature 0 is greedy."""

    temperature: float
    top_k: int
    """0: all."""
    top_p: float
    repetition_penalty: float
    predictor_temperature: float
    predictor_top_k: int
    predictor_top_p: float
    max_frames: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    task: Task
    size: str
    """``0b6`` or ``1b7``."""
    text_ids: TextIds
    talker: TalkerConfig
    predictor: PredictorConfig
    speaker: SpeakerEncoderConfig | None
    """Only for ``base``."""
    codec: CodecConfig
    generation: GenerationConfig

    @property
    def takes_instructions(self) -> bool:
        """True if trained on instructions: neither the small CustomVoice nor Base."""
        return self.task == "voice_design" or (self.task == "custom_voice" and self.size != "0b6")
