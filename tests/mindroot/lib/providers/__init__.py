"""Functions and hooks by name, as the host keeps and calls them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

FAST = frozenset(
    {
        "send_s2s_audio_chunk",
        "send_s2s_message",
        "close_s2s_session",
        "sip_start_audio_response",
        "sip_end_audio_response",
        "partial_command",
        "sip_is_audio_halted",
        "sip_audio_out_chunk",
    }
)
"""Services for which the host asks nobody: the first that registered is called."""


def provider_of(function: Callable[..., Any]) -> str:
    """The provider of a function: the folder that holds its module."""
    file = sys.modules[function.__module__].__file__
    if file is None:
        raise ValueError("Cannot determine module of function")
    return os.path.basename(os.path.dirname(file))


def _has(value: object, what: str) -> bool:
    return value is not None and bool(getattr(value, what, None))


class ProviderManager:
    """Services or commands: several providers may have one name, and the context says which."""

    context: Any
    """The one that was set last, by whichever call; it does not exist before."""

    def __init__(self) -> None:
        self.functions: dict[str, list[dict[str, Any]]] = {}

    def register_function(
        self,
        name: str,
        provider: str,
        implementation: Callable[..., Any],
        signature: object = None,
        docstring: str | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        """Enter an implementation; a second one of the same name and provider is ignored."""
        known = self.functions.setdefault(name, [])
        if all(each["provider"] != provider for each in known):
            known.append(
                {
                    "implementation": implementation,
                    "docstring": docstring,
                    "flags": list(flags),
                    "provider": provider,
                }
            )

    async def execute(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Await the implementation that the host would choose, with ``context`` in ``kwargs``."""
        if name not in self.functions:
            raise ValueError(f"function '{name}' not found.")
        context = next((each for each in args if hasattr(each, "agent")), None)
        if context is None:
            if "context" not in kwargs:
                # Whatever call set it last: the reason why every call must name its own.
                kwargs["context"] = self.context
            context = kwargs["context"]
        elif name in FAST:
            kwargs.setdefault("context", context)
        return await self._chosen(name, context)(*args, **kwargs)

    def _chosen(self, name: str, context: Any) -> Callable[..., Any]:
        known = self.functions[name]
        first: Callable[..., Any] = known[0]["implementation"]
        if name in FAST:
            return first
        agent = context.agent if _has(context, "agent") else {}
        wanted: list[str] = list(agent.get("required_plugins", []))
        preferred = agent.get("preferred_providers", [])
        if isinstance(preferred, dict):
            wanted += [preferred[name]] if name in preferred else []
            preferred = []
        if _has(context, "data") and "PREFERRED_PROVIDER" in context.data:
            preferred = [context.data["PREFERRED_PROVIDER"]]
        for provider in wanted:
            for each in known:
                if each["provider"] == provider:
                    implementation: Callable[..., Any] = each["implementation"]
                    return implementation
        for each in known:
            if each["provider"] in preferred:
                implementation = each["implementation"]
                return implementation
        return first

    def __getattr__(self, name: str) -> Any:
        """Any name is a method, also one that nobody has registered."""
        if name.startswith("__") or name == "context":
            raise AttributeError(name)

        async def method(*args: Any, **kwargs: Any) -> Any:
            return await self.execute(name, *args, **kwargs)

        return method


class HookManager:
    """Hooks: all of a name are awaited in their order; an exception stops the rest."""

    def __init__(self) -> None:
        self.hooks: dict[str, list[dict[str, Any]]] = {}

    def register_hook(
        self,
        name: str,
        implementation: Callable[..., Any],
        signature: object = None,
        docstring: str | None = None,
    ) -> None:
        """Enter one more hook of this name."""
        self.hooks.setdefault(name, []).append(
            {"implementation": implementation, "docstring": docstring}
        )

    async def execute_hooks(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """What each hook returned."""
        return [await each["implementation"](*args, **kwargs) for each in self.hooks.get(name, [])]

    def __getattr__(self, name: str) -> Any:
        """Any name is a method that fires the hooks of that name."""
        if name.startswith("__"):
            raise AttributeError(name)

        async def method(*args: Any, **kwargs: Any) -> list[Any]:
            return await self.execute_hooks(name, *args, **kwargs)

        return method
