"""Detection of text that Whisper hallucinates. Pure.

Trained on subtitles, Whisper may write *Thanks for watching!* for silence or noise, or repeat
itself without end; on the telephone that would be answered as the caller's words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]

SILENT_DBFS = -65.0
"""A turn no 20 ms of which are louder is silence: a quiet line's noise, idle code words."""
DOUBTS = ((0.6, -1.0), (0.7, -0.5), (0.9, -0.3))
"""A piece is taken for one without speech when the model's probability of that is above the first
of a pair, and the mean log probability of its words below the second. The first pair is that of
openai/whisper's ``transcribe``; the others are for what comes over a telephone: whisper-tiny.en
made *you* of nearly all noises (white, pink, street, hum, music, keys, coughs, clicks) with 0.75 to
0.95 and -1.45 to -0.37. Of its answers to speech 20 to 3 dB above noise only wrong ones lie in
there."""
FASTEST_CHARS_S = 45.0
"""No caller says more letters in a second: fast readers reach 25."""
SPARE_CHARS = 40
"""Added to that, for the words of a turn that was cut short."""

TWICE_CHARS_S = 18.0
"""A text that is one phrase again and again is believed up to this many letters a second: people
who repeat a phrase say it at an ordinary rate, of 12 to 16."""
TWICE_LETTERS = 12
"""Letters of a phrase from which that is asked: *no, no* may be quick."""
WIDE_LETTERS = 2.5
"""Letters of an alphabet for one Han, kana or Hangul sign."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Output of the model for one piece of audio."""

    text: str = field(repr=False)
    language: str = ""
    logprob: float = 0.0
    """Mean log probability of its tokens."""
    no_speech: float = 0.0
    """Probability of no speech, from the model before its first token; 0 to 1."""

    @property
    def confidence(self) -> float:
        return math.exp(min(0.0, self.logprob))


def silent(samples: Samples, rate_hz: int, threshold_dbfs: float = SILENT_DBFS) -> bool:
    frame = max(1, rate_hz // 50)
    whole = samples[: len(samples) // frame * frame].reshape(-1, frame).astype(np.float64)
    if not len(whole):
        return True
    loudest = float(np.sqrt((whole**2).mean(axis=1).max()))
    return bool(loudest < 32768.0 * 10.0 ** (threshold_dbfs / 20.0))


def is_plausible(answer: Decoding, seconds: float) -> bool:
    """Return whether a decoding can be the speech of audio of this length."""
    text = answer.text.strip()
    no_speech = any(
        answer.no_speech > likely and answer.logprob < doubtful for likely, doubtful in DOUBTS
    )
    too_much = len(text) > SPARE_CHARS + FASTEST_CHARS_S * seconds
    return not (no_speech or too_much) and any(char.isalnum() for char in text)


def token_limit(seconds: float) -> int:
    """Return how many tokens this much audio can need.

    Fast speech has 5 words a second; scripts that Whisper's tokenizer knows badly need up to 3
    tokens a letter.
    """
    return 32 + math.ceil(20 * seconds)


def repeated_tail(tokens: Sequence[int]) -> int:
    """Return how many tokens at the end only repeat what precedes them.

    A phrase of one or two tokens eight times in a row, a longer one (up to 32) four times: callers
    repeat figures or *no*.
    """
    for period in range(1, 33):
        times = 8 if period <= 2 else 4
        span = period * times
        if len(tokens) < span:
            continue
        tail = tokens[-span:]
        if all(tail[i] == tail[i - period] for i in range(period, span)):
            return span - period
    return 0


def without_repetition(tokens: Sequence[int]) -> list[int]:
    """Return the tokens up to a repeating loop, with one round of it."""
    for end in range(1, len(tokens) + 1):
        if again := repeated_tail(tokens[:end]):
            return list(tokens[: end - again])
    return list(tokens)


def without_repeated_words(text: str, seconds: float) -> str:
    """Return the first round of a text that repeats one phrase faster than it can be said.

    whisper-base wrote a prompt of 4 s twice, at 24 letters a second; whisper-tiny.en a sentence of
    2 s three and a half times.
    """
    places = [place for place, char in enumerate(text) if char.isalnum()]
    letters = [text[place].lower() for place in places]
    size = sum(WIDE_LETTERS if char >= "\u2e80" else 1.0 for char in letters)
    if size <= TWICE_CHARS_S * seconds:
        return text
    for period in range(1, len(letters) // 2 + 1):
        if size * period < TWICE_LETTERS * len(letters):
            continue
        if letters[period:] == letters[:-period]:
            return text[: places[period]].rstrip()
    return text


_NAMES = (
    "af afrikaans,am amharic,ar arabic,as assamese,az azerbaijani,ba bashkir,be belarusian,"
    "bg bulgarian,bn bengali,bo tibetan,br breton,bs bosnian,ca catalan,ca valencian,cs czech,"
    "cy welsh,da danish,de german,el greek,en english,es spanish,es castilian,et estonian,"
    "eu basque,fa persian,fi finnish,fo faroese,fr french,gl galician,gu gujarati,ha hausa,"
    "haw hawaiian,he hebrew,hi hindi,hr croatian,ht haitian,hu hungarian,hy armenian,"
    "id indonesian,is icelandic,it italian,ja japanese,jw javanese,ka georgian,kk kazakh,km khmer,"
    "kn kannada,ko korean,la latin,lb luxembourgish,ln lingala,lo lao,lt lithuanian,lv latvian,"
    "mg malagasy,mi maori,mk macedonian,ml malayalam,mn mongolian,mr marathi,ms malay,mt maltese,"
    "my burmese,my myanmar,ne nepali,nl dutch,nl flemish,nn nynorsk,no norwegian,oc occitan,"
    "pa punjabi,pl polish,ps pashto,pt portuguese,ro romanian,ro moldovan,ru russian,sa sanskrit,"
    "sd sindhi,si sinhala,sk slovak,sl slovenian,sn shona,so somali,sq albanian,sr serbian,"
    "su sundanese,sv swedish,sw swahili,ta tamil,te telugu,tg tajik,th thai,tk turkmen,tl tagalog,"
    "tr turkish,tt tatar,uk ukrainian,ur urdu,uz uzbek,vi vietnamese,yi yiddish,yo yoruba,"
    "yue cantonese,zh chinese,zh mandarin"
)
BY_NAME: dict[str, str] = {
    name: code for code, _, name in (each.partition(" ") for each in _NAMES.split(","))
}
"""English names, in lower case, to codes."""
CODES = frozenset(BY_NAME.values())


class UnknownLanguage(ValueError):
    """A language unknown to Whisper; the text is its name as given."""


def code_of(language: str) -> str:
    """Return a language's code by its English name, code or BCP 47 tag; raises UnknownLanguage."""
    wanted = language.strip().lower()
    code = BY_NAME.get(wanted, wanted.partition("-")[0].partition("_")[0])
    if code not in CODES:
        raise UnknownLanguage(language)
    return code


def codes_of(languages: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct codes of languages; raises UnknownLanguage."""
    return tuple(dict.fromkeys(map(code_of, languages)))
