"""A voice's settings: the ``.onnx.json`` beside its network."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3tts_wire.errors import BadRequest

MAX_BYTES = 4 << 20
MAX_IDS = 4096
"""Most phonemes in a map, and most speakers is sixteen times that."""
RATES = (8000, 48_000)
SCALE_MAX = 10.0
REMEDY = "Take the .onnx.json that belongs to the voice's .onnx, as its maker published it."
PAD, START, END = "_", "^", "$"


@dataclass(frozen=True, slots=True)
class VoiceConfig:
    """The settings that synthesis needs, checked."""

    sample_rate: int
    """Hertz."""
    language: str
    """BCP 47 tag."""
    espeak_voice: str
    """eSpeak NG's voice whose phonemes the network was trained on; empty for ``text``."""
    phoneme_type: str
    """``espeak``, or ``text``: the characters themselves."""
    phoneme_ids: Mapping[str, tuple[int, ...]]
    phoneme_map: Mapping[str, tuple[str, ...]]
    """Phonemes that stand in for one that the network was not trained on."""
    speakers: Mapping[str, int]
    """Numbers of speakers by name; empty where there is one."""
    speaker_count: int
    length_scale: float
    noise_scale: float
    noise_w: float

    @property
    def speaker_names(self) -> tuple[str, ...]:
        """Names in the order of the speakers' numbers, a number where there is no name; empty where
        there is one speaker."""
        if self.speaker_count == 1:
            return ()
        names = {number: name for name, number in self.speakers.items()}
        return tuple(names.get(number, str(number)) for number in range(self.speaker_count))


def bad(what: str) -> BadRequest:
    """Return the error for settings that cannot be used."""
    return BadRequest(f"The voice's settings cannot be used: {what}.", remedy=REMEDY)


def read_config(file: Path) -> VoiceConfig:
    """Read and check a ``.onnx.json``.

    Raises:
        BadRequest: it is missing, no JSON, or its values are out of bounds.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadRequest(
            f"The voice's settings {file.name} cannot be read: {error.strerror}.",
            remedy="Put the .onnx.json beside the .onnx, under the same name.",
        ) from error
    return parse_config(data)


def parse_config(data: bytes) -> VoiceConfig:
    """Check the content of a ``.onnx.json``.

    Raises:
        BadRequest: it is no JSON, or a value is missing or out of bounds; says which.
    """
    if len(data) > MAX_BYTES:
        raise bad(f"more than {MAX_BYTES >> 20} MiB")
    try:
        given = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise bad("they are not JSON") from error
    if not isinstance(given, dict):
        raise bad("they are not a JSON object")
    audio, espeak = _object(given, "audio"), _object(given, "espeak", optional=True)
    inference = _object(given, "inference", optional=True)
    phoneme_type = given.get("phoneme_type", "espeak")
    if phoneme_type not in ("espeak", "text"):
        raise bad(f"phoneme_type is {_shown(phoneme_type)}, not 'espeak' or 'text'")
    espeak_voice = espeak.get("voice", "")
    if not isinstance(espeak_voice, str) or len(espeak_voice) > 60 or "\0" in espeak_voice:
        raise bad(f"espeak.voice is {_shown(espeak_voice)}")
    if phoneme_type == "espeak" and not espeak_voice:
        raise bad("espeak.voice is missing")
    count = _whole(given.get("num_speakers", 1), "num_speakers", 1, MAX_IDS * 16)
    return VoiceConfig(
        sample_rate=_whole(audio.get("sample_rate"), "audio.sample_rate", *RATES),
        language=_language(given, espeak_voice),
        espeak_voice=espeak_voice,
        phoneme_type=phoneme_type,
        phoneme_ids=_phoneme_ids(given),
        phoneme_map=_phoneme_map(given),
        speakers=_speakers(given, count),
        speaker_count=count,
        length_scale=_scale(inference, "length_scale", 1.0, low=0.1),
        noise_scale=_scale(inference, "noise_scale", 0.667),
        noise_w=_scale(inference, "noise_w", 0.8),
    )


def _shown(value: object) -> str:
    return f"{value!r:.60}"


def _object(given: dict[str, Any], name: str, *, optional: bool = False) -> dict[str, Any]:
    value = given.get(name)
    if value is None and optional:
        return {}
    if not isinstance(value, dict):
        raise bad(f"{name} is missing" if value is None else f"{name} is {_shown(value)}")
    return value


def _whole(value: object, name: str, low: int, high: int) -> int:
    if value is None:
        raise bad(f"{name} is missing")
    if type(value) is not int or not low <= value <= high:
        raise bad(f"{name} is {_shown(value)}, not a whole number from {low} to {high}")
    return value


def _scale(given: dict[str, Any], name: str, usual: float, low: float = 0.0) -> float:
    value = given.get(name, usual)
    if type(value) not in (int, float) or not low <= value <= SCALE_MAX or not math.isfinite(value):
        raise bad(f"inference.{name} is {_shown(value)}, not a number from {low:g} to 10")
    return float(value)


def _phoneme_ids(given: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    listed = _object(given, "phoneme_id_map")
    rows = _whole(given.get("num_symbols", MAX_IDS), "num_symbols", 1, 16 * MAX_IDS)
    if len(listed) > MAX_IDS:
        raise bad(f"phoneme_id_map has {len(listed)} entries; {MAX_IDS} are the most")
    found = {}
    for phoneme, ids in listed.items():
        if type(ids) is int:
            ids = [ids]
        if not isinstance(ids, list) or not 1 <= len(ids) <= 16:
            raise bad(f"phoneme_id_map[{_shown(phoneme)}] is {_shown(ids)}")
        found[unicodedata.normalize("NFD", phoneme)] = tuple(
            _whole(one, f"phoneme_id_map[{_shown(phoneme)}]", 0, rows - 1) for one in ids
        )
    if missing := [sign for sign in (PAD, START, END) if sign not in found]:
        raise bad(f"phoneme_id_map lacks {missing[0]!r}")
    return found


def _phoneme_map(given: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    listed = _object(given, "phoneme_map", optional=True)
    if len(listed) > MAX_IDS:
        raise bad(f"phoneme_map has {len(listed)} entries; {MAX_IDS} are the most")
    found = {}
    for phoneme, others in listed.items():
        if isinstance(others, str):
            others = [others]
        if not (
            isinstance(others, list)
            and len(others) <= 16
            and all(isinstance(other, str) for other in others)
        ):
            raise bad(f"phoneme_map[{_shown(phoneme)}] is {_shown(others)}")
        found[phoneme] = tuple(others)
    return found


def _speakers(given: dict[str, Any], count: int) -> dict[str, int]:
    listed = _object(given, "speaker_id_map", optional=True)
    if len(listed) > MAX_IDS * 16:
        raise bad(f"speaker_id_map has {len(listed)} entries")
    return {
        name: _whole(number, f"speaker_id_map[{_shown(name)}]", 0, count - 1)
        for name, number in listed.items()
    }


def _language(given: dict[str, Any], espeak_voice: str) -> str:
    language = given.get("language")
    code = language.get("code") if isinstance(language, dict) else None
    if not (isinstance(code, str) and code):
        code = espeak_voice or "und"
    parts = code.replace("_", "-").split("-")
    if not all(part.isalnum() and part.isascii() and len(part) <= 8 for part in parts):
        raise bad(f"language.code is {_shown(code)}")
    return "-".join(
        part.upper() if at and len(part) == 2 else part.lower() for at, part in enumerate(parts)
    )
