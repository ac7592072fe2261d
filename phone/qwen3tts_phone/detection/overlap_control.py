"""Overlaps on a call: the core's actions done in the step of the event loop that decides them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.gain import DUCK_DB
from qwen3tts_phone.detection.answers import expects_answer
from qwen3tts_phone.detection.backchannels import has_word_list, judge_words
from qwen3tts_phone.detection.endpointing import Endpointer
from qwen3tts_phone.detection.events import (
    CallerCutIn,
    ListenEvent,
    OverlapBegan,
    OverlapEnded,
    Turn,
    TurnEnded,
    Verdict,
    WhyEnded,
)
from qwen3tts_phone.detection.overlap import (
    Actions,
    Overlap,
    OverlapAction,
    OverlapLimits,
    OverlapState,
)
from qwen3tts_phone.detection.recogniser import Transcript
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.turn_transcriber import TurnTranscriber
from qwen3tts_speech.line import Saying
from qwen3tts_speech.utterance import Utterance

Judged = Callable[[Turn], Turn | None]
"""Judges a turn that has its text: returns it as delivered; None = it is no turn."""

MIN_CONFIDENCE = 0.3
"""Confidence below which a recogniser's backchannel may be another word."""
MIN_LANGUAGE_WORDS = 3
"""Words of a turn from which its language is that of the caller: a recogniser guesses that of a
single one.
"""


class OverlappedCall(Protocol):
    """Part of a `Call` that overlaps use."""

    @property
    def clock(self) -> Clock: ...

    @property
    def speaking(self) -> bool: ...

    def saying(self) -> Saying | None: ...

    def duck(self, db: float) -> object: ...

    def unduck(self) -> None: ...


@dataclass(slots=True, eq=False)
class _EndedTurn:
    """Turn that has ended without a verdict."""

    speech_s: float
    ended_at: float
    verdict: Verdict | None = None
    stopped: list[Utterance] = field(default_factory=list)


