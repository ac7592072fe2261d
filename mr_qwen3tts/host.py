"""Host services by name: both SIP plugins, command providers.

`mod.py` passes the managers; nothing imports the host. Calls use ``context=`` and named
arguments: without a context the host takes the latest call, and the first text for a model's
name.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

PROVIDER = "mr_qwen3tts"
"""Provider of our commands: the folder of mod.py."""

CHUNK = "sip_audio_out_chunk"
START = "sip_start_audio_response"
END = "sip_end_audio_response"
HALTED = "sip_is_audio_halted"
PERSONA = "get_persona_data"
AGENT = "get_agent_data"
PERSONAS = Path("personas/local")
"""Below the host's working directory."""

log = logging.getLogger(__name__)


class Manager(Protocol):
    """Host registry: functions by name."""

    @property
    def functions(self) -> Mapping[str, list[dict[str, Any]]]:
        """Implementation, docstring, flags, provider, as registered."""
        ...

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


class _Shape(NamedTuple):
    """Signature of a chunk service."""

    implementation: object
    audio: str
    timestamp: bool
    """True if it takes one; none is passed, for the receiver's own pace."""


def _logged(what: str, error: BaseException) -> None:
    log.warning("%s: %r", what, error)


class Host:
    """Host services of the plugin."""

    def __init__(self, services: Manager, commands: Manager) -> None:
        self._services = services
        self._commands = commands
        self._shape: _Shape | None = None
        self.problem: Callable[[str, BaseException], None] = _logged
        """Called with an optional service's error."""

    def offers(self, service: str) -> bool:
        return bool(self._services.functions.get(service))

    @property
    def has_sip(self) -> bool:
        return self.offers(CHUNK)

    def speaks_here(self, context: Any, command: str = "speak") -> bool:
        """Return whether the host chooses our ``command`` here.

        Its order: required plugins, preferred providers, session's preference, first registered.
        """
        providers = [each["provider"] for each in self._commands.functions.get(command, [])]
        if len(providers) < 2 or PROVIDER not in providers:
            return PROVIDER in providers
        agent = _mapping(getattr(context, "agent", None))
        for plugin in agent.get("required_plugins") or []:
            if plugin in providers:
                return bool(plugin == PROVIDER)
        preferred: Any = agent.get("preferred_providers") or []
        if isinstance(preferred, Mapping):
            if (chosen := preferred.get(command)) in providers:
                return bool(chosen == PROVIDER)
            preferred = []
        data = _mapping(getattr(context, "data", None))
        if "PREFERRED_PROVIDER" in data:
            preferred = [data["PREFERRED_PROVIDER"]]
        for provider in providers:
            if provider in preferred:
                return bool(provider == PROVIDER)
        return bool(providers[0] == PROVIDER)

    async def halted(self, context: Any) -> bool:
        """Return whether the SIP plugin refuses audio."""
        if not self.offers(HALTED):
            return False
        try:
            return bool(await self._services.sip_is_audio_halted(context=context))
        except Exception as error:  # the frames will show whether they are wanted
            self.problem("sip", error)
            return False

    async def start_response(self, context: Any) -> bool:
        """Open a response, dropping unplayed frames; False: no call."""
        if not self.offers(START):
            return True
        try:
            return await self._services.sip_start_audio_response(context=context) is not False
        except Exception as error:  # a first frame begins a response by itself
            self.problem("sip", error)
            return True

    async def chunk(self, context: Any, audio: bytes) -> bool:
        """Send PCMU at 8 kHz; False: halted, or no call."""
        shape = self._chunk_shape()
        arguments: dict[str, Any] = {shape.audio: audio, "context": context}
        if shape.timestamp:
            arguments["timestamp"] = None
        return await self._services.sip_audio_out_chunk(**arguments) is not False

    async def end_response(self, context: Any) -> None:
        """Close the response; queued frames play."""
        if self.offers(END):
            await self._services.sip_end_audio_response(context=context)

    async def persona(self, context: Any) -> Mapping[str, Any]:
        """Return the agent's persona with ``voice_samples``, or {}."""
        agent = getattr(context, "agent", None)
        try:
            if not agent and self.offers(AGENT) and getattr(context, "agent_name", None):
                agent = await self._services.get_agent_data(
                    agent_name=context.agent_name, context=context
                )
            persona = _mapping(agent).get("persona")
            if isinstance(persona, str):
                return await self._persona(persona, context)
            persona = _mapping(persona)
            if "voice_samples" not in persona and persona.get("name"):
                return {**await self._persona(str(persona["name"]), context), **persona}
        except Exception as error:  # the host's plugins raise what they like
            log.warning("no persona for %s: %r", getattr(context, "log_id", None), error)
            return _mapping(_mapping(agent).get("persona"))
        return persona

    async def personas(self) -> list[Mapping[str, Any]]:
        found = []
        for name in await asyncio.to_thread(_names, PERSONAS):
            try:
                persona = await self._persona(name, None)
            except Exception as error:  # one that is broken must not hide the others
                log.warning("persona %s cannot be read: %r", name, error)
                continue
            if persona:
                found.append(persona)
        return found

    async def _persona(self, name: str, context: Any) -> Mapping[str, Any]:
        if not self.offers(PERSONA):
            return {}
        return _mapping(await self._services.get_persona_data(persona_name=name, context=context))

    def _chunk_shape(self) -> _Shape:
        registered = self._services.functions.get(CHUNK) or [{}]
        implementation = registered[0].get("implementation")
        shape = self._shape
        if shape is None or shape.implementation is not implementation:
            shape = self._shape = _shape_of(implementation)
        return shape


def _shape_of(implementation: Any) -> _Shape:
    try:
        parameters = inspect.signature(implementation).parameters
    except (TypeError, ValueError):  # nothing that can be looked into
        return _Shape(implementation, "audio_chunk", False)
    named = [
        each.name
        for each in parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    audio = "audio_chunk"
    if audio not in named and named and named[0] not in ("context", "timestamp"):
        audio = named[0]
    return _Shape(implementation, audio, "timestamp" in named)


def _names(folder: Path) -> list[str]:
    return sorted(each.parent.name for each in folder.glob("*/persona.json"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
