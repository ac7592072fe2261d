"""Tools of a model on a call: Python functions with a description.

    @tool
    async def opening_hours(day: str) -> str:
        '''When the shop is open on a day of the week.'''
        return "9 to 17"

    Agent(url, tools=[opening_hours])

A parameter named ``call`` gets the call, one named ``conversation`` the conversation; the model
does not see these. Functions that are not asynchronous run in a thread of their own.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from qwen3tts_agent.chat.messages import ToolCall, ToolSpec
from qwen3tts_agent.recognition.threads import BoundedThreads
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_phone.errors import TransferFailed, traceback_without_message
from qwen3tts_phone.sip_statuses import STATUSES
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.fields import JSON

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call


INJECTED_PARAMETERS: Final = ("call", "conversation")
"""Parameters that the agent fills in."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    tuple: "array",
    dict: "object",
}


class ToolError(Exception):
    """Failure whose text, up to 500 characters, the model is sent.

    Of other exceptions it gets the class alone: texts may hold addresses or queries.
    """


@dataclass(frozen=True, slots=True)
class Tool:
    """Function that the model may call."""

    name: str
    description: str
    run: Callable[..., Any] = field(repr=False)
    """Called with the arguments by name; what it returns, or its awaitable, goes to the model: a
    string as it is, anything else as JSON.
    """
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of the arguments; empty = there are none."""
    timeout_s: float | None = None
    """Time limit, seconds; None = as the agent's settings say."""
    fills: tuple[str, ...] = ()
    """Parameters out of `INJECTED_PARAMETERS` that the function takes."""
    after_speech: bool = False
    """True if it waits until all that the model has written is heard."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadRequest(
                f"a tool cannot be called {self.name!r}.",
                remedy="Use letters, digits, _ and -, at most 64.",
            )
        if self.timeout_s is not None and not 0 < self.timeout_s <= 3600:
            raise BadRequest(f"{self.name}: timeout_s={self.timeout_s} is not between 0 and 3600.")

    @property
    def spec(self) -> ToolSpec:
        schema = self.parameters or {"type": "object", "properties": {}}
        return ToolSpec(self.name, self.description, schema)

    def check(self, arguments: Mapping[str, Any]) -> str:
        properties = self.parameters.get("properties")
        if not isinstance(properties, Mapping):
            return ""
        missing = [name for name in self.parameters.get("required", ()) if name not in arguments]
        if missing:
            return f"missing: {', '.join(missing)}"
        more = self.parameters.get("additionalProperties")
        unknown = [name for name in arguments if name not in properties]
        if unknown and more is False:
            return f"unknown: {', '.join(map(str, unknown))[:200]}"
        for name, value in arguments.items():
            schema = properties.get(name)
            if isinstance(schema, Mapping) and not _fits(value, schema):
                wanted = schema.get("enum") or schema.get("type")
                return f"{name} is not {json.dumps(wanted, ensure_ascii=False)[:500]}"
        return ""


@overload
def tool(function: Callable[..., Any]) -> Tool: ...
@overload
def tool(
    *, name: str = "", description: str = "", timeout_s: float | None = None
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    description: str = "",
    timeout_s: float | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function by name, docstring and parameters.

    Raises:
        BadRequest: a parameter has no name of its own (``*args``), or a type that JSON has not.
    """

    def make(each: Callable[..., Any]) -> Tool:
        called = name or getattr(each, "__name__", "")
        parameters, fills = _schema_of(each, called)
        told = description or inspect.getdoc(each) or ""
        return Tool(called, told, each, parameters, timeout_s, fills)

    return make if function is None else make(function)


