"""Keyset pagination of lists with arbitrary filters, at a bounded cost per page.

A page reads the list's own index, or a filter's index that contains every match, and checks the rows by key until the
page is full or its time is up. A page that ends early is short but exact, and the next page continues from its end.
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

# Rows per step. Checking a job takes some 20 µs, because its status is derived from three other tables.
STEP_ROWS = 500
# Steps that one statement may take on the list's own index, which Postgres checks on its own.
MAX_STEPS_PER_SCAN = 8
# After this long a page ends, unless it would be empty: then it gets half as much again.
PAGE_BUDGET_SECONDS = 0.02
# Slower statements mean that something is wrong with the database, and fail.
STATEMENT_TIMEOUT_SECONDS = 2.0
# A trigram search that takes longer has too many matches and is replaced by scanning the list.
SEARCH_TIMEOUT_SECONDS = 0.03

# The values of the order's fields, of the last row read.
Position = tuple[Any, ...]
# Returns at most `count` positions after the given one, in the list's order, including every match of that stretch.
Path = Callable[[Position | None, int], list[Position]]
# Reads `size` rows after a position; returns at most `limit` + 1 matches and where the rows end (None: the list ends).
Scan = Callable[[Position | None, int, int], tuple[list[Position], Position | None]]


@dataclass(frozen=True, slots=True)
class Order:
    """Sort order of a list. The last field is the id, which makes the order total."""

    fields: tuple[str, ...]
    descending: bool

    @property
    def by_id(self) -> bool:
        return len(self.fields) == 1

    def sort(self, rows: QuerySet[Any], fields: Sequence[str]) -> QuerySet[Any]:
        return rows.order_by(*(f"-{name}" if self.descending else name for name in fields))

    def after(self, rows: QuerySet[Any], position: Position | None, fields: Sequence[str]) -> QuerySet[Any]:
        """Filter by one row comparison, which an index on these fields serves even if many rows share the first."""
        if position is None:
            return rows
        if len(fields) == 1:
            return rows.filter(**{f"{fields[0]}__{'lt' if self.descending else 'gt'}": position[0]})
        compare = TupleLessThan if self.descending else TupleGreaterThan
        return rows.filter(compare(Tuple(*map(F, fields)), position))


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Rows of any table in the list's order; `fields` are that table's names of the order's fields.

    `others` are further querysets of the table, each with its own index; they may overlap.
    """

    rows: QuerySet[Any]
    fields: tuple[str, ...]
    others: Sequence[QuerySet[Any]] = ()

    def take(self, order: Order, position: Position | None, count: int) -> list[Position]:
        first, *others = (
            self._rows_after(rows, order, position).values_list(*self.fields)[:count]
            for rows in (self.rows, *self.others)
        )
        return list(order.sort(first.union(*others), self.fields)[:count] if others else first)

    def edge(self, order: Order, position: Position | None, count: int) -> QuerySet[Any]:
        """Return row number `count` after the position, and its successor if there is one."""
        return self._rows_after(self.rows, order, position)[count - 1 : count + 1]

    def ids(self, order: Order, position: Position | None, count: int) -> ArraySubquery:
        return ArraySubquery(self._rows_after(self.rows, order, position).values(self.fields[-1])[:count])

    def _rows_after(self, rows: QuerySet[Any], order: Order, position: Position | None) -> QuerySet[Any]:
        return order.sort(order.after(rows, position, self.fields), self.fields)


@dataclass(frozen=True, slots=True)
class IdSource:
    """Ids of a superset of the matches from other indexes; `ordered` if these return them in the order of ids.

    Each part is a queryset and its field with the id. Ids that are not in the list's order are only useful if all of
    them fit into `steps` steps.
    """

    parts: tuple[tuple[QuerySet[Any], str], ...]
    ordered: bool = True
    steps: int = 1

    def take(self, order: Order, position: Position | None, count: int) -> list[Position]:
        positions: set[Position] = set()
        for rows, name in self.parts:
            ids = order.after(rows.values_list(name).distinct(), position, (name,))
            positions.update(order.sort(ids, (name,))[:count])
        return sorted(positions, reverse=order.descending)[:count]

    def take_all(self) -> list[Position] | None:
        """Return all ids; None if there are too many."""
        with planned_without("seqscan", seconds=STATEMENT_TIMEOUT_SECONDS):
            most = self.steps * STEP_ROWS
            positions = [row for rows, name in self.parts for row in rows.order_by().values_list(name)[: most + 1]]
        return positions if len(positions) <= most else None


