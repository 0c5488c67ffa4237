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

from django.contrib.postgres.expressions import ArraySubquery
from django.db import OperationalError, connection, transaction
from django.db.models import BooleanField, F, Func, QuerySet, TextField, Value
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan
from psycopg import errors

# Rows that are taken together. A job costs some 20 µs, because its status is derived from three other tables.
STEP = 500
# Of the list's own index, which Postgres follows and checks by itself, at most so many times that at once.
MOST_STEPS = 8
# After so long a page looks no further, unless it would be empty: then it gets some more.
SECONDS = 0.02
# What takes longer than this fails: something is wrong with the database.
MAX_SECONDS = 2.0
# What a search by trigrams is not done with by then is too common for it, and is met by walking.
SEARCH_SECONDS = 0.03

# The values of an order's fields, of the last row that was looked at.
Position = tuple[Any, ...]
# Positions behind the given one, at most so many, in the list's order; among them all that is wanted of that stretch.
Path = Callable[[Position | None, int], list[Position]]
# What is wanted of so many rows behind a position, at most so many and one more, and where these rows end; None: with
# the list.
Look = Callable[[Position | None, int, int], tuple[list[Position], Position | None]]


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
            self._behind(rows, order, position).values_list(*self.fields)[:count] for rows in (self.rows, *self.others)
        )
        return list(order.sort(first.union(*others), self.fields)[:count] if others else first)

    def reach(self, order: Order, position: Position | None, count: int) -> QuerySet[Any]:
        """The last of so many rows, and the one behind it, unless there are no more than these."""
        return self._behind(self.rows, order, position)[count - 1 : count + 1]

    def ids(self, order: Order, position: Position | None, count: int) -> ArraySubquery:
        return ArraySubquery(self._behind(self.rows, order, position).values(self.fields[-1])[:count])

    def _behind(self, rows: QuerySet[Any], order: Order, position: Position | None) -> QuerySet[Any]:
        return order.sort(order.after(rows, position, self.fields), self.fields)


@dataclass(frozen=True, slots=True)
class Source:
    """Ids of a superset of what is wanted, from indexes of their own; `ordered` if these run in the order of ids.

    Each part is rows of some table and the name of the field that holds the id. What is not in the list's order is only
    of use if it is all taken at once: up to so many `steps`.
    """

    parts: tuple[tuple[QuerySet[Any], str], ...]
    ordered: bool = True
    steps: int = 1

    def take(self, order: Order, position: Position | None, count: int) -> list[Position]:
        taken: set[Position] = set()
        for rows, name in self.parts:
            ids = order.after(rows.values_list(name).distinct(), position, (name,))
            taken.update(order.sort(ids, (name,))[:count])
        return sorted(taken, reverse=order.descending)[:count]

    def take_all(self) -> list[Position] | None:
        """None: there are too many."""
        with planned_without("seqscan", seconds=MAX_SECONDS):
            most = self.steps * STEP
            taken = [row for rows, name in self.parts for row in rows.order_by().values_list(name)[: most + 1]]
        return taken if len(taken) <= most else None


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
    """An id that is among those of an array that is selected, of which Postgres always looks each up.

    For however many it is told of beforehand it might take something else for cheaper, such as to read a whole table.
    """

    template = "%(expressions)s)"
    arg_joiner = " = ANY("
    output_field = BooleanField()


class _Selected(Func):
    """Ids as one parameter: those of an `IN` cost more to prepare than their rows to read."""

    template = "ARRAY(SELECT unnest(%(expressions)s::uuid[]))"
    output_field = TextField()


def walk_page(listing: Listing, position: Position | None, limit: int) -> Walked:
    asked = time.monotonic()
    until, until_empty = asked + SECONDS, asked + 1.5 * SECONDS
    walk = partial(listing.walk.take, listing.order)
    if any(rows.query.is_empty() for rows in (listing.match, listing.walk.rows)) and not listing.walk.others:
        return Walked([], None)
    if not listing.filtered:
        return _cut(walk(position, limit + 1), limit, None)
    look: Look = partial(_look_at, listing, walk) if listing.walk.others else partial(_look, listing)
    # Where much of it is wanted, the first few rows are a page already.
    size = 2 * limit
    found, end = look(position, size, limit)
    if len(found) * STEP > limit * limit:
        size = _size_for(limit + 1 - len(found), size, len(found))
    elif end is not None:
        look, size = _choose(listing, walk, look, end, size)
    while len(found) <= limit and end is not None:
        asked = time.monotonic()
        more, end = look(end, size, limit - len(found))
        found += more
        now = time.monotonic()
        left = (until if found else until_empty) - now
        if left < 0:
            break
        # What must be read from disk takes a hundred times as long: no more at once than there is time for, half of
        # which went into asking where only little was looked at.
        at_most = min(4 * size, int(2 * size * left / (now - asked)), MOST_STEPS * STEP)
        size = max(limit, min(at_most, _size_for(limit + 1 - len(found), size, len(more))))
    return _cut(found, limit, end)


