"""One generation under way: its text, its row, what it has made, why it ends. No torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import EndReason, PcmChunk
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.model_config import MIN_FRAMES
from qwen3tts_engine.qwen3.prefixes import PrefixStore
from qwen3tts_engine.qwen3.text_track import TextTrack
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.arena import Sampling
    from qwen3tts_engine.qwen3.prompt import Prompt
    from qwen3tts_engine.qwen3.voicing import Voicing


class State(Enum):
    """Where a generation is. A row that is paced (enough of it is ahead of its listener) is
    RUNNING and simply not in the next step; the scheduler knows which."""

    OPENING = auto()
    """Nothing to say has arrived yet."""
    WAITING = auto()
    """Admitted, without a slot."""
    RUNNING = auto()
    """In a slot; its next frame may be made."""
    STARVED = auto()
    """In a slot; the token for its next frame has not arrived."""
    DRAINING = auto()
    """All frames are made; some are not yet sound."""
    DONE = auto()
    """Out: said, failed or cancelled."""


IN_SLOT = (State.RUNNING, State.STARVED, State.DRAINING)


class Move(Enum):
    """What happens to a generation."""

    ADMIT = auto()
    JOIN = auto()
    STARVE = auto()
    FEED = auto()
    LAST_FRAME = auto()
    LEAVE = auto()


TRANSITIONS = {
    (State.OPENING, Move.ADMIT): State.WAITING,
    (State.WAITING, Move.JOIN): State.RUNNING,
    (State.RUNNING, Move.STARVE): State.STARVED,
    (State.STARVED, Move.FEED): State.RUNNING,
    (State.RUNNING, Move.LAST_FRAME): State.DRAINING,
    (State.STARVED, Move.LAST_FRAME): State.DRAINING,
    (State.OPENING, Move.LEAVE): State.DONE,
    (State.WAITING, Move.LEAVE): State.DONE,
    (State.RUNNING, Move.LEAVE): State.DONE,
    (State.STARVED, Move.LEAVE): State.DONE,
    (State.DRAINING, Move.LEAVE): State.DONE,
}
"""Whatever is missing cannot happen."""


class Outlet(Protocol):
    """Where a generation's sound goes. Called by the engine's thread."""

    @property
    def unread(self) -> int:
        """Samples put and not yet read."""
        ...

    @property
    def gone(self) -> bool:
        """Whether nobody can read any more."""
        ...

    def put(self, chunk: PcmChunk) -> None:
        """Sound, or words."""
        ...

    def finish(self, error: SpeechError | None) -> None:
        """Nothing follows; or it broke."""
        ...


@dataclass(frozen=True, slots=True)
class Speaker:
    """What a generation speaks with: everything about its voice that was computed before."""

    key: Hashable
    """The same for the same sound: voice, language, instructions."""
    x_vector: Any | None = None
    """Speaker vector [hidden]."""
    codec: Any | None = None
    """CodecSnapshot behind the reference."""
    prefixes: PrefixStore | None = None
    """Where computed beginnings of its prompts are kept; None: with those of all such voices."""


@dataclass(eq=False)
class Job:
    """One generation. Belongs to the engine's thread once it has been submitted.

    Of its frames so many were ``launched``, of these the codes of ``len(codes)`` were read; the
    sound of so many was launched (``sounding``), and came back (``sounded``).
    """

    track: TextTrack
    lay_out: Callable[[TextTrack], Prompt]
    """The prompt, once the text is there: of live text the first token."""
    speaker: Speaker
    sampling: Sampling
    seed: int
    outlet: Outlet
    lead: PlayoutLead | None
    pad: int
    """Token of the text track behind its end (``tts_pad``)."""
    eos: int
    """Token of the text track that ends it (``tts_eos``)."""
    voice: Callable[[], Voicing]
    """Makes ``voicing`` when the row joins."""
    initial_chunk: int | None = None
    bound: int | None = None
    """Most frames, where the request or the settings say so."""
    state: State = State.OPENING
    prompt: Prompt | None = None
    voicing: Voicing | None = None
    slot: int = -1
    launched: int = 0
    codes: list[NDArray[np.int64]] = field(default_factory=list)
    """Of each frame [16]."""
    sounding: int = 0
    sounded: int = 0
    total: int | None = None
    """Frames in all, once that is known."""
    end: EndReason | None = None
    """Why no more frames come."""
    unsaid: int | None = None
    """First code point of its text that it left unsaid, once it is over; None: none is."""
    repeat: bool = False
    """Whether it says what another generation left unsaid."""
    voiced_frames: int = 0
    """Frames up to the last one that was not silent, once it is over."""
    fed: bool = True
    """Whether the next frame's text is there."""
    dry_since: float | None = None
    """Since when it is not."""
    held: bool = False
    """Whether its reader is too far behind."""
    marks: dict[str, float] = field(default_factory=dict)

    def next_text(self) -> int | None:
        """The token that the next frame adds; None: it has not arrived."""
        assert self.prompt is not None
        at = self.launched
        if not self.track.streaming:
            return self.prompt.trailing[at] if at < len(self.prompt.trailing) else self.pad
        # The first token stands in the prompt.
        tokens = len(self.track.ids) - 1
        if at < tokens:
            return self.track.ids[at + 1]
        if not self.track.ended:
            return None
        return self.eos if at == tokens else self.pad

    def limit(self, positions: int) -> int:
        """Most frames: what the row's positions hold, and what its text can last."""
        assert self.prompt is not None
        assert self.voicing is not None
        room = min(positions - len(self.prompt.text), self.bound or positions)
        if not self.track.ended:
            return room
        return min(room, self.voicing.frame_cap())

    @property
    def cut(self) -> bool:
        """Whether ``bound`` ended it."""
        return self.end == "frame_cap" and self.bound is not None and self.total == self.bound

    def may_end(self) -> bool:
        """Whether the next frame may be the end: two frames are out, and all text that grows is in.

        A function of the text and not of when it came, so that late text changes nothing. Text that
        was all there is never barred from ending, as in the official package.
        """
        if self.launched < MIN_FRAMES:
            return False
        if not self.track.streaming:
            return True
        return self.track.ended and self.launched >= len(self.track.ids)

    def move(self, move: Move) -> None:
        """Change the state.

        Raises:
            KeyError: the move is not one of this state.
        """
        self.state = TRANSITIONS[self.state, move]

    def mark(self, name: str, now: float) -> None:
        """Note when something happened first."""
        self.marks.setdefault(name, now)
