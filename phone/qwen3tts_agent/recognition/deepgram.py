"""Deepgram's streaming interface as a recogniser."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from qwen3tts_agent.recognition.settings import DeepgramSettings
from qwen3tts_agent.recognition.socket_dialling import closed, dial
from qwen3tts_agent.recognition.socket_protocol import (
    MOST_PENDING,
    MOST_TEXT,
    TRIES,
    Answer,
    Failed,
    Final,
    Outgoing,
    Partial,
    RecognitionService,
    binary,
    clean_text,
    json_message,
    one_line,
)
from qwen3tts_agent.recognition.turns import joined_transcripts
from qwen3tts_agent.recognition.websocket import ServiceRecogniser
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.detection.recogniser import (
    RecogniserReport,
    RecogniserUnavailable,
    RecognitionFailed,
    Samples,
    Transcript,
)
from qwen3tts_phone.detection.turn_buffer import TurnBuffer
from qwen3tts_wire.errors import ProtocolError
from qwen3tts_wire.fields import JSON

FINALIZE = '{"type": "Finalize"}'
"""Makes the words of all that was sent final."""
KEEP_ALIVE = '{"type": "KeepAlive"}'
CLOSE_STREAM = '{"type": "CloseStream"}'
MAX_CONNECTION_S = 7 * 24 * 3600.0
"""Longest time of a connection; anything beyond is refused."""
_REMEDY = "Check that its address is one of Deepgram's streaming interface, /v1/listen."


@dataclass(frozen=True, slots=True)
class Results:
    """Words of a stretch; seconds from the connection's first sample."""

    start_s: float
    end_s: float
    fixed: bool
    """True if they are final (``is_final``)."""
    flushed: bool
    """True if they answer a ``Finalize`` (``from_finalize``)."""
    transcript: Transcript


def read_message(message: str | bytes) -> Results | Failed | None:
    raw = json_message(message, _REMEDY)
    if raw["type"] == "Results":
        return _results(raw)
    if raw["type"] == "Error":
        said = raw.get("description") or raw.get("message") or raw.get("variant")
        return Failed(None, one_line(said))
    return None


def _results(raw: JSON) -> Results:
    start, duration = _seconds(raw, "start"), _seconds(raw, "duration")
    best = _best(raw.get("channel"))
    text, sure, languages = best.get("transcript"), best.get("confidence"), best.get("languages")
    cleaned = clean_text(text, _REMEDY)
    code = languages[0] if isinstance(languages, list) and languages else ""
    code = code if isinstance(code, str) and code.isprintable() and len(code) <= 64 else ""
    confidence = None
    if isinstance(sure, int | float) and not isinstance(sure, bool) and 0 <= sure <= 1:
        confidence = float(sure)
    return Results(
        start,
        start + duration,
        raw.get("is_final") is True,
        raw.get("from_finalize") is True,
        Transcript(cleaned, code, confidence),
    )


def _best(channel: object) -> JSON:
    alternatives = channel.get("alternatives") if isinstance(channel, dict) else None
    if isinstance(alternatives, list) and alternatives and isinstance(alternatives[0], dict):
        return alternatives[0]
    raise ProtocolError("The recogniser's results have no alternatives.", remedy=_REMEDY)


def _seconds(raw: JSON, name: str) -> float:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"The recogniser's results have no {name}.", remedy=_REMEDY)
    if not 0 <= value <= MAX_CONNECTION_S:  # nor is NaN
        raise ProtocolError(f"The recogniser's {name} is not a time.", remedy=_REMEDY)
    return float(value)


TIME_TOLERANCE_S = 0.1
"""Tolerance of its times: Deepgram works in frames, so the last one may be left out."""


@dataclass(slots=True)
class _Turn:
    number: int
    tries: int = 0
    first: int = 0
    """First sample, counted from the connection's first."""
    speech: int = 0
    """Samples up to the last voiced one."""
    ended: Samples | None = field(default=None, repr=False)
    """All of its samples, once it is over."""
    paused: bool = False
    sent: int = 0
    """Samples sent on this connection."""
    flushes: int = 0
    """``Finalize`` messages sent and not answered."""
    fixed: list[Transcript] = field(default_factory=list, repr=False)
    chars: int = 0
    """Characters in ``fixed``; beyond `MOST_TEXT` no more are kept."""
    fixed_to: float = -1.0
    """End of its final words, seconds of the connection."""
    latest: Transcript | None = field(default=None, repr=False)
    """Interim words that follow these."""
    any: bool = False
    """True if there have been results."""
    closing: bool = False
    """True if a ``Finalize`` was sent after its end."""

    def begin(self, first: int) -> None:
        self.first, self.sent, self.flushes = first, 0, 0
        self.fixed, self.chars, self.fixed_to, self.latest = [], 0, -1.0, None
        self.any = self.closing = False

    def text(self) -> Transcript:
        return joined_transcripts(
            [*self.fixed, *([self.latest] if self.latest is not None else [])]
        )


