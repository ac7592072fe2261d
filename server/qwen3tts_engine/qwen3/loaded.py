"""A checkpoint on its device with everything that speaking needs, between start and close."""

from __future__ import annotations

import gc
import logging
import random
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import torch

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.text import check_text
from qwen3tts_engine.guards import LeadingTrim, SoundGuard
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.speech_rates import SpeechRates
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, LimitExceeded
from qwen3tts_wire.messages import Sampling as Wanted

from .arena import Sampling
from .bpe_stream import StreamingTokenizer
from .catalogue import Catalogue
from .checkpoint import find_checkpoint, open_weights
from .faults import told, trace
from .jobs import Job, Outlet, Speaker
from .model import Qwen3Model
from .prefixes import PrefixStore, Snapshot
from .prompt import Prompt, Reference, build_prompt
from .runner import Progress, Runner
from .settings import DTypeName, Qwen3Settings
from .text_track import LAST_WORD, TextTrack
from .tokenizer import Tokenizer
from .transcribe import WhisperTranscriber, check_whisper
from .voices import ClonedVoice, ModelEncoders, VoiceStore, fingerprint
from .voicing import Voicing

FRAMES_PER_TOKEN = 3
"""A text that cannot be said within a row's positions at 4 tokens a second is refused."""
GROWING_FRAMES_PER_TOKEN = 4
"""Text that grows goes on in another generation before it comes to that."""
PROMPT_POSITIONS = 16
"""Of a prompt that is spoken while its text grows, without its instructions: some 10."""
CONTINUED_PRE_ROLL_S = 0.12
"""Silence kept before the first sound of a clause that others go before: sentences that follow
without a breath sound hasty, and a listener who has something to hear does not wait for it."""
REFERENCE_FRAMES = 25
"""Frames of a reference that go through the codec at once."""
DTYPES: dict[DTypeName, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


log = logging.getLogger(__name__)


def _caches(settings: Qwen3Settings, *, clones: bool) -> int:
    """Most bytes of what is kept of prompts, and of voices where there are any."""
    return settings.prefix_bytes + (settings.voices_bytes if clones else 0)


class Loaded:
    """What ``Qwen3Engine.start`` makes."""

    def __init__(self, settings: Qwen3Settings, progress: Progress) -> None:
        """Load and allocate. Blocks, for minutes where something is to be fetched.

        Raises:
            EngineUnavailable: the checkpoint or the device is missing, damaged or too small, or
                the Whisper model's folder is missing.
            UnknownVoice: the default voice does not exist.
        """
        self.settings = settings
        self._rates = SpeechRates()
        self._hearing = threading.Lock()
        if settings.whisper is not None:
            check_whisper(settings.whisper)
        device = find_device(settings.device)
        on_gpu = device.type == "cuda"
        progress("finding the checkpoint", 0, 1)
        folder = find_checkpoint(settings.model)
        progress("loading", 0, 1)
        self.model = Qwen3Model.load(
            folder,
            device=device,
            dtype=DTYPES[settings.dtype or ("bfloat16" if on_gpu else "float32")],
            codec_dtype=DTYPES[settings.codec_dtype or ("float16" if on_gpu else "float32")],
        )
        assert self.model.tokenizer is not None
        self.tokenizer: Tokenizer = self.model.tokenizer
        self.config = self.model.config
        progress("loading", 1, 1)
        self.store = self._voice_store(folder)
        self.catalogue = Catalogue(self.config, self.store, settings.voice)
        self.runner = Runner(
            self.model,
            slots=settings.slots or "auto",
            positions=min(settings.positions, self.config.talker.max_positions),
            graphs=settings.graphs,
            compile=settings.compile,
            # A bound that is seldom reached: where memory can be swapped it refuses nobody.
            caches=_caches(settings, clones=self.store is not None) if on_gpu else 0,
        )

    @property
    def name(self) -> str:
        """The model, for people."""
        size = self.config.size.replace("b", ".") + "B"
        return f"Qwen3-TTS {size} {self.config.task.title().replace('_', '')}"

    def close(self) -> None:
        """End the threads that make voices."""
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
            transcriber=None if settings.whisper is None else WhisperTranscriber(settings.whisper),
            folder=settings.voice_folder,
        )

    def hear_reference(self, voice: ClonedVoice) -> Snapshot:
        """The codec's state behind the recording that a voice goes on from; the voice keeps it if
        there is room. Blocks.

        Raises:
            EngineFailed: the model failed, or its device is out of memory.
        """
        assert self.store is not None
        assert voice.reference is not None
        # Of those who need it at once the first computes it.
        with self._hearing:
            if voice.codec is not None:
                return voice.codec
            try:
                snapshot = self._state_behind(voice.reference)
            except Exception as error:
                log.error("a reference could not be heard\n%s", trace(error))
                raise told(error) from error
            self.store.cache.keep_codec(voice, snapshot)
            return snapshot

    def _state_behind(self, reference: Reference) -> Snapshot:
        decoder = self.model.decoder
        state = decoder.new_state(0)
        slot = torch.zeros(1, dtype=torch.int64, device=decoder.device)
        codes = torch.tensor(reference.codes, device=decoder.device)
        for first in range(0, len(codes), REFERENCE_FRAMES):
            decoder.run(state, slot, codes[None, first : first + REFERENCE_FRAMES])
        snapshot = state.snapshot(0)
        if decoder.device.type == "cuda":
            # Another thread's stream is going to read it.
            torch.cuda.current_stream(decoder.device).synchronize()
        return snapshot

    # --- generations ---

    def job(
        self,
        request: SynthesisRequest,
        voice_id: str,
        voice: ClonedVoice | None,
        outlet: Outlet,
        codec: Snapshot | None = None,
    ) -> Job:
        """A generation for the worker; ``voice`` and ``codec``, the state behind its reference, are
        those of a Base checkpoint.

        Raises:
            BadText: the text is no text.
            LimitExceeded: it is too long, or its instructions leave no room for it. Of text that
                grows, or might have, what is too much is left in ``request.more``.
            BadRequest: the voice cannot speak it like that.
        """
        check_text(request.text, self.settings.max_chars)
        frames = request.initial_codec_chunk_frames
        if type(frames) not in (int, type(None)):
            raise BadRequest(
                f"initial_codec_chunk_frames={frames!r} is no whole number.",
                remedy="Give a number of frames of 80 ms, 1 or more.",
            )
        config = self.config
        language = self.catalogue.language(request.language)
        reference = None if voice is None else voice.reference
        if request.more is not None and reference is not None:
            raise BadRequest(
                "A voice that goes on from a recording needs its text before it speaks.",
                remedy="Use mode clause, or make the voice with x_vector_only.",
            )
        if config.task == "voice_design" and not (request.instructions or "").strip():
            raise BadRequest(
                "This checkpoint makes up a voice from a description, and there is none.",
                remedy="Describe the voice in instructions, or serve a CustomVoice checkpoint.",
            )
        instruct_ids: tuple[int, ...] = ()
        if request.instructions and config.takes_instructions:
            instruct_ids = tuple(self.tokenizer.encode_instructions(request.instructions))

        def lay_out(track: TextTrack) -> Prompt:
            prompt = build_prompt(
                config,
                text_ids=track.ids,
                language=language,
                speaker=voice_id if config.task == "custom_voice" else None,
                has_x_vector=voice is not None,
                instruct_ids=instruct_ids,
                layout="streaming" if track.streaming else "full",
                reference=reference,
                open_ended=track.streaming,
            )
            self._fits(len(prompt), len(track.ids))
            return prompt

        room = self.runner.positions - PROMPT_POSITIONS - len(instruct_ids)
        most = room // GROWING_FRAMES_PER_TOKEN
        if most < LAST_WORD:
            raise LimitExceeded(
                f"The instructions take {len(instruct_ids)} of {self.runner.positions} positions;"
                " there is no room for the text.",
                remedy="Shorten them, or serve with more positions.",
            )
        track = TextTrack(request, StreamingTokenizer(self.tokenizer), most=most)
        seed = request.seed if request.seed is not None else random.getrandbits(63)
        return Job(
            track=track,
            lay_out=lay_out,
            speaker=Speaker(
                key=voice_id,
                x_vector=None if voice is None else voice.x_vector,
                codec=codec,
                prefixes=self._prefixes(voice),
            ),
            sampling=self._sampling(request.sampling),
            seed=seed & (2**63 - 1),
            outlet=outlet,
            lead=request.lead,
            pad=config.text_ids.tts_pad,
            eos=config.text_ids.tts_eos,
            voice=lambda: self._voicing(track, voice_id, request),
            initial_chunk=frames,
        )

    def _prefixes(self, voice: ClonedVoice | None) -> PrefixStore | None:
        if voice is None or self.store is None:
            return None
        return _VoicePrefixes(self.store, voice)

    def _voicing(self, track: TextTrack, voice_id: str, request: SynthesisRequest) -> Voicing:
        trim = LeadingTrim(CONTINUED_PRE_ROLL_S) if request.continued else LeadingTrim()
        guard = SoundGuard(trim)
        aligner = PauseAligner(
            language=request.language,
            rates=self._rates,
            voice=voice_id,
            dropped=lambda: guard.dropped,
        )
        return Voicing(track, guard, aligner)

    def _fits(self, prompt: int, tokens: int) -> None:
        positions = self.runner.positions
        if prompt + FRAMES_PER_TOKEN * tokens >= positions:
            raise LimitExceeded(
                f"The text takes about {prompt + FRAMES_PER_TOKEN * tokens} positions; one"
                f" generation has {positions}.",
                remedy="Send it in parts, or serve with more positions.",
            )

    def _sampling(self, wanted: Wanted | None) -> Sampling:
        """The checkpoint's way to draw, with what the request wants otherwise.

        A temperature of 0 holds for all codes of a frame, anything else for its first, which
        decides what is said; the others colour it.
        """
        own = self.config.generation
        if wanted is None:
            wanted = Wanted()
        greedy = wanted.temperature == 0

        def either(value: float | None, default: float) -> float:
            return default if value is None else value

        return Sampling(
            temperature=either(wanted.temperature, own.temperature),
            top_k=own.top_k if wanted.top_k is None else wanted.top_k,
            top_p=either(wanted.top_p, own.top_p),
            repetition_penalty=either(wanted.repetition_penalty, own.repetition_penalty),
            predictor_temperature=0.0 if greedy else own.predictor_temperature,
            predictor_top_k=own.predictor_top_k,
            predictor_top_p=own.predictor_top_p,
        )


@dataclass(frozen=True, slots=True)
class _VoicePrefixes:
    """Beginnings of prompts that a cloned voice keeps, counted with it."""

    store: VoiceStore
    voice: ClonedVoice

    def get(self, key: Hashable) -> Snapshot | None:
        return self.voice.kv.get(key)

    def put(self, key: Hashable, snapshot: Snapshot) -> None:
        self.store.cache.keep_kv(self.voice, key, snapshot)


def find_device(name: str) -> torch.device:
    """The device that a setting names.

    Raises:
        EngineUnavailable: it is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise EngineUnavailable(
                f"There is no device {name}: PyTorch {torch.__version__} sees {count} GPUs.",
                remedy="Use device auto or cpu, or check the driver; `mr-qwen3tts doctor` helps.",
            )
    return device


def free_device_memory() -> None:
    """Give back to the device what nothing holds any more, for other programs."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
