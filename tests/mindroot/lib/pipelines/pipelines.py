"""Pipes by name and priority."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class PipelineManager:
    """All pipes of a name, one after another in ascending priority."""

    def __init__(self) -> None:
        self.pipes: dict[str, list[dict[str, Any]]] = {}
        self.errors: list[Exception] = []
        """What pipes raised. The host prints it and goes on with the data as they were."""

    def register_pipe(
        self,
        name: str,
        implementation: Callable[..., Any],
        signature: object = None,
        docstring: str | None = None,
        priority: int = 0,
    ) -> None:
        """Enter one more pipe of this name."""
        self.pipes.setdefault(name, []).append(
            {
                "implementation": implementation,
                "docstring": docstring,
                "priority": priority,
                "is_async": inspect.iscoroutinefunction(implementation),
            }
        )
        self.pipes[name].sort(key=lambda each: int(each["priority"]))

    async def execute_pipeline(self, name: str, data: Any, context: Any = None) -> Any:
        """The data as the last pipe returned them, None included."""
        for each in self.pipes.get(name, []):
            try:
                result = each["implementation"](data, context)
                data = await result if each["is_async"] else result
            except Exception as error:
                self.errors.append(error)
        return data

    def __getattr__(self, name: str) -> Any:
        """Any name is a method that runs the pipes of that name."""
        if name.startswith("__"):
            raise AttributeError(name)

        async def method(*args: Any, **kwargs: Any) -> Any:
            return await self.execute_pipeline(name, *args, **kwargs)

        return method
