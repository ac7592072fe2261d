"""Detection of Whisper's hallucinations. Pure.

Trained on subtitles, it writes *Thanks for watching!* for silence or noise, or repeats without
end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]

SILENT_DBFS = -65.0
"""Silence: no 20 ms are louder."""
DOUBTS = ((0.6, -1.0), (0.7, -0.5), (0.9, -0.3))
"""No speech: probability above the first and mean log probability below the second of a pair.

The first is openai/whisper's ``transcribe``; the others are for telephones: whisper-tiny.en made
*you* of nearly all noises (white, pink, street, hum, music, keys, coughs, clicks) with 0.75 to
0.95 and -1.45 to -0.37. Of its answers to speech 20 to 3 dB above noise only wrong ones lie
there.
"""
FASTEST_CHARS_S = 45.0
"""Fastest speech, letters a second: fast readers reach 25."""
SPARE_CHARS = 40
"""Allowance for a turn cut short."""

TWICE_CHARS_S = 18.0
"""The same for a repeated phrase, which people say at an ordinary 12 to 16."""
TWICE_LETTERS = 12
"""Least letters of such a phrase: *no, no* may be quick."""
WIDE_LETTERS = 2.5
"""Letters for one Han, kana or Hangul sign."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Model output of one piece."""

    text: str = field(repr=False)
    language: str = ""
    logprob: float = 0.0
    """Mean log probability of tokens."""
    no_speech: float = 0.0
    """Probability of no speech, 0 to 1."""

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
    """Return whether a decoding fits audio of this length."""
    text = answer.text.strip()
    no_speech = any(
        answer.no_speech > likely and answer.logprob < doubtful for likely, doubtful in DOUBTS
    )
    too_much = len(text) > SPARE_CHARS + FASTEST_CHARS_S * seconds
    return not (no_speech or too_much) and any(char.isalnum() for char in text)


def token_limit(seconds: float) -> int:
    """Return the most tokens of this much audio.

    Fast speech has 5 words a second; scripts that the tokenizer knows badly need up to 3 tokens
    a letter.
    """
    return 32 + math.ceil(20 * seconds)


def usual_tokens(seconds: float) -> int:
    """Return the tokens that usual speech stays below: in English it has 4 a second.

    A text that repeats without end is stopped here, which saves two thirds of its time.
    """
    return 8 + math.ceil(8 * seconds)


def repeated_tail(tokens: Sequence[int]) -> int:
    """Return the number of tokens at the end that only repeat.

    One or two tokens eight times, a longer phrase (up to 32) four: callers repeat figures or
    *no*.
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
    """Return the tokens with one round of a final loop."""
    for end in range(1, len(tokens) + 1):
        if again := repeated_tail(tokens[:end]):
            return list(tokens[: end - again])
    return list(tokens)


def without_repeated_words(text: str, seconds: float) -> str:
    """Return one round of a phrase repeated too fast to be said.

    whisper-base wrote a prompt of 4 s twice, at 24 letters a second; whisper-tiny.en a sentence
    of 2 s three and a half times.
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
"""English names, lower case, to codes."""
CODES = frozenset(BY_NAME.values())


class UnknownLanguage(ValueError):
    """A language unknown to Whisper, by its given name."""


def code_of(language: str) -> str:
    """Return the code of a name, code or BCP 47 tag; raises UnknownLanguage."""
    wanted = language.strip().lower()
    code = BY_NAME.get(wanted, wanted.partition("-")[0].partition("_")[0])
    if code not in CODES:
        raise UnknownLanguage(language)
    return code


def codes_of(languages: Sequence[str]) -> tuple[str, ...]:
    """Return distinct codes; raises UnknownLanguage."""
    return tuple(dict.fromkeys(map(code_of, languages)))
