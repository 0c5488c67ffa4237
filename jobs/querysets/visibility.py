"""Tenancy: one rule for every table. What is not visible does not exist for its reader."""

from __future__ import annotations

from typing import TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def visible_to(user: User, rows: QuerySet[Row], *, owner: str = "owner") -> QuerySet[Row]:
    """`owner` is the path from a row to the user that it belongs to; staff sees everything."""
    return rows if user.is_staff else rows.filter(**{owner: user})


def viewpoint(user: User) -> str:
    """Whoever has the same one sees the same rows: what one of them was shown a moment ago may be shown to another."""
    return "staff" if user.is_staff else str(user.pk)
