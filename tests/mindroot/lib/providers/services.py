"""``service_manager`` and ``@service()``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lib.providers import ProviderManager, provider_of

F = TypeVar("F", bound=Callable[..., Any])

service_manager = ProviderManager()


def service(*, flags: Sequence[str] = ()) -> Callable[[F], F]:
    """Register the function by its own name."""

    def decorator(function: F) -> F:
        service_manager.register_function(
            function.__name__,
            provider_of(function),
            function,
            inspect.signature(function),
            function.__doc__,
            flags,
        )
        return function

    return decorator
