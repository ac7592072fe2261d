"""Layout of the talker's prompt; languages and speakers. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from qwen3tts_engine.qwen3.model.config import ModelConfig, Task
from qwen3tts_wire.errors import BadRequest, BadText, LimitExceeded, UnknownVoice
from qwen3tts_wire.names import nearest

AUTO = "auto"
"""Automatic language."""
CHINESE = "chinese"
NO_SPEAKER = "no_speaker"
"""In place of a CustomVoice speaker: no speaker position in the prompt, as officially with an empty
name; the model chooses a voice."""

_NAMES = {
    "zh": CHINESE,
    "zho": CHINESE,
    "chi": CHINESE,
    "cmn": CHINESE,
    "en": "english",
    "eng": "english",
    "de": "german",
    "deu": "german",
    "ger": "german",
    "it": "italian",
    "ita": "italian",
    "pt": "portuguese",
    "por": "portuguese",
    "es": "spanish",
    "spa": "spanish",
    "ja": "japanese",
    "jpn": "japanese",
    "ko": "korean",
    "kor": "korean",
    "fr": "french",
    "fra": "french",
    "fre": "french",
    "ru": "russian",
    "rus": "russian",
}
"""ISO 639 codes (parts 1, 2 and 3), the primary subtags of BCP 47, and the checkpoints' names."""
_TAGS = {
    CHINESE: "zh",
    "english": "en",
    "german": "de",
    "italian": "it",
    "portuguese": "pt",
    "spanish": "es",
    "japanese": "ja",
    "korean": "ko",
    "french": "fr",
    "russian": "ru",
}
# RFC 5646 section 2.1, loosely: a primary language subtag, then any others.
_TAG = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*")


def find_language(config: ModelConfig, language: str | None) -> str | None:
    """Return the checkpoint's name of a language; None: automatic.

    Accepts its name, an ISO 639 code or BCP 47 tag (``de-AT``), in any case.
    """
    if language is None:
        return None
    known, wanted = config.talker.languages, language.strip().lower()
    if wanted in ("", AUTO, "und", "mul"):
        return None
    tag = _TAG.fullmatch(wanted)
    for name in (wanted, wanted.replace(" ", "_"), _NAMES.get(tag[1], "") if tag else ""):
        if name in known:
            return name
    raise UnknownVoice(
        f"This checkpoint does not speak {language!r}.",
        remedy=_offer(wanted, [*known, *(_TAGS[name] for name in known if name in _TAGS)], known),
    )


def find_speaker(config: ModelConfig, speaker: str | None) -> str:
    """Return the checkpoint's name of a speaker, in any case; UnknownVoice."""
    known = config.talker.speakers
    wanted = "" if speaker is None else speaker.strip().lower()
    for name in (wanted, wanted.replace(" ", "_").replace("-", "_")):
        if name in known:
            return name
    said = "No speaker is named" if not wanted else f"There is no speaker {speaker!r}"
    raise UnknownVoice(f"{said}.", remedy=_offer(wanted, known, known))


def language_tag(name: str) -> str:
    """Return a language's BCP 47 tag; ``zh`` for dialects."""
    return _TAGS.get(name, "zh" if name.endswith("_dialect") else "und")


def _offer(wanted: str, names: Iterable[str], all_of_them: Iterable[str]) -> str:
    near = nearest(wanted, names)
    every = ", ".join(sorted(all_of_them))
    return f"Near ones: {', '.join(near)}. All: {every}." if near else f"Choose one of: {every}."


Layout = Literal["streaming", "full"]
"""Streaming: one text token with each frame; full: the whole text before the first frame."""
PromptLayout = Layout | Literal["growing"]
"""Growing: streaming, without tts_eos, as more text may follow."""
DEFAULT_LAYOUT: Mapping[Task, Layout] = MappingProxyType(
    {"custom_voice": "full", "voice_design": "full", "base": "streaming"}
)
"""Official layouts by task."""
NO_TEXT = -1
"""In ``Prompt.text``: no token at this position."""

Codec = int | tuple[int, ...] | Literal["speaker"] | None
"""A control or speaker id; codes of a reference frame; a speaker embedding; nothing."""


@dataclass(frozen=True, slots=True)
class Reference:
    text_ids: tuple[int, ...]
    """Its transcript."""
    codes: tuple[tuple[int, ...], ...]
    """Its frames."""


@dataclass(frozen=True, slots=True)
class Prompt:
    text: tuple[int, ...]
    """Text id at each position, or NO_TEXT."""
    codec: tuple[Codec, ...]
    """As long as ``text``."""
    trailing: tuple[int, ...]
    """Text ids added behind frames 0, 1, ...; then tts_pad."""
    prefix: int
    """Leading positions that depend only on voice, language and instructions."""

    def __len__(self) -> int:
        return len(self.text)


