"""Pause that ends a turn, by what is known when the caller has paused (pure).

    kind of the text's end (turn_text.reading) x melody of the last sound (prosody) -> `RULES`
    -> a turn detector's opinion -> the caller's own pauses and pace -> limits of the settings

Each choice has its rule's name, such as ``sentence:falling``, which is kept with the turn. Figures
that a measurement chose are those of benchmarks/endpointing.py.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from qwen3tts_phone.detection.endpointing import DETECTOR_ENDS
from qwen3tts_phone.detection.prosody import LastSound, Melody
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.turn_text.reading import TextEnd, asked_for, read_end
from qwen3tts_phone.detection.turn_text.words import TurnWords, turn_words

USUAL_PAUSE_MS: Final = 600
"""``pause_ms`` for which the table is written; others scale what is not the least pause."""
USUAL_LEAST_MS: Final = 250
"""Pause of what is complete: ``min_pause_ms``, and not scaled."""
LOW, HIGH = 0.1, 0.95
"""Probabilities of a detector that are an opinion: below the first, and from the second on."""
DETECTOR_WAITS_MS: Final = 1200
WORDS_MS: Final = 400
"""Silence in which words are waited for that may contradict a detector."""
MAX_EXPECTED_CHARS: Final = 1000
"""End of the agent's words that is kept."""
KEPT_PAUSES: Final = 12
"""The caller's latest pauses within turns that count."""
LEAST_PAUSES: Final = 2
"""Of one pause nothing follows."""
OWN_FACTOR: Final = 1.15
"""A pause is waited for this much longer than the caller's own..."""
OWN_MOST_MS: Final = 1000
"""...but not longer than this."""
SLOW_RATE: Final = 0.65
"""Share of a language's usual speaking rate below which a caller is slow."""
SLOW_FACTOR: Final = 1.25
LONG_TURN_S: Final = 8.0
LONG_FACTOR: Final = 1.15
MIN_RATE_S: Final = 1.0
"""Least speech that has a rate."""


class PauseRow(NamedTuple):
    """Pauses of a rule in ms, by the melody of the last sound."""

    falling: int
    unclear: int
    level: int

    def of(self, melody: Melody) -> int:
        if melody is Melody.FALLING:
            return self.falling
        return self.level if melody is Melody.LEVEL else self.unclear


RULES: Final = {
    TextEnd.ANSWER: PauseRow(250, 250, 250),
    TextEnd.CLOSED: PauseRow(250, 350, 600),
    TextEnd.PLAIN: PauseRow(250, 400, 700),
    TextEnd.QUESTION: PauseRow(250, 400, 600),
    TextEnd.NUMBER: PauseRow(250, 400, 600),
    TextEnd.OPEN_WORD: PauseRow(600, 900, 1100),
    TextEnd.FILLER: PauseRow(1200, 1200, 1300),
    TextEnd.ITEM: PauseRow(350, 600, 900),
    TextEnd.LIST: PauseRow(900, 1200, 1400),
    TextEnd.LIST_COMPLETE: PauseRow(250, 250, 300),
    TextEnd.DIGITS: PauseRow(1400, 1400, 1400),
    TextEnd.DIGITS_LONG: PauseRow(500, 600, 700),
    TextEnd.DIGITS_COMPLETE: PauseRow(250, 250, 250),
    TextEnd.SPELLING: PauseRow(1050, 1050, 1050),
    TextEnd.EMAIL: PauseRow(1300, 1300, 1300),
    TextEnd.EMAIL_COMPLETE: PauseRow(250, 250, 300),
    TextEnd.CONSENT: PauseRow(700, 800, 900),
}
"""Pauses by the kind of the text's end."""
SOUND_RULE: Final = PauseRow(450, 600, 900)
"""Pauses without a text, or of a language without a table."""
DECIDABLE: Final = frozenset(
    {TextEnd.CLOSED, TextEnd.PLAIN, TextEnd.QUESTION, TextEnd.NUMBER, TextEnd.DIGITS_LONG}
)
"""Kinds of which a turn detector may have another opinion; of the others the text is surer."""


@dataclass(frozen=True, slots=True)
class PauseCues:
    """State of a paused turn."""

    text: str | None = field(default=None, repr=False)
    """Text of the turn so far; None = it is not there, or there is no recogniser."""
    language: str = ""
    """Code of its language, which that of the settings overrides; empty = unknown."""
    words_expected: bool = False
    """True if a recogniser works on the text."""
    speech_s: float = 0.0
    """Voiced seconds of the turn."""
    sound: LastSound | None = None
    probability: float | None = None
    """Of a turn detector's that the turn is over; None = it has said nothing."""
    thresholds: tuple[float, float] = (LOW, HIGH)
    """Below the first the detector's opinion is that the caller goes on, from the second on that
    the turn is over.
    """


