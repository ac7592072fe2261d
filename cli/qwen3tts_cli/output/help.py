"""Help pages: ``--help`` shows ``FIRST_OPTIONS``, ``--help-all`` every option."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Annotated, Any

import typer
import typer.core
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

SHORT_PAGE_OPTIONS = 12
"""Option count from which ``--help-all`` is added."""

HELP_ALL = "--help-all"
NAME_CELLS = 30
"""Width of the first column; longer entries wrap."""
WIDEST = 100
_KINDS = {"path": "PATH", "file": "FILE", "directory": "FOLDER", "dir": "FOLDER", "text": "TEXT"}


class ShortHelp(typer.core.TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print_page(self, ctx, everything=False)


class CommandList(typer.core.TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print_page(self, ctx, everything=True)


def with_pages(app: typer.Typer) -> None:
    for each in app.registered_commands:
        each.cls = ShortHelp
        assert each.callback is not None
        each.callback = _with_help_all(each.callback)


def _with_help_all(command: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    options = [each for each in signature.parameters.values() if _is_option(each)]
    if len(options) <= SHORT_PAGE_OPTIONS:
        return command
    wanted = inspect.Parameter(
        "help_all",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[
            bool,
            typer.Option(
                HELP_ALL, callback=_show_all, is_eager=True, help="Show all options and exit."
            ),
        ],
    )

    @functools.wraps(command)
    def run(*, help_all: bool = False, **given: Any) -> None:
        command(**given)

    made = signature.replace(parameters=[*signature.parameters.values(), wanted])
    run.__signature__ = made  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in made.parameters.values()}
    return run


def _is_option(parameter: inspect.Parameter) -> bool:
    metadata = getattr(parameter.annotation, "__metadata__", ())
    return any(isinstance(each, typer.models.OptionInfo) for each in metadata)


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        _print_page(ctx.command, ctx, everything=True)
        raise typer.Exit


def _print_page(command: Any, ctx: Any, *, everything: bool) -> None:
    console = Console(highlight=False)
    console.width = min(console.width, WIDEST)
    params = command.get_params(ctx)
    arguments = [each for each in params if each.param_type_name == "argument"]
    options = [each for each in params if each.param_type_name == "option"]
    chosen = options if everything else first_options(_first_of(command), options)
    console.print(Padding(Text(command.get_usage(ctx), style="bold"), (1, 0, 1, 1)))
    for paragraph in _paragraphs(command.help or ""):
        console.print(Padding(paragraph, (0, 1, 1, 1)))
    _print_panel(console, "Arguments", arguments)
    if len(chosen) == len(options):
        _print_grouped(console, options)
    else:
        _print_panel(console, "Options", chosen)
        shown = f"{len(options) - len(chosen)} more options: {ctx.command_path} {HELP_ALL}"
        console.print(Padding(Text(shown, style="bold"), (0, 0, 0, 1)))
    subcommands = getattr(command, "commands", {})
    if subcommands:
        rows = [(Text(name), _first_sentence(each)) for name, each in subcommands.items()]
        _print_rows(console, "Commands", rows)
    _print_epilog(console, command.epilog or "")


def _first_of(command: Any) -> Sequence[str]:
    module = sys.modules[inspect.unwrap(command.callback).__module__]
    return getattr(module, "FIRST_OPTIONS", ())


def first_options(first: Sequence[str], options: Sequence[Any]) -> list[Any]:
    """Return parameters of the short page, help options last."""
    own = [each for each in options if not _is_help(each)]
    if len(own) <= SHORT_PAGE_OPTIONS:
        return list(options)
    known = {opt: each for each in own for opt in each.opts}
    wanted = [known[opt] for opt in first if opt in known]
    return [*(wanted or own[:SHORT_PAGE_OPTIONS]), *(each for each in options if _is_help(each))]


def _is_help(option: Any) -> bool:
    return HELP_ALL in option.opts or "--help" in option.opts


def _print_grouped(console: Console, options: Iterable[Any]) -> None:
    panels: dict[str, list[Any]] = {"Options": []}
    options = sorted(options, key=_is_help)
    if not any(_panel_of(each) == "Options" and not _is_help(each) for each in options):
        del panels["Options"]  # the last one then
    for each in options:
        panels.setdefault(_panel_of(each), []).append(each)
    for name, members in panels.items():
        _print_panel(console, name, members)


def _panel_of(option: Any) -> str:
    return getattr(option, "rich_help_panel", None) or "Options"


def _print_panel(console: Console, name: str, params: Sequence[Any]) -> None:
    rows = [(entry(each), meaning(each)) for each in params if not getattr(each, "hidden", False)]
    _print_rows(console, name, rows)


def _print_rows(console: Console, name: str, rows: Sequence[tuple[Text, Text]]) -> None:
    if not rows:
        return
    width = min(NAME_CELLS, max(cell_len(left.plain) for left, _ in rows))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=width, overflow="fold")
    grid.add_column(overflow="fold")
    for left, right in rows:
        grid.add_row(left, right)
    console.print(Panel(grid, title=name, title_align="left", border_style="dim"))


def entry(param: Any) -> Text:
    label = value_label(param)
    if param.param_type_name == "argument":
        return Text(label or param.name, style="bold cyan")
    short = [each for each in param.opts if not each.startswith("--")]
    long = [each for each in param.opts if each.startswith("--")]
    names = ", ".join([*short, *long])
    if param.secondary_opts:
        names += " / " + ", ".join(param.secondary_opts)
    return Text(names, style="bold cyan").append(f" {label}" if label else "", style="yellow")


def value_label(param: Any) -> str:
    if param.metavar:
        return str(param.metavar)
    if getattr(param, "is_flag", False) or getattr(param, "count", False):
        return ""
    # What describes a parameter's type has another form in each generation of Typer.
    described = getattr(param, "type_descriptor", None) or getattr(param, "type", None)
    if choices := _choices(described):
        label = "|".join(choices)
        return label if len(label) <= NAME_CELLS - 2 else "CHOICE"
    kind = getattr(described, "name", "") or getattr(described, "annotation", "")
    if getattr(described, "is_path", False):
        kind = getattr(described, "path_type", "")
    kind = getattr(kind, "__name__", str(kind)).lower()
    if any(number in kind for number in ("int", "float")):
        return "NUMBER"
    return next((label for name, label in _KINDS.items() if name in kind), "TEXT")


def _choices(described: Any) -> list[str]:
    choices = getattr(described, "choices", None) or ()
    return [str(getattr(each, "value", each)) for each in choices]


def meaning(param: Any) -> Text:
    """Return help text with bounds, default and variable."""
    text = Text.from_markup(" ".join((param.help or "").split()))
    further = []
    if value_label(param) == "CHOICE":
        described = getattr(param, "type_descriptor", None) or getattr(param, "type", None)
        further.append(", ".join(_choices(described)))
    if (bounds := _bounds(param)) is not None:
        further.append(bounds)
    if (default := _default(param)) is not None:
        further.append(f"default: {default}")
    if param.envvar and getattr(param, "show_envvar", True):
        further.append(f"env: {param.envvar}")
    if param.required:
        further.append("required")
    if further:
        text.append(f" [{'; '.join(further)}]", style="dim")
    return text


def _bounds(param: Any) -> str | None:
    holder = param if hasattr(param, "min") else getattr(param, "type", None)
    low, high = getattr(holder, "min", None), getattr(holder, "max", None)
    if low is None and high is None:
        return None
    if high is None:
        return f"{low:g} or more"
    return f"{low:g} to {high:g}" if low is not None else f"at most {high:g}"


def _default(param: Any) -> str | None:
    value = param.default
    if not param.show_default or value in (None, False, "", ()) or callable(value):
        return None
    if value is True:
        return str(param.opts[0]) if param.secondary_opts else None
    if isinstance(value, Enum):
        return str(value.value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _first_sentence(command: Any) -> Text:
    paragraphs = _paragraphs(command.help or "")
    if not paragraphs:
        return Text()
    end = re.search(r"[.;](\s|$)", paragraphs[0].plain)
    sentence = paragraphs[0][: end.start()] if end else paragraphs[0]
    return sentence.append(".")


def _paragraphs(text: str) -> list[Text]:
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return [Text.from_markup(" ".join(part.split())) for part in parts if part.strip()]


def _print_epilog(console: Console, epilog: str) -> None:
    console.print()
    examples = False
    for part in re.split(r"\n\s*\n", epilog.strip()):
        text = " ".join(part.split())
        examples = examples or text == "Examples:"
        if examples and "mr-qwen3tts " in text:
            # The terminal wraps it: it is to be copied whole.
            console.print(Text(f"   {text}"), soft_wrap=True)
        elif text:
            console.print(Padding(Text.from_markup(text), (0, 1, 0, 1)))
    console.print()