class DeepgramStream:
    """One call's turns as Deepgram's messages (pure); see `CallStream`."""

    def __init__(self, rate_hz: int, *, longest_s: float = 300.0) -> None:
        self.ready = False
        self._rate_hz = rate_hz
        self._audio = TurnBuffer(rate_hz, longest_s=longest_s)
        self._count = 0
        self._total = 0
        """Samples sent on this connection."""
        self._turn: _Turn | None = None
        self._pending: dict[int, _Turn] = {}

    # --- the connection

    def greeted(self) -> tuple[Outgoing, list[int]]:
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
        self.ready = False

    def idle(self) -> Outgoing:
        return [KEEP_ALIVE] if self.ready else []

    def leaving(self) -> Outgoing:
        return [CLOSE_STREAM] if self.ready else []

    # --- the call

    def push(self, samples: Samples, at: float) -> Outgoing:
        self._audio.push(samples, at)
        return self._send(self._turn, samples) if self.ready and self._turn is not None else []

    def begin_turn(self, at: float) -> tuple[Outgoing, int]:
        out = self.drop_turn()
        self._count += 1
        self._turn = _Turn(self._count)
        self._audio.begin(at)
        if self.ready:
            self._turn.begin(self._total)
            out += self._send(self._turn, self._audio.samples())
        return out, self._count

    def pause(self, at: float) -> Outgoing:
        turn = self._turn
        if turn is None or turn.paused:
            return []
        turn.paused, turn.speech = True, self._audio.before(at)
        return self._flush(turn) if self.ready else []

    def resume(self) -> Outgoing:
        if self._turn is not None:
            self._turn.paused = False
        return []

    def drop_turn(self) -> Outgoing:
        """Drop noise; its words are finalised, out of the next turn."""
        turn, self._turn = self._turn, None
        self._audio.end()
        return self._flush(turn) if turn is not None and self.ready else []

    def end_turn(self, at: float) -> tuple[Outgoing, int | None, int | None]:
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
        self._pending.pop(number, None)
        return []

    def finished(self, number: int) -> Transcript | None:
        turn = self._pending.get(number)
        if turn is None or not self._complete(turn):
            return None
        return self._pending.pop(number).text()

    def known(self, number: int) -> Transcript | None:
        turn = self._pending.get(number)
        if turn is None or not turn.any:
            return None
        return self._pending.pop(number).text()

    def read(self, message: str | bytes) -> list[Answer]:
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
        turns = [*self._pending.values(), *([self._turn] if self._turn is not None else [])]
        best, most = None, 0.0
        for turn in turns:
            first, last = turn.first / self._rate_hz, (turn.first + turn.sent) / self._rate_hz
            overlap = min(last, found.end_s) - max(first, found.start_s)
            if overlap > most:
                best, most = turn, overlap
        return best

    def _complete(self, turn: _Turn) -> bool:
        last = (turn.first + turn.speech) / self._rate_hz
        return turn.fixed_to >= last - TIME_TOLERANCE_S or (turn.closing and not turn.flushes)


CHECKED_S = 1.0
"""Length of the audio that a check sends."""
PIECE_S = 0.1
"""Length of its messages: Deepgram accepts no long ones."""


class DeepgramRecogniser(ServiceRecogniser):
    """Recogniser that streams each call over its own WebSocket.

    >>> recogniser = DeepgramRecogniser(DeepgramSettings(languages=("en",)))
    """

    def __init__(
        self, settings: DeepgramSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        self.settings = chosen = settings or DeepgramSettings()
        super().__init__(
            RecognitionService(
                chosen.shown,
                chosen.rate_hz,
                lambda: dial(chosen, None),
                lambda: DeepgramStream(chosen.rate_hz, longest_s=chosen.longest_s),
                answer_timeout_s=chosen.answer_timeout_s,
                behind_s=chosen.behind_s,
                settle_s=chosen.settle_s,
                keep_alive_s=chosen.keep_alive_s,
            ),
            clock,
        )


async def check(settings: DeepgramSettings) -> RecogniserReport:
    socket = await dial(settings, None)
    try:
        piece = bytes(2 * round(PIECE_S * settings.rate_hz))
        with contextlib.suppress(ConnectionClosed):  # what it said before can be read yet
            for _ in range(round(CHECKED_S / PIECE_S)):
                await socket.send(piece)
            await socket.send(FINALIZE)
        began = time.monotonic()
        async with asyncio.timeout(settings.answer_timeout_s):
            await _until_results(socket)
        wait_s = time.monotonic() - began
        with contextlib.suppress(ConnectionClosed):
            await socket.send(CLOSE_STREAM)
    except TimeoutError:
        raise RecognitionFailed(
            f"The recogniser at {settings.shown} takes audio, and sent no results within"
            f" {settings.answer_timeout_s:g} s.",
            remedy="Check the address; it is one of Deepgram's streaming interface.",
        ) from None
    except ConnectionClosed:
        raise closed(socket) from None
    except ProtocolError as error:
        raise RecogniserUnavailable(error.message, remedy=error.remedy) from None
    finally:
        await socket.close()
    return RecogniserReport(
        kind="deepgram",
        model=settings.model,
        language=", ".join(settings.languages),
        address=settings.shown,
        wait_s=wait_s,
    )


async def _until_results(socket: ClientConnection) -> None:
    while True:
        match read_message(await socket.recv()):
            case Results(fixed=True):
                return
            case Failed(_, said):
                raise RecognitionFailed(f"The recogniser failed: {said or 'it does not say why'}.")
