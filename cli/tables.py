"""Tables on a terminal: rows that fit its width and are not wrapped, or few that are, because all of them is read."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from cli.terminal import console

GAP = 1
# To these, columns shrink where a terminal is narrow: those that are there to be copied come last.
NARROWEST = 6
SHORTEST_TITLE = 4
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")
NARROWEST_COPIED = 12


def draw_wrapped(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*titles, box=None, header_style="bold", pad_edge=False)
    for line in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in line))
    console().print(table)


def draw_rows(titles: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Sequence[int], wide: bool) -> None:
    screen = console(wrap=False)
    widths = arrange(titles, rows, sys.maxsize if wide else screen.width, whole)
    for number, line in enumerate([titles, *rows]):
        cells = [set_cell_size(cut(line[index], width), width) for index, width in widths.items()]
        screen.print(Text((" " * GAP).join(cells).rstrip(), style="" if number else "bold"))


def arrange(titles: Sequence[str], rows: Sequence[Sequence[str]], room: int, whole: Sequence[int]) -> dict[int, int]:
    """Which columns are shown, and how wide: where room is short, none that says nothing, nor a title in full."""
    widths = {index: max(map(cell_len, column)) for index, column in enumerate(zip(titles, *rows, strict=True))}
    if rows and sum(widths.values()) + GAP * (len(widths) - 1) > room:
        longest = {index: max(cell_len(row[index]) for row in rows) for index in widths}
        widths = {
            index: min(width, max(longest[index], SHORTEST_TITLE)) for index, width in widths.items() if longest[index]
        }
    kept = list(widths)
    fitted = fit(list(widths.values()), room, [kept.index(index) for index in whole if index in widths])
    return dict(zip(kept, fitted, strict=True))


def fit(widths: Sequence[int], room: int, whole: Sequence[int]) -> list[int]:
    """The widths, the widest made narrower until all of them are in the room, or none can be."""
    fitted = list(widths)
    for narrowest, able in (
        (NARROWEST, [index for index in range(len(fitted)) if index not in whole]),
        (NARROWEST_COPIED, list(whole)),
        (1, list(range(len(fitted)))),
    ):
        while sum(fitted) + GAP * (len(fitted) - 1) > room:
            widest = max(able, key=lambda index: fitted[index], default=None)
            if widest is None or fitted[widest] <= narrowest:
                break
            fitted[widest] -= 1
    return fitted


def cut(cell: str, width: int) -> str:
    """A name is told by both of its ends, a sentence by how it begins, a time best by its hour."""
    if cell_len(cell) <= width:
        return cell
    if _TIME.fullmatch(cell) and width > 4:
        return f"…{cell[1 - width :]}"
    if width <= 4 or " " in cell:
        return set_cell_size(cell, max(width - 1, 0)).rstrip() + "…"
    tail = (width - 1) // 2
    return set_cell_size(cell, width - 1 - tail) + "…" + _last_cells(cell, tail)


def _last_cells(cell: str, width: int) -> str:
    end = len(cell)
    while end and cell_len(cell[end - 1 :]) <= width:
        end -= 1
    return cell[end:]
