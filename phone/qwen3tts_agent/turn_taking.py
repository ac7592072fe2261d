"""Turn-taking of caller and agent (pure: events and ``now`` in, actions out).

waiting ── words of the caller ──► replying ── all was heard ──► waiting
replying ── barge-in ──► interrupted ── words ──► replying (to them; the rest is kept)
                                     └─ noise ──► replying (resumed)
waiting ── silence ──► replying (reprompt), at last leaving
leaving ── all was heard ──► over
"""

from __future__ import annotations

from enum import Enum, auto

from qwen3tts_agent.settings import AgentSettings


class Phase(Enum):
    """Phase of the conversation."""

    WAITING = auto()
    """The caller's turn."""
    REPLYING = auto()
    """The model writes, or we speak."""
    INTERRUPTED = auto()
    """The caller has interrupted us; their text is not known yet."""
    LEAVING = auto()
    """The last words are spoken; then we hang up."""
    LEAVING_INTERRUPTED = auto()
    """The caller has interrupted these."""
    OVER = auto()


class TurnEvent(Enum):
    """Events of a conversation."""

    WORDS = auto()
    """End of a turn of the caller's with words or keys."""
    NOISE = auto()
    """End of one without."""
    NOT_UNDERSTOOD = auto()
    """End of one that the recogniser failed on."""
    BARGE_IN = auto()
    """Interruption of our speech."""
    REPLIED = auto()
    """End of the reply: heard to its end, or failed."""
    QUIET = auto()
    """Silence of both sides for ``quiet_s``."""
    QUIET_LAST = auto()
    """The same, after the last reprompt."""
    GIVEN_UP = auto()
    """No turn came of an interruption."""
    FAREWELL = auto()
    """The model ends the call with this reply."""
    TIME_UP = auto()
    """Time limit of the call."""
    OVERTIME = auto()
    """`OVERTIME_S` after that, while somebody still speaks."""


class TurnAction(Enum):
    """Actions, in the order given."""

    ASK = auto()
    """Have the model reply to all that the caller has said."""
    DROP = auto()
    """Give up the reply under way, and keep what was not heard of it."""
    RESUME = auto()
    """Resume an interrupted reply."""
    APOLOGISE = auto()
    """Say that the caller was not understood."""
    REPROMPT = auto()
    """Ask whether the caller is still there."""
    GOODBYE = auto()
    """Say the last words."""
    HANG_UP = auto()


