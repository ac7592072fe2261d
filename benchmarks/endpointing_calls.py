"""Turns of callers for endpointing.py: recordings of people, joined with pauses that are drawn.

Ten kinds of turns, in five languages, one speaker each:

1. *complete*: one prompt of three words or more, as it was read. 2. *short*: a short answer.
3. *cut*: a prompt with a pause between two words, at a dip of 40 to 150 ms. 4. *phrase*: a prompt
whose reader paused within a sentence, with a longer pause. 5. *lead*: a prompt that a value
follows, a pause, the value. 6. *conjunction*: a prompt, "and", a pause, a prompt. 7. *digits*: nine
or ten, in groups of two to four; the agent has asked for a number and said its length, or not.
8. *spelled*: letters. 9. *email*: letters, "at", letters, "dot", letters. 10. *list*: days.

Pauses are lognormal: median 450 ms times the caller's own factor (lognormal, sigma 0.33), sigma
0.5, above 200 ms; together sigma is 0.6, as in the spike that the aim was taken from. Between
groups of digits, letters and parts of an address the median is 400 ms and sigma 0.35 (with the
factor 0.48). These lengths are assumed: the prompts' own pauses were edited short.

A prompt whose name has an odd checksum judges, one with an even checksum may be looked at when a
rule is chosen (``--fit``).
"""

from __future__ import annotations

import hashlib
import json
import math
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from line_sounds import at_level, on_the_line, voiced_from_to
from numpy.typing import NDArray
from recorded_prompts import RATE_HZ, sounds

Sound = NDArray[np.float64]
LANGUAGES: Final = ("en", "es", "fr", "it", "ru")
PROMPTS: Final = json.loads((Path(__file__).parent / "endpointing_prompts.json").read_text("utf-8"))
KINDS: Final = (
    "complete",
    "short",
    "cut",
    "phrase",
    "lead",
    "conjunction",
    "digits",
    "spelled",
    "email",
    "list",
)
MIX: Final = {"complete": 3, "short": 2}
"""Turns of a kind in a call; 1 of the others."""
LEVEL_DBFS, FLOOR_DBFS = -22.0, -65.0
BEFORE_S, AFTER_S = 0.4, 2.6
HESITATION: Final = (0.45, 0.5)
GROUP: Final = (0.40, 0.35)
CALLER_SIGMA: Final = 0.33
LEAST_S: Final = 0.2
DIP_S: Final = (0.04, 0.15)
DIP_DB: Final = 22.0
WORD_GAP_S: Final = 0.12
"""A dip so near to a word's end is one between words."""
DIGITS: Final = {
    "en": "zero one two three four five six seven eight nine",
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf",
    "it": "zero uno due tre quattro cinque sei sette otto nove",
    "ru": "ноль один два три четыре пять шесть семь восемь девять",
}
DAYS: Final = {
    "en": "Sunday Monday Tuesday Wednesday Thursday Friday Saturday",
    "es": "domingo lunes martes miércoles jueves viernes sábado",
    "fr": "dimanche lundi mardi mercredi jeudi vendredi samedi",
    "it": "domenica lunedì martedì mercoledì giovedì venerdì sabato",
    "ru": "воскресенье понедельник вторник среда четверг пятница суббота",
}
SAID: Final = {
    "en": {"and": "and", "at": "at", "dot": "dot"},
    "es": {"and": "y", "at": "arroba", "dot": "punto"},
    "fr": {"and": "et", "at": "arobase", "dot": "point"},
    "it": {"and": "e", "at": "chiocciola", "dot": "punto"},
    "ru": {"and": "и", "at": "собака", "dot": "точка"},
}
ASKED: Final = {
    "en": {
        "digits": "What is your {}-digit customer number?",
        "number": "What is your telephone number?",
        "spelled": "Could you spell that?",
        "email": "And your email address?",
    },
    "es": {
        "digits": "¿Cuál es su número de cliente de {} dígitos?",
        "number": "¿Cuál es su número de teléfono?",
        "spelled": "¿Puede deletrearlo?",
        "email": "¿Y su correo electrónico?",
    },
    "fr": {
        "digits": "Quel est votre numéro de client à {} chiffres ?",
        "number": "Quel est votre numéro de téléphone ?",
        "spelled": "Pouvez-vous l'épeler ?",
        "email": "Et votre adresse e-mail ?",
    },
    "it": {
        "digits": "Qual è il suo numero cliente di {} cifre?",
        "number": "Qual è il suo numero di telefono?",
        "spelled": "Può fare lo spelling?",
        "email": "E il suo indirizzo email?",
    },
    "ru": {
        "digits": "Назовите номер клиента, {} цифр.",
        "number": "Назовите ваш номер телефона.",
        "spelled": "Скажите по буквам, пожалуйста.",
        "email": "И адрес электронной почты?",
    },
}
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


@dataclass
class Part:
    """Sound with its words; ``ends``: when each is over, seconds from its beginning."""

    sound: Sound
    words: list[str]
    ends: list[float]


