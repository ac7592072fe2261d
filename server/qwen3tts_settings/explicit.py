"""Settings as keyword arguments of a constructor: which of them were given.

class Phone:
    def __init__(self, settings=None, *, host: str = UNSET, port: int = UNSET) -> None:
        self.settings = replace(settings or PhoneSettings(), **given(PhoneSettings, locals()))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final[Any] = _Unset()
"""Default of an argument whose value is then left to the settings."""


def given(settings: type[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass that were given as arguments.

    Args:
        settings: the dataclass.
        arguments: of the constructor, by name (``locals()``); those that are no field are left out.
    """
    return {
        each.name: arguments[each.name]
        for each in fields(settings)
        if arguments.get(each.name, UNSET) is not UNSET
    }
