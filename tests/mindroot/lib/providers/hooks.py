"""``hook_manager`` and ``@hook()``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from lib.providers import HookManager

F = TypeVar("F", bound=Callable[..., Any])

hook_manager = HookManager()


def hook() -> Callable[[F], F]:
    """Register the function as a hook of its own name."""

    def decorator(function: F) -> F:
        hook_manager.register_hook(
            function.__name__, function, inspect.signature(function), function.__doc__
        )
        return function

    return decorator
