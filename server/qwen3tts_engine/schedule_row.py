"""What the scheduler knows of one job: its frames from step to sound, and its audio ahead. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto

from qwen3tts_engine.playout import PlayoutLead

FRAME_S = 0.08
"""Sound in one codec frame: 12.5 frames a second."""
FRAME_SAMPLES = 1920
"""The same at 24 kHz."""
CODE_RING = 64
"""Frames of codes that a slot holds until their decode has arrived."""
EPSILON_S = 1e-6
"""Two times nearer than this are the same."""


class RowState(Enum):
    """Where a job is. Starved, paced and held rows are RUNNING and skip steps."""

    WAITING = auto()
    """Admitted, without a slot."""
    RUNNING = auto()
    """In a slot; frames are made."""
    DRAINING = auto()
    """In a slot; no more frames are made, some are not yet sound."""


@dataclass(slots=True, eq=False)
class Row:
    """One job. Frames are counted from its first; ``arrived <= taken <= stepped``."""

    job: Hashable
    order: int
    """Number of the admission."""
    lead: PlayoutLead
    target_s: float
    """Audio ahead with which it rests; infinite: never."""
    low_s: float
    """Audio ahead with which it must go on."""
    admitted: float
    """When, seconds."""
    own_chunk: int | None = None
    """Frames in the first chunk as the request wants it."""
    assumed: bool = False
    """Whether ``lead`` is the scheduler's own assumption of a listener."""
    state: RowState = RowState.WAITING
    has_text: bool = True
    held: bool = False
    stepped: int = 0
    """Frames whose codes exist."""
    taken: int = 0
    """Frames that a plan has given to decode."""
    arrived: int = 0
    """Frames that are sound."""
    first_chunk: int = 1
    """Frames to wait for before the first decode, while the listener hears nothing anyway."""
    cap: int = 1
    """Most frames in the next decode."""
    keep_s: float = 0.0
    """Lead to keep while frames gather for a larger chunk."""
    dry_since: float | None = None
    """Since when the listener has nothing; None: it has something."""
    ripe_since: float | None = None
    """Since when a whole chunk waits."""
    last_step: int = -1
    """Number of its last step among all rows' steps."""
    whole: bool = False
    """Whether the number of its frames is settled."""
    decoding: deque[tuple[int, float]] = field(default_factory=deque)
    """Decodes under way: frames, when planned."""

    # What ``look`` saw: the same moment for all decisions of a plan.
    reach_s: float = 0.0
    """Audio ahead of the listener, made or being decoded."""
    ahead_s: float = 0.0
    """The same with the frames that wait for a decode."""
    rushed: bool = False
    """Whether somebody whose listener needs sound waits for a slot: whoever has one then runs to
    its end, however much is ahead of its own listener."""
    unheard: bool = True
    """Whether the context has made no sound at all, nor is any being decoded: a new call."""

    def look(self, now: float) -> None:
        """See where the listener is."""
        lead = self.lead
        decoding = self.taken - self.arrived
        self.reach_s = lead.seconds(now) + decoding * FRAME_S
        self.ahead_s = self.reach_s + (self.stepped - self.taken) * FRAME_S
        self.unheard = decoding == 0 and not lead.started

    @property
    def undecoded(self) -> int:
        """Frames whose codes wait for a decode."""
        return self.stepped - self.taken

    @property
    def decided(self) -> bool:
        """Whether its first decode was planned: the ramp has begun."""
        return self.taken > 0

    @property
    def finished(self) -> bool:
        """Whether nothing more comes and all is sound."""
        return self.state is RowState.DRAINING and self.arrived == self.stepped

    @property
    def stalled(self) -> bool:
        """Whether it waits for its reader."""
        return self.held and not self.rushed

    @property
    def silent(self) -> bool:
        """Whether the listener has nothing and nothing is being decoded for it."""
        return self.reach_s <= EPSILON_S

    @property
    def paced(self) -> bool:
        """Whether it may rest."""
        return self.target_s != math.inf

    # --- whether it may step ---

    def may_step(self, room: int) -> bool:
        """Whether another frame may be made: there is text, room in the ring, a reader, and a use
        for it."""
        return self.can_step(room) and (
            self.rushed or self.ahead_s < self.target_s or self._gathers()
        )

    def can_step(self, room: int) -> bool:
        """The same whatever the use."""
        return (
            self.state is not RowState.DRAINING
            and self.has_text
            and not self.stalled
            and self.stepped - self.arrived < room
        )

    def wants_step(self) -> bool:
        """Whether it needs a frame, and not only may have one with the others."""
        return self.ahead_s <= self.low_s + EPSILON_S or self._gathers()

    def hurries(self, hurry_s: float) -> bool:
        """Whether it needs one at once."""
        return (
            self.ahead_s <= min(hurry_s, self.low_s) + EPSILON_S
            or self._gathers()
            or self.rushed
            or not self.paced
        )

    def _gathers(self) -> bool:
        """Codes are not audio: a first chunk longer than the lead is gathered all the same."""
        return self.taken == 0 and self.stepped < self.first_chunk and self.silent

    def falls_to(self, ahead_s: float, now: float) -> float | None:
        """When so much will be ahead of the listener; None: not by time alone."""
        lead_s = ahead_s - (self.stepped - self.arrived) * FRAME_S
        # Below zero: so much waits undecoded that its decode must come first.
        return self.lead.falls_to(lead_s, now) if lead_s >= 0 else None
