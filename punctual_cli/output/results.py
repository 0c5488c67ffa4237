"""Output of results as a table, JSON or YAML, for all commands.

On a terminal a list shows as many columns as fit, and wraps no row; in a pipe and with `wide` nothing is cut. JSON and
YAML are ASCII only, so they are harmless on a terminal and exact in a pipe.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from punctual_cli.output.terminal import escape_control_characters, format_time, write_message, write_result
from punctual_client.json_fields import JsonObject, optional_text_field

# Fields with user data, in which an empty text is a value.
USER_DATA_FIELDS = ("args", "env", "result")


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class HasRaw(Protocol):
    @property
    def raw(self) -> JsonObject: ...


Item = TypeVar("Item", bound=HasRaw)


@dataclass(frozen=True)
class Column(Generic[Item]):
    """A column of a list.

    `wide`: shown with `-o wide` only. `shown_if_varied`: a wide column shown whenever rows differ in it. `whole`: never
    cut or dropped, since users copy it. `drop_order`: on a narrow terminal the column with the highest number is
    dropped first, among equals the rightmost.
    """

    title: str
    cell: Callable[[Item], object]
    wide: bool = False
    whole: bool = False
    drop_order: int = 0
    shown_if_varied: bool = False


def write_list(found: Sequence[Item], columns: Sequence[Column[Item]], output: Format, *, if_empty: str = "") -> None:
    """Print a list; `if_empty` is a message for an empty one: the reason, or what to do."""
    if output in (Format.JSON, Format.YAML):
        write_data([item.raw for item in found], output)
        return
    if if_empty and not found:
        write_message(if_empty)
        if sys.stdout.isatty():
            return
    chosen = [
        column
        for column in columns
        if output is Format.WIDE
        or not column.wide
        or (column.shown_if_varied and len(set(map(column.cell, found))) > 1)
    ]
    rows = [[_format_cell(column.cell(item)) for column in chosen] for item in found]
    whole = [index for index, column in enumerate(chosen) if column.whole]
    drop_order = [column.drop_order for column in chosen]
    write_rows([column.title for column in chosen], rows, whole=whole, drop_order=drop_order, output=output)


def write_object(raw: JsonObject, output: Format) -> None:
    """Print every field on its own line."""
    if output in (Format.JSON, Format.YAML):
        write_data(raw, output)
    else:
        write_fields(list(flatten(raw).items()))


def write_resource(raw: JsonObject, output: Format | None, *, short: str = "") -> None:
    """Print what a command created or changed: whole in the given format, else only its id or nothing."""
    if output is not None:
        write_object(raw, output)
    elif short:
        write_result(short)


def write_data(value: object, output: Format) -> None:
    print(to_yaml(value) if output is Format.YAML else json.dumps(value, indent=2, default=str), flush=True)


def write_fields(rows: Sequence[Sequence[str]], titles: Sequence[str] = ("FIELD", "VALUE")) -> None:
    """Print rows uncut; long cells wrap within their column."""
    clean = [[escape_control_characters(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _write_lines([titles, *clean])
        return
    from punctual_cli.output.tables import draw_wrapped  # noqa: PLC0415  only a terminal needs rich

    draw_wrapped(titles, clean)


def write_rows(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: Sequence[int] = (0,),
    drop_order: Sequence[int] = (),
    output: Format = Format.TABLE,
) -> None:
    """Print rows; `whole` are column indexes and `drop_order` a number per column, as in `Column`."""
    clean = [[escape_control_characters(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _write_lines([titles, *clean])
        return
    from punctual_cli.output.tables import draw_rows  # noqa: PLC0415  only a terminal needs rich

    ranks = drop_order or [0] * len(titles)
    droppable = sorted(set(range(len(titles))) - set(whole), key=lambda index: (ranks[index], index), reverse=True)
    draw_rows(titles, clean, whole=whole, droppable=droppable, wide=output is Format.WIDE)


def flatten(value: object, name: str = "") -> dict[str, str]:
    """Return nested fields as `retry.max_attempts` and `schedules.0.cron`, without empty ones.

    An empty text counts as a value in user data, such as an argument.
    """
    if isinstance(value, Mapping):
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(str(index), item) for index, item in enumerate(value)]
    else:
        empty = value is None or (value == "" and name.partition(".")[0] not in USER_DATA_FIELDS)
        return {} if empty else {name: str(value)}
    flat: dict[str, str] = {}
    for key, item in pairs:
        flat |= flatten(item, f"{name}.{key}" if name else key)
    return flat


def raw_field(name: str) -> Callable[[HasRaw], object]:
    """Return a cell function for a field of the answer."""
    return lambda item: item.raw.get(name)


def time_field(name: str) -> Callable[[HasRaw], object]:
    """Return a cell function for a field that is a time."""
    return lambda item: format_time(optional_text_field(item.raw, name))


def _format_cell(cell: object) -> str:
    return "" if cell is None else str(cell)


def _write_lines(lines: Iterable[Sequence[str]]) -> None:
    for line in lines:
        print("\t".join(line))


def to_yaml(value: object) -> str:
    # Importing yaml takes as long as a short command.
    import yaml  # noqa: PLC0415

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent_text)
    text: str = yaml.dump(
        value, Dumper=Dumper, default_flow_style=False, sort_keys=False, allow_unicode=False, width=sys.maxsize
    )
    return text.removesuffix("\n")
