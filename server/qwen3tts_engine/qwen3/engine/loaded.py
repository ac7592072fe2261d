"""Loaded checkpoint: model, runner, voices, tokenizer."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from qwen3tts_engine.base import GenerationLimits, PredictorSampling, SynthesisRequest
from qwen3tts_engine.guards import LeadingTrim, RepetitionGuard, SoundGuard
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.qwen3.engine.continuation import DesignedVoice
from qwen3tts_engine.qwen3.engine.jobs import (
    EndLimits,
    Job,
    OutputSink,
    SpeechPostprocessor,
    VoiceConditioning,
)
from qwen3tts_engine.qwen3.engine.settings import DTypeName, Qwen3Settings
from qwen3tts_engine.qwen3.engine.text_track import LAST_WORD, TextTrack
from qwen3tts_engine.qwen3.faults import public_error, safe_traceback
from qwen3tts_engine.qwen3.kernels.cpu_threads import ThreadPlan, plan_threads, usable_cores
from qwen3tts_engine.qwen3.kernels.cuda import (
    BackgroundStream,
    device_notes,
    find_device,
    streams_of,
)
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Progress, Runner
from qwen3tts_engine.qwen3.kernels.step_runner import PrefixStore, Snapshot
from qwen3tts_engine.qwen3.model.checkpoint import find_checkpoint, open_weights
from qwen3tts_engine.qwen3.model.codec_encoder import CodecEncoder
from qwen3tts_engine.qwen3.model.codec_state import CodecState
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import Prompt, Reference, build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.tokenizer import StreamingTokenizer, Tokenizer
from qwen3tts_engine.qwen3.voices.catalogue import VoiceCatalogue
from qwen3tts_engine.qwen3.voices.content import ClonedVoice, Codes, ModelEncoders, fingerprint
from qwen3tts_engine.qwen3.voices.store import VoiceStore
from qwen3tts_engine.qwen3.voices.transcribe import WhisperTranscriber, check_whisper
from qwen3tts_engine.speech_rhythm import SpeechRates
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, LimitExceeded
from qwen3tts_wire.messages import Sampling as Wanted

FRAMES_PER_TOKEN = 3
"""Refuse a text that does not fit a row's positions at 4 tokens a second."""
GROWING_FRAMES_PER_TOKEN = 4
"""Continue growing text in another generation beyond this."""
PROMPT_POSITIONS = 16
"""Bound of a streaming prompt without instructions: some 10 in fact."""
CONTINUED_PRE_ROLL_S = 0.12
"""Silence kept before a clause that follows others: sentences without a pause sound hasty."""
REFERENCE_FRAMES = 25
"""Frames of a reference decoded together."""
DTYPES: dict[DTypeName, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


log = logging.getLogger(__name__)


def _caches(settings: Qwen3Settings, *, clones: bool) -> int:
    return settings.prefix_bytes + (settings.voices_bytes if clones else 0)


def _set_threads(settings: Qwen3Settings) -> ThreadPlan:
    # What torch has here is OMP_NUM_THREADS, or what the program set, or one for each core.
    cores = min(usable_cores(), torch.get_num_threads())
    plan = plan_threads(
        settings.threads,
        settings.codec_threads,
        cores,
        quantized=settings.quantize != "none",
    )
    torch.set_num_threads(plan.total)
    return plan


@contextmanager
def _reported(message: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        log.error("%s\n%s", message, safe_traceback(error))
        raise public_error(error) from error


class LoadedModel:
    def __init__(self, settings: Qwen3Settings, progress: Progress) -> None:
        """Load and allocate; blocks, for minutes if something is fetched."""
        self.settings = settings
        self._rates = SpeechRates()
        self._codec_lock = threading.Lock()
        if settings.whisper is not None:
            check_whisper(settings.whisper)
        self.whisper = None if settings.whisper is None else WhisperTranscriber(settings.whisper)
        """Transcribes recordings."""
        device = find_device(settings.device)
        on_gpu = device.type == "cuda"
        if not on_gpu and "float16" in (settings.dtype, settings.codec_dtype):
            raise EngineUnavailable(
                "float16 on a CPU is rounded differently beside other callers.",
                remedy="Use dtype and codec_dtype float32 or bfloat16, or a GPU.",
            )
        self.threads = None if on_gpu else _set_threads(settings)
        """On a CPU."""
        progress("finding the checkpoint", 0, 1)
        folder = find_checkpoint(settings.model)
        progress("loading", 0, 1)
        self.model = Qwen3Model.load(
            folder,
            device=device,
            dtype=DTYPES[settings.dtype or ("bfloat16" if on_gpu else "float32")],
            codec_dtype=DTYPES[settings.codec_dtype or ("float16" if on_gpu else "float32")],
            quantize=None if settings.quantize == "none" else settings.quantize,
            quantize_cache=settings.quantize_cache,
        )
        assert self.model.tokenizer is not None
        self.tokenizer: Tokenizer = self.model.tokenizer
        self.config = self.model.config
        progress("loading", 1, 1)
        self._folder = folder
        self.store = self._voice_store(folder)
        self.catalogue = VoiceCatalogue(self.config, self.store, settings.voice)
        self.runner = Runner(
            self.model,
            slots=settings.slots or "auto",
            positions=min(settings.positions, self.config.talker.max_positions),
            graphs=settings.graphs,
            compile=settings.compile,
            # A bound that is seldom reached: not reserved where memory can be swapped.
            caches=_caches(settings, clones=self.store is not None) if on_gpu else 0,
            launch=LaunchMode(
                streams=streams_of(device, self.threads),
                persistent=settings.persistent_predictor,
            ),
        )
        self.runner.notes += self.model.notes
        self.runner.notes += device_notes(device, self.model.dtype)
        self._background = BackgroundStream(device)

    @property
    def name(self) -> str:
        size = self.config.size.replace("b", ".") + "B"
        return f"Qwen3-TTS {size} {self.config.task.title().replace('_', '')}"

    def close(self) -> None:
        self.runner.close()
        if self.store is not None:
            self.store.close()

    # --- voices ---

    def _voice_store(self, folder: Path) -> VoiceStore | None:
        model, settings = self.model, self.settings
        if model.speaker_encoder is None or model.codec_encoder is None:
            return None
        identity = fingerprint(
            open_weights(folder / "model.safetensors").under("speaker_encoder."),
            open_weights(folder / "speech_tokenizer" / "model.safetensors").under("encoder."),
        )
        return VoiceStore(
            settings.voices_bytes,
            ModelEncoders(model.speaker_encoder, model.codec_encoder, self.tokenizer, identity),
            transcriber=self.whisper,
            folder=settings.voice_folder,
        )

    def reference_state(self, voice: ClonedVoice) -> Snapshot:
        """Return the codec state behind a reference, cached if there is room. Blocks."""
        assert self.store is not None
        assert voice.reference is not None
        # The first of concurrent callers computes it.
        with self._codec_lock:
            if voice.codec is not None:
                return voice.codec
            with _reported("the codec state of a reference could not be computed"):
                snapshot = self._state_behind(voice.reference)
            self.store.cache.keep_codec(voice, snapshot)
            return snapshot

    def encode(self, samples: Samples) -> Codes:
        """Return the codes of samples [n] at 24 kHz. Blocks; may load the encoder."""
        with self._codec_lock:
            if self.model.codec_encoder is None:
                weights = open_weights(self._folder / "speech_tokenizer" / "model.safetensors")
                self.model.codec_encoder = CodecEncoder.from_weights(self.config.codec, weights)
        with _reported("a recording could not be encoded"):
            codes: Codes = self.model.codec_encoder.encode(torch.from_numpy(samples)).numpy()
        return codes

    def decode(self, codes: Codes) -> Samples:
        """Return the samples of codes [T, quantizers]: [1920 T] float32 in ±1. Blocks."""
        with self._codec_lock:
            with _reported("codes could not be decoded"), self._background.running():
                parts, _ = self._decoded(torch.from_numpy(codes))
                samples: Samples = torch.cat(parts).cpu().numpy()
            return samples

    def with_codec_state(self, voice: DesignedVoice) -> DesignedVoice:
        if voice.reference is None or voice.codec is not None:
            return voice
        failure = "the codec state of a designed voice could not be computed"
        with self._codec_lock, _reported(failure):
            return replace(voice, codec=self._state_behind(voice.reference))

    @property
    def reference_frames(self) -> int:
        return self.runner.positions // 3

    def fit_reference(self, voice: DesignedVoice, request: SynthesisRequest) -> DesignedVoice:
        if voice.reference is None:
            return voice
        taken = len(voice.reference.text_ids) + len(voice.reference.codes)
        if self.config.takes_instructions:
            taken += len(self.tokenizer.encode_instructions(request.instructions or ""))
        tokens = LAST_WORD
        if request.more is None:
            tokens += len(self.tokenizer.encode(request.text))
        fits = PROMPT_POSITIONS + taken + (GROWING_FRAMES_PER_TOKEN + 1) * tokens
        return voice if fits < self.runner.positions else replace(voice, reference=None, codec=None)

    def _state_behind(self, reference: Reference) -> Snapshot:
        with self._background.running():
            _, state = self._decoded(torch.tensor(reference.codes))
            return state.snapshot(0)

    def _decoded(self, codes: Tensor) -> tuple[list[Tensor], CodecState]:
        decoder = self.model.decoder
        state = decoder.new_state(0)
        slot = torch.zeros(1, dtype=torch.int64, device=decoder.device)
        codes = codes.to(decoder.device)
        parts = [
            decoder.run(state, slot, codes[None, first : first + REFERENCE_FRAMES])[0]
            for first in range(0, len(codes), REFERENCE_FRAMES)
        ]
        return parts, state

    # --- generations ---

    def job(
        self,
        request: SynthesisRequest,
        voice_id: str,
        voice: ClonedVoice | None,
        output: OutputSink,
        codec: Snapshot | None = None,
        designed: DesignedVoice | None = None,
    ) -> Job:
        """Build a generation; growing text without room stays in ``request.more``.

        Raises:
            LimitExceeded: instructions leave no room for the text.
            BadRequest: the voice does not support the request.
        """
        frames = request.initial_codec_chunk_frames
        if type(frames) not in (int, type(None)):
            raise BadRequest(
                f"initial_codec_chunk_frames={frames!r} is no whole number.",
                remedy="Give a number of frames of 80 ms, 1 or more.",
            )
        config = self.config
        language = self.catalogue.language(request.language)
        reference = None if voice is None else voice.reference
        if designed is not None:
            reference, codec = designed.reference, designed.codec
        elif request.more is not None and request.layout is None and reference is not None:
            raise BadRequest(
                "A voice that continues a recording needs its text before it speaks.",
                remedy="Use mode clause, or make the voice with x_vector_only.",
            )
        instruct_ids: tuple[int, ...] = ()
        if (request.instructions or "").strip() and config.takes_instructions:
            instruct_ids = tuple(self.tokenizer.encode_instructions(request.instructions or ""))

        def lay_out(track: TextTrack) -> Prompt:
            prompt = build_prompt(
                config,
                text_ids=track.ids,
                language=language,
                speaker=voice_id if config.task == "custom_voice" else None,
                has_x_vector=voice is not None,
                instruct_ids=instruct_ids,
                # Text can be appended to a track of no layout alone.
                layout="growing" if track.streaming else request.layout or "full",
                reference=reference,
            )
            self._fits(len(prompt), len(track.ids))
            return prompt

        room = self.runner.positions - PROMPT_POSITIONS - len(instruct_ids)
        if reference is not None:
            room -= len(reference.text_ids) + len(reference.codes)
        # In the full layout a token takes a position of its own.
        most = room // (GROWING_FRAMES_PER_TOKEN + (request.layout == "full"))
        if most < LAST_WORD:
            raise LimitExceeded(
                f"The instructions take {len(instruct_ids)} of {self.runner.positions} positions;"
                " with the voice's recording there is no room for the text.",
                remedy="Shorten them, or serve with more positions.",
            )
        track = TextTrack(
            request, StreamingTokenizer(self.tokenizer), most=most, whole=reference is not None
        )
        seed = request.seed if request.seed is not None else random.getrandbits(63)
        return Job(
            track=track,
            lay_out=lay_out,
            speaker=VoiceConditioning(
                key=voice_id,
                x_vector=None if voice is None else voice.x_vector,
                codec=codec,
                prefixes=self._prefixes(voice),
            ),
            sampling=self._sampling(request.sampling, request.predictor),
            seed=seed & (2**63 - 1),
            output=output,
            lead=request.lead,
            pad=config.text_ids.tts_pad,
            eos=config.text_ids.tts_eos,
            make_postprocessor=lambda: self._postprocessor(track, voice_id, request),
            initial_chunk=frames,
            speed=request.speed,
            repetition=RepetitionGuard() if self.settings.repetition_guard else None,
            bound=(request.limits or GenerationLimits()).max_new_tokens
            or self.settings.max_new_tokens,
        )

    def _prefixes(self, voice: ClonedVoice | None) -> PrefixStore | None:
        if voice is None or self.store is None:
            return None
        return _VoicePrefixes(self.store, voice)

    def _postprocessor(
        self, track: TextTrack, voice_id: str, request: SynthesisRequest
    ) -> SpeechPostprocessor:
        trim = LeadingTrim(CONTINUED_PRE_ROLL_S) if request.continued else LeadingTrim()
        guard = SoundGuard(trim)
        aligner = PauseAligner(
            language=request.language,
            rates=self._rates,
            voice=voice_id,
            dropped=lambda: guard.dropped,
        )
        asked, settings = request.limits or GenerationLimits(), self.settings
        limits = EndLimits(
            asked.silence_s or settings.silence_s,
            asked.pause_s or settings.pause_s,
            asked.max_new_tokens or settings.max_new_tokens or self.config.generation.max_frames,
        )
        return SpeechPostprocessor(
            track, guard, aligner, limits=limits, language=request.language, speed=request.speed
        )

    def _fits(self, prompt: int, tokens: int) -> None:
        positions = self.runner.positions
        if prompt + FRAMES_PER_TOKEN * tokens >= positions:
            raise LimitExceeded(
                f"The text takes about {prompt + FRAMES_PER_TOKEN * tokens} positions; one"
                f" generation has {positions}.",
                remedy="Send it in parts, or serve with more positions.",
            )

    def _sampling(self, wanted: Wanted | None, others: PredictorSampling | None) -> Sampling:
        own = self.config.generation
        if wanted is None:
            wanted = Wanted()
        greedy = wanted.temperature == 0
        others = others or PredictorSampling()
        heat = others.temperature
        if others.dosample is False:
            heat = 0.0
        elif heat is None:
            # Sampling requested explicitly overrides a greedy first code.
            named = others.dosample is True
            heat = own.predictor_temperature or 0.9 if named else own.predictor_temperature
            heat = 0.0 if greedy and not named else heat

        def either(value: float | None, default: float) -> float:
            return default if value is None else value

        return Sampling(
            temperature=either(wanted.temperature, own.temperature),
            top_k=own.top_k if wanted.top_k is None else wanted.top_k,
            top_p=either(wanted.top_p, own.top_p),
            repetition_penalty=either(wanted.repetition_penalty, own.repetition_penalty),
            predictor_temperature=heat,
            predictor_top_k=own.predictor_top_k if others.top_k is None else others.top_k,
            predictor_top_p=either(others.top_p, own.predictor_top_p),
        )


@dataclass(frozen=True, slots=True)
class _VoicePrefixes:
    store: VoiceStore
    voice: ClonedVoice

    def get(self, key: Hashable) -> Snapshot | None:
        return self.voice.kv.get(key)

    def put(self, key: Hashable, snapshot: Snapshot) -> None:
        self.store.cache.keep_kv(self.voice, key, snapshot)