@dataclass
class SpokenTurn:
    """One turn of a caller, as it comes over the line."""

    kind: str
    language: str
    asked: str
    """The agent's words before it."""
    samples: NDArray[np.int16]
    """8 kHz, shape [n]."""
    words: list[tuple[str, float]]
    """With their ends, seconds."""
    pauses: list[tuple[float, float]]
    """From where to where nothing is said that was planned so, seconds."""
    ends_s: float
    """End of the last sound."""
    call: int = 0

    def text_until(self, at_s: float) -> str:
        """Words that are over then."""
        return " ".join(word for word, end in self.words if end <= at_s + WORD_GAP_S)


@dataclass
class TurnMaker:
    """Joins parts and pauses."""

    chance: np.random.Generator
    factor: float
    """The caller's own, of the pauses' median."""
    sound: list[Sound] = field(default_factory=list)
    words: list[tuple[str, float]] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rest(BEFORE_S)

    @property
    def at_s(self) -> float:
        """Length so far."""
        return sum(map(len, self.sound)) / RATE_HZ

    def rest(self, seconds: float) -> None:
        """Silence."""
        self.sound.append(np.zeros(round(seconds * RATE_HZ)))

    def pause(self, median_s: float, sigma: float) -> None:
        """A pause that is drawn."""
        seconds = 0.0
        while seconds <= LEAST_S:
            seconds = median_s * self.factor * math.exp(sigma * self.chance.normal())
        self.pauses.append((self.at_s, self.at_s + seconds))
        self.rest(seconds)

    def say(self, part: Part) -> None:
        """A part, at the level of all."""
        begun = self.at_s
        self.words += [(w, begun + e) for w, e in zip(part.words, part.ends, strict=True)]
        self.sound.append(at_level(part.sound, LEVEL_DBFS))

    def turn(self, kind: str, language: str, asked: str) -> SpokenTurn:
        """What was joined."""
        ends_s = self.at_s
        self.rest(AFTER_S)
        whole = np.concatenate(self.sound)
        whole += self.chance.normal(size=len(whole)) * 10 ** (FLOOR_DBFS / 20)
        return SpokenTurn(
            kind, language, asked, on_the_line(whole), self.words, self.pauses, ends_s
        )


def judges(name: str) -> bool:
    """Whether a prompt is one of those that judge."""
    return hashlib.sha256(name.encode()).digest()[-1] % 2 == 1


@cache
def read(language: str, name: str) -> Sound:
    """A recording without silence around it, full scale 1."""
    with wave.open(str(sounds(language) / f"{name}.wav")) as file:
        assert file.getframerate() == RATE_HZ
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768.0
    first, last = voiced_from_to(sound, 25.0)
    return sound[max(0, first - 80) : last + 80]


@cache
def _lead_in_s(language: str, name: str) -> float:
    with wave.open(str(sounds(language) / f"{name}.wav")) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768.0
    return max(0, voiced_from_to(sound, 25.0)[0] - 80) / RATE_HZ


def prompt(language: str, name: str) -> Part:
    """A complete prompt with its words' times."""
    text, ends = PROMPTS["complete"][language][name]
    begun = _lead_in_s(language, name)
    return Part(read(language, name), text.split(), [float(end) - begun for end in ends.split()])


def word(language: str, name: str, text: str) -> Part:
    """A recording of a word or a few."""
    sound = read(language, name)
    words = text.split()
    return Part(
        sound, words, [len(sound) / RATE_HZ * (n + 1) / len(words) for n in range(len(words))]
    )


def gaps(part: Part) -> Iterator[tuple[int, int]]:
    """Silences within a prompt, samples; not those behind a sentence, and not within a word."""
    step = RATE_HZ // 100
    count = len(part.sound) // step
    power = (part.sound[: count * step].reshape(count, step) ** 2).mean(axis=1)
    level = 10 * np.log10(power + 1e-12)
    quiet = np.concatenate(([False], level < np.percentile(level, 95) - DIP_DB, [False]))
    edges = np.flatnonzero(quiet[1:] != quiet[:-1])
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        before = first * step / RATE_HZ
        if not 0.25 * len(part.sound) < first * step < 0.85 * len(part.sound):
            continue
        near = min(range(len(part.ends)), key=lambda n: abs(part.ends[n] - before))
        if abs(part.ends[near] - before) > WORD_GAP_S or part.words[near][-1] in ".!?":
            continue
        yield int(first * step), int(last * step)


def split(part: Part, place: tuple[int, int]) -> tuple[Part, Part]:
    """A prompt before and behind a silence."""
    first, last = place
    begun = last / RATE_HZ
    said = sum(end <= first / RATE_HZ + WORD_GAP_S for end in part.ends)
    rest = [max(0.05, end - begun) for end in part.ends[said:]]
    return (
        Part(part.sound[:first], part.words[:said], part.ends[:said]),
        Part(part.sound[last:], part.words[said:], rest),
    )


