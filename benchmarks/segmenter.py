"""Quality of sentence segmentation: ours beside installed libraries, on a table of cases.

``pip install pysbd sentencex syntok nupunkt blingfire`` adds the peers; none is needed. A library
splits whole texts only. To stream with one, all but its last sentence are committed after every
character: *streamed* counts the texts that come out right so, and *changed* those whose committed
sentences the whole text would have contradicted. Our rules were written with this table at hand,
so it shows what they know; texts they have not seen come out a little worse.
"""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Bench

from qwen3tts_text.segmenter import Segmenter, SegmenterSettings

CASES = Path(__file__).resolve().parent.parent / "tests" / "text" / "hard_cases.txt"
SENTENCES = SegmenterSettings(
    sentence_min=(1,), clause_min=(10**6,), whole_max=(10**6,), hard_max=10**6
)

Splitter = Callable[[str, str], list[str]]


@dataclass(frozen=True)
class Case:
    """A text and its sentences."""

    language: str
    text: str
    sentences: list[str]


def load_cases() -> list[Case]:
    """Read the table."""
    cases, language = [], ""
    for line in CASES.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line.startswith("["):
            language = line.strip("[]")
        elif line and not line.startswith("#"):
            text = line.replace(" | ", " ").replace("|", "")
            cases.append(Case(language, text, [part.strip() for part in line.split("|")]))
    return cases


def ours(text: str, language: str, *, step: int = 10**9) -> list[str]:
    """Sentences only, so that libraries can be compared."""
    segmenter = Segmenter(SENTENCES, language=language or None)
    found = []
    for begin in range(0, len(text), step):
        found += segmenter.push(text[begin : begin + step])
    found += segmenter.end()
    return [text[segment.start : segment.end].strip() for segment in found]


def peers() -> dict[str, Splitter]:
    """The libraries that are here."""
    makers: dict[str, Callable[[Any], Splitter]] = {
        "pysbd": _pysbd,
        "sentencex": lambda m: lambda text, lang: list(m.segment(lang or "en", text)),
        "syntok": _syntok,
        "nupunkt": lambda m: lambda text, _: list(m.sent_tokenize(text)),
        "blingfire": lambda m: lambda text, _: m.text_to_sentences(text).split("\n"),
    }
    found: dict[str, Splitter] = {}
    for name, make in makers.items():
        try:
            found[name] = make(importlib.import_module(name))
        except ImportError:
            continue
    return found


def _pysbd(module: Any) -> Splitter:
    known = set(importlib.import_module("pysbd.languages").LANGUAGE_CODES)

    def split(text: str, language: str) -> list[str]:
        language = language if language in known else "en"
        return list(module.Segmenter(language=language, clean=False).segment(text))

    return split


def _syntok(_: Any) -> Splitter:
    segmenter = importlib.import_module("syntok.segmenter")

    def split(text: str, _: str) -> list[str]:
        return [
            "".join(token.spacing + token.value for token in sentence)
            for paragraph in segmenter.process(text)
            for sentence in paragraph
        ]

    return split


def clean(parts: list[str]) -> list[str]:
    """Without white space at the ends, nor empty parts."""
    return [part.strip() for part in parts if part.strip()]


def streamed(split: Splitter, case: Case) -> list[str]:
    """Sentences when all but the last is committed after every character."""
    done: list[str] = []
    begin = 0
    for end in range(1, len(case.text) + 1):
        parts = clean(split(case.text[begin:end], case.language))
        for part in parts[:-1]:
            done.append(part)
            begin = case.text.index(part, begin) + len(part)
    return done + clean(split(case.text[begin:], case.language))


def speed(seconds: float) -> tuple[float, float]:
    """Microseconds a character and a delta, for the table's texts as a model writes them."""
    chooser = random.Random(7)
    text = " ".join(case.text for case in load_cases() if case.language in ("en", "de", "fr"))
    deltas, at = [], 0
    while at < len(text):
        size = chooser.randint(1, 7)
        deltas.append(text[at : at + size])
        at += size
    rounds, spent = 0, 0.0
    best = float("inf")
    while spent < seconds or rounds < 3:
        segmenter = Segmenter()
        began = time.perf_counter()
        for delta in deltas:
            segmenter.push(delta)
        segmenter.end()
        took = time.perf_counter() - began
        best, spent, rounds = min(best, took), spent + took, rounds + 1
    return best / len(text) * 1e6, best / len(deltas) * 1e6


def main() -> None:
    """Measure and print."""
    bench = Bench("segmenter", "sentences found on a table of hard cases, and the time it takes")
    cases = load_cases()
    rows: list[list[Any]] = []
    right = 0
    everyone: dict[str, Splitter] = {"ours": lambda text, lang: ours(text, lang), **peers()}
    everyone["ours, language unknown"] = lambda text, _: ours(text, "")
    for name, split in everyone.items():
        whole = [clean(split(case.text, case.language)) for case in cases]
        if name.startswith("ours"):
            stream = [
                ours(case.text, "" if "unknown" in name else case.language, step=1)
                for case in cases
            ]
        else:
            stream = [streamed(split, case) for case in cases]
        good = [case.sentences for case in cases]
        score = sum(found == wanted for found, wanted in zip(whole, good, strict=True))
        rows.append(
            [
                name,
                score,
                sum(a == b for a, b in zip(stream, good, strict=True)),
                sum(a != b for a, b in zip(stream, whole, strict=True)),
            ]
        )
        if name == "ours":
            right = score
            for found, wanted in zip(whole, good, strict=True):
                if found != wanted:
                    bench.note(f"missed: {' | '.join(found)}")
    bench.table(f"of {len(cases)} texts", ["splitter", "right", "streamed right", "changed"], rows)
    per_char, per_delta = speed(1.0 if bench.quick else 10.0)
    bench.figure(cases=len(cases), right=right, us_per_char=per_char, us_per_delta=per_delta)


if __name__ == "__main__":
    main()
