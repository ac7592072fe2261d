"""What the host knows of a session."""

from __future__ import annotations

from typing import Any


class ChatContext:
    """One session, as far as plugins ask for it; several objects may stand for one session."""

    def __init__(
        self,
        log_id: str | None = None,
        agent: dict[str, Any] | None = None,
        *,
        username: str = "admin",
        env: dict[str, str] | None = None,
    ) -> None:
        self.log_id = log_id
        self.agent = agent or {}
        self.agent_name = str(self.agent.get("name", ""))
        self.username = username
        self.env = env or {}
        self.data: dict[str, Any] = {}


contexts: dict[str, ChatContext] = {}
"""The sessions that there are."""


async def get_context(log_id: str, user: Any) -> Any:
    """The context of a session; the same object every time."""
    return contexts.setdefault(log_id, ChatContext(log_id))
