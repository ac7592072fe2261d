"""Prompts recorded by people, with their words: Debian's asterisk-core-sounds, by apt-get.

The packages (CC-BY-SA 3.0, the Russian one CC-BY 3.0) are downloaded and unpacked into the user's
cache; nothing is installed. recognition_prompts.json has the words of some of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import unicodedata
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3tts_wire.whisper.models import cache_folder

LIST = json.loads((Path(__file__).parent / "recognition_prompts.json").read_text("utf-8"))
PACKAGE = "asterisk-core-sounds-{}-wav"
RATE_HZ = 8000


@dataclass(frozen=True)
class Prompt:
    """One prompt."""

    language: str
    name: str
    words: tuple[str, ...]
    samples: NDArray[np.float64]
    """8 kHz, full scale 1, shape [n]."""


def prompts(languages: list[str], most: int | None = None) -> list[Prompt]:
    """The prompts of these languages, at most so many of each."""
    found = []
    for language in languages:
        folder = sounds(language)
        for name, text in list(LIST["prompts"][language].items())[:most]:
            with wave.open(str(folder / f"{name}.wav")) as file:
                assert file.getframerate() == RATE_HZ
                samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768.0
            found.append(Prompt(language, name, words(text, language), samples))
    return found


def sounds(language: str) -> Path:
    """The folder of a language's prompts; downloads its package once."""
    cache = cache_folder() / "asterisk-core-sounds"
    folder = cache / language
    if not folder.is_dir():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        package = PACKAGE.format(language)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            subprocess.run(
                ["apt-get", "download", "-q", package],
                cwd=scratch,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            (archive,) = Path(scratch).glob("*.deb")
            subprocess.run(["dpkg", "-x", str(archive), f"{scratch}/all"], check=True)
            os.rename(f"{scratch}/all", folder)
    place = folder / "usr/share/asterisk/sounds" / str(LIST["folders"][language])
    assert place.is_dir(), place
    return place


def words(text: str, language: str) -> tuple[str, ...]:
    """The words of a text as they are compared: lower case, no punctuation, numbers spelled."""
    plain = (
        unicodedata.normalize("NFC", text.lower())
        .replace("\u0451", "\u0435")
        .replace("\u2019", "'")
    )
    numbers = LIST["numbers"][language]
    # A hyphen is taken out: re-enter and reenter are the same word.
    found = re.findall(r"[\w']+", plain.replace("-", ""))
    return tuple(numbers.get(word, word) for word in found)


def errors(said: tuple[str, ...], heard: tuple[str, ...]) -> int:
    """Words replaced, missing and too many: Levenshtein's distance."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]
