"""``command_manager`` and ``@command()``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lib.providers import ProviderManager, provider_of

F = TypeVar("F", bound=Callable[..., Any])

command_manager = ProviderManager()


def command(*, flags: Sequence[str] = ()) -> Callable[[F], F]:
    """Register the function by its own name."""

    def decorator(function: F) -> F:
        command_manager.register_function(
            function.__name__,
            provider_of(function),
            function,
            inspect.signature(function),
            function.__doc__,
            flags,
        )
        return function

    return decorator
