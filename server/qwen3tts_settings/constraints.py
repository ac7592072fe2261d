"""Constraints of dataclass fields, declared beside the default and checked in one call.

    @dataclass(frozen=True)
    class PhoneSettings:
        port: int = bounded(0, 65_535, default=5060)
        ring_timeout_s: float = bounded(above=0, high=3600, unit="seconds", default=60.0)
        nat: Nat = one_of(get_args(Nat), default="auto")

        def __post_init__(self) -> None:
            check_fields(self)

None is valid where the annotation allows it. Of a tuple or list, each item is checked.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from qwen3tts_wire.errors import BadRequest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Settings = TypeVar("Settings", bound="DataclassInstance")

SECRET_NAMES = frozenset({"api_key", "api_keys", "password", "secret", "token"})
"""Secret fields, besides ``metadata={"secret": True}``."""
SHOWN_CHARS = 80
"""Characters of a value in an error."""


class Constraint(Protocol):
    """Condition on a value."""

    def expected(self, value: Any) -> str: ...


class FieldError(ValueError):
    """A field violates its constraint."""

    def __init__(self, name: str, shown: str, expected: str) -> None:
        super().__init__(f"{name}{shown} must be {expected}")
        self.name = name
        self.shown = shown
        self.expected = expected


@dataclass(frozen=True)
class Bounds:
    """Range of finite numbers; ``also``: valid values outside."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    whole: bool = False
    unit: str = ""
    also: tuple[Any, ...] = ()

    def expected(self, value: Any) -> str:
        if any(value == each and type(value) is type(each) for each in self.also):
            return ""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"a number {self}"
        if self.whole and not isinstance(value, int):
            return f"a whole number {self}"
        valid = math.isfinite(value) if isinstance(value, float) else True
        valid = valid and (self.low is None or value >= self.low)
        valid = valid and (self.above is None or value > self.above)
        return "" if valid and (self.high is None or value <= self.high) else str(self)

    def __str__(self) -> str:
        low, high, above = (
            None if each is None else _number(each) for each in (self.low, self.high, self.above)
        )
        if above is not None:
            text = f"above {above}" if high is None else f"above {above} and at most {high}"
        elif low is not None:
            text = f"at least {low}" if high is None else f"from {low} to {high}"
        else:
            text = "finite" if high is None else f"at most {high}"
        text = f"{text} {self.unit}".rstrip()
        return " or ".join([text, *map(str, self.also)])


@dataclass(frozen=True)
class Choice:
    """Closed set of values."""

    values: tuple[Any, ...]

    def expected(self, value: Any) -> str:
        return "" if value in self.values else f"one of {', '.join(map(str, self.values))}"


@dataclass(frozen=True)
class Pattern:
    """Text fully matching a regular expression."""

    regex: re.Pattern[str]
    noun: str

    def expected(self, value: Any) -> str:
        return "" if isinstance(value, str) and self.regex.fullmatch(value) else self.noun


def bounded(
    low: float | None = None,
    high: float | None = None,
    *,
    default: T,
    above: float | None = None,
    unit: str = "",
    also: Iterable[Any] = (),
    metadata: Mapping[str, Any] | None = None,
) -> T:
    """Declare a number within bounds; ``int`` takes whole numbers only.

    Args:
        low: least value.
        high: greatest value.
        default: of the field.
        above: exclusive lower bound, instead of ``low``.
        unit: named in errors, such as ``seconds``.
        also: valid values outside, such as 0 for *off*.
        metadata: further metadata.
    """
    return constrained(Bounds(low, high, above, False, unit, tuple(also)), default, metadata)


def one_of(values: Iterable[Any], *, default: T, metadata: Mapping[str, Any] | None = None) -> T:
    return constrained(Choice(tuple(values)), default, metadata)


def matching(regex: str, noun: str, *, default: T, metadata: Mapping[str, Any] | None = None) -> T:
    """Declare a text fully matching ``regex``; ``noun`` names it in errors."""
    return constrained(Pattern(re.compile(regex), noun), default, metadata)


def constrained(constraint: Constraint, default: T, metadata: Mapping[str, Any] | None = None) -> T:
    declared: T = field(default=default, metadata={**(metadata or {}), "constraint": constraint})
    return declared


def check_fields(settings: Any) -> None:
    """Check a dataclass.

    Raises:
        FieldError: the first violation, with field, value and bounds.
    """
    kind: type = type(settings)
    for name, constraint, optional, secret in _constraints(kind):
        value = getattr(settings, name)
        if value is None and optional:
            continue
        several = isinstance(value, (tuple, list))
        for item in value if several else (value,):
            if expected := constraint.expected(item):
                separator = ": " if several else "="
                shown = "" if secret else f"{separator}{item!r:.{SHOWN_CHARS}}"
                raise FieldError(name, shown, expected)


def check_request(request: Any) -> None:
    """Check a request.

    Raises:
        BadRequest: the first violation, with bounds as remedy.
    """
    try:
        check_fields(request)
    except FieldError as error:
        raise BadRequest(
            f"{error.name}{error.shown} is out of range.", remedy=f"Choose {error.expected}."
        ) from None


def is_secret(each: dataclasses.Field[Any]) -> bool:
    return bool(each.metadata.get("secret")) or each.name in SECRET_NAMES


@cache
def _constraints(kind: type) -> tuple[tuple[str, Constraint, bool, bool], ...]:
    found: list[tuple[str, Constraint, bool, bool]] = []
    for each in fields(kind):
        constraint = each.metadata.get("constraint")
        if isinstance(constraint, Bounds):
            numbers = set(re.findall(r"\b(?:int|float)\b", str(each.type)))
            constraint = dataclasses.replace(constraint, whole=numbers == {"int"})
        if constraint is not None:
            optional = each.default is None or "None" in str(each.type)
            found.append((each.name, constraint, optional, is_secret(each)))
    return tuple(found)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def with_changes(
    settings: Settings,
    changes: Mapping[str, Any],
    owner: Callable[..., Any],
    *,
    also: Iterable[str] = (),
) -> Settings:
    """Return the settings with the keyword arguments of ``owner`` in place of their fields.

        class Phone:
            def __init__(self, settings: PhoneSettings | None = None, **changes: Any) -> None:
                self.settings = with_changes(settings or PhoneSettings(), changes, Phone)

    Args:
        settings: a dataclass's instance, which stays as it is.
        changes: values by the names of fields.
        owner: class or function that takes the keywords, for the error.
        also: further keywords of ``owner``, beside those of its signature.

    Raises:
        TypeError: a keyword is no field; the text names the nearest keyword.
    """
    names = [each.name for each in fields(settings)]
    for name in changes:
        if name not in names:
            others = [key for key in inspect.signature(owner).parameters if key != "self"]
            nearest = difflib.get_close_matches(name, [*names, *others, *also], n=1)
            kind = type(settings).__name__
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"see the fields of {kind}"
            raise TypeError(
                f"{owner.__qualname__}() got an unexpected keyword argument {name!r}; {hint}"
            )
    return dataclasses.replace(settings, **changes)
