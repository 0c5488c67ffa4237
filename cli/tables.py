"""Tables on a terminal: rows that fit its width and are not wrapped, or few that are, because all of them is read.

Where room is short, whole columns go, and what stays can be read: ids are never cut, nor is anything to less than tells
what it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from cli.terminal import console

GAP = 1
# Nothing is cut to less: it holds a state, a number, a short time, and enough of a name.
NARROWEST = 12
_TIME = re.compile(r"(\w+ )?(\d{4})-(\d\d-\d\d) (\d\d:\d\d)(:\d\d)(Z|[+-]\d\d:\d\d)")


def draw_wrapped(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*titles, box=None, header_style="bold", pad_edge=False)
    for line in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in line))
    console().print(table)


def draw_rows(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Sequence[int], going: Sequence[int], wide: bool
) -> None:
    screen = console(wrap=False)
    room = sys.maxsize if wide else screen.width
    if _taken(_natural(titles, rows).values()) > room:
        today = datetime.now(UTC).date()
        rows = [[shorten(cell, today) for cell in row] for row in rows]
    widths = arrange(titles, rows, room, whole, going)
    for number, line in enumerate([titles, *rows]):
        cells = [set_cell_size(cut(line[index], width), width) for index, width in widths.items()]
        screen.print(Text((" " * GAP).join(cells).rstrip(), style="" if number else "bold"))


def arrange(
    titles: Sequence[str], rows: Sequence[Sequence[str]], room: int, whole: Sequence[int], going: Sequence[int]
) -> dict[int, int]:
    """Which columns are shown, and how wide: where room is short, those go that say nothing, then `going`."""
    widths = _natural(titles, rows)
    if rows and _taken(widths.values()) > room:
        widths = {index: width for index, width in widths.items() if any(row[index] for row in rows)}
    fitted = fit(widths, room, whole)
    for index in going:
        if _taken(fitted.values()) <= room:
            break
        widths.pop(index, None)
        fitted = fit(widths, room, whole)
    return fitted


def fit(widths: dict[int, int], room: int, whole: Sequence[int]) -> dict[int, int]:
    """The widths, the widest made narrower until all of them are in the room, or none may be."""
    fitted = dict(widths)
    able = [index for index in fitted if index not in whole]
    while _taken(fitted.values()) > room:
        widest = max(able, key=lambda index: fitted[index], default=None)
        if widest is None or fitted[widest] <= NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


def shorten(cell: str, today: date) -> str:
    """A time in as little as tells it: of today the hour, of this year no seconds, of another one the day."""
    found = _TIME.fullmatch(cell)
    if found is None:
        return cell
    word, year, day, hour, seconds, offset = (part or "" for part in found.groups())
    if f"{year}-{day}" == today.isoformat():
        return f"{word}{hour}{seconds}{offset}"
    return f"{word}{day} {hour}{offset}" if int(year) == today.year else f"{word}{year}-{day}"


def cut(cell: str, width: int) -> str:
    """A name is told by both of its ends, a sentence by how it begins."""
    if cell_len(cell) <= width:
        return cell
    if width <= 4 or " " in cell:
        return set_cell_size(cell, max(width - 1, 0)).rstrip() + "…"
    tail = (width - 1) // 2
    return set_cell_size(cell, width - 1 - tail) + "…" + _last_cells(cell, tail)


def _natural(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[int, int]:
    return {index: max(map(cell_len, column)) for index, column in enumerate(zip(titles, *rows, strict=True))}


def _taken(widths: Collection[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _last_cells(cell: str, width: int) -> str:
    end = len(cell)
    while end and cell_len(cell[end - 1 :]) <= width:
        end -= 1
    return cell[end:]
