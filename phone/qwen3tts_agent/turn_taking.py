"""Whose turn it is, and what is to be done about it (pure: events and ``now`` in, acts out).

waiting ── the caller said something ──► replying ── all was heard ──► waiting
replying ── the caller cuts in ──► stopped ── words ──► replying (to them; the rest is kept)
                                           └─ noise ──► replying (it goes on where it was)
waiting ── nobody says anything ──► replying (asks again), at last leaving
leaving ── all was heard ──► over
"""

from __future__ import annotations

from enum import Enum, auto

from qwen3tts_agent.settings import AgentSettings


class Phase(Enum):
    """Where the conversation is."""

    WAITING = auto()
    """It is the caller's turn."""
    REPLYING = auto()
    """The model thinks, or we speak."""
    INTERRUPTED = auto()
    """The caller has cut in, and what they say is not known yet."""
    LEAVING = auto()
    """The last words are said; then we hang up."""
    LEAVING_INTERRUPTED = auto()
    """The caller has cut in on these."""
    OVER = auto()


class TurnEvent(Enum):
    """What the conversation is told."""

    WORDS = auto()
    """The caller's turn is over, and there are words or keys."""
    NOISE = auto()
    """It is over, and there was nothing in it."""
    NOT_UNDERSTOOD = auto()
    """It is over, and the recogniser failed."""
    BARGE_IN = auto()
    """What we say was interrupted."""
    REPLIED = auto()
    """The reply is over: heard to its end, or failed."""
    QUIET = auto()
    """Nobody has said anything for a while."""
    QUIET_LAST = auto()
    """Once more, and the caller was asked often enough."""
    GIVEN_UP = auto()
    """Nothing came of an interruption."""
    FAREWELL = auto()
    """The model wants to end the call, its words are said already, or will be."""
    TIME_UP = auto()
    """The call has lasted as long as it may."""
    OVERTIME = auto()
    """It has lasted longer, and somebody still speaks."""


class TurnAction(Enum):
    """What is to be done, in the order given."""

    ASK = auto()
    """Have the model reply to all that the caller has said."""
    DROP = auto()
    """Give the reply under way up, and keep what was not heard of it."""
    RESUME = auto()
    """Say what was interrupted from where it was."""
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
    # We are speaking, so the caller hears that somebody is there; to say it again is up to them.
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
    # Who speaks to an agent that takes leave wants something; the time that is over comes again.
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
"""A call whose time is up ends so much later whatever is being said."""
_INTERRUPTED = (Phase.INTERRUPTED, Phase.LEAVING_INTERRUPTED)


class TurnTaking:
    """One call's turns. Times are seconds of the call's clock."""

    def __init__(self, settings: AgentSettings, now: float, ends_at: float | None = None) -> None:
        self.phase = Phase.WAITING
        self.caller_speaks = False
        """Whether the caller is speaking now."""
        self.asked_again = 0
        """How often the caller was asked again since they last said something."""
        self.why = ""
        """Why we end the call, once we do."""
        self._settings = settings
        self._ends_at = now + 60 * settings.max_minutes if ends_at is None else ends_at
        self._time_is_up = False
        self._since = now
        """Since when nobody has said anything, or the reply is stopped."""
        self._paused = False

    def begin(self, now: float) -> None:
        """We speak first."""
        self.phase = Phase.REPLYING
        self._since = now

    def voice(self, speaks: bool, now: float) -> None:
        """The caller begins or ends to speak."""
        self.caller_speaks = speaks
        self._since = now

    def hold(self, held: bool, now: float) -> None:
        """The far end puts us on hold, or takes us back: nobody is asked meanwhile."""
        if held != self._paused:
            self._paused, self._since = held, now

    def take(self, happened: TurnEvent, now: float, why: str = "") -> tuple[TurnAction, ...]:
        """What is to be done now that this happened; nothing once it is over.

        Raises:
            ValueError: it cannot happen in this phase.
        """
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
        """When to call `tick` next; infinity once it is over."""
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
        """Whether a caller who says nothing is asked, or left, in time."""
        settings = self._settings
        more = (
            settings.reprompt and self.asked_again < settings.reprompts
        ) or settings.hang_up_when_quiet
        waits = self.phase is Phase.WAITING and not self.caller_speaks and not self._paused
        return bool(settings.quiet_s and more and waits)

    def tick(self, now: float) -> tuple[TurnAction, ...]:
        """What is to be done because time has passed."""
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
