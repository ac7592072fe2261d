"""A session's configuration as an order to the engine; what cannot be had is refused here."""

from __future__ import annotations

from qwen3tts_engine.base import MAX_FIRST_CHUNK, SPEED_MAX, SPEED_MIN, Engine
from qwen3tts_engine.playout import UNPACED_LEAD_MS
from qwen3tts_server.dialects.http_errors import about
from qwen3tts_server.dialects.qwen_fields import (
    check_embedding,
    check_task,
    embedded_voice,
    first_chunk_of,
    language_tag,
    mode_of,
    reference_voice,
    seed_of,
)
from qwen3tts_server.dialects.vllm_omni_messages import SessionConfig
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.errors import BadRequest, LimitExceeded
from qwen3tts_wire.messages import ContextOpen

MAX_INSTRUCTIONS = 4096


def check(config: SessionConfig, voices: VoiceCatalogue) -> None:
    """Refuse what this engine cannot do, before it is asked.

    Raises:
        FieldRefused: names the field and what helps.
    """
    reference = config.ref_audio is not None or config.ref_text is not None
    embedded = config.speaker_embedding is not None
    check_task(voices, config.task_type, reference=reference or embedded)
    named = config.ref_audio is not None or embedded or config.voice
    if config.task_type == "Base" and not named:
        with about("ref_audio"):
            raise BadRequest(
                "task_type Base needs ref_audio or a voice.",
                remedy="Send a recording, or the name of a voice that was uploaded.",
            )
    check_embedding(voices, config.speaker_embedding, recording=reference)
    if len(config.instructions or "") > MAX_INSTRUCTIONS:
        with about("instructions"):
            raise LimitExceeded(
                f"instructions has {len(config.instructions or '')} characters; "
                f"at most {MAX_INSTRUCTIONS} are allowed."
            )
    with about("speed"):
        _check_speed(config.speed or 1.0, voices)
    with about("word_timestamps"):
        _check_words(config, voices)


def _check_speed(speed: float, engine: Engine) -> None:
    if not SPEED_MIN <= speed <= SPEED_MAX:
        raise BadRequest(
            f"speed={speed:g} is beyond what the engine can do.",
            remedy=f"Choose a factor from {SPEED_MIN} to {SPEED_MAX}.",
        )
    if speed != 1 and "speed" not in engine.options:
        raise BadRequest(f"speed={speed:g}: this engine has one speed.", remedy="Leave it at 1.")


def _check_words(config: SessionConfig, engine: Engine) -> None:
    if config.word_timestamps and engine.alignment == "none":
        raise BadRequest(
            "word_timestamps: this engine does not know where its words sound.",
            remedy="Set word_timestamps to false.",
        )
    if config.word_timestamps and not config.stream_audio:
        raise BadRequest(
            "word_timestamps needs stream_audio=true and response_format=pcm.",
            remedy="Ask for both, or set word_timestamps to false.",
        )


def _mode(config: SessionConfig) -> str:
    if config.streaming_mode is not None:
        return "live"  # Voices that take no growing text are spoken clause by clause.
    return mode_of(config.non_streaming_mode, "clause")


class Orders:
    """Orders of one connection; a reference is read once for each configuration."""

    def __init__(self, voices: VoiceCatalogue) -> None:
        self._voices = voices
        self._for: SessionConfig | None = None
        self._cloned: str | None = None

    async def order(self, config: SessionConfig) -> ContextOpen:
        """What is asked of the engine for a unit of this configuration.

        Raises:
            FieldRefused: it cannot be had; see ``check`` and VoiceCatalogue.from_reference.
        """
        check(config, self._voices)
        first = first_chunk_of(config.initial_codec_chunk_frames)
        language = language_tag(config.language)
        return ContextOpen(
            context_id="unit",
            context_no=1,
            voice=await self._voice_of(config, language),
            language=language,
            instructions=config.instructions or None,
            mode=_mode(config),
            speed=config.speed or 1.0,
            seed=seed_of(config.seed),
            initial_codec_chunk_frames=None if first is None else min(first, MAX_FIRST_CHUNK),
            lead_ms=UNPACED_LEAD_MS,
            pause_flush_ms=0,
        )

    async def _voice_of(self, config: SessionConfig, language: str | None) -> str | None:
        if self._for is not config:
            self._cloned = await self._clone(config)
            self._for = config
        voice = self._cloned
        if voice is None:
            with about("voice"):
                voice = await self._voices.find(config.voice, language)
                self._voices.check(voice, None)
        with about("language"):
            self._voices.check(voice, language)
        return voice

    async def _clone(self, config: SessionConfig) -> str | None:
        if config.speaker_embedding is not None:
            return await embedded_voice(self._voices, config.speaker_embedding)
        return await reference_voice(
            self._voices,
            config.ref_audio,
            config.ref_text or None,
            x_vector_only=config.x_vector_only_mode or False,
        )
