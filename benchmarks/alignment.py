"""Word times found while sound is made, against sound whose word times are known.

The sound is the embedded engine's, which tells exactly when each word begins: texts in several
languages, voices and rates. The aligner's constants were fitted to other texts, but to the same
synthesizer. Sound is pushed in chunks of four frames, as a model's would be; the aligner knows the
text and the language, and what it heard of the same voice before.

- *start*: how far off the begin of a word is, in ms: median and the 90th and 95th percentile.
- *within*: words whose times lie within the precision that was stated with them, per cent.
- *told*: delay of a word's report after its end, in ms of sound made: a listener is behind by the
  playout lead, so up to that it costs nothing.
- *evenly*: the same text spread over the whole sound by its characters, once all is known.
- *without syllables*, *without pauses*, *first clauses*: what is lost without each, or without
  having heard the voice before.

A synthesizer speaks more evenly than a model that was trained on people. What comes of this with
the published checkpoints is to be measured with their weights; the talker's attention too.
"""

# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import Bench
from numpy.typing import NDArray

from qwen3tts_engine.alignment import AlignedWord
from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.speech_rhythm import FLOOR_DB, Pause, Pauses, SpeechRates, Syllables
from qwen3tts_text.word_units import SpokenWords
from qwen3tts_wire.heard import Word

CHUNK = 4 * 1920
MS = 1000 / SAMPLE_RATE
TEXTS = {
    "en": (
        "Hello and welcome. How may I direct your call?",
        "The museum opens at nine, and the last guided tour starts at a quarter to five.",
        "If you have already paid this invoice, please ignore the reminder we sent you last week.",
        "My colleague will visit you on Friday. He brings the new router, a cable, and a manual.",
        "Nothing in the contract says that you have to return the old equipment before you move.",
        "Room 214 is on the second floor; take the stairs on your left and follow the blue signs.",
    ),
    "de": (
        "Willkommen zurück. Womit darf ich Ihnen heute behilflich sein?",
        "Der Techniker kommt am Dienstag zwischen acht und zwölf, bitte seien Sie zu Hause.",
        "Ihr Guthaben reicht noch für ungefähr drei Wochen. Möchten Sie es jetzt aufladen?",
        "Die Ausstellung zeigt Bilder aus dem neunzehnten Jahrhundert und ist bis Herbst geöffnet.",
    ),
    "fr": (
        "Bienvenue dans notre service. Que puis-je faire pour vous aujourd'hui?",
        "Le technicien passera mercredi matin, entre huit heures et midi, à votre adresse.",
        "Votre colis attend au bureau de poste. Vous pouvez le retirer avec une pièce d'identité.",
        "Les billets achetés en ligne restent valables pendant toute la durée de l'exposition.",
    ),
    "es": (
        "Bienvenido de nuevo. ¿Con quién desea hablar?",
        "El técnico pasará el miércoles por la mañana, entre las ocho y las doce.",
        "Su paquete está en la oficina de correos. Puede recogerlo con su documento de identidad.",
        "Las entradas compradas en línea son válidas durante toda la exposición.",
    ),
    "it": (
        "Bentornato nel nostro servizio. Con chi desidera parlare?",
        "Il tecnico passerà mercoledì mattina, tra le otto e mezzogiorno, al suo indirizzo.",
        "I biglietti acquistati in rete restano validi per tutta la durata della mostra.",
    ),
    "pt": (
        "Bem-vindo de volta. Com quem gostaria de falar?",
        "O técnico passará na quarta-feira de manhã, entre as oito e o meio-dia.",
        "Os bilhetes comprados pela internet são válidos durante toda a exposição.",
    ),
    "ru": (
        "Рады слышать вас снова. С кем вас соединить?",
        "Мастер придёт в среду утром, между восемью и двенадцатью часами.",
        "Билеты, купленные на сайте, действуют до конца выставки.",
    ),
    "cmn": (
        "欢迎您再次来电。请问您想找哪一位？",
        "维修人员星期三上午会到您家，请您在家等候。",
        "网上购买的门票在展览期间一直有效。",
    ),
    "ko": (
        "다시 전화해 주셔서 감사합니다. 누구를 찾으십니까?",
        "기사님이 수요일 오전에 방문할 예정이니, 집에 계셔 주세요.",
    ),
    "nl": (
        "Welkom terug. Met wie wilt u spreken?",
        "De monteur komt woensdagochtend langs, tussen acht en twaalf uur.",
    ),
    "pl": (
        "Witamy ponownie. Z kim chce pan rozmawiać?",
        "Technik przyjdzie w środę rano, między ósmą a dwunastą.",
    ),
}
VOICES = (("f3", 1.0), ("m3", 0.8), ("f2", 1.3))
"""Variant of the voice, and its speed."""


@dataclass(frozen=True)
class Clause:
    """Some sound, and when its words begin."""

    language: str
    voice: str
    text: str
    sound: NDArray[np.int16]
    begins: dict[int, int]
    """First sample of the word that begins at a code point."""


