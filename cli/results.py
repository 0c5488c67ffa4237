"""What a command prints of what the server answered, in the format that was asked for: one way for all commands.

On a terminal a list fits its width, with as many of its columns as that has room for, and no row is wrapped; into a
pipe, and with `wide`, nothing is cut. JSON and YAML are ASCII only, so they are harmless on a terminal and exact in a
pipe.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from cli.answers import JsonObject, optional_text
from cli.terminal import neutralise, say, shown_time, write_result

# Fields whose values are what somebody has given or a program has told, also if they are empty.
OF_ONES_OWN = ("args", "env", "result")


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Answered(Protocol):
    @property
    def raw(self) -> JsonObject: ...


Item = TypeVar("Item", bound=Answered)


@dataclass(frozen=True)
class Column(Generic[Item]):
    """`wide`: only where there is room for all; `whole`: there to be copied, and never cut or left out.

    `spare`: where room is short, the column with the highest goes first, and of equals the last. `differing`: a wide
    one that is shown also where rows differ in it.
    """

    title: str
    cell: Callable[[Item], object]
    wide: bool = False
    whole: bool = False
    spare: int = 0
    differing: bool = False


def write_list(found: Sequence[Item], columns: Sequence[Column[Item]], output: Format, *, nothing: str = "") -> None:
    """`nothing` is what a person is told where there is nothing to list: why, or what to do."""
    if output in (Format.JSON, Format.YAML):
        write_data([item.raw for item in found], output)
        return
    if nothing and not found:
        say(nothing)
        if sys.stdout.isatty():
            return
    chosen = [
        column
        for column in columns
        if output is Format.WIDE or not column.wide or (column.differing and len(set(map(column.cell, found))) > 1)
    ]
    rows = [[_text(column.cell(item)) for column in chosen] for item in found]
    whole = [index for index, column in enumerate(chosen) if column.whole]
    spare = [column.spare for column in chosen]
    write_rows([column.title for column in chosen], rows, whole=whole, spare=spare, output=output)


def write_object(raw: JsonObject, output: Format) -> None:
    """Every field on a line of its own; one that is too long goes on below itself."""
    if output in (Format.JSON, Format.YAML):
        write_data(raw, output)
    else:
        write_fields(list(flatten(raw).items()))


def write_answer(raw: JsonObject, output: Format | None, *, short: str = "") -> None:
    """What a command made or changed: the thing itself where a format was asked for, else its id or nothing."""
    if output is not None:
        write_object(raw, output)
    elif short:
        write_result(short)


def write_data(value: object, output: Format) -> None:
    print(as_yaml(value) if output is Format.YAML else json.dumps(value, indent=2, default=str), flush=True)


def write_fields(rows: Sequence[Sequence[str]], titles: Sequence[str] = ("FIELD", "VALUE")) -> None:
    """Few lines that have to be read in full: nothing is cut, and what is too long is wrapped in its column."""
    clean = [[neutralise(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _write_lines([titles, *clean])
        return
    from cli.tables import draw_wrapped  # noqa: PLC0415  only a terminal needs what draws

    draw_wrapped(titles, clean)


def write_rows(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: Sequence[int] = (0,),
    spare: Sequence[int] = (),
    output: Format = Format.TABLE,
) -> None:
    """`whole` are places of columns, `spare` is a number for each; as of a `Column`."""
    clean = [[neutralise(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _write_lines([titles, *clean])
        return
    from cli.tables import draw_rows  # noqa: PLC0415  only a terminal needs what draws

    ranks = spare or [0] * len(titles)
    going = sorted(set(range(len(titles))) - set(whole), key=lambda place: (ranks[place], place), reverse=True)
    draw_rows(titles, clean, whole=whole, going=going, wide=output is Format.WIDE)


def flatten(value: object, name: str = "") -> dict[str, str]:
    """Nested fields as `retry.max_attempts` and `schedules.0.cron`, without those that say nothing.

    A text that is empty says nothing, but where it is one of somebody's own, such as an argument.
    """
    if isinstance(value, Mapping):
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(str(index), item) for index, item in enumerate(value)]
    else:
        silent = value is None or (value == "" and name.partition(".")[0] not in OF_ONES_OWN)
        return {} if silent else {name: str(value)}
    flat: dict[str, str] = {}
    for key, item in pairs:
        flat |= flatten(item, f"{name}.{key}" if name else key)
    return flat


def field(name: str) -> Callable[[Answered], object]:
    """A cell that is a field of the answer as it is."""
    return lambda item: item.raw.get(name)


def moment(name: str) -> Callable[[Answered], object]:
    """A cell that is a time."""
    return lambda item: shown_time(optional_text(item.raw, name))


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)


def _write_lines(lines: Iterable[Sequence[str]]) -> None:
    for line in lines:
        print("\t".join(line))


def as_yaml(value: object) -> str:
    # Reading the module takes as long as a short command does.
    import yaml  # noqa: PLC0415

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def written(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, written)
    text: str = yaml.dump(
        value, Dumper=Dumper, default_flow_style=False, sort_keys=False, allow_unicode=False, width=sys.maxsize
    )
    return text.removesuffix("\n")
