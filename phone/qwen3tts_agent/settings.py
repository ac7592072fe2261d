"""Settings of an agent on a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qwen3tts_agent.budget import RequestLimits
from qwen3tts_settings.constraints import bounded, check_fields, one_of
from qwen3tts_speech.link import VoiceOptions

HANDED_ON = "[The call has been transferred to another person, who hears you now.]"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Sentences of the agent's own, waits and bounds; an empty sentence is not spoken.

    Raises ValueError whose text begins with the name of the field.
    """

    # Positional arguments begin with the voice, as before these two were fields.
    system: str = field(default="", kw_only=True)
    """Instructions for the model."""
    greeting: str = field(default="", kw_only=True)
    """Spoken when the call is answered. Empty: the agent waits for the caller, or greets as
    ``greeting_prompt`` says.
    """
    voice: VoiceOptions | None = None
    """Voice for everything; None = as the call's settings say."""
    greeting_prompt: str = ""
    """Prompt when the call is answered, so that the model speaks first; unused where the agent has
    a greeting. Empty: it waits for the caller.
    """
    handed_on_prompt: str = HANDED_ON
    """Prompt when the call was transferred to another party, who hears it now, and nothing was left
    to say. Empty: it waits for that party.
    """
    filler: tuple[str, ...] = ()
    """Spoken in rotation while the model, or a tool, lets the caller wait: *One moment, please.*
    The server speaks them from memory where its starters have them (docs/starters.md).
    """
    filler_after_s: float = bounded(0.0, 60.0, default=1.5)
    """Silence before a filler."""
    apology: str = "I am sorry, something went wrong here. Could you say that again?"
    """Spoken when the model fails; the call goes on."""
    not_understood: str = "I am sorry, I did not catch that. Could you say it again?"
    """Spoken when the recogniser fails."""
    reprompt: str = "Are you still there?"
    """Spoken when the caller says nothing for ``quiet_s``, at most ``reprompts`` times in a row."""
    quiet_s: float = bounded(0.0, 86_400.0, default=10.0)
    """Silence of the caller before a reprompt; 0 = never."""
    reprompts: int = bounded(0, 100, default=2)
    hang_up_when_quiet: bool = False
    """End the call when the caller says nothing after the last ``reprompt`` either."""
    goodbye: str = ""
    """Spoken before the agent ends a call for silence or the time limit."""
    max_minutes: float = bounded(0.001, 1_440.0, default=60.0)
    """Time limit of a call, which ends after the reply that is under way."""
    retries: int = bounded(0, 10, default=1)
    """Retries of a request that failed before its first word, if the failure is retryable."""
    retry_wait_s: float = bounded(0.0, 60.0, default=0.4)
    hang_up_tool: bool = False
    """Offer the model the tool ``hang_up``; what it has written is heard before."""
    transfers: Mapping[str, str] = field(default_factory=dict)
    """Targets of the tool ``transfer``: names and addresses. The model sees the names alone, and
    can call no other number.
    """
    tool_timeout_s: float = bounded(0.001, 3_600.0, default=15.0)
    """Time limit of a tool that has none of its own."""
    max_tool_rounds: int = bounded(1, 100, default=8)
    """Rounds of tools in one turn; then the model must answer."""
    max_result_chars: int = bounded(100, 1_000_000, default=20_000)
    """Longest result of a tool; the rest is cut off, which the model is sent."""
    queue_chars: int = bounded(1, 1_000_000, default=2000)
    """Text read ahead of the voice; then the model waits (backpressure)."""
    history_chars: int = bounded(1_000, 10_000_000, default=200_000)
    """Longest prompt: the oldest turns are left out of a request that would be longer."""
    preemptive: str = one_of(("auto", "always", "off"), default="auto")
    """Prepare the reply to the words understood so far while the caller's pause lasts, and play it
    when the turn ends with them: ``auto`` where the model has no side effects (a chat endpoint, a
    source that is ``guessable``), ``always``, or ``off``. A reply that is dropped costs a request.
    """
    guess_speech_s: float = bounded(0.0, 60.0, default=0.5)
    """Shortest turn, from the first to the last voiced sample, that a reply is prepared to."""
    max_guesses: int = bounded(1, 100, default=3)
    """Most replies prepared in one turn, one in each of its pauses."""
    stopped_s: float = bounded(0.1, 600.0, default=30.0)
    """Wait of an interrupted reply for the turn that interrupted it; then it is given up."""
    requests_minute: int = bounded(0, 10**15, default=90)
    """Requests to the model per call in any 60 s; a person with tools needs fewer than 40. Beyond
    that the agent says ``too_many``, and answers when the minute allows it. 0 = no limit, as in
    the next seven.
    """
    requests_call: int = bounded(0, 10**15, default=5_000)
    """Requests per call; beyond that the agent says ``used_up`` and ends the call."""
    prompt_chars_minute: int = bounded(0, 10**15, default=4_000_000)
    """Characters of prompt (messages and tools) per call in any 60 s; not below ``history_chars``.
    """
    prompt_chars_call: int = bounded(0, 10**15, default=100_000_000)
    """Characters of prompt per call."""
    process_requests_minute: int = bounded(0, 10**15, default=3_000)
    """Requests of all calls of the process in any 60 s."""
    process_requests: int = bounded(0, 10**15, default=0)
    """Requests of all calls since the process started; beyond that every call ends. No limit by
    default: a service may run for months.
    """
    process_prompt_chars_minute: int = bounded(0, 10**15, default=100_000_000)
    process_prompt_chars: int = bounded(0, 10**15, default=0)
    too_many: str = "I need a moment before I can answer more. Please stay on the line."
    """Spoken once when the requests of a minute are used up."""
    used_up: str = "I am sorry, I cannot answer any more in this call. Thank you for calling."
    """Spoken when the requests of a call, or of the process, are used up; then the call ends."""
    log_words: bool = False
    """Write the texts into the conversation log, too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "transfers", dict(self.transfers))
        for name in (
            *("greeting_prompt", "handed_on_prompt", "apology", "not_understood"),
            *("reprompt", "goodbye", "too_many", "used_up"),
        ):
            text: object = getattr(self, name)
            if not isinstance(text, str):
                raise ValueError(f"{name} is a {type(text).__name__}, no text; empty = none")
        filler: object = self.filler
        if isinstance(filler, str):
            raise ValueError("filler is one string, and must be a tuple of sentences")
        object.__setattr__(self, "filler", tuple(each for each in self.filler if each.strip()))
        check_fields(self)
        for name in _PROMPT_CHARS:
            if 0 < getattr(self, name) < self.history_chars:
                raise ValueError(
                    f"{name}={getattr(self, name)} is below history_chars={self.history_chars}:"
                    " a long conversation could never be answered; raise it, or lower that"
                )
        for name, target in self.transfers.items():
            if not name.strip() or not target.strip():
                raise ValueError(f"transfers: {name!r} needs a name and an address")

    @property
    def call_limits(self) -> RequestLimits:
        return RequestLimits(
            self.requests_minute,
            self.requests_call,
            self.prompt_chars_minute,
            self.prompt_chars_call,
        )

    @property
    def process_limits(self) -> RequestLimits:
        """Limits of the requests of all calls of the process."""
        return RequestLimits(
            self.process_requests_minute,
            self.process_requests,
            self.process_prompt_chars_minute,
            self.process_prompt_chars,
        )


_PROMPT_CHARS = (
    "prompt_chars_minute",
    "prompt_chars_call",
    "process_prompt_chars_minute",
    "process_prompt_chars",
)
