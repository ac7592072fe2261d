"""Options that are the fields of a dataclass, so that several subcommands can share them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, Protocol, get_type_hints


class Options(Protocol):
    """A dataclass whose fields are annotated as options of a command line."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def check(self) -> None:
        """Refuse options that contradict each other; raises ``typer.BadParameter``."""


def spread(**groups: type[Options]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that takes these objects; on the command line their fields stand for them.

    ``spread(manner=Manner)(command)``: the parameter ``manner`` of ``command`` becomes the options
    of ``Manner``, in its place; the object is made of them, and checked, before it runs.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            group = groups.get(parameter.name)
            if group is None:
                parameters.append(parameter)
            else:
                parameters.extend(_parameters(group, parameter))

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = {
                name: group(**{each: given.pop(each) for each in _names(group)})
                for name, group in groups.items()
            }
            for each in made.values():
                each.check()
            command(**given, **made)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorated


def _names(group: type[Options]) -> list[str]:
    return [each.name for each in fields(group)]


def _parameters(group: type[Options], at: inspect.Parameter) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(each.name, at.kind, default=each.default, annotation=hints[each.name])
        for each in fields(group)
    ]