def build_prompt(
    config: ModelConfig,
    *,
    text_ids: Sequence[int],
    language: str | None = None,
    speaker: str | None = None,
    has_x_vector: bool = False,
    instruct_ids: Sequence[int] = (),
    layout: PromptLayout,
    reference: Reference | None = None,
) -> Prompt:
    """Lay out a prompt.

    Args:
        config: Of the checkpoint.
        text_ids: Of ``Tokenizer.encode``.
        language: See ``find_language``.
        speaker: For ``custom_voice``; NO_SPEAKER: none.
        has_x_vector: Whether the voice is cloned, for ``base``.
        instruct_ids: Of ``Tokenizer.encode_instructions``; ignored without
            ``takes_instructions``.
        layout: See PromptLayout; ``growing`` takes no reference.
        reference: Speech to continue, of the same voice.
    """
    if not text_ids:
        raise BadText("There is no text to say.", remedy="Send at least one word.")
    if layout == "growing" and reference is not None:
        raise ValueError("text can be appended only to a prompt without a reference")
    _right_task(config, speaker, has_x_vector, reference)
    ids, text = config.talker.ids, config.text_ids
    track = _Track()
    if config.takes_instructions:
        track.put(instruct_ids, [None] * len(instruct_ids))
    track.put(text.role, [None] * 3)
    control = _control(config, language, speaker)
    track.put([text.tts_pad] * (len(control) - 1) + [text.tts_bos], control)
    spoken = [*text_ids, text.tts_eos]
    if reference is None:
        prefix = len(track.text)
        if layout == "full":
            track.put(spoken, [ids.pad] * len(spoken))
            track.put([text.tts_pad], [ids.bos])
            spoken = []
        else:
            track.put(spoken[:1], [ids.bos])
            spoken = spoken[1:-1] if layout == "growing" else spoken[1:]
    else:
        frames: list[Codec] = [ids.bos, *_frames(config, reference)]
        said = [*reference.text_ids, *spoken]
        if layout == "full":
            prefix = len(track.text) + len(reference.text_ids)
            track.put(said, [ids.pad] * len(said))
            track.put([text.tts_pad] * len(frames), frames)
            spoken = []
        else:
            prefix = len(track.text) + min(len(reference.text_ids), len(frames))
            over, spoken = said[: len(frames)], said[len(frames) :]
            track.put(over + [text.tts_pad] * (len(frames) - len(over)), frames)
    if len(track.text) >= config.talker.max_positions:
        raise LimitExceeded(
            f"The text and its voice take {len(track.text)} positions; the model has "
            f"{config.talker.max_positions}.",
            remedy="Say it in parts.",
        )
    return Prompt(tuple(track.text), tuple(track.codec), tuple(spoken), prefix)


class _Track:
    def __init__(self) -> None:
        self.text: list[int] = []
        self.codec: list[Codec] = []

    def put(self, text: Sequence[int], codec: Sequence[Codec]) -> None:
        for token, code in zip(text, codec, strict=True):
            self.text.append(token)
            self.codec.append(code)


def _right_task(
    config: ModelConfig, speaker: str | None, has_x_vector: bool, reference: Reference | None
) -> None:
    # A designed voice continues its own speech.
    cloned = has_x_vector or (reference is not None and config.task != "voice_design")
    if config.task != "base":
        if cloned:
            raise BadRequest(
                f"This checkpoint ({config.task}) cannot clone a voice.",
                remedy="Serve a Base checkpoint for cloned voices.",
            )
        if config.task == "voice_design" and speaker is not None:
            raise BadRequest(
                "This checkpoint (voice_design) has no named speakers.",
                remedy="Describe the voice in the instructions, or serve a CustomVoice checkpoint.",
            )
    elif speaker is not None:
        raise BadRequest(
            "This checkpoint (base) has no named speakers.",
            remedy="Clone a voice from a recording, or serve a CustomVoice checkpoint.",
        )
    elif not has_x_vector:
        raise BadRequest(
            "This checkpoint (base) speaks with cloned voices only, and none is given.",
            remedy="Clone a voice from a recording; for a voice from a description alone serve a "
            "VoiceDesign checkpoint.",
        )


def _control(config: ModelConfig, language: str | None, speaker: str | None) -> list[Codec]:
    talker, ids = config.talker, config.talker.ids
    name = find_language(config, language)
    who: list[Codec] = []
    if config.task == "custom_voice" and speaker != NO_SPEAKER:
        known = find_speaker(config, speaker)
        who = [talker.speakers[known]]
        if name in (None, CHINESE):
            # A speaker of a dialect speaks it unless another language is asked for.
            name = talker.dialects.get(known, name)
    elif config.task == "base":
        who = ["speaker"]
    if name is None:
        return [ids.nothink, ids.think_bos, ids.think_eos, *who, ids.pad]
    return [ids.think, ids.think_bos, talker.languages[name], ids.think_eos, *who, ids.pad]


def _frames(config: ModelConfig, reference: Reference) -> tuple[tuple[int, ...], ...]:
    groups = config.talker.code_groups
    if not reference.codes or not reference.text_ids:
        raise BadRequest(
            "The reference recording or its transcript is empty.",
            remedy="Give a recording of some seconds with what is said in it, or use the voice "
            "without in-context cloning (x_vector_only).",
        )
    if any(len(frame) != groups for frame in reference.codes):
        raise ValueError(f"a frame has {groups} codes")
    return reference.codes
