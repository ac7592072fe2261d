"""Qwen3-TTS checkpoint on a device: talker, code predictor, codec, encoders."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.checkpoint import Weights, find_checkpoint, open_weights
from qwen3tts_engine.qwen3.model.codec_decoder import CodecDecoder
from qwen3tts_engine.qwen3.model.codec_encoder import CodecEncoder
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.config_fields import REMEDY, BadCheckpoint
from qwen3tts_engine.qwen3.model.config_reader import read_config
from qwen3tts_engine.qwen3.model.kv_cache import out_of_memory, to_device, upload
from qwen3tts_engine.qwen3.model.prompt import Prompt
from qwen3tts_engine.qwen3.model.quantized import Quantization
from qwen3tts_engine.qwen3.model.quantized_cache import quantizing, trim_heap
from qwen3tts_engine.qwen3.model.row_attention import ROW_KERNELS
from qwen3tts_engine.qwen3.model.sampling import SamplingConstants
from qwen3tts_engine.qwen3.model.speaker_encoder import SpeakerEncoder
from qwen3tts_engine.qwen3.model.talker import (
    CodePredictor,
    Talker,
    load_code_predictor,
    load_talker,
)
from qwen3tts_engine.qwen3.model.tokenizer import Tokenizer
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS, Kernels, has_fused_norm
from qwen3tts_wire.errors import BadRequest, EngineUnavailable


class Qwen3Model:
    """``speaker_encoder`` and ``codec_encoder``: of Base checkpoints, float32 on the CPU."""

    def __init__(
        self,
        config: ModelConfig,
        talker: Talker,
        predictor: CodePredictor,
        decoder: CodecDecoder,
        *,
        speaker_encoder: SpeakerEncoder | None,
        codec_encoder: CodecEncoder | None,
        tokenizer: Tokenizer | None,
        kernels: Kernels = TORCH_KERNELS,
    ) -> None:
        self.config = config
        self.talker = talker
        self.predictor = predictor
        self.decoder = decoder
        self.speaker_encoder = speaker_encoder
        self.codec_encoder = codec_encoder
        self.tokenizer = tokenizer
        self.kernels = kernels
        self.device, self.dtype = talker.table.device, talker.table.dtype
        self.constants = SamplingConstants.build(config, self.device)
        self.quantize: Quantization | None = None
        """A row's result does not depend on the others if its prompt is prefilled alone."""
        self.notes: list[str] = []
        """Degradations of a quantized load, for the operator."""

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        codec_dtype: torch.dtype | None = None,
        tf32: bool = False,
        cache: Path | None = None,
        quantize: Quantization | None = None,
        quantize_cache: Path | None = None,
    ) -> Qwen3Model:
        """Load a checkpoint from a folder or hub.

        ``codec_dtype`` None: float32; ``tf32`` allows TF32 in the decoder; ``cache`` None: the
        hub library's; ``quantize`` rounds the talker's and the code predictor's matrices, on a
        CPU, and keeps them in ``quantize_cache`` (None: the user's cache folder).

        Raises:
            EngineUnavailable: not found, not fetched, damaged (BadCheckpoint) or too large, or a
                GPU was to be quantized.
        """
        if quantize is not None and torch.device(device).type != "cpu":
            raise EngineUnavailable(
                f"A model is quantized for a CPU, not for {device}.",
                remedy="Leave quantize out, or use device cpu.",
            )
        folder = find_checkpoint(str(name_or_path), cache=cache)
        config = read_config(folder)
        weights = open_weights(folder / "model.safetensors", device=device, dtype=dtype)
        codec = open_weights(folder / "speech_tokenizer" / "model.safetensors", device=device)
        with quantizing(weights, quantize, folder, quantize_cache) as notes:
            model = cls.from_weights(
                config,
                weights,
                codec,
                device=device,
                dtype=dtype,
                codec_dtype=codec_dtype,
                tf32=tf32,
            )
        if quantize is not None:
            model.quantize, model.kernels = quantize, ROW_KERNELS
            # What was read and packed leaves holes in the heap, of some 200 MB.
            trim_heap()
        model.notes = notes
        model.tokenizer = Tokenizer(folder)
        return model

    @classmethod
    @torch.no_grad()
    def from_weights(
        cls,
        config: ModelConfig,
        weights: Weights,
        codec_weights: Weights,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        codec_dtype: torch.dtype | None = None,
        tf32: bool = False,
        fused_norm: bool | None = None,
    ) -> Qwen3Model:
        device = torch.device(device)
        if not dtype.is_floating_point:
            raise BadRequest(f"A model in {dtype}.", remedy="Use float32, bfloat16 or float16.")
        try:
            fused = has_fused_norm(device) if fused_norm is None else fused_norm
            # The codec's weights are folded in float64, which takes as long as all the rest.
            with ThreadPoolExecutor(1, initializer=torch.set_grad_enabled, initargs=(False,)) as by:
                decoding = by.submit(
                    CodecDecoder.from_weights,
                    config.codec.decoder,
                    codec_weights,
                    device=device,
                    dtype=codec_dtype or torch.float32,
                    tf32=tf32,
                )
                talker = load_talker(weights, config, device=device, dtype=dtype, fused=fused)
                predictor = load_code_predictor(
                    weights, config, talker, device=device, dtype=dtype, fused=fused
                )
                speaker_encoder = codec_encoder = None
                if config.speaker is not None:
                    # On the CPU: exact everywhere, and no other thread's work between the frames.
                    speaker_encoder = SpeakerEncoder.from_weights(config.speaker, weights)
                    codec_encoder = CodecEncoder.from_weights(config.codec, codec_weights)
                if weights.packing is None or not weights.packing.store.is_whole:
                    _nothing_left(weights)
                decoder = decoding.result()
        except torch.OutOfMemoryError as error:
            size = count_parameters(config) * dtype.itemsize
            raise out_of_memory("The model's weights", size, device) from error
        except (AssertionError, RuntimeError) as error:
            # A torch without CUDA, or a device that is not there.
            if device.type == "cpu":
                raise
            raise EngineUnavailable(
                f"The device {device} cannot be used: {type(error).__name__}.",
                remedy="Check the driver and that this torch is built for the device, or use cpu.",
            ) from error

        return cls(
            config,
            talker,
            predictor,
            decoder,
            speaker_encoder=speaker_encoder,
            codec_encoder=codec_encoder,
            tokenizer=None,
        )

    @torch.no_grad()
    def embed(self, prompt: Prompt, *, x_vector: Tensor | None = None) -> Tensor:
        """Return a prompt's talker inputs: [T, hidden].

        ``x_vector`` [hidden] is required if the prompt has a position for it.
        """
        rows, hidden = self.talker.rows, self.config.talker.layers.hidden
        self.talker.text.prepare(prompt.text)
        # Terms of each position, the text last: the order in which a frame's terms are added.
        terms: list[list[int]] = []
        speaker = []
        for at, (text, codec) in enumerate(zip(prompt.text, prompt.codec, strict=True)):
            codes: tuple[int, ...] = ()
            if codec == "speaker":
                speaker.append(at)
            elif isinstance(codec, tuple):
                codes = codec
            elif isinstance(codec, int):
                codes = (codec,)
            starts = rows.groups[: len(codes)]
            term = [start + code for start, code in zip(starts, codes, strict=True)]
            terms.append([*term, rows.nothing if text < 0 else text])
        width = max(map(len, terms), default=1)
        padded = [[rows.nothing] * (width - len(term)) + term for term in terms]
        ids = to_device(padded, torch.int64, self.device).view(-1, width).t()
        embeds = self.talker.embed(ids)
        for at in speaker:
            if x_vector is None or x_vector.shape != (hidden,):
                raise BadRequest(
                    "This prompt needs a speaker vector of a cloned voice.",
                    remedy=f"Give one of length {hidden}, made with this checkpoint.",
                )
            embeds[at].add_(upload(x_vector, self.dtype, self.device))
        return embeds


def count_parameters(config: ModelConfig) -> int:
    talker, predictor = config.talker, config.predictor
    hidden, inner = talker.layers.hidden, predictor.layers.hidden
    rows = talker.text_vocab + talker.vocab + predictor.groups * predictor.vocab
    count = (rows + talker.vocab) * hidden + predictor.groups * predictor.vocab * inner
    if inner != hidden:
        count += (talker.vocab + (predictor.groups - 1) * predictor.vocab + hidden) * inner
    for layers in (talker.layers, predictor.layers):
        heads = 2 * layers.heads + 2 * layers.kv_heads
        count += layers.layers * layers.hidden * (heads * layers.head_dim + 3 * layers.ffn)
    return count


def _nothing_left(weights: Weights) -> None:
    left = weights.unused()
    if left:
        names = ", ".join(left[:3]) + (", …" if len(left) > 3 else "")
        raise BadCheckpoint(
            f"{weights.source} holds {len(left)} tensors that this engine does not know: {names}.",
            remedy=REMEDY,
        )