_P, _H, _A = Phase, TurnEvent, TurnAction
_NOTHING: tuple[TurnAction, ...] = ()
TRANSITIONS: dict[tuple[Phase, TurnEvent], tuple[Phase, tuple[TurnAction, ...]]] = {
    (_P.WAITING, _H.WORDS): (_P.REPLYING, (_A.ASK,)),
    (_P.WAITING, _H.NOISE): (_P.WAITING, _NOTHING),
    (_P.WAITING, _H.NOT_UNDERSTOOD): (_P.REPLYING, (_A.APOLOGISE,)),
    (_P.WAITING, _H.BARGE_IN): (_P.WAITING, _NOTHING),
    (_P.WAITING, _H.REPLIED): (_P.WAITING, _NOTHING),
    (_P.WAITING, _H.QUIET): (_P.REPLYING, (_A.REPROMPT,)),
    (_P.WAITING, _H.QUIET_LAST): (_P.LEAVING, (_A.GOODBYE,)),
    (_P.WAITING, _H.GIVEN_UP): (_P.WAITING, _NOTHING),
    (_P.WAITING, _H.FAREWELL): (_P.LEAVING, (_A.GOODBYE,)),
    (_P.WAITING, _H.TIME_UP): (_P.LEAVING, (_A.GOODBYE,)),
    (_P.WAITING, _H.OVERTIME): (_P.OVER, (_A.HANG_UP,)),
    (_P.REPLYING, _H.WORDS): (_P.REPLYING, (_A.DROP, _A.ASK)),
    (_P.REPLYING, _H.NOISE): (_P.REPLYING, _NOTHING),
    # The caller hears us speak, and may say it again.
    (_P.REPLYING, _H.NOT_UNDERSTOOD): (_P.REPLYING, _NOTHING),
    (_P.REPLYING, _H.BARGE_IN): (_P.INTERRUPTED, _NOTHING),
    (_P.REPLYING, _H.REPLIED): (_P.WAITING, _NOTHING),
    (_P.REPLYING, _H.FAREWELL): (_P.LEAVING, _NOTHING),
    (_P.REPLYING, _H.TIME_UP): (_P.REPLYING, _NOTHING),
    (_P.REPLYING, _H.OVERTIME): (_P.OVER, (_A.DROP, _A.HANG_UP)),
    (_P.INTERRUPTED, _H.WORDS): (_P.REPLYING, (_A.DROP, _A.ASK)),
    (_P.INTERRUPTED, _H.NOISE): (_P.REPLYING, (_A.RESUME,)),
    (_P.INTERRUPTED, _H.NOT_UNDERSTOOD): (_P.REPLYING, (_A.DROP, _A.APOLOGISE)),
    (_P.INTERRUPTED, _H.BARGE_IN): (_P.INTERRUPTED, _NOTHING),
    (_P.INTERRUPTED, _H.REPLIED): (_P.WAITING, _NOTHING),
    (_P.INTERRUPTED, _H.GIVEN_UP): (_P.WAITING, (_A.DROP,)),
    (_P.INTERRUPTED, _H.FAREWELL): (_P.LEAVING_INTERRUPTED, _NOTHING),
    (_P.INTERRUPTED, _H.TIME_UP): (_P.INTERRUPTED, _NOTHING),
    (_P.INTERRUPTED, _H.OVERTIME): (_P.OVER, (_A.DROP, _A.HANG_UP)),
    # A caller who speaks during the farewell gets a reply; the time limit strikes again later.
    (_P.LEAVING, _H.WORDS): (_P.REPLYING, (_A.DROP, _A.ASK)),
    (_P.LEAVING, _H.NOISE): (_P.LEAVING, _NOTHING),
    (_P.LEAVING, _H.NOT_UNDERSTOOD): (_P.REPLYING, (_A.DROP, _A.APOLOGISE)),
    (_P.LEAVING, _H.BARGE_IN): (_P.LEAVING_INTERRUPTED, _NOTHING),
    (_P.LEAVING, _H.REPLIED): (_P.OVER, (_A.HANG_UP,)),
    (_P.LEAVING, _H.FAREWELL): (_P.LEAVING, _NOTHING),
    (_P.LEAVING, _H.TIME_UP): (_P.LEAVING, _NOTHING),
    (_P.LEAVING, _H.OVERTIME): (_P.OVER, (_A.DROP, _A.HANG_UP)),
    (_P.LEAVING_INTERRUPTED, _H.WORDS): (_P.REPLYING, (_A.DROP, _A.ASK)),
    (_P.LEAVING_INTERRUPTED, _H.NOISE): (_P.LEAVING, (_A.RESUME,)),
    (_P.LEAVING_INTERRUPTED, _H.NOT_UNDERSTOOD): (_P.REPLYING, (_A.DROP, _A.APOLOGISE)),
    (_P.LEAVING_INTERRUPTED, _H.BARGE_IN): (_P.LEAVING_INTERRUPTED, _NOTHING),
    (_P.LEAVING_INTERRUPTED, _H.REPLIED): (_P.OVER, (_A.HANG_UP,)),
    (_P.LEAVING_INTERRUPTED, _H.GIVEN_UP): (_P.OVER, (_A.DROP, _A.HANG_UP)),
    (_P.LEAVING_INTERRUPTED, _H.FAREWELL): (_P.LEAVING_INTERRUPTED, _NOTHING),
    (_P.LEAVING_INTERRUPTED, _H.TIME_UP): (_P.LEAVING_INTERRUPTED, _NOTHING),
    (_P.LEAVING_INTERRUPTED, _H.OVERTIME): (_P.OVER, (_A.DROP, _A.HANG_UP)),
}

