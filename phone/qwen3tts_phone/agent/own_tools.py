"""The tools that an agent has by itself: ending the call, and handing it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from qwen3tts_phone.agent.settings import AgentSettings
from qwen3tts_phone.agent.tools import Tool, ToolError
from qwen3tts_phone.diagnosis.call_failure import REFUSALS
from qwen3tts_phone.errors import TransferFailed
from qwen3tts_wire.errors import BadRequest

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call

TRANSFER_S = 90.0
"""A transfer may ring as long as this."""


def check_names(tools: Mapping[str, Tool], settings: AgentSettings) -> None:
    """Raise `BadRequest` where the program has a tool by the name of one of ours."""
    ours = {"hang_up": settings.hang_up_tool, "transfer": bool(settings.transfers)}
    for name, asked in ours.items():
        if asked and name in tools:
            raise BadRequest(f"the tool {name} is the agent's own.", remedy="Rename yours.")


def own_tools(settings: AgentSettings, call: Call, farewell: Callable[[], None]) -> dict[str, Tool]:
    """Those that the settings ask for, on one call; ``farewell`` ends it when all is heard."""
    found: dict[str, Tool] = {}
    if settings.hang_up_tool:

        async def hang_up() -> str:
            farewell()
            return "The call ends as soon as the caller has heard your goodbye."

        found["hang_up"] = Tool(
            "hang_up",
            "End the telephone call. Say goodbye in the same reply.",
            hang_up,
        )
    if settings.transfers:
        targets = dict(settings.transfers)

        async def transfer(to: str) -> str:
            try:
                await call.transfer(targets[to])
            except TransferFailed as error:  # its reason is the far end's own text
                _, words, _ = REFUSALS.get(error.status, ("", "", ""))
                raise ToolError(
                    f"The transfer failed ({error.status}). {words}".rstrip()
                ) from error
            return "The caller was handed on."

        found["transfer"] = Tool(
            "transfer",
            "Hand the caller on to somebody else. Say so in the same reply.",
            transfer,
            {
                "type": "object",
                "properties": {"to": {"type": "string", "enum": list(targets)}},
                "required": ["to"],
                "additionalProperties": False,
            },
            timeout_s=TRANSFER_S,
            after_speech=True,
        )
    return found