@dataclass(frozen=True, slots=True)
class Listing:
    """A list: `match` are the wanted rows, `walk` the rows to scan; equal unless `filtered`.

    `searched` is a superset of the matches that only a bitmap scan finds, all at once. `paths` are further supersets in
    the list's order, built on demand.
    """

    match: QuerySet[Any]
    order: Order
    walk: OrderedRows
    filtered: bool
    sources: Sequence[IdSource] = ()
    searched: QuerySet[Any] | None = None
    paths: Callable[[], Iterable[Path]] = tuple


@dataclass(frozen=True, slots=True)
class KeysetPage:
    """The ids of a page, and the position where the next page continues; None at the end of the list."""

    ids: list[UUID]
    end: Position | None


class _EqualsAny(Func):
    """`id = ANY(subselect)`, for which Postgres always looks up each id.

    Given a known number of ids, the planner might read the whole table instead.
    """

    template = "%(expressions)s)"
    arg_joiner = " = ANY("
    output_field = BooleanField()


class _IdArray(Func):
    """Ids as one parameter: an `IN` list costs more to prepare than its rows to read."""

    template = "ARRAY(SELECT unnest(%(expressions)s::uuid[]))"
    output_field = TextField()


def read_keyset_page(listing: Listing, position: Position | None, limit: int) -> KeysetPage:
    started = time.monotonic()
    until, until_empty = started + PAGE_BUDGET_SECONDS, started + 1.5 * PAGE_BUDGET_SECONDS
    walk = partial(listing.walk.take, listing.order)
    if any(rows.query.is_empty() for rows in (listing.match, listing.walk.rows)) and not listing.walk.others:
        return KeysetPage([], None)
    if not listing.filtered:
        return _cut_page(walk(position, limit + 1), limit, None)
    scan: Scan = partial(_scan_path, listing, walk) if listing.walk.others else partial(_scan_index, listing)
    # If many rows match, the first few rows already fill the page.
    size = 2 * limit
    found, end = scan(position, size, limit)
    if len(found) * STEP_ROWS > limit * limit:
        size = _estimate_size(limit + 1 - len(found), size, len(found))
    elif end is not None:
        scan, size = _choose_scan(listing, walk, scan, end, size)
    while len(found) <= limit and end is not None:
        started = time.monotonic()
        more, end = scan(end, size, limit - len(found))
        found += more
        now = time.monotonic()
        left = (until if found else until_empty) - now
        if left < 0:
            break
        # Rows read from disk take a hundred times as long: read no more than fit into the time left. The factor 2
        # allows for the fixed cost of a small scan.
        at_most = min(4 * size, int(2 * size * left / (now - started)), MAX_STEPS_PER_SCAN * STEP_ROWS)
        size = max(limit, min(at_most, _estimate_size(limit + 1 - len(found), size, len(more))))
    return _cut_page(found, limit, end)


def _estimate_size(missing: int, size: int, found: int) -> int:
    """Estimate the rows to read for the missing matches from the last scan's hit rate, plus a quarter."""
    return missing * size * 5 // (4 * found) + 1 if found else MAX_STEPS_PER_SCAN * STEP_ROWS


def _scan_index(
    listing: Listing, position: Position | None, size: int, limit: int
) -> tuple[list[Position], Position | None]:
    """Scan the list's index in one statement, so that concurrent changes neither hide nor repeat rows."""
    order, walk = listing.order, listing.walk
    matches = _filter_candidates(listing, walk.ids(order, position, size), position)
    found = matches.values_list(*order.fields, Value(False))[: limit + 1]
    edge = walk.edge(order, position, size).values_list(*walk.fields, Value(True))
    rows = [(row[-1], row[:-1]) for row in order.sort(found.union(edge, all=True), order.fields)]
    last = [place for is_edge, place in rows if is_edge]
    return [place for is_edge, place in rows if not is_edge], last[0] if len(last) > 1 else None


def _scan_path(
    listing: Listing, path: Path, position: Position | None, size: int, limit: int
) -> tuple[list[Position], Position | None]:
    positions = path(position, size + 1)
    return _read_wanted(listing, positions[:size], position, limit), positions[size - 1] if len(
        positions
    ) > size else None


