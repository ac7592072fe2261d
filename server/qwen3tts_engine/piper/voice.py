"""A voice in Piper's format: text in, sound in exact chunks out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.piper.phonemes import Phonemizer, Sentence, unsayable
from qwen3tts_engine.piper.voice_files import SCALE_MAX, VoiceConfig, VoiceFiles, bad, read_config
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

if TYPE_CHECKING:
    from qwen3tts_engine.piper.network import VitsNetwork

FIRST_S = 0.12
"""Seconds of sound in the first chunk; each following one may be twice as long. With 0.08 a call
among eight ran dry once in two runs of benchmarks/piper_calls.py."""
MOST_S = 0.4
"""Seconds of sound in one chunk at most. Larger ones cost hardly less, and keep others waiting."""

Sound = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SpeechSettings:
    """Variation of one clause; None: the voice's own.

    Raises:
        BadRequest: out of range.
    """

    speaker: str | int | None = None
    """Name or number, of a voice with several."""
    speed: float = 1.0
    """Factor on the speaking rate."""
    length_scale: float | None = None
    """Factor on the duration of phonemes."""
    noise_scale: float | None = None
    """Variation of the sound."""
    noise_w: float | None = None
    """Variation of the durations."""
    seed: int | None = None
    """Start of the random numbers; None: another each time."""

    def __post_init__(self) -> None:
        for name, low in (
            ("speed", 0.1),
            ("length_scale", 0.1),
            ("noise_scale", 0.0),
            ("noise_w", 0.0),
        ):
            value = getattr(self, name)
            if value is None and name != "speed":
                continue
            if type(value) not in (int, float) or not low <= value <= SCALE_MAX:
                raise BadRequest(
                    f"{name}={value!r:.40} is out of range.",
                    remedy=f"Choose a number from {low:g} to {SCALE_MAX:g}.",
                )
        if self.seed is not None and (type(self.seed) is not int or self.seed < 0):
            raise BadRequest(
                f"seed={self.seed!r:.40} is no seed.", remedy="Choose a whole number from 0."
            )


@dataclass(frozen=True, slots=True)
class ClauseWord:
    """Word of the text and its place in the sound."""

    char_start: int
    char_end: int
    start: int
    """First sample, at the voice's rate from the clause's start."""
    end: int
    """First sample after it."""
    precision: str
    """``exact``; or ``estimated`` for words that are spoken as one (*for a*)."""


class PiperVoice:
    def __init__(self, config: VoiceConfig, network: VitsNetwork, phonemizer: Phonemizer) -> None:
        self._config = config
        self.network = network
        self.phonemizer = phonemizer
        self.sample_rate = config.sample_rate
        """Hertz."""
        self.language = config.language
        """BCP 47 tag."""
        self.speakers: Mapping[str, int] = dict(config.speakers)
        """Numbers of speakers by name; empty where there is one."""
        self.speaker_names = config.speaker_names
        self._reported: set[str] = set()

    @classmethod
    def load(cls, files: VoiceFiles, *, threads: int = 1) -> PiperVoice:
        config = read_config(files.config)
        try:
            from qwen3tts_engine.piper.network import VitsNetwork  # its libraries are an extra
        except ImportError as error:
            raise EngineUnavailable(
                f"{error.name or 'A library'} of the natural voice is not installed.",
                remedy="Install it: pip install 'mr_qwen3tts[voice]'",
            ) from error
        phonemizer = Phonemizer(config)
        network = VitsNetwork.load(files.onnx, threads)
        top, rows = max(max(ids) for ids in config.phoneme_ids.values()), network.seam.symbols
        if top >= rows:
            raise bad(f"phoneme_id_map goes up to {top}, the network has {rows} phonemes")
        if (config.speaker_count > 1) != network.seam.speakers:
            raise bad(f"num_speakers is {config.speaker_count}, which is not what the network has")
        return cls(config, network, phonemizer)

    def newly_unknown(self) -> list[str]:
        fresh = sorted(set(self.phonemizer.unknown) - self._reported)
        self._reported.update(fresh)
        return fresh

    def clause(self, text: str, settings: SpeechSettings | None = None) -> Clause:
        settings = settings or SpeechSettings()
        sentences = self.phonemizer.sentences(text)
        sayable = [one for one in sentences if any(end > first for first, end in one.runs)]
        if sentences and not sayable:
            raise unsayable(sorted(self.phonemizer.unknown))
        return Clause(self, sayable, settings, self._speaker(settings.speaker))

    def _speaker(self, wanted: str | int | None) -> int:
        count = self._config.speaker_count
        if wanted is None:
            return 0
        if isinstance(wanted, str) and wanted in self.speakers:
            return self.speakers[wanted]
        if str(wanted).isdecimal() and int(wanted) < count:
            return int(wanted)
        names = ", ".join(list(self.speakers)[:8])
        raise BadRequest(
            f"The voice has no speaker {wanted!r:.60}.",
            remedy=f"Choose one of {count}: {names}." if names else "Leave it out.",
        )


class Clause:
    def __init__(
        self,
        voice: PiperVoice,
        sentences: list[Sentence],
        settings: SpeechSettings,
        speaker: int,
    ) -> None:
        config = voice._config
        self._voice = voice
        self._waiting = sentences[::-1]
        self._speaker = speaker
        length = config.length_scale if settings.length_scale is None else settings.length_scale
        noise = config.noise_scale if settings.noise_scale is None else settings.noise_scale
        noise_w = config.noise_w if settings.noise_w is None else settings.noise_w
        self._scales = (noise, length / settings.speed, noise_w)
        self._random = np.random.default_rng(settings.seed)
        self._stream: Any = None
        self._given = 0
        self._seconds = FIRST_S
        self._unplaced: list[tuple[Sentence, NDArray[np.int64], int]] = []
        self._words: list[ClauseWord] = []
        self.samples = 0
        """Samples of the sentences begun, at the voice's rate."""
        if self._waiting:
            self._begin()

    @property
    def words(self) -> tuple[ClauseWord, ...]:
        hop = self._voice.network.hop
        for sentence, ends, base in self._unplaced:
            for word in self._voice.phonemizer.words(sentence):
                start = base + int(ends[word.first - 1]) * hop
                length = base + int(ends[word.end - 1]) * hop - start
                low, high = (start + round(length * share) for share in word.share)
                exact = word.share == (0.0, 1.0)
                self._words.append(
                    ClauseWord(
                        word.char_start,
                        word.char_end,
                        low,
                        high,
                        "exact" if exact else "estimated",
                    )
                )
        self._unplaced.clear()
        return tuple(self._words)

    @property
    def ended(self) -> bool:
        return self._given == self.samples and not self._waiting

    def next(self, seconds: float | None = None) -> Sound:
        if self._given == self.samples:
            if not self._waiting:
                return np.zeros(0, np.float32)
            self._begin()
        if seconds is None:
            seconds = self._seconds
            self._seconds = min(2 * seconds, MOST_S)
        hop = self._voice.network.hop
        frames = round(min(seconds, MOST_S) * self._voice.sample_rate / hop)
        sound: Sound = self._stream.next(max(1, frames))
        self._given += len(sound)
        return sound

    def _begin(self) -> None:
        sentence = self._waiting.pop()
        network = self._voice.network
        spoken = network.speak(sentence.ids, self._scales, self._speaker, self._random)
        self._stream = spoken
        self._unplaced.append((sentence, spoken.ends, self.samples))
        self.samples += int(spoken.ends[-1]) * network.hop
