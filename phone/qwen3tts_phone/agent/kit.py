"""What all replies of a call work with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.agent.budget import CallBudget
from qwen3tts_phone.agent.history import History
from qwen3tts_phone.agent.settings import AgentSettings
from qwen3tts_phone.agent.source import Source
from qwen3tts_phone.agent.toolbox import Toolbox

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call


@dataclass(slots=True)
class Kit:
    """One call's."""

    call: Call
    source: Source
    toolbox: Toolbox
    history: History
    settings: AgentSettings
    budget: CallBudget
    """Requests that may still be made to the model."""
    running: set[asyncio.Task[None]] = field(default_factory=set)
    """Tools that have not ended: they outlive the reply that wanted them."""
    fillers: int = 0
    """Said so far."""
    too_many_said: bool = False
    """Whether the caller knows that the requests of this minute are used up."""
    used_up_said: bool = False

    @property
    def clock(self) -> Clock:
        """The call's."""
        return self.call.clock
