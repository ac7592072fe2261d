"""Qwen3TTSModel with the methods and parameters of the fork dffdeeq/Qwen3-TTS-streaming.

Programs for it, and for the official package, change the import:

>>> from qwen3tts_engine.qwen3.dffdeeq import Qwen3TTSModel

Decode windows, overlap and their compilation have no effect: the decoder keeps its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import SAMPLE_RATE, LoadedVoice
from qwen3tts_engine.qwen3.api import NO_SPEAKER, ClonePrompt, Qwen3TTS
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_engine.qwen3.voices.recording import Source
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.messages import Sampling

EMIT_FRAMES = 8
WINDOW_FRAMES = 80
MAX_FRAMES = 10_000
MOST_NEW_TOKENS = 8192
"""Frames of a generation of the published checkpoints."""
_SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty")
_PASSED = (
    *("subtalker_dosample", "subtalker_top_k", "subtalker_top_p", "subtalker_temperature"),
    *("max_new_tokens", "seed"),
)


@dataclass(frozen=True)
class VoiceClonePromptItem:
    """A voice of ``create_voice_clone_prompt``."""

    ref_code: NDArray[np.int64] | None
    """Codes [frames, 16]; None with ``x_vector_only_mode``."""
    ref_spk_embedding: NDArray[np.float32]
    """Speaker embedding [hidden]."""
    x_vector_only_mode: bool
    icl_mode: bool
    """True if it goes on from its codes."""
    ref_text: str | None = None


Prompt = VoiceClonePromptItem | Sequence[VoiceClonePromptItem]
Keywords = dict[str, Any]


class GenerationOptions(TypedDict, total=False):
    """Keywords of all methods that speak."""

    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    repetition_penalty: float | None
    subtalker_dosample: bool | None
    subtalker_temperature: float | None
    subtalker_top_k: int | None
    subtalker_top_p: float | None
    max_new_tokens: int | None
    seed: int | None
    non_streaming_mode: bool


class CloneStreamOptions(GenerationOptions, total=False):
    """Further keywords of ``stream_generate_voice_clone``."""

    max_frames: int
    decode_window_frames: int
    overlap_samples: int
    use_optimized_decode: bool


class Qwen3TTSModel:
    """A loaded checkpoint; made by ``from_pretrained``. ``close`` it, or use ``with``."""

    def __init__(self, model: str, settings: Keywords) -> None:
        self._model, self._settings = model, settings
        self._tts = Qwen3TTS.load(model, **settings)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str,
        *,
        device_map: str = "auto",
        dtype: object | None = None,
        attn_implementation: str | None = None,
        **settings: Any,
    ) -> Self:
        """Load a checkpoint.

        Args:
            pretrained_model_name_or_path: Folder or hub id.
            device_map: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
            dtype: ``torch.bfloat16``, ``torch.float16``, ``torch.float32`` or its name; None: the
                device's.
            attn_implementation: No effect.
            settings: Further fields of Qwen3Settings.

        Raises:
            EngineUnavailable: the checkpoint or the device is missing, damaged or too small.
            ValueError: a setting is out of range.
        """
        if dtype is not None:
            settings["dtype"] = str(dtype).removeprefix("torch.")
        return cls(pretrained_model_name_or_path, {"device": device_map, **settings})

    def enable_streaming_optimizations(
        self,
        decode_window_frames: int = WINDOW_FRAMES,
        use_compile: bool = True,
        use_cuda_graphs: bool = True,
        compile_mode: str = "reduce-overhead",
        use_fast_codebook: bool = False,
        compile_codebook_predictor: bool = True,
    ) -> Self:
        """Capture CUDA graphs and compile, on a GPU; call it before the first generation.

        Args:
            decode_window_frames: No effect.
            use_compile: The model is loaded again for it.
            use_cuda_graphs: Capture graphs.
            compile_mode: No effect.
            use_fast_codebook: No effect.
            compile_codebook_predictor: No effect.
        """
        _check_frames(decode_window_frames=decode_window_frames)
        if compile_mode not in ("reduce-overhead", "max-autotune", "default"):
            raise BadRequest(
                f"There is no compile_mode {compile_mode!r}.",
                remedy="Give reduce-overhead, max-autotune or default.",
            )
        del use_fast_codebook, compile_codebook_predictor
        wanted = {"compile": use_compile, "graphs": "auto" if use_cuda_graphs else False}
        if self._tts.device != "cpu" and not wanted.items() <= self._settings.items():
            self._tts.close()
            self._settings |= wanted
            self._tts = Qwen3TTS.load(self._model, **self._settings)
        self._tts.warmup()
        return self

    # --- streaming ---

    def stream_generate_pcm(
        self,
        text: str,
        language: str | None = None,
        *,
        speaker: str | None = None,
        instruct: str | None = None,
        voice_clone_prompt: Prompt | None = None,
        emit_every_frames: int = EMIT_FRAMES,
        max_frames: int = MAX_FRAMES,
        **kwargs: Unpack[GenerationOptions],
    ) -> Iterator[tuple[Samples, int]]:
        """Speak one text, not token ids as the fork's, and yield the audio while it is made.

        Args:
            text: What to say.
            language: Such as ``English``; None or ``Auto``: automatic.
            speaker: Of a CustomVoice checkpoint.
            instruct: Speaking style, or voice of a VoiceDesign checkpoint.
            voice_clone_prompt: Voice of a Base checkpoint.
            emit_every_frames: Frames of 80 ms of each chunk.
            max_frames: Most frames.
            kwargs: Of GenerationOptions.

        Yields:
            Samples [n] float32 in ±1, and their rate.

        Raises:
            TypeError: an unknown keyword.
            BadRequest: an argument out of range, or several texts.
        """
        _one_text(text)
        _check_frames(emit_every_frames=emit_every_frames, max_frames=max_frames)
        how = _how(kwargs, language, instruct)
        how.setdefault("max_new_tokens", min(max_frames, MOST_NEW_TOKENS))
        how.setdefault("non_streaming_mode", False)
        prompts = _items(voice_clone_prompt)
        if prompts:
            how["voice"] = self._tts.create_voice_from(_clone_prompt(prompts[0]))
        elif speaker is not None:
            how["voice"] = speaker or NO_SPEAKER
        return self._tts.stream(text, frames_per_emission=emit_every_frames, **how)

    def stream_generate_voice_clone(
        self,
        text: str,
        language: str | None = None,
        ref_audio: Source | None = None,
        ref_text: str | None = None,
        x_vector_only_mode: bool = False,
        voice_clone_prompt: Prompt | None = None,
        *,
        emit_every_frames: int = EMIT_FRAMES,
        **kwargs: Unpack[CloneStreamOptions],
    ) -> Iterator[tuple[Samples, int]]:
        """Speak one text with a cloned voice; see ``stream_generate_pcm``.

        Args:
            text: What to say.
            language: Such as ``English``.
            ref_audio: Audio file, its bytes, or samples with their rate; not with a prompt.
            ref_text: Its transcript.
            x_vector_only_mode: Use the speaker embedding only.
            voice_clone_prompt: Voice.
            emit_every_frames: Frames of 80 ms of each chunk.
            kwargs: Decode windows and overlap have no effect.
        """
        _one_text(text)
        given: Keywords = {**kwargs}
        _check_frames(
            emit_every_frames=emit_every_frames,
            max_frames=given.get("max_frames", MAX_FRAMES),
            decode_window_frames=given.pop("decode_window_frames", WINDOW_FRAMES),
        )
        overlap = given.pop("overlap_samples", 0)
        if type(overlap) is not int or overlap < 0:
            raise BadRequest(
                f"overlap_samples={overlap!r} is out of range.", remedy="Give 0 or more samples."
            )
        given.pop("use_optimized_decode", True)
        prompts = self._prompts(ref_audio, ref_text, x_vector_only_mode, voice_clone_prompt)
        return self.stream_generate_pcm(
            text,
            language,
            voice_clone_prompt=prompts,
            emit_every_frames=emit_every_frames,
            **given,
        )

    # --- whole texts ---

    def generate_voice_clone(
        self,
        text: str | list[str],
        language: str | list[str] | None = None,
        ref_audio: Source | list[Source] | None = None,
        ref_text: str | list[str] | None = None,
        x_vector_only_mode: bool = False,
        voice_clone_prompt: Prompt | None = None,
        **kwargs: Unpack[GenerationOptions],
    ) -> tuple[list[Samples], int]:
        """Speak texts with one cloned voice, or one a text; return the audio of each, and the rate.

        ``non_streaming_mode`` (default False) and sampling are keywords.
        """
        prompts = self._prompts(ref_audio, ref_text, x_vector_only_mode, voice_clone_prompt)
        voices = [self._tts.create_voice_from(_clone_prompt(each)) for each in prompts]
        return self._generate(text, language, None, voices, kwargs)

    def generate_custom_voice(
        self,
        text: str | list[str],
        speaker: str | list[str],
        language: str | list[str] | None = None,
        instruct: str | list[str] | None = None,
        **kwargs: Unpack[GenerationOptions],
    ) -> tuple[list[Samples], int]:
        """Speak texts with speakers of a CustomVoice checkpoint; see ``generate_voice_clone``."""
        names = [speaker] if isinstance(speaker, str) else speaker
        voices = [name or NO_SPEAKER for name in names]
        return self._generate(text, language, instruct, voices, kwargs)

    def generate_voice_design(
        self,
        text: str | list[str],
        instruct: str | list[str],
        language: str | list[str] | None = None,
        **kwargs: Unpack[GenerationOptions],
    ) -> tuple[list[Samples], int]:
        """Speak texts with described voices; see ``generate_voice_clone``."""
        return self._generate(text, language, instruct, [], kwargs)

    def _generate(
        self,
        text: str | list[str],
        language: str | list[str] | None,
        instruct: str | list[str] | None,
        voices: Sequence[str | LoadedVoice],
        kwargs: GenerationOptions,
    ) -> tuple[list[Samples], int]:
        texts = [text] if isinstance(text, str) else text
        how = _how(kwargs, language, instruct)
        how.setdefault("non_streaming_mode", False)
        if voices:
            how["voice"] = voices[0] if len(voices) == 1 else list(voices)
        return [pcm for pcm, _ in self._tts.generate_all(texts, **how)], SAMPLE_RATE

    # --- voices ---

    def create_voice_clone_prompt(
        self,
        ref_audio: Source | list[Source],
        ref_text: str | list[str] | None = None,
        x_vector_only_mode: bool = False,
    ) -> list[VoiceClonePromptItem]:
        """Make voices of recordings, one each."""
        audios = ref_audio if isinstance(ref_audio, list) else [ref_audio]
        texts = ref_text if isinstance(ref_text, list) else [ref_text] * len(audios)
        if len(texts) != len(audios):
            raise BadRequest(
                f"{len(texts)} texts for {len(audios)} recordings.", remedy="Give one for each."
            )
        return [
            self._prompt_of(audio, text, x_vector_only_mode)
            for audio, text in zip(audios, texts, strict=True)
        ]

    def _prompt_of(self, audio: Source, text: str | None, only: bool) -> VoiceClonePromptItem:
        voice = self._tts.create_voice(audio, None if only else text, x_vector_only=only)
        made = self._tts.clone_prompt(voice)
        return VoiceClonePromptItem(
            made.codes, made.embedding, only, made.codes is not None, made.text
        )

    def _prompts(
        self,
        ref_audio: Source | list[Source] | None,
        ref_text: str | list[str] | None,
        x_vector_only_mode: bool,
        prompt: Prompt | None,
    ) -> list[VoiceClonePromptItem]:
        items = _items(prompt)
        if items:
            return items
        if ref_audio is None:
            raise BadRequest(
                "Neither voice_clone_prompt nor ref_audio is given.", remedy="Give one."
            )
        return self.create_voice_clone_prompt(ref_audio, ref_text, x_vector_only_mode)

    def get_supported_speakers(self) -> list[str]:
        """Return the speakers of a CustomVoice checkpoint, sorted."""
        return self._tts.supported_speakers()

    def get_supported_languages(self) -> list[str]:
        """Return the checkpoint's languages, ``auto`` first."""
        return self._tts.supported_languages()

    def close(self) -> None:
        """End all speech and free the device."""
        self._tts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _items(prompt: Prompt | None) -> list[VoiceClonePromptItem]:
    if prompt is None:
        return []
    return [prompt] if isinstance(prompt, VoiceClonePromptItem) else list(prompt)


