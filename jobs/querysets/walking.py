"""Pages of lists that may be filtered by anything, each at a bounded price.

A page looks at no more than `BUDGET` rows of the list, or of a source that holds at least what is wanted. It is exact
up to where it ends; one that ends early because too little of what it saw was wanted is short, and the next goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan

# A row that is looked at costs some 20 µs, because the status of a job is derived from four other tables.
BUDGET = 1000

# The values of an order's fields, of the last row that was looked at.
Position = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """The last field is the id: it makes the order total, so that a position is a place between two rows."""

    fields: tuple[str, ...]
    descending: bool

    @property
    def by_id(self) -> bool:
        return len(self.fields) == 1

    def sort(self, rows: QuerySet[Any], fields: Sequence[str] | None = None) -> QuerySet[Any]:
        return rows.order_by(*(f"-{name}" if self.descending else name for name in fields or self.fields))

    def after(
        self, rows: QuerySet[Any], position: Position | None, fields: Sequence[str] | None = None
    ) -> QuerySet[Any]:
        """As one comparison of rows, which an index on these fields answers however many share the first of them."""
        if position is None:
            return rows
        names = fields or self.fields
        if len(names) == 1:
            return rows.filter(**{f"{names[0]}__{'lt' if self.descending else 'gt'}": position[0]})
        compare = TupleLessThan if self.descending else TupleGreaterThan
        return rows.filter(compare(Tuple(*map(F, names)), position))


@dataclass(frozen=True, slots=True)
class Walk:
    """Rows of any table in the list's order; `fields` are its names for the order's, the last one the id."""

    rows: QuerySet[Any]
    fields: tuple[str, ...]

    def take(self, order: Order, position: Position | None, count: int) -> list[Position]:
        rows = order.sort(order.after(self.rows, position, self.fields), self.fields)
        return list(rows.values_list(*self.fields)[:count])


@dataclass(frozen=True, slots=True)
class Source:
    """Ids of a superset of what is wanted, from indexes of their own; `ordered` if these run in the order of ids.

    Each part is rows of some table and the name of the field that holds the id.
    """

    parts: tuple[tuple[QuerySet[Any], str], ...]
    ordered: bool = True

    def take(self, order: Order, position: Position | None) -> list[Position]:
        """In order if the indexes are; else in none, and good for nothing unless it is all."""
        if not (self.ordered and order.by_id):
            return [row for rows, name in self.parts for row in rows.order_by().values_list(name)[: BUDGET + 1]]
        taken: set[Position] = set()
        for rows, name in self.parts:
            ids = order.after(rows.values_list(name).distinct(), position, (name,))
            taken.update(order.sort(ids, (name,))[: BUDGET + 1])
        return sorted(taken, reverse=order.descending)[: BUDGET + 1]


# Ids in descending order from a position on, at most so many, or None if it cannot tell.
Finder = Callable[[UUID | None, int], "list[UUID] | None"]


@dataclass(frozen=True, slots=True)
class Listing:
    """What is wanted (`match`) of what can be walked; without filters, that is all of it."""

    match: QuerySet[Any]
    order: Order
    walk: Walk
    filtered: bool
    sources: Sequence[Source] = ()
    finders: Sequence[Finder] = field(default=())


@dataclass(frozen=True, slots=True)
class Walked:
    """The ids of a page, and the position that the next one goes on from; None at the end of the list."""

    ids: list[UUID]
    end: Position | None


def walk_page(listing: Listing, position: Position | None, limit: int) -> Walked:
    order = listing.order
    if not listing.filtered:
        return _cut(listing.walk.take(order, position, limit + 1), limit, None)
    window = listing.walk.take(order, position, BUDGET + 1)
    # Where much of it is wanted, the first few rows are a page already.
    first = 2 * limit + 2
    found = _wanted(listing, window[:BUDGET][:first], position, limit)
    if len(found) > limit:
        return _cut(found, limit, None)
    if len(window) <= BUDGET:
        return _cut(found + _wanted(listing, window[first:], position, limit - len(found)), limit, None)
    deepest = _deepest(listing, position, window) if order.by_id else window
    rest = window[first:BUDGET] if deepest is window else deepest[:BUDGET]
    found = (found if deepest is window else []) + _wanted(listing, rest, position, limit)
    end = deepest[BUDGET - 1] if len(deepest) > BUDGET else None
    if len(found) > limit or end is None:
        return _cut(found, limit, end)
    for source in listing.sources:
        if source.ordered and order.by_id:
            continue
        all_of_them = source.take(order, None)
        if len(all_of_them) <= BUDGET:
            return _cut(_wanted(listing, all_of_them, position, limit), limit, None)
    return _cut(found, limit, end)


def _deepest(listing: Listing, position: Position | None, window: list[Position]) -> list[Position]:
    """Of all that hold what is wanted, the one whose first rows reach furthest: it has the least else in it."""
    order, deepest = listing.order, window
    for taken in _by_id(listing, position):
        if len(taken) <= BUDGET:
            return taken
        further = taken[BUDGET - 1][0] < deepest[BUDGET - 1][0]
        if further == order.descending:
            deepest = taken
    return deepest


def _by_id(listing: Listing, position: Position | None) -> Iterable[list[Position]]:
    for source in listing.sources:
        if source.ordered:
            yield source.take(listing.order, position)
    if listing.order.descending:
        for find in listing.finders:
            ids = find(position[0] if position else None, BUDGET + 1)
            if ids is not None:
                yield [(found,) for found in ids]


def _wanted(listing: Listing, candidates: Sequence[Position], position: Position | None, limit: int) -> list[Position]:
    if not candidates:
        return []
    order = listing.order
    rows = listing.match.filter(pk__in=[candidate[-1] for candidate in candidates])
    return list(order.sort(order.after(rows, position)).values_list(*order.fields)[: limit + 1])


def _cut(found: list[Position], limit: int, end: Position | None) -> Walked:
    page = found[:limit]
    return Walked([row[-1] for row in page], page[-1] if len(found) > limit else end)