class _BufferedPath:
    """Scans a path that is read one full step at a time, because a step costs about the same whatever its length."""

    def __init__(self, listing: Listing, path: Path, positions: list[Position], *, is_all: bool = False) -> None:
        self._listing, self._path, self._positions = listing, path, positions
        self._is_last = is_all or len(positions) <= STEP_ROWS

    def __call__(self, position: Position | None, size: int, limit: int) -> tuple[list[Position], Position | None]:
        if not (self._positions or self._is_last):
            self._positions = self._path(position, STEP_ROWS + 1)
            self._is_last = len(self._positions) <= STEP_ROWS
        some, self._positions = self._positions[:size], self._positions[size:]
        end = None if self._is_last and not self._positions else some[-1]
        return _read_wanted(self._listing, some, position, limit), end


def _choose_scan(listing: Listing, walk: Path, scan: Scan, position: Position, size: int) -> tuple[Scan, int]:
    """Return the cheapest scan for the rest of the page, and its first size."""
    order = listing.order
    sources = [source for source in listing.sources if not (source.ordered and order.by_id)]
    for source in sources:
        everything = source.take_all()
        if everything is not None:
            # Not in the list's order, so all at once.
            return _BufferedPath(listing, walk, everything, is_all=True), len(everything)
    if listing.searched is not None:
        search = partial(_search, OrderedRows(listing.searched, order.fields), order)
        rest = search(position)
        if rest is not None:
            return _BufferedPath(listing, partial(_search_or_walk, search, walk), rest), size
    # The path whose first step reaches furthest contains the fewest other rows.
    others: list[Path] = [*listing.paths()]
    if order.by_id:
        others += [partial(source.take, order) for source in listing.sources if source.ordered]
    if not others:
        return scan, 2 * size
    best, deepest = scan, walk(position, STEP_ROWS + 1)
    for other in others:
        if len(deepest) <= STEP_ROWS:
            break
        positions = other(position, STEP_ROWS + 1)
        if len(positions) <= STEP_ROWS or (positions[STEP_ROWS - 1] < deepest[STEP_ROWS - 1]) == order.descending:
            best, deepest = _BufferedPath(listing, other, positions), positions
    return best, size


def _search_or_walk(
    search: Callable[[Position | None], list[Position] | None], walk: Path, position: Position | None, count: int
) -> list[Position]:
    rest = search(position)
    return walk(position, count) if rest is None else rest


def _search(walk: OrderedRows, order: Order, position: Position | None) -> list[Position] | None:
    """Return the search's first step; None if it takes too long."""
    try:
        with planned_without("seqscan", "indexscan", "indexonlyscan", seconds=SEARCH_TIMEOUT_SECONDS):
            return walk.take(order, position, STEP_ROWS + 1)
    except OperationalError as error:
        if isinstance(error.__cause__, errors.QueryCanceled):
            return None
        raise


@contextmanager
def planned_without(*scans: str, seconds: float) -> Iterator[None]:
    """Disable scan types for queries with few or limited rows, where the planner would read a whole table."""
    settings = [("statement_timeout", f"{int(seconds * 1000)}ms"), *((f"enable_{scan}", "off") for scan in scans)]
    with transaction.atomic():
        with connection.cursor() as cursor:
            calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
            cursor.execute(f"SELECT {calls}", [word for setting in settings for word in setting])
        yield
        # Read-only: the rollback restores the settings even inside another transaction.
        transaction.set_rollback(True)


def _filter_candidates(
    listing: Listing, candidates: _IdArray | ArraySubquery, position: Position | None
) -> QuerySet[Any]:
    order = listing.order
    rows = listing.match.filter(_EqualsAny(F("pk"), candidates))
    return order.sort(order.after(rows, position, order.fields), order.fields)


def _read_wanted(
    listing: Listing, candidates: Sequence[Position], position: Position | None, limit: int
) -> list[Position]:
    if not candidates:
        return []
    ids = _IdArray(Value(f"{{{','.join([row[-1].hex for row in candidates])}}}"))
    return list(_filter_candidates(listing, ids, position).values_list(*listing.order.fields)[: limit + 1])


def _cut_page(found: list[Position], limit: int, end: Position | None) -> KeysetPage:
    page = found[:limit]
    return KeysetPage([row[-1] for row in page], page[-1] if len(found) > limit else end)
