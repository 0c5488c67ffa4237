"""Pages of lists that may be filtered by anything, each at a bounded price.

A page follows the list's own index, or that of a filter that holds all that is wanted, and checks what it meets by key
until it is full or its time is up. It is exact up to where it ends: one that ends early is short, and the next goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db import OperationalError, connection, transaction
from django.db.models import BooleanField, F, Func, QuerySet, Value
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan
from psycopg import errors

# Rows that are looked at together. A job costs some 20 µs, because its status is derived from three other tables.
STEP = 500
# After so long a page looks no further, unless it would be empty: then it gets some more.
SECONDS = 0.025
# What takes longer than this fails: something is wrong with the database.
MAX_SECONDS = 2.0
# What a search by trigrams is not done with by then is too common for it, and is met by walking.
SEARCH_SECONDS = 0.03

# The values of an order's fields, of the last row that was looked at.
Position = tuple[Any, ...]
# Positions behind the given one, at most so many, in the list's order; among them all that is wanted of that stretch.
Path = Callable[[Position | None, int], list[Position]]


@dataclass(frozen=True, slots=True)
class Order:
    """The last field is the id: it makes the order total, so that a position is a place between two rows."""

    fields: tuple[str, ...]
    descending: bool

    @property
    def by_id(self) -> bool:
        return len(self.fields) == 1

    def sort(self, rows: QuerySet[Any], fields: Sequence[str]) -> QuerySet[Any]:
        return rows.order_by(*(f"-{name}" if self.descending else name for name in fields))

    def after(self, rows: QuerySet[Any], position: Position | None, fields: Sequence[str]) -> QuerySet[Any]:
        """As one comparison of rows, which an index on these fields answers however many share the first of them."""
        if position is None:
            return rows
        if len(fields) == 1:
            return rows.filter(**{f"{fields[0]}__{'lt' if self.descending else 'gt'}": position[0]})
        compare = TupleLessThan if self.descending else TupleGreaterThan
        return rows.filter(compare(Tuple(*map(F, fields)), position))


@dataclass(frozen=True, slots=True)
class Walk:
    """Rows of any table in the list's order; `fields` are its names for the order's, the last one the id.

    `others` are further rows of that table, each with an index of its own: a row may be among several.
    """

    rows: QuerySet[Any]
    fields: tuple[str, ...]
    others: Sequence[QuerySet[Any]] = ()

    def take(self, order: Order, position: Position | None, count: int) -> list[Position]:
        first, *others = (
            order.sort(order.after(rows, position, self.fields), self.fields).values_list(*self.fields)[:count]
            for rows in (self.rows, *self.others)
        )
        return list(order.sort(first.union(*others), self.fields)[:count] if others else first)


@dataclass(frozen=True, slots=True)
class Source:
    """Ids of a superset of what is wanted, from indexes of their own; `ordered` if these run in the order of ids.

    Each part is rows of some table and the name of the field that holds the id.
    """

    parts: tuple[tuple[QuerySet[Any], str], ...]
    ordered: bool = True

    def take(self, order: Order, position: Position | None, count: int) -> list[Position]:
        taken: set[Position] = set()
        for rows, name in self.parts:
            ids = order.after(rows.values_list(name).distinct(), position, (name,))
            taken.update(order.sort(ids, (name,))[:count])
        return sorted(taken, reverse=order.descending)[:count]

    def take_all(self) -> list[Position] | None:
        """None: there are too many."""
        with planned_without("seqscan", seconds=MAX_SECONDS):
            taken = [row for rows, name in self.parts for row in rows.order_by().values_list(name)[: STEP + 1]]
        return taken if len(taken) <= STEP else None


@dataclass(frozen=True, slots=True)
class Listing:
    """What is wanted (`match`) of what can be walked; unless it is `filtered`, that is all of it.

    `searched` are rows of the list that only a bitmap finds, all at once; `paths` run in the list's order, and are
    asked for when they are needed.
    """

    match: QuerySet[Any]
    order: Order
    walk: Walk
    filtered: bool
    sources: Sequence[Source] = ()
    searched: QuerySet[Any] | None = None
    paths: Callable[[], Iterable[Path]] = tuple


@dataclass(frozen=True, slots=True)
class Walked:
    """The ids of a page, and the position that the next one goes on from; None at the end of the list."""

    ids: list[UUID]
    end: Position | None


class _OneOf(Func):
    """One parameter, however many ids there are: those of an `IN` cost more to prepare than their rows to read."""

    template = "%(expressions)s::uuid[])"
    arg_joiner = " = ANY("
    output_field = BooleanField()


def walk_page(listing: Listing, position: Position | None, limit: int) -> Walked:
    began = time.monotonic()
    walk = partial(listing.walk.take, listing.order)
    if not listing.filtered:
        return _cut(walk(position, limit + 1), limit, None)
    # Where much of it is wanted, the first few rows are a page already.
    first = walk(position, 2 * limit)
    found = _wanted(listing, first, position, limit)
    if len(found) > limit or len(first) < 2 * limit:
        return _cut(found, limit, None)
    end = first[-1]
    if len(found) * STEP > 2 * limit * limit:
        path: Path | None = walk
        taken = walk(end, STEP + 1)
    else:
        path, taken = _choose(listing, walk, end)
    size = 2 * limit if path else len(taken)
    while taken:
        is_last = len(taken) <= STEP
        while taken:
            asked = time.monotonic()
            found += _wanted(listing, taken[:size], end, limit - len(found))
            end, taken = taken[:size][-1], taken[size:]
            now, is_over = time.monotonic(), is_last and not taken
            left = began + (SECONDS if found else 1.5 * SECONDS) - now
            if len(found) > limit or is_over or left < 0:
                return _cut(found, limit, None if is_over else end)
            # What must be read from disk takes a hundred times as long: no more at once than there is time for.
            size = max(limit, min(2 * size, int(size * left / (now - asked))))
        taken = path(end, STEP + 1) if path else []
    return _cut(found, limit, None)


def _choose(listing: Listing, walk: Path, position: Position | None) -> tuple[Path | None, list[Position]]:
    """How to go on, with the first rows there. No path: these are all, in any order."""
    order = listing.order
    sources = [source for source in listing.sources if not (source.ordered and order.by_id)]
    for source in sources:
        everything = source.take_all()
        if everything is not None:
            return None, everything
    if listing.searched is not None:
        search = partial(_search, Walk(listing.searched, order.fields), order)
        rest = search(position)
        if rest is not None:
            return partial(_search_or_walk, search, walk), rest
    # Of all that hold what is wanted, the one whose first rows reach furthest: it has the least else in it.
    path, deepest = walk, walk(position, STEP + 1)
    others: list[Path] = [*listing.paths()]
    if order.by_id:
        others += [partial(source.take, order) for source in listing.sources if source.ordered]
    for other in others:
        if len(deepest) <= STEP:
            break
        taken = other(position, STEP + 1)
        if len(taken) <= STEP or (taken[STEP - 1] < deepest[STEP - 1]) == order.descending:
            path, deepest = other, taken
    return path, deepest


def _search_or_walk(
    search: Callable[[Position | None], list[Position] | None], walk: Path, position: Position | None, count: int
) -> list[Position]:
    rest = search(position)
    return walk(position, count) if rest is None else rest


def _search(walk: Walk, order: Order, position: Position | None) -> list[Position] | None:
    """None: there are too many for the time."""
    try:
        with planned_without("seqscan", "indexscan", "indexonlyscan", seconds=SEARCH_SECONDS):
            return walk.take(order, position, STEP + 1)
    except OperationalError as error:
        if isinstance(error.__cause__, errors.QueryCanceled):
            return None
        raise


@contextmanager
def planned_without(*scans: str, seconds: float) -> Iterator[None]:
    """For questions whose answer is small or cut short, which the planner cannot know: it would read a whole table."""
    settings = [("statement_timeout", f"{int(seconds * 1000)}ms"), *((f"enable_{scan}", "off") for scan in scans)]
    with transaction.atomic():
        with connection.cursor() as cursor:
            calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
            cursor.execute(f"SELECT {calls}", [word for setting in settings for word in setting])
        yield
        # It only reads: so nothing of this stays, also where the transaction is part of another.
        transaction.set_rollback(True)


def _wanted(listing: Listing, candidates: Sequence[Position], position: Position | None, limit: int) -> list[Position]:
    if not candidates:
        return []
    order = listing.order
    rows = listing.match.filter(_OneOf(F("pk"), Value(f"{{{','.join([row[-1].hex for row in candidates])}}}")))
    return list(
        order.sort(order.after(rows, position, order.fields), order.fields).values_list(*order.fields)[: limit + 1]
    )


def _cut(found: list[Position], limit: int, end: Position | None) -> Walked:
    page = found[:limit]
    return Walked([row[-1] for row in page], page[-1] if len(found) > limit else end)
