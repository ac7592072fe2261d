"""How an agent behaves on a call, beside what its model says: read once, checked once, frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from qwen3tts_speech.utterance import VoiceOptions


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Sentences of the agent's own, waits and bounds. An empty sentence is not said.

    Raises ValueError whose text begins with the name of the field.
    """

    voice: VoiceOptions | None = None
    """How everything is spoken; None = as the call's settings say."""
    greeting_prompt: str = ""
    """What the model is told when the call is answered, so that it speaks first; where the agent
    has a greeting of its own, that is said instead. Empty: it waits for the caller."""
    filler: tuple[str, ...] = ()
    """Said in turns while the model, or a tool, lets the caller wait: *One moment, please.* The
    server says them from memory where its starters have them (docs/starters.md)."""
    filler_after_s: float = 1.5
    """After so much silence."""
    apology: str = "I am sorry, something went wrong here. Could you say that again?"
    """Said when the model fails; the call goes on."""
    not_understood: str = "I am sorry, I did not catch that. Could you say it again?"
    """Said when the recogniser fails."""
    reprompt: str = "Are you still there?"
    """Said when the caller says nothing for ``quiet_s``, ``reprompts`` times at most in a row."""
    quiet_s: float = 10.0
    """How long a caller may say nothing; 0 = for ever."""
    reprompts: int = 2
    hang_up_when_quiet: bool = False
    """Whether the call is ended when the caller says nothing after the last ``reprompt`` either."""
    goodbye: str = ""
    """Said before the agent ends a call: a caller who says nothing, the time that is over."""
    max_minutes: float = 60.0
    """The call is ended then, after the reply that is under way."""
    retries: int = 1
    """How often a request that failed before its first word, and may succeed, is made again."""
    retry_wait_s: float = 0.4
    hang_up_tool: bool = False
    """Whether the model gets the tool ``hang_up``; what it has said is heard before."""
    transfers: Mapping[str, str] = field(default_factory=dict)
    """Where the model may hand callers on to by the tool ``transfer``: names and addresses. It sees
    the names alone, and can call no other number."""
    tool_timeout_s: float = 15.0
    """How long a tool may take that says nothing else."""
    max_tool_rounds: int = 8
    """How often in one turn the model may use tools; then it must answer."""
    max_result_chars: int = 20_000
    """What a tool gives beyond that is cut off, and the model is told so."""
    queue_chars: int = 2000
    """So much of a reply is read ahead of the voice; then the model waits."""
    history_chars: int = 200_000
    """The oldest turns are left out of a request that would be longer."""
    stopped_s: float = 30.0
    """So long a reply that was interrupted waits for the turn of who interrupted it; then it is
    given up."""
    log_words: bool = False
    """Whether the conversation log holds the words, too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "transfers", dict(self.transfers))
        for name in ("greeting_prompt", "apology", "not_understood", "reprompt", "goodbye"):
            text: object = getattr(self, name)
            if not isinstance(text, str):
                raise ValueError(f"{name} is a {type(text).__name__}, no text; empty = none")
        filler: object = self.filler
        if isinstance(filler, str):
            raise ValueError("filler is one string, and must be a tuple of sentences")
        object.__setattr__(self, "filler", tuple(each for each in self.filler if each.strip()))
        for name, least, most in (
            ("filler_after_s", 0.0, 60.0),
            ("quiet_s", 0.0, 86_400.0),
            ("max_minutes", 0.001, 1_440.0),
            ("retry_wait_s", 0.0, 60.0),
            ("tool_timeout_s", 0.001, 3_600.0),
            ("stopped_s", 0.1, 600.0),
            ("reprompts", 0, 100),
            ("retries", 0, 10),
            ("max_tool_rounds", 1, 100),
            ("max_result_chars", 100, 1_000_000),
            ("queue_chars", 1, 1_000_000),
            ("history_chars", 1_000, 10_000_000),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise ValueError(f"{name}={value} is not between {least:g} and {most:g}")
        for name, target in self.transfers.items():
            if not name.strip() or not target.strip():
                raise ValueError(f"transfers: {name!r} needs a name and an address")