class Caller:
    """Turns of one caller."""

    def __init__(self, language: str, judging: bool, chance: np.random.Generator) -> None:
        self.language = language
        self._chance = chance
        self._factor = math.exp(CALLER_SIGMA * chance.normal())
        self._names = {
            kind: [name for name in PROMPTS[kind][language] if judges(name) is judging]
            for kind in ("complete", "lead", "short")
        }

    def turn(self, kind: str) -> SpokenTurn:
        """One turn of a kind."""
        maker = TurnMaker(self._chance, self._factor)
        asked = getattr(self, f"_{kind}")(maker) or ""
        return maker.turn(kind, self.language, asked)

    def _pick(self, kind: str) -> str:
        return str(self._chance.choice(self._names[kind]))

    def _complete(self, maker: TurnMaker) -> None:
        maker.say(prompt(self.language, self._pick("complete")))

    def _short(self, maker: TurnMaker) -> None:
        name = self._pick("short")
        maker.say(word(self.language, name, PROMPTS["short"][self.language][name]))

    def _cut(self, maker: TurnMaker, least: float = DIP_S[0], most: float = DIP_S[1]) -> None:
        for _ in range(200):
            part = prompt(self.language, self._pick("complete"))
            places = [
                place for place in gaps(part) if least <= (place[1] - place[0]) / RATE_HZ < most
            ]
            if places:
                before, behind = split(part, places[int(self._chance.integers(len(places)))])
                maker.say(before)
                maker.pause(*HESITATION)
                maker.say(behind)
                return
        self._complete(maker)

    def _phrase(self, maker: TurnMaker) -> None:
        self._cut(maker, DIP_S[1], 2.0)

    def _lead(self, maker: TurnMaker) -> None:
        name = self._pick("lead")
        maker.say(word(self.language, name, PROMPTS["lead"][self.language][name]))
        maker.pause(*HESITATION)
        self._digit(maker)
        if self._chance.random() < 0.5:
            maker.rest(0.08)
            self._digit(maker)

    def _conjunction(self, maker: TurnMaker) -> None:
        maker.say(prompt(self.language, self._pick("complete")))
        maker.rest(0.12)
        maker.say(word(self.language, "vm-and", SAID[self.language]["and"]))
        maker.pause(*HESITATION)
        maker.say(prompt(self.language, self._pick("complete")))

    def _digit(self, maker: TurnMaker) -> None:
        digit = int(self._chance.integers(10))
        maker.say(word(self.language, f"digits/{digit}", DIGITS[self.language].split()[digit]))

    def _digits(self, maker: TurnMaker) -> str:
        groups = [(3, 3, 3), (3, 3, 4), (2, 2, 2, 2, 2), (4, 3, 2)][int(self._chance.integers(4))]
        for number, size in enumerate(groups):
            if number:
                maker.pause(*GROUP)
            for place in range(size):
                if place:
                    maker.rest(float(self._chance.uniform(0.03, 0.1)))
                self._digit(maker)
        known = self._chance.random() < 0.5
        asked = ASKED[self.language]["digits" if known else "number"]
        return asked.format(sum(groups))

    def _letters(self, maker: TurnMaker, count: int) -> None:
        for number in range(count):
            if number:
                maker.rest(float(self._chance.uniform(0.05, 0.15)))
            letter = LETTERS[int(self._chance.integers(26))]
            maker.say(word(self.language, f"letters/{letter}", letter))

    def _spelled(self, maker: TurnMaker) -> str:
        for number, size in enumerate((2, 3, 2)[: int(self._chance.integers(2, 4))]):
            if number:
                maker.pause(*GROUP)
            self._letters(maker, size)
        return ASKED[self.language]["spelled"]

    def _email(self, maker: TurnMaker) -> str:
        said = SAID[self.language]
        self._letters(maker, 3)
        if self._chance.random() < 0.5:
            maker.pause(*GROUP)
        else:
            maker.rest(0.1)
        maker.say(word(self.language, "letters/at", said["at"]))
        maker.pause(*GROUP)
        self._letters(maker, 3)
        if self._chance.random() < 0.5:
            maker.pause(*GROUP)
        else:
            maker.rest(0.1)
        maker.say(word(self.language, "letters/dot", said["dot"]))
        maker.rest(0.1)
        self._letters(maker, 2)
        return ASKED[self.language]["email"]

    def _list(self, maker: TurnMaker) -> None:
        days = DAYS[self.language].split()
        chosen = sorted(self._chance.choice(7, 3, replace=False))
        for number, day in enumerate(chosen):
            if number:
                maker.pause(*HESITATION)
            if number == 2:
                maker.say(word(self.language, "vm-and", SAID[self.language]["and"]))
                maker.rest(0.08)
            maker.say(word(self.language, f"digits/day-{day}", days[int(day)]))


def calls(count: int, judging: bool, languages: Sequence[str] = LANGUAGES) -> list[SpokenTurn]:
    """Turns of so many calls, in the order of each call."""
    chance = np.random.default_rng(18 if judging else 81)
    turns = []
    for number in range(count):
        caller = Caller(languages[number % len(languages)], judging, chance)
        kinds = [kind for kind in KINDS for _ in range(MIX.get(kind, 1))]
        for kind in chance.permutation(kinds):
            turn = caller.turn(str(kind))
            turn.call = number
            turns.append(turn)
    assert all(a.call <= b.call for a, b in pairwise(turns))
    return turns
