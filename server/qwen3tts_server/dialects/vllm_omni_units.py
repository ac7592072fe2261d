"""The text of one client of vLLM-Omni's WebSocket, in the pieces that are said one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

from qwen3tts_engine.base import ContextVoice
from qwen3tts_server.commands import Close
from qwen3tts_server.dialects.vllm_omni_messages import SessionConfig
from qwen3tts_server.dialects.vllm_omni_splitter import Splitter
from qwen3tts_text.surrogates import SurrogateJoiner


@dataclass(eq=False)
class Utterance:
    """The text up to an ``input.done``."""

    index: int
    config: SessionConfig
    splitter: Splitter
    joiner: SurrogateJoiner = field(default_factory=SurrogateJoiner)
    sentences: int = 0
    """Units begun; texts committed, where they are."""
    held: list[str] = field(default_factory=list)
    """Text of a growing unit that was not handed over yet."""
    chars: int = 0
    """Characters of a growing unit that have come."""
    voice: ContextVoice = field(default_factory=ContextVoice)
    """Of all its units."""
    over: bool = False
    """Whether its growing unit ended before its text did."""

    @property
    def grows(self) -> bool:
        """Whether it is one unit, which is said while its text comes."""
        return self.config.streaming_mode is not None


@dataclass(frozen=True, eq=False)
class Unit:
    """One piece of text to be said."""

    config: SessionConfig
    text: str
    utterance_index: int
    sentence_index: int
    grows: bool = False
    """Whether more of it comes, as More."""
    voice: ContextVoice = field(default_factory=ContextVoice)
    """Its utterance's."""

    @property
    def where(self) -> dict[str, int]:
        """The fields that name it in every message."""
        return {"utterance_index": self.utterance_index, "sentence_index": self.sentence_index}


@dataclass(frozen=True)
class Start:
    """Say this unit; tell ``audio``, then ``finished`` or ``failed``."""

    unit: Unit


@dataclass(frozen=True)
class Stop:
    """Say no more of it, at once."""

    unit: Unit


@dataclass(frozen=True)
class More:
    """More text of a growing unit."""

    unit: Unit
    text: str
    flush: bool = False
    """Say all of it so far, though a word or sentence is not complete."""
    final: bool = False
    """Nothing of it follows."""


Command = Start | More | Stop | Close


@dataclass(frozen=True)
class MoreText:
    """Text that came while something else was being said."""

    utterance: Utterance
    parts: list[str]


@dataclass(frozen=True)
class EndOfText:
    """The end of an utterance's text."""

    utterance: Utterance
    dropped: bool = False
    """Whether what was not committed is not to be said."""


@dataclass(frozen=True)
class Commit:
    """What has come of a growing unit is to be said now."""

    utterance: Utterance
    commit_id: str | None


@dataclass(frozen=True)
class Answer:
    """A message whose turn comes after what is being said."""

    text: str