def tools_of(given: Sequence[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for each in given:
        made = each if isinstance(each, Tool) else tool(each)
        if made.name in found:
            raise BadRequest(f"two tools are called {made.name}.", remedy="Rename one of them.")
        found[made.name] = made
    return found


def _schema_of(function: Callable[..., Any], name: str) -> tuple[JSON, tuple[str, ...]]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise BadRequest(
            f"{name or function!r} is not a function that a tool can be made of."
        ) from None
    try:
        hints = get_type_hints(function)
    except (NameError, AttributeError):
        hints = {}  # names that cannot be looked up, as of types imported for the checker alone
    except (TypeError, SyntaxError) as error:
        raise BadRequest(f"the type hints of {name or function!r} are none: {error}.") from None
    properties: JSON = {}
    required: list[str] = []
    fills: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise BadRequest(
                f"{name}: the parameter {parameter.name} cannot be given by its name.",
                remedy="A tool's parameters are named ones.",
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.name in INJECTED_PARAMETERS:
            fills.append(parameter.name)
            continue
        properties[parameter.name] = _schema_of_type(hints.get(parameter.name, Any), name)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema: JSON = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = any(
        each.kind is each.VAR_KEYWORD for each in signature.parameters.values()
    )
    return schema, tuple(fills)


def _schema_of_type(hint: Any, name: str) -> JSON:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        kinds = [_schema_of_type(each, name) for each in arguments if each is not NoneType]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    kind = _TYPES.get(origin or hint)
    if kind is None:
        if hint is Any or not isinstance(origin or hint, type):
            return {}
        raise BadRequest(
            f"{name}: a parameter of type {getattr(hint, '__name__', hint)} cannot come as JSON.",
            remedy="Use str, int, float, bool, list, dict or Literal.",
        )
    schema: JSON = {"type": kind}
    if kind == "array" and arguments and arguments[0] is not Ellipsis:
        schema["items"] = _schema_of_type(arguments[0], name)
    return schema


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    if isinstance(schema.get("enum"), list):
        return value in schema["enum"]
    match schema.get("type"):
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


logger = logging.getLogger(__name__)

MOST_THREADS = 64
"""Synchronous functions that run at a time; those that hang count, too."""
MOST_ERROR_CHARS = 500

_threads = BoundedThreads("tool", MOST_THREADS)


class Toolbox:
    """Tools of one call."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        ours: Mapping[str, object],
        *,
        timeout_s: float,
        most_chars: int,
    ) -> None:
        self.tools = dict(tools)
        self._ours = ours
        self._timeout_s = timeout_s
        self._most_chars = most_chars

    async def use(self, call: ToolCall) -> tuple[str, bool]:
        """Run a tool; return its result, and whether it succeeded."""
        found = self.tools.get(call.name)
        if found is None:
            known = ", ".join(self.tools) or "none"
            return f"Error: there is no tool {call.name[:64]!r}. Tools: {known}.", False
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            return f"Error: the arguments are no JSON ({str(error)[:100]}).", False
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            return "Error: the arguments are no JSON object.", False
        if wrong := found.check(arguments):
            return f"Error: the arguments are wrong: {wrong}.", False
        timeout_s = found.timeout_s or self._timeout_s
        ours = {name: self._ours[name] for name in found.fills}
        try:
            async with asyncio.timeout(timeout_s):
                value = await _result(found.run, {**arguments, **ours})
        except TimeoutError:
            logger.warning("the tool %s has not ended within %g s", found.name, timeout_s)
            return f"Error: the tool did not answer within {timeout_s:g} seconds.", False
        except ToolError as error:
            return f"Error: {str(error)[:MOST_ERROR_CHARS]}", False
        except Exception as error:
            # A tool may raise anything. Its text is not shown: it may hold the caller's words, or
            # what a database or a far end says.
            logger.warning("the tool %s failed\n%s", found.name, traceback_without_message(error))
            return f"Error: the tool failed ({type(error).__name__[:64]}).", False
        return self._text(value), True

    def _text(self, value: object) -> str:
        text = value if isinstance(value, str) else _json(value)
        if len(text) <= self._most_chars:
            return text
        return f"{text[: self._most_chars]}… (cut off here; {len(text)} characters in all)"


def _json(value: object) -> str:
    if value is None:
        return "Done."
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


async def _result(run: Callable[..., Any], arguments: JSON) -> Any:
    if inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(
        getattr(run, "__call__", None)  # noqa: B004 (an object with an asynchronous __call__)
    ):
        return await run(**arguments)
    value = await _threads.run(run, **arguments)
    return await value if inspect.isawaitable(value) else value


TRANSFER_TIMEOUT_S = 90.0
"""Longest ringing of a transfer, seconds."""


def check_tool_names(tools: Mapping[str, Tool], settings: AgentSettings) -> None:
    ours = {"hang_up": settings.hang_up_tool, "transfer": bool(settings.transfers)}
    for name, asked in ours.items():
        if asked and name in tools:
            raise BadRequest(f"the tool {name} is the agent's own.", remedy="Rename yours.")


def call_tools(
    settings: AgentSettings, call: Call, farewell: Callable[[], None]
) -> dict[str, Tool]:
    """Return the built-in tools; ``farewell`` ends the call after the reply."""
    found: dict[str, Tool] = {}
    if settings.hang_up_tool:

        async def hang_up() -> str:
            farewell()
            return "The call ends as soon as the caller has heard your goodbye."

        found["hang_up"] = Tool(
            "hang_up",
            "End the telephone call. Say goodbye in the same reply.",
            hang_up,
        )
    if settings.transfers:
        targets = dict(settings.transfers)

        async def transfer(to: str) -> str:
            try:
                await call.transfer(targets[to])
            except TransferFailed as error:  # its reason is the far end's own text
                known = STATUSES.get(error.status)
                words = known.sentence if known is not None else ""
                raise ToolError(
                    f"The transfer failed ({error.status}). {words}".rstrip()
                ) from error
            return "The caller was handed on."

        found["transfer"] = Tool(
            "transfer",
            "Hand the caller on to somebody else. Say so in the same reply.",
            transfer,
            {
                "type": "object",
                "properties": {"to": {"type": "string", "enum": list(targets)}},
                "required": ["to"],
                "additionalProperties": False,
            },
            timeout_s=TRANSFER_TIMEOUT_S,
            after_speech=True,
        )
    return found