@dataclass(frozen=True, slots=True)
class ChosenPause:
    """Pause of an open turn."""

    pause_s: float
    rule: str = ""
    """Name of the rule; empty = the settings' pause."""


class AdaptivePause:
    """Chooser of the pauses of one call."""

    def __init__(self, settings: ListenSettings) -> None:
        self._settings = settings
        self._scale = settings.pause_ms / USUAL_PAUSE_MS
        self._said = ""
        self._own: deque[float] = deque(maxlen=KEPT_PAUSES)

    def expect(self, said: str) -> None:
        """Note the agent's last words, which may ask for a number, a spelling, an address."""
        self._said = said[-MAX_EXPECTED_CHARS:]

    def note_pause(self, pause_s: float) -> None:
        """Note a pause after which the caller went on with the same turn."""
        self._own.append(pause_s)

    @property
    def default(self) -> ChosenPause:
        return ChosenPause(self._settings.pause_ms / 1000)

    @property
    def least_ms(self) -> int:
        settings = self._settings
        return max(min(settings.min_pause_ms, settings.pause_ms), settings.notice_ms)

    def choose(self, cues: PauseCues) -> ChosenPause:
        words = turn_words(self._settings.language or cues.language, cues.text or "")
        melody = Melody.UNCLEAR if cues.sound is None else cues.sound.melody
        kind = None
        if cues.text is not None and words is not None:
            kind = read_end(cues.text, words, asked_for(self._said, words))
        row = SOUND_RULE if kind is None else RULES[kind]
        if kind is None or kind in DECIDABLE:
            opinion = self.by_detector(cues.probability, cues.thresholds)
            if opinion.rule:
                early = cues.text is None and cues.words_expected
                return self._before_words(opinion) if early else opinion
        name = "sound" if kind is None else kind.value
        chosen: float = row.of(melody)
        if len(set(row)) > 1:
            name = f"{name}:{melody.value}"
        if (kind is None or kind in DECIDABLE) and melody is not Melody.FALLING:
            chosen, name = self._slower(chosen, name, cues, words)
        pause = self._limited(chosen, name)
        if cues.words_expected and cues.text is None and pause.pause_s <= self.default.pause_s:
            return self.default
        return pause

    def by_detector(
        self, probability: float | None, thresholds: tuple[float, float]
    ) -> ChosenPause:
        """Return the pause by a detector's opinion alone; the settings' where it has none."""
        low, high = thresholds
        if probability is not None and probability >= high:
            return self._limited(USUAL_LEAST_MS, DETECTOR_ENDS)
        if probability is not None and probability < low:
            return self._limited(DETECTOR_WAITS_MS, "detector:wait")
        return self.default

    # --- inside

    def _before_words(self, opinion: ChosenPause) -> ChosenPause:
        """Return the pause by a detector whose opinion comes before the words."""
        least = min(WORDS_MS, self._settings.pause_ms) / 1000
        return ChosenPause(max(opinion.pause_s, least), opinion.rule)

    def _slower(
        self, chosen: float, name: str, cues: PauseCues, words: TurnWords | None
    ) -> tuple[float, str]:
        letters = sum(char.isalnum() for char in cues.text or "")
        rate = letters / cues.speech_s if cues.speech_s >= MIN_RATE_S else math.inf
        if words is not None and 0 < rate < SLOW_RATE * words.letters_a_second:
            chosen, name = chosen * SLOW_FACTOR, f"{name}:slow"
        if cues.speech_s >= LONG_TURN_S:
            chosen, name = chosen * LONG_FACTOR, f"{name}:long"
        if len(self._own) >= LEAST_PAUSES:
            pauses = sorted(self._own)
            usual = pauses[round(0.8 * (len(pauses) - 1))]
            own = min(OWN_MOST_MS, 1000 * usual * OWN_FACTOR)
            if own > chosen:
                return own, f"{name}:own_pauses"
        return chosen, name

    def _limited(self, pause_ms: float, rule: str) -> ChosenPause:
        settings, least = self._settings, self.least_ms
        if pause_ms > USUAL_LEAST_MS:
            pause_ms = max(USUAL_LEAST_MS, pause_ms * self._scale)
        else:
            pause_ms = least
        most = max(settings.pause_ms, settings.max_pause_ms)
        return ChosenPause(min(max(pause_ms, least), most) / 1000, rule)
