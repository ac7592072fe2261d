"""``pipeline_manager`` and ``@pipe(name, priority)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from lib.pipelines.pipelines import PipelineManager

F = TypeVar("F", bound=Callable[..., Any])

pipeline_manager = PipelineManager()


def pipe(name: str, priority: int = 0) -> Callable[[F], F]:
    """Register the function as a pipe of this name."""

    def decorator(function: F) -> F:
        pipeline_manager.register_pipe(
            name, function, inspect.signature(function), function.__doc__, priority
        )
        return function

    return decorator