def _size_for(lacking: int, size: int, found: int) -> int:
    """How many rows probably have what a page lacks, if so many of the last ones were wanted; and some to be sure."""
    return lacking * size * 5 // (4 * found) + 1 if found else MOST_STEPS * STEP


def _look(listing: Listing, position: Position | None, size: int, limit: int) -> tuple[list[Position], Position | None]:
    """In one statement, so that what comes and goes meanwhile is neither passed over nor found twice."""
    order, walk = listing.order, listing.walk
    wanted = _wanted(listing, walk.ids(order, position, size), position)
    found = wanted.values_list(*order.fields, Value(False))[: limit + 1]
    edge = walk.reach(order, position, size).values_list(*walk.fields, Value(True))
    rows = [(row[-1], row[:-1]) for row in order.sort(found.union(edge, all=True), order.fields)]
    last = [place for is_edge, place in rows if is_edge]
    return [place for is_edge, place in rows if not is_edge], last[0] if len(last) > 1 else None


def _look_at(
    listing: Listing, path: Path, position: Position | None, size: int, limit: int
) -> tuple[list[Position], Position | None]:
    taken = path(position, size + 1)
    return _wanted_of(listing, taken[:size], position, limit), taken[size - 1] if len(taken) > size else None


class _Ahead:
    """Looks along a path of which a step is taken at a time, because that costs about the same however long it is."""

    def __init__(self, listing: Listing, path: Path, taken: list[Position], *, is_all: bool = False) -> None:
        self._listing, self._path, self._taken = listing, path, taken
        self._is_last = is_all or len(taken) <= STEP

    def __call__(self, position: Position | None, size: int, limit: int) -> tuple[list[Position], Position | None]:
        if not (self._taken or self._is_last):
            self._taken = self._path(position, STEP + 1)
            self._is_last = len(self._taken) <= STEP
        some, self._taken = self._taken[:size], self._taken[size:]
        end = None if self._is_last and not self._taken else some[-1]
        return _wanted_of(self._listing, some, position, limit), end


def _choose(listing: Listing, walk: Path, look: Look, position: Position, size: int) -> tuple[Look, int]:
    """How to go on, and with how many rows."""
    order = listing.order
    sources = [source for source in listing.sources if not (source.ordered and order.by_id)]
    for source in sources:
        everything = source.take_all()
        if everything is not None:
            # In any order, and so all at once.
            return _Ahead(listing, walk, everything, is_all=True), len(everything)
    if listing.searched is not None:
        search = partial(_search, Walk(listing.searched, order.fields), order)
        rest = search(position)
        if rest is not None:
            return _Ahead(listing, partial(_search_or_walk, search, walk), rest), size
    # Of all that hold what is wanted, the one whose first rows reach furthest: it has the least else in it.
    others: list[Path] = [*listing.paths()]
    if order.by_id:
        others += [partial(source.take, order) for source in listing.sources if source.ordered]
    if not others:
        return look, 2 * size
    best, deepest = look, walk(position, STEP + 1)
    for other in others:
        if len(deepest) <= STEP:
            break
        taken = other(position, STEP + 1)
        if len(taken) <= STEP or (taken[STEP - 1] < deepest[STEP - 1]) == order.descending:
            best, deepest = _Ahead(listing, other, taken), taken
    return best, size


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


def _wanted(listing: Listing, candidates: _Selected | ArraySubquery, position: Position | None) -> QuerySet[Any]:
    order = listing.order
    rows = listing.match.filter(_OneOf(F("pk"), candidates))
    return order.sort(order.after(rows, position, order.fields), order.fields)


def _wanted_of(
    listing: Listing, candidates: Sequence[Position], position: Position | None, limit: int
) -> list[Position]:
    if not candidates:
        return []
    ids = _Selected(Value(f"{{{','.join([row[-1].hex for row in candidates])}}}"))
    return list(_wanted(listing, ids, position).values_list(*listing.order.fields)[: limit + 1])


def _cut(found: list[Position], limit: int, end: Position | None) -> Walked:
    page = found[:limit]
    return Walked([row[-1] for row in page], page[-1] if len(found) > limit else end)