class OverlapControl:
    """Control of one call's overlaps, for `SpeechDetection`.

    Args:
        call: is ducked.
        settings: ``overlap``, ``language``, and limits.
        turns: the open turn.
        hearer: recognises it.
        interrupt: silences the agent, and returns what it has stopped; True: the turn that
            interrupts has ended already.
        tell: takes the events.
        echo: returns whether the agent's echo is on the line.
    """

    def __init__(
        self,
        call: OverlappedCall,
        settings: ListenSettings,
        turns: Endpointer,
        hearer: TurnTranscriber,
        interrupt: Callable[[bool], list[Utterance]],
        tell: Callable[[ListenEvent], None],
        echo: Callable[[], bool] = lambda: False,
    ) -> None:
        self._call = call
        self._settings = settings
        self._turns = turns
        self._hearer = hearer
        self._interrupt = interrupt
        self._tell = tell
        self._echo = echo
        self._overlap = Overlap(
            OverlapLimits(settings.notice_ms / 1000, settings.min_speech_ms / 1000)
        )
        self._in_turn = False
        """True if the last overlap belongs to the open turn."""
        self._over: _EndedTurn | None = None
        """Turn of the open overlap, where it has ended."""
        self._judged_at = 0.0
        """Time of the last verdict."""
        self._guessed_at: float | None = None
        """Last voiced sample before a guess that was asked for here."""
        self._language = ""
        """Language of the caller's last turn."""
        self.more_follows: Callable[[], bool] = lambda: False
        """Returns whether the agent has more to say than is queued."""
        hearer.on_words = self._words

    # --- from the call

    def cut_in(self, event: CallerCutIn) -> bool:
        """Take a barge-in; False: the agent must be silenced immediately."""
        if self._overlap.open:
            if self._over is not None:  # the turn before, and the caller speaks again
                self._do(self._overlap.interrupt("goes_on"))
            return True
        if not self._judges or (self._in_turn and self._overlap.verdict == "interruption"):
            return False
        evidence_s = self._settings.barge_in_ms / 1000
        began_at, before_s = event.began_at, 0.0
        if self._in_turn:  # one more in the same turn
            began_at = event.at - evidence_s
            before_s = max(0.0, self._turns.speech_s - evidence_s)
        self._in_turn = True
        answers, echo = self._answers(), self._echo()
        self._do(self._overlap.begin(began_at, before_s, answers=answers, echo=echo))
        self._tell(OverlapBegan(event.at, began_at))
        return True

    def progress(self) -> None:
        """Take the time: after each frame, and while none comes."""
        if self._overlap.open:
            turn = self._over or self._turns
            now, agent = self._call.clock.now(), self._call.speaking
            self._do(self._overlap.progress(now, turn.speech_s, turn.ended_at, agent=agent))
        if self._guessed_at is not None and self._turns.ended_at > self._guessed_at:
            self._guessed_at = None  # the caller goes on after the verdict
            self._hearer.resume()

    def resumed(self) -> None:
        """Note that the caller goes on after a pause: with a silent agent it is a turn as any."""
        if not self._overlap.open and not self._call.speaking:
            self._in_turn = False

    def interrupt(self, rule: str) -> None:
        """Interrupt the agent for another reason than words, if an overlap is open."""
        self._do(self._overlap.interrupt(rule))

    def turn_ended(self, ended: TurnEnded) -> tuple[TurnEnded, Judged | None]:
        """Return the end of a turn as reported, and what judges it once it has its text."""
        overlap = self._overlap
        mine, self._in_turn, self._guessed_at = self._in_turn, False, None
        if not mine:
            return ended, None
        if overlap.open:
            if ended.why in ("pause", "detector"):
                self._over = _EndedTurn(ended.speech_s, ended.ended_at)
                return replace(ended, cut_in=False), partial(self._pending, self._over)
            self._do(overlap.close("too_short" if ended.why == "noise" else "closed"))
            ended = replace(ended, cut_in=False)
            return ended, None
        went_on = ended.ended_at > self._judged_at and not self._call.speaking
        if overlap.dropped and not went_on:
            told = replace(ended, why="noise", cut_in=False, rule=str(overlap.verdict))
            return told, None if ended.why == "noise" else self._dropped
        why: WhyEnded = (
            "pause" if overlap.rule == "stop_word" and ended.why == "noise" else ended.why
        )
        cut_in = overlap.verdict == "interruption" and overlap.rule != "agent_ended"
        return replace(ended, why=why, cut_in=cut_in), None

    def note_language(self, turn: Turn) -> None:
        if turn.language and len(turn.text.split()) >= MIN_LANGUAGE_WORDS:
            self._language = turn.language

    def close(self) -> None:
        self._do(self._overlap.close("closed"))

    # --- inside

    @property
    def _judges(self) -> bool:
        """Whether words can tell; else the caller's voice silences the agent."""
        settings = self._settings
        if settings.overlap != "duck" or not self._hearer.recognises:
            return False
        language = settings.language or self._language
        return not language or has_word_list(language)

    def _answers(self) -> bool:
        """Whether what is being said asks for an answer, or is all that the agent has to say."""
        saying = self._call.saying()
        if saying is not None and saying.complete and self.more_follows():
            saying = replace(saying, complete=False)
        return expects_answer(saying)

    def _words(self, heard: Transcript, paused: bool) -> None:
        judging = self._overlap.state is OverlapState.JUDGING
        if self._overlap.open and self._over is None and judging == paused:
            self._take(heard)

    def _take(self, heard: Transcript, *, final: bool = False) -> None:
        unsure = heard.confidence is not None and heard.confidence < MIN_CONFIDENCE
        languages, answers = self._languages(heard.language), self._answers()
        self._do(
            self._overlap.words(heard.text, languages, answers=answers, unsure=unsure, final=final)
        )

    def _languages(self, heard: str) -> list[str]:
        if self._settings.language:
            return [self._settings.language]
        return [each for each in (self._language, heard) if each]

    def _pending(self, ended: _EndedTurn, turn: Turn) -> Turn | None:
        """Judge a turn that has ended before its words were known."""
        if ended is self._over:
            if turn.error is not None:
                self._do(self._overlap.interrupt("recogniser"))
            elif turn.keys:
                self._do(self._overlap.interrupt("key"))
            else:
                self._take(Transcript(turn.text, turn.language, turn.confidence), final=True)
        if ended.verdict != "interruption":
            return replace(turn, why="noise", text="")
        return replace(turn, barge_in=bool(ended.stopped), interrupted=tuple(ended.stopped))

    def _dropped(self, turn: Turn) -> Turn | None:
        """Judge a turn that was none by its guess: its final words may be others."""
        if turn.keys:
            return turn
        verdict, _ = judge_words(turn.text, self._languages(turn.language))
        if turn.error is not None or verdict != "interruption":
            return None
        now = self._call.clock.now()
        stopped = tuple(self._interrupt(True)) if self._call.speaking else ()
        self._tell(OverlapEnded(now, turn.began_at, "interruption", "final_words"))
        self._tell(CallerCutIn(now, turn.began_at))
        return replace(turn, barge_in=bool(stopped), interrupted=stopped)

    def _do(self, actions: Actions) -> None:
        for action in actions:
            match action:
                case OverlapAction.DUCK:
                    self._call.duck(DUCK_DB)
                case OverlapAction.GUESS:
                    if self._over is None:
                        self._guessed_at = self._turns.ended_at
                        self._hearer.pause(self._guessed_at)
                case OverlapAction.DISCARD:
                    self._guessed_at = None
                    self._hearer.resume()
                case OverlapAction.UNDUCK:
                    self._call.unduck()
                    self._turns.agent_goes_on()
                case OverlapAction.INTERRUPT:
                    stopped = self._interrupt(self._over is not None)
                    if self._over is not None:
                        self._over.stopped += stopped
                    self._call.unduck()
                case OverlapAction.BACKCHANNEL:
                    pass  # `OverlapEnded` is all that a backchannel leads to
        overlap = self._overlap
        if actions and not overlap.open and overlap.verdict is not None:
            now = self._judged_at = self._call.clock.now()
            if self._over is not None:
                self._over.verdict, self._over = overlap.verdict, None
            self._tell(OverlapEnded(now, overlap.began_at, overlap.verdict, overlap.rule))
            if overlap.verdict == "interruption" and overlap.rule != "agent_ended":
                self._tell(CallerCutIn(now, overlap.began_at))
