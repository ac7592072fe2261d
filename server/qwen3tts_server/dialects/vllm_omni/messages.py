"""vLLM-Omni's messages, legal states, and unit requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, NoReturn

from qwen3tts_engine.base import MAX_FIRST_CHUNK, SAMPLE_RATE, SPEED_MAX, SPEED_MIN, Engine
from qwen3tts_engine.playout import UNPACED_LEAD_MS
from qwen3tts_server.dialects.http_errors import FieldRefused, about, code_of
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
from qwen3tts_server.settings import VllmOmniSettings
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_text.surrogates import clean
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ProtocolError, SpeechError
from qwen3tts_wire.fields import Flag, Many, OneOf, Real, Text, Whole, kinds, read
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import ContextOpen

log = logging.getLogger(__name__)

TASKS = ("CustomVoice", "VoiceDesign", "Base")
FORMATS = ("wav", "pcm", "flac", "mp3", "opus")
STREAMING_MODES = ("token_level", "sentence_commit")
COMMIT_ID_MAX = 256
"""Characters of a ``commit_id``."""
GRANULARITIES = ("none", "sentence", "clause")
INT64 = 2**63
MAX_EMBEDDING = 8192
MOST_PARTS = 16_384
"""Commas and brackets of ``session.config``: many small fields block every call."""

_AnyText = Annotated[str, Text(0, INT64)]


@dataclass(frozen=True)
class SessionConfig:
    """How the following text is spoken; replaces the previous configuration."""

    model: _AnyText | None = None
    """Name of the model, one that is served."""
    voice: _AnyText | None = None
    """A voice by any of its names; ``speaker`` is the same field."""
    task_type: Annotated[str, OneOf(TASKS)] | None = None
    """Task of the checkpoint; Base where a reference is given."""
    language: _AnyText | None = None
    """``Auto``, an English name (``Chinese``) or a BCP 47 tag."""
    instructions: _AnyText | None = None
    """Style instructions, where the engine takes them."""
    ref_audio: _AnyText | None = None
    """The voice to clone: data URL, base64, or a URL where the server allows it."""
    ref_text: _AnyText | None = None
    """Transcript of ``ref_audio``."""
    x_vector_only_mode: Annotated[bool, Flag()] | None = None
    """Use only the speaker embedding (x-vector) of ``ref_audio``."""
    speaker_embedding: (
        Annotated[tuple[float, ...], Many(Real(-1e308, 1e308), MAX_EMBEDDING)] | None
    ) = None
    """The numbers of a speaker encoder in place of ``ref_audio``, for a Base checkpoint."""
    response_format: Annotated[str, OneOf(FORMATS)] = "wav"
    """Form of the audio."""
    speed: Annotated[float, Real(0.25, 4)] | None = 1.0
    """Factor on the rate of speech; the engines take 0.5 to 2.5."""
    stream_audio: Annotated[bool, Flag()] = False
    """Samples as they are made; needs ``pcm`` and speed 1. Else each unit is one file."""
    word_timestamps: Annotated[bool, Flag()] = False
    """Audio as JSON, and when each word sounds; needs ``stream_audio``."""
    max_new_tokens: Annotated[int, Whole(1, INT64 - 1)] | None = None
    """Longest sound of a unit, in codec frames of 80 ms."""
    initial_codec_chunk_frames: Annotated[int, Whole(0, INT64 - 1)] | None = None
    """Codec frames in the first chunk; 0 is the server's choice, 100 the most."""
    non_streaming_mode: Annotated[bool, Flag()] | None = None
    """A unit is one generation: true, its text is read before it is spoken; false, while it is.
    Left out: clause by clause."""
    seed: Annotated[int, Whole(-INT64, INT64 - 1)] | None = None
    """Start of the random numbers."""
    split_granularity: Annotated[str, OneOf(GRANULARITIES)] = "none"
    """Granularity of units."""
    streaming_mode: Annotated[str, OneOf(STREAMING_MODES)] | None = None
    """An utterance is one unit, said while its text comes: each word, or what was committed."""


def parse(data: str, settings: VllmOmniSettings) -> tuple[str, Mapping[str, Any]]:
    long = len(data) > settings.max_message_chars
    if long:
        if len(data) > settings.max_config_chars or "session.config" not in data:
            raise _too_long(data, settings)
        if sum(map(data.count, ",[{\\")) > MOST_PARTS:
            raise LimitExceeded(
                f"A session.config of {len(data)} characters has more than {MOST_PARTS} parts.",
                remedy="Only its ref_audio should be long.",
            )
    try:
        fields = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        # JSONDecodeError repeats none of the text in ``msg``; a deep nest ends in RecursionError.
        what = f": {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadRequest(f"Invalid JSON message{what}.") from error
    if not isinstance(fields, dict):
        raise BadRequest("WebSocket messages must be JSON objects.")
    kind = fields.pop("type", None)
    if not isinstance(kind, str):
        raise BadRequest("The message has no type.", remedy='Every message is {"type": ..., ...}.')
    if long and kind != "session.config":
        raise _too_long(data, settings)
    return kind, fields