@dataclass
class Errors:
    """Findings of some clauses."""

    off_ms: list[float] = field(default_factory=list)
    within: list[bool] = field(default_factory=list)
    told_ms: list[float] = field(default_factory=list)

    def add(self, clause: Clause, word: AlignedWord, given_out: int) -> None:
        """A word, told when so many samples had been given out."""
        self.told_ms.append((given_out - word.end) * MS)
        if word.char_start in clause.begins:
            off_ms = abs(word.start - clause.begins[word.char_start]) * MS
            self.off_ms.append(off_ms)
            self.within.append(off_ms <= word.precision_ms)

    def row(self) -> list[float]:
        """Words, median, p90, p95, within, told."""
        off = np.percentile(self.off_ms, (50, 90, 95))
        within = 100 * sum(self.within) / len(self.within)
        return [len(self.off_ms), *off, within, float(np.median(self.told_ms))]


class NoPauses(Pauses):
    """Hears none."""

    def take(self, level_db: float) -> Pause | None:
        """Count a block as voiced, whatever it is."""
        self.blocks += 1
        self.voiced += 1
        if level_db > FLOOR_DB:
            self.last_voice = self.blocks
        return None


class NoSyllables(Syllables):
    """Hears none."""

    def take(self, level_db: float, voiced: float) -> None:
        """Nothing."""


async def speak(texts: Mapping[str, Sequence[str]]) -> list[Clause]:
    """All texts in all voices."""
    engine = EmbeddedEngine(EmbeddedSettings(workers=2))
    await engine.start()
    clauses = []
    try:
        for language, lines in texts.items():
            default = next(v.id for v in engine.voices() if v.language.startswith(language))
            for variant, speed in VOICES:
                for text in lines:
                    voice = f"{default.partition('+')[0]}+{variant}"
                    request = SynthesisRequest(text, voice=voice, speed=speed)
                    chunks = [chunk async for chunk in engine.synthesize(request)]
                    clauses.append(_clause(language, f"{voice} {speed}", text, chunks))
    finally:
        await engine.close()
    return clauses


def _clause(language: str, voice: str, text: str, chunks: Sequence[Any]) -> Clause:
    sound = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2")
    words: list[Word] = [word for chunk in chunks for word in chunk.words]
    return Clause(language, voice, text, sound, {word.char_start: word.start for word in words})


def align(clause: Clause, aligner: PauseAligner) -> Iterator[tuple[AlignedWord, int]]:
    """Yield words, and the samples given out when each was told."""
    for at in range(0, len(clause.sound), CHUNK):
        part = clause.sound[at : at + CHUNK]
        for word in aligner.push(part):
            yield word, at + len(part)
    for word in aligner.end():
        yield word, len(clause.sound)


def run(
    clauses: Sequence[Clause],
    *,
    known: bool = True,
    pauses: type[Pauses] = Pauses,
    syllables: type[Syllables] = Syllables,
) -> tuple[Errors, dict[str, Errors]]:
    """Errors in all, and by language."""
    rates = SpeechRates() if known else None
    total, parts = Errors(), dict[str, Errors]()
    for clause in clauses:
        aligner = PauseAligner(
            clause.text, ended=True, language=clause.language, rates=rates, voice=clause.voice
        )
        aligner.pauses, aligner.syllables = pauses(), syllables()
        part = parts.setdefault(clause.language, Errors())
        for word, given_out in align(clause, aligner):
            total.add(clause, word, given_out)
            part.add(clause, word, given_out)
    return total, parts


def evenly(clauses: Sequence[Clause]) -> Errors:
    """By characters over the whole sound."""
    errors = Errors()
    for clause in clauses:
        length, chars = len(clause.sound), len(clause.text)
        for word in SpokenWords(clause.text, ended=True).words:
            start, end = (at * length // chars for at in (word.start, word.end))
            errors.add(clause, AlignedWord(start, end, word.start, word.end, 0.0), length)
    return errors


def cpu_ms(clauses: Sequence[Clause]) -> float:
    """Milliseconds of one core for each second of sound."""
    began = time.process_time()
    for clause in clauses:
        for _ in align(clause, PauseAligner(clause.text, ended=True, language=clause.language)):
            pass
    taken = time.process_time() - began
    return taken * 1000 / (sum(len(clause.sound) for clause in clauses) / SAMPLE_RATE)


def main() -> None:
    """Measure all, print the tables and the figures."""
    bench = Bench("alignment", "word times against sound whose word times are known")
    texts = {name: lines[:2] for name, lines in TEXTS.items()} if bench.quick else TEXTS
    clauses = asyncio.run(speak(texts))
    total, parts = run(clauses)
    columns = ["words", "start ms", "p90", "p95", "within %", "told ms"]
    rows = [[name, *part.row()] for name, part in parts.items()]
    bench.table("by language", ["language", *columns], rows)
    ways = [
        ("ours", total),
        ("first clauses", run(clauses, known=False)[0]),
        ("without syllables", run(clauses, syllables=NoSyllables)[0]),
        ("without pauses", run(clauses, pauses=NoPauses)[0]),
        ("evenly, when all is known", evenly(clauses)),
    ]
    bench.table("beside less", ["way", *columns], [[name, *way.row()] for name, way in ways])
    _, median, p90, p95, within, told = total.row()
    bench.figure(
        words=len(total.off_ms),
        median_ms=round(median, 1),
        p90_ms=round(p90, 1),
        p95_ms=round(p95, 1),
        within_stated_pct=round(within, 1),
        told_after_ms=round(told),
        cpu_ms_per_s=round(cpu_ms(clauses), 2),
    )


if __name__ == "__main__":
    main()