OVERTIME_S = 60.0
"""Time from the limit to the end of the call, whatever is being said."""
_INTERRUPTED = (Phase.INTERRUPTED, Phase.LEAVING_INTERRUPTED)


class TurnTaking:
    """Turn-taking of one call; seconds of its clock."""

    def __init__(self, settings: AgentSettings, now: float, ends_at: float | None = None) -> None:
        self.phase = Phase.WAITING
        self.caller_speaks = False
        self.asked_again = 0
        """Reprompts since the caller last said something."""
        self.why = ""
        """Reason why we end the call; empty while we do not."""
        self._settings = settings
        self._ends_at = now + 60 * settings.max_minutes if ends_at is None else ends_at
        self._time_is_up = False
        self._since = now
        """Start of the present silence, or of the interruption."""
        self._paused = False

    def begin(self, now: float) -> None:
        self.phase = Phase.REPLYING
        self._since = now

    def voice(self, speaks: bool, now: float) -> None:
        self.caller_speaks = speaks
        self._since = now

    def hold(self, held: bool, now: float) -> None:
        if held != self._paused:
            self._paused, self._since = held, now

    @property
    def on_hold(self) -> bool:
        return self._paused

    def take(self, happened: TurnEvent, now: float, why: str = "") -> tuple[TurnAction, ...]:
        if self.phase is Phase.OVER:
            return ()
        move = TRANSITIONS.get((self.phase, happened))
        if move is None:
            raise ValueError(f"{happened.name} cannot happen while {self.phase.name}")
        before, (self.phase, acts) = self.phase, move
        if happened in (TurnEvent.WORDS, TurnEvent.NOT_UNDERSTOOD):
            self.asked_again = 0
            self.caller_speaks = False
        if happened is TurnEvent.QUIET:
            self.asked_again += 1
        if self.phase is not before or happened is not TurnEvent.BARGE_IN:
            self._since = now
        if why and self.phase in (Phase.LEAVING, Phase.LEAVING_INTERRUPTED, Phase.OVER):
            self.why = self.why or why
        elif self.phase is Phase.REPLYING:
            self.why = ""
        if self.phase is Phase.WAITING and self._time_is_up:
            acts += self.take(TurnEvent.TIME_UP, now, self._overtime)
        return acts

    @property
    def _overtime(self) -> str:
        return f"the call has lasted {self._settings.max_minutes:g} minutes"

    @property
    def next_at(self) -> float:
        if self.phase is Phase.OVER:
            return float("inf")
        times = [self._ends_at]
        if self.phase in _INTERRUPTED and not self.caller_speaks:
            times.append(self._since + self._settings.stopped_s)
        if self._asks:
            times.append(self._since + self._settings.quiet_s)
        return min(times)

    @property
    def _asks(self) -> bool:
        settings = self._settings
        more = (
            settings.reprompt and self.asked_again < settings.reprompts
        ) or settings.hang_up_when_quiet
        waits = self.phase is Phase.WAITING and not self.caller_speaks and not self._paused
        return bool(settings.quiet_s and more and waits)

    def tick(self, now: float) -> tuple[TurnAction, ...]:
        settings = self._settings
        acts: tuple[TurnAction, ...] = ()
        if self.phase is Phase.OVER:
            return acts
        if now >= self._ends_at:
            happened = TurnEvent.OVERTIME if self._time_is_up else TurnEvent.TIME_UP
            self._time_is_up = True
            self._ends_at += OVERTIME_S
            acts = self.take(happened, now, self._overtime)
        elif (
            self.phase in _INTERRUPTED
            and not self.caller_speaks
            and now >= self._since + settings.stopped_s
        ):
            acts = self.take(TurnEvent.GIVEN_UP, now, "the caller cut in and said nothing")
        elif self._asks and now >= self._since + settings.quiet_s:
            if settings.reprompt and self.asked_again < settings.reprompts:
                acts = self.take(TurnEvent.QUIET, now)
            else:
                acts = self.take(TurnEvent.QUIET_LAST, now, "the caller says nothing")
        return acts