def _clone_prompt(item: VoiceClonePromptItem) -> ClonePrompt:
    codes = None if item.x_vector_only_mode else item.ref_code
    return ClonePrompt(item.ref_spk_embedding, codes, None if codes is None else item.ref_text)


def _one_text(text: object) -> None:
    if not isinstance(text, str):
        raise BadRequest("Streaming takes one text.", remedy="Give a str; stream each by itself.")


def _check_frames(**given: object) -> None:
    for name, value in given.items():
        if type(value) is not int or value < 1:
            raise BadRequest(f"{name}={value!r} is out of range.", remedy="Give 1 or more frames.")


def _how(
    options: GenerationOptions,
    language: str | list[str] | None,
    instruct: str | list[str] | None,
) -> Keywords:
    kwargs: Keywords = {**options}
    unknown = kwargs.keys() - {*_SAMPLING, *_PASSED, "do_sample", "non_streaming_mode"}
    if unknown:
        raise TypeError(f"unknown keywords: {', '.join(sorted(unknown))}")
    sampling = {name: kwargs[name] for name in _SAMPLING if kwargs.get(name) is not None}
    if kwargs.get("do_sample") is False:
        sampling["temperature"] = 0.0
    how = {
        name: value for name, value in kwargs.items() if name in (*_PASSED, "non_streaming_mode")
    }
    if sampling:
        how["sampling"] = Sampling(**sampling)
    how["language"] = _languages(language)
    if instruct is not None:
        how["instructions"] = instruct
    return how


def _languages(language: str | list[str] | None) -> str | list[str | None] | None:
    if isinstance(language, list):
        return [_one_language(each) for each in language]
    return _one_language(language)


def _one_language(language: str | None) -> str | None:
    return None if language is None or language.casefold() == "auto" else language
