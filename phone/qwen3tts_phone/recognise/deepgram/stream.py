"""One call's turns on Deepgram's time axis (pure): events in, messages out.

Only the sound of turns is sent. Deepgram counts time by the samples that it was sent, so the turn
that results belong to follows from their times. ``Finalize`` is sent at each pause and at the end
of a turn: the words of a turn are complete when all of its speech has been fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from qwen3tts_phone.recognise.base import Samples, Transcript
from qwen3tts_phone.recognise.deepgram.messages import (
    CLOSE_STREAM,
    FINALIZE,
    KEEP_ALIVE,
    Results,
    read_message,
)
from qwen3tts_phone.recognise.joining import joined
from qwen3tts_phone.recognise.socket_protocol import (
    MOST_PENDING,
    MOST_TEXT,
    TRIES,
    Answer,
    Failed,
    Final,
    Outgoing,
    Partial,
    binary,
)
from qwen3tts_phone.recognise.turn_audio import TurnAudio

NEARLY_S = 0.1
"""Deepgram works in frames, so the last of them may be left out of its times."""


@dataclass(slots=True)
class _Turn:
    number: int
    tries: int = 0
    first: int = 0
    """Its first sample, among those sent on this connection."""
    speech: int = 0
    """Samples from its beginning to the last voiced one."""
    ended: Samples | None = field(default=None, repr=False)
    """All of its sound, once it is over."""
    paused: bool = False
    sent: int = 0
    """Its samples that were sent on this connection."""
    flushes: int = 0
    """``Finalize`` that were sent in it and not answered."""
    fixed: list[Transcript] = field(default_factory=list, repr=False)
    chars: int = 0
    """In these; beyond `MOST_TEXT` no more are kept."""
    fixed_to: float = -1.0
    """Up to where its words are fixed, seconds of the connection."""
    latest: Transcript | None = field(default=None, repr=False)
    """Of what follows, not fixed yet."""
    any: bool = False
    """Whether there have been results."""
    closing: bool = False
    """Whether a ``Finalize`` was sent after its end."""

    def begin(self, first: int) -> None:
        """It is sent, or sent again, from this sample of the connection on."""
        self.first, self.sent, self.flushes = first, 0, 0
        self.fixed, self.chars, self.fixed_to, self.latest = [], 0, -1.0, None
        self.any = self.closing = False

    def text(self) -> Transcript:
        """All words by now."""
        return joined([*self.fixed, *([self.latest] if self.latest is not None else [])])


class DeepgramStream:
    """The turns of one call; see the module and `CallStream`."""

    def __init__(self, rate_hz: int, *, longest_s: float = 300.0) -> None:
        """``rate_hz``: of the samples."""
        self.ready = False
        self._rate_hz = rate_hz
        self._audio = TurnAudio(rate_hz, longest_s=longest_s)
        self._count = 0
        self._total = 0
        """Samples sent on this connection."""
        self._turn: _Turn | None = None
        self._pending: dict[int, _Turn] = {}

    # --- the connection

    def greeted(self) -> tuple[Outgoing, list[int]]:
        """A connection is open: what it is sent of turns under way, and the turns given up."""
        self.ready, self._total = True, 0
        out: Outgoing = []
        given_up = []
        for turn in list(self._pending.values()):
            turn.tries += 1
            if turn.tries > TRIES:
                del self._pending[turn.number]
                given_up.append(turn.number)
                continue
            assert turn.ended is not None
            turn.begin(self._total)
            out += [*self._send(turn, turn.ended), *self._flush(turn)]
        if self._turn is not None:
            self._turn.begin(self._total)
            out += self._send(self._turn, self._audio.samples())
            if self._turn.paused:
                out += self._flush(self._turn)
        return out, given_up

    def lost(self) -> None:
        """The connection is gone."""
        self.ready = False

    def idle(self) -> Outgoing:
        """Nothing was sent for a while."""
        return [KEEP_ALIVE] if self.ready else []

    def leaving(self) -> Outgoing:
        """The call is over: the last message of a connection."""
        return [CLOSE_STREAM] if self.ready else []

    # --- the call

    def push(self, samples: Samples, at: float) -> Outgoing:
        """The caller's sound; see `Recognition.push`."""
        self._audio.push(samples, at)
        return self._send(self._turn, samples) if self.ready and self._turn is not None else []

    def begin_turn(self, at: float) -> tuple[Outgoing, int]:
        """A turn begins; what is sent, and its number. One that goes on is given up."""
        out = self.drop_turn()
        self._count += 1
        self._turn = _Turn(self._count)
        self._audio.begin(at)
        if self.ready:
            self._turn.begin(self._total)
            out += self._send(self._turn, self._audio.samples())
        return out, self._count

    def pause(self, at: float) -> Outgoing:
        """The caller is silent since ``at``."""
        turn = self._turn
        if turn is None or turn.paused:
            return []
        turn.paused, turn.speech = True, self._audio.before(at)
        return self._flush(turn) if self.ready else []

    def resume(self) -> Outgoing:
        """They speak on; what is fixed stays so."""
        if self._turn is not None:
            self._turn.paused = False
        return []

    def drop_turn(self) -> Outgoing:
        """It was a noise: its words are fixed now, so that none of them falls into the next."""
        turn, self._turn = self._turn, None
        self._audio.end()
        return self._flush(turn) if turn is not None and self.ready else []

    def end_turn(self, at: float) -> tuple[Outgoing, int | None, int | None]:
        """The turn is over; what is sent, its number, and that of an older one given up for it."""
        turn, self._turn = self._turn, None
        if turn is None:
            return [], None, None
        turn.speech = self._audio.before(at)
        turn.ended = self._audio.samples(until=at)
        self._audio.end(at)
        oldest = next(iter(self._pending)) if len(self._pending) >= MOST_PENDING else None
        if oldest is not None:
            self.give_up(oldest)
        turn.tries = 1 if self.ready else 0
        self._pending[turn.number] = turn
        flush = self.ready and not self._complete(turn)
        return self._flush(turn) if flush else [], turn.number, oldest

    def give_up(self, number: int) -> Outgoing:
        """Nobody waits for this turn any more."""
        self._pending.pop(number, None)
        return []

    def finished(self, number: int) -> Transcript | None:
        """The words of a turn that has ended, where all of them are fixed already."""
        turn = self._pending.get(number)
        if turn is None or not self._complete(turn):
            return None
        return self._pending.pop(number).text()

    def known(self, number: int) -> Transcript | None:
        """The words that there are of a turn that has ended; None = there were no results."""
        turn = self._pending.get(number)
        if turn is None or not turn.any:
            return None
        return self._pending.pop(number).text()

    def read(self, message: str | bytes) -> list[Answer]:
        """The meaning of a message for the turns of this call. Raises ProtocolError."""
        found = read_message(message)
        if isinstance(found, Failed):
            return [found]
        if found is None or not self.ready:
            return []
        answers: list[Answer] = []
        turn = self._turn_of(found)
        if turn is not None:
            self._note(turn, found)
            if turn is self._turn and turn.text().text:
                answers.append(Partial(turn.number, turn.text()))
        if found.fixed:
            for waiting in list(self._pending.values()):
                # Times only go on: what is fixed later says that all before is fixed, too.
                waiting.fixed_to = max(waiting.fixed_to, found.end_s)
                if (text := self.finished(waiting.number)) is not None:
                    answers.append(Final(waiting.number, text))
        return answers

    # --- inside

    def _send(self, turn: _Turn, samples: Samples) -> Outgoing:
        turn.sent += len(samples)
        self._total += len(samples)
        return binary(samples)

    def _flush(self, turn: _Turn) -> Outgoing:
        turn.flushes += 1
        turn.closing = turn.ended is not None
        return [FINALIZE]

    def _note(self, turn: _Turn, found: Results) -> None:
        turn.any = True
        if not found.fixed:
            turn.latest = found.transcript
            return
        turn.latest, turn.fixed_to = None, max(turn.fixed_to, found.end_s)
        turn.flushes -= found.flushed and turn.flushes > 0
        if found.transcript.text and turn.chars < MOST_TEXT:
            turn.fixed.append(found.transcript)
            turn.chars += len(found.transcript.text)

    def _turn_of(self, found: Results) -> _Turn | None:
        """The turn that these results overlap most; None for sound of a turn that was dropped."""
        turns = [*self._pending.values(), *([self._turn] if self._turn is not None else [])]
        best, most = None, 0.0
        for turn in turns:
            first, last = turn.first / self._rate_hz, (turn.first + turn.sent) / self._rate_hz
            overlap = min(last, found.end_s) - max(first, found.start_s)
            if overlap > most:
                best, most = turn, overlap
        return best

    def _complete(self, turn: _Turn) -> bool:
        """Whether all of its speech has been fixed, or its last ``Finalize`` answered."""
        last = (turn.first + turn.speech) / self._rate_hz
        return turn.fixed_to >= last - NEARLY_S or (turn.closing and not turn.flushes)