def config_of(fields: Mapping[str, Any]) -> SessionConfig:
    """Parse ``session.config``, ignoring unknown fields.

    Raises:
        BadRequest, LimitExceeded: names the field.
    """
    given = dict(fields)
    if "voice" not in given and "speaker" in given:
        given["voice"] = given["speaker"]
    unknown = len(given.keys() - kinds(SessionConfig).keys() - {"speaker"})
    if unknown:
        log.debug("a session.config has %d fields that are not known", unknown)
    if given.get("streaming_mode") is not None:
        # Their clients take samples, whether they say so or not.
        given.setdefault("response_format", "pcm")
        if given["response_format"] == "pcm" and given.get("speed", 1) in (None, 1):
            given.setdefault("stream_audio", True)
    config: SessionConfig = read(SessionConfig, given, where="session.config", strict=False)
    if config.stream_audio and config.response_format != "pcm":
        raise BadRequest(
            f"session.config.stream_audio needs response_format pcm, not {config.response_format}.",
            remedy="Ask for pcm, or leave stream_audio out: then each unit is one file.",
        )
    if config.stream_audio and config.speed not in (None, 1.0):
        raise BadRequest(
            "session.config.stream_audio needs a speed of 1.",
            remedy="Leave one of the two out.",
        )
    if config.streaming_mode is not None:
        _check_streaming(config)
    return config


def _check_streaming(config: SessionConfig) -> None:
    mode = config.streaming_mode
    if config.split_granularity != "none":
        raise BadRequest(
            f"session.config.split_granularity {config.split_granularity} does not go with "
            f"streaming_mode {mode}: there an utterance is one unit.",
            remedy="Leave one of the two out.",
        )
    if config.non_streaming_mode:
        raise BadRequest(
            "session.config.non_streaming_mode reads all text before it is spoken; "
            f"streaming_mode {mode} speaks while it comes.",
            remedy="Leave one of the two out.",
        )


def commit_id_of(fields: Mapping[str, Any]) -> str | None:
    """Return the ``input.commit``'s name; raises BadRequest."""
    name = fields.get("commit_id")
    if name is not None and not (isinstance(name, str) and len(name) <= COMMIT_ID_MAX):
        raise BadRequest(
            f"input.commit.commit_id is not a string of at most {COMMIT_ID_MAX} characters.",
            remedy="Leave it out, or send a short name.",
        )
    return name


def text_of(fields: Mapping[str, Any]) -> str:
    """Return the ``input.text``'s text; raises BadRequest."""
    if "text" not in fields:
        raise BadRequest("input.text needs the field text.")
    text = fields["text"]
    if not isinstance(text, str):
        raise BadRequest("input.text requires a string value.")
    return text


def message(kind: str, **fields: object) -> str:
    return clean(json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":")))


def error(what: SpeechError, unit: Mapping[str, int] | None = None, **more: object) -> str:
    """Return an error; ``unit``: indices of the failed one."""
    text = str(what)
    fields: dict[str, object] = {"code": code_of(what), "retryable": what.retryable}
    if isinstance(what, FieldRefused):
        fields["param"] = what.param
    if unit is not None:
        place = f"utterance {unit['utterance_index']}, sentence {unit['sentence_index']}"
        text = f"Generation failed for {place}: {text}"
        fields |= unit
    return message("error", message=text, **fields, **more)


def timed(word: Word) -> dict[str, object]:
    start, end = (round(each * 1000 / SAMPLE_RATE) for each in (word.start, word.end))
    return {"word": word.text, "start_ms": start, "end_ms": end}


def milliseconds(count: int) -> int:
    return round(count * 1000 / (2 * SAMPLE_RATE))


def _too_long(data: str, settings: VllmOmniSettings) -> LimitExceeded:
    return LimitExceeded(
        f"The message has {len(data)} characters; a session.config may have "
        f"{settings.max_config_chars}, any other {settings.max_message_chars}.",
        remedy="Send the text in smaller pieces.",
    )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


MAX_INSTRUCTIONS = 4096


def check(config: SessionConfig, voices: VoiceCatalogue) -> None:
    """Raise FieldRefused for what the engine cannot do."""
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


class UnitRequests:
    """Engine requests; a reference is read once a configuration."""

    def __init__(self, voices: VoiceCatalogue) -> None:
        self._voices = voices
        self._for: SessionConfig | None = None
        self._cloned: str | None = None

    async def order(self, config: SessionConfig) -> ContextOpen:
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


class State(Enum):
    NEW = "no session.config yet"
    IDLE = "no utterance is open"
    OPEN = "an utterance is open"
    LEAVING = "the client has sent session.close"
    CLOSED = "nothing more is read"


MOVES: dict[tuple[State, str], State] = {
    (State.NEW, "session.config"): State.IDLE,
    (State.IDLE, "session.config"): State.IDLE,
    (State.IDLE, "input.text"): State.OPEN,
    (State.OPEN, "input.text"): State.OPEN,
    (State.IDLE, "input.commit"): State.IDLE,
    (State.OPEN, "input.commit"): State.OPEN,
    (State.IDLE, "input.done"): State.IDLE,
    (State.OPEN, "input.done"): State.IDLE,
    (State.IDLE, "input.cancel"): State.IDLE,
    (State.OPEN, "input.cancel"): State.IDLE,
    (State.IDLE, "session.close"): State.LEAVING,
    (State.OPEN, "session.close"): State.LEAVING,
}
"""Missing pairs are errors, and so are unknown types."""
TYPES = tuple(dict.fromkeys(kind for _, kind in MOVES))


def move(state: State, kind: str) -> State:
    after = MOVES.get((state, kind))
    if after is not None:
        return after
    if state is State.NEW:
        raise ProtocolError(
            f"Expected session.config, got: {kind[:40]!a}.", remedy="Send session.config first."
        )
    if kind not in TYPES:
        raise ProtocolError(
            f"Unknown message type: {kind[:40]!a}.", remedy=f"There are {', '.join(TYPES)}."
        )
    raise ProtocolError(
        f"{kind} cannot be applied while an utterance is in progress.",
        remedy="Send input.done first.",
    )
