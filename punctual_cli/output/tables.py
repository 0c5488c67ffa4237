"""Tables on a terminal: lists cut to its width, and wrapped tables that are shown in full.

On a narrow terminal whole columns are dropped, so that the others stay readable: ids are never cut, other cells not
below a minimum width.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from punctual_cli.output.terminal import console

COLUMN_GAP = 1
# Enough for a status, a number, a short time or a recognisable part of a name.
MIN_COLUMN_WIDTH = 12
_TIME_PATTERN = re.compile(r"(\w+ )?(\d{4})-(\d\d-\d\d) (\d\d:\d\d)(:\d\d)(Z|[+-]\d\d:\d\d)")


def draw_wrapped(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*titles, box=None, header_style="bold", pad_edge=False)
    for line in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in line))
    console().print(table)


def draw_rows(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Sequence[int], droppable: Sequence[int], wide: bool
) -> None:
    screen = console(wrap=False)
    available = sys.maxsize if wide else screen.width
    if _total_width(_natural_widths(titles, rows).values()) > available:
        today = datetime.now(UTC).date()
        rows = [[shorten_time(cell, today) for cell in row] for row in rows]
    widths = choose_column_widths(titles, rows, available, whole, droppable)
    for number, line in enumerate([titles, *rows]):
        cells = [set_cell_size(truncate_cell(line[index], width), width) for index, width in widths.items()]
        screen.print(Text((" " * COLUMN_GAP).join(cells).rstrip(), style="" if number else "bold"))


def choose_column_widths(
    titles: Sequence[str], rows: Sequence[Sequence[str]], available: int, whole: Sequence[int], droppable: Sequence[int]
) -> dict[int, int]:
    """Return the widths of the columns to show: empty columns are dropped first, then `droppable` in order."""
    widths = _natural_widths(titles, rows)
    if rows and _total_width(widths.values()) > available:
        widths = {index: width for index, width in widths.items() if any(row[index] for row in rows)}
    fitted = fit_widths(widths, available, whole)
    for index in droppable:
        if _total_width(fitted.values()) <= available:
            break
        widths.pop(index, None)
        fitted = fit_widths(widths, available, whole)
    return fitted


def fit_widths(widths: dict[int, int], available: int, whole: Sequence[int]) -> dict[int, int]:
    """Narrow the widest columns until all fit, or none can be narrowed further."""
    fitted = dict(widths)
    narrowable = [index for index in fitted if index not in whole]
    while _total_width(fitted.values()) > available:
        widest = max(narrowable, key=lambda index: fitted[index], default=None)
        if widest is None or fitted[widest] <= MIN_COLUMN_WIDTH:
            break
        fitted[widest] -= 1
    return fitted


def shorten_time(cell: str, today: date) -> str:
    """Shorten a time: only the time of day for today, no seconds for this year, only the date before."""
    match = _TIME_PATTERN.fullmatch(cell)
    if match is None:
        return cell
    word, year, day, hour, seconds, offset = (part or "" for part in match.groups())
    if f"{year}-{day}" == today.isoformat():
        return f"{word}{hour}{seconds}{offset}"
    return f"{word}{day} {hour}{offset}" if int(year) == today.year else f"{word}{year}-{day}"


def truncate_cell(cell: str, width: int) -> str:
    """Cut a name in the middle, since both ends identify it, and a sentence at its end."""
    if cell_len(cell) <= width:
        return cell
    if width <= 4 or " " in cell:
        return set_cell_size(cell, max(width - 1, 0)).rstrip() + "…"
    tail = (width - 1) // 2
    return set_cell_size(cell, width - 1 - tail) + "…" + _last_cells(cell, tail)


def _natural_widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[int, int]:
    return {index: max(map(cell_len, column)) for index, column in enumerate(zip(titles, *rows, strict=True))}


def _total_width(widths: Collection[int]) -> int:
    return sum(widths) + COLUMN_GAP * (len(widths) - 1)


def _last_cells(cell: str, width: int) -> str:
    end = len(cell)
    while end and cell_len(cell[end - 1 :]) <= width:
        end -= 1
    return cell[end:]
