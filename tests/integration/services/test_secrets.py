"""Secrets sealed anew: every one, with its value, whatever happens in between."""

from __future__ import annotations

import io
import secrets as randomness
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from jobs.errors import SecretsNotKept
from jobs.models import Secret
from jobs.sealing import Keyring
from jobs.services.secrets import create_secret, reseal_secrets, rotate_secret
from tests.factories import make_user

pytestmark = pytest.mark.django_db
OLD, NEW = randomness.token_hex(32), randomness.token_hex(32)


@pytest.fixture
def kept(settings: Settings) -> list[Secret]:
    """Sealed with the old key, which is no longer the first."""
    settings.PUNCTUAL_SECRETS_KEYS = OLD
    owner = make_user()
    made = [create_secret(owner=owner, name=f"s{n}", value=f"value {n}") for n in range(5)]
    settings.PUNCTUAL_SECRETS_KEYS = f"{NEW},{OLD}"
    return made


def opened(key: str) -> list[str]:
    rows = Secret.objects.order_by("id")
    return [Keyring([key]).open(bytes(each.sealed), owner_id=each.owner_id, name=each.name) for each in rows]


def reseal() -> str:
    out = io.StringIO()
    call_command("reseal_secrets", stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_all_are_sealed_with_the_first_key_and_nothing_else_changes(
    kept: list[Secret],
) -> None:
    def untouched() -> list[Any]:
        return list(Secret.objects.order_by("id").values("id", "version", "updated_at"))

    before = untouched()
    # A process that was killed after its first page.
    first = reseal_secrets(limit=2)
    assert (first.resealed, first.last_id) == (2, kept[1].id)
    assert reseal() == "3 secrets sealed anew.\n"
    assert opened(NEW) == [f"value {n}" for n in range(5)]
    assert untouched() == before
    assert reseal() == "0 secrets sealed anew.\n"


def test_it_goes_on_page_by_page(kept: list[Secret]) -> None:
    last, pages = None, []
    while (page := reseal_secrets(after=last, limit=2)).last_id is not None:
        pages.append(page.resealed)
        last = page.last_id
    assert pages == [2, 2, 1]
    assert len(opened(NEW)) == 5


def test_what_does_not_open_is_told_and_left(kept: list[Secret]) -> None:
    Secret.objects.filter(id=kept[0].id).update(sealed=Keyring(["x" * 32]).seal("v", owner_id=1, name="s0"))
    errors = io.StringIO()
    with pytest.raises(CommandError, match="1 could not be opened"):
        call_command("reseal_secrets", stdout=io.StringIO(), stderr=errors)
    assert "The secret s0 was sealed with a key that this process does not have" in errors.getvalue()
    rotate_secret(kept[0].id, value="value 0")
    assert len(opened(NEW)) == 5


def test_without_keys_it_says_what_to_set(kept: list[Secret], settings: Settings) -> None:
    settings.PUNCTUAL_SECRETS_KEYS = ""
    with pytest.raises(SecretsNotKept):
        reseal_secrets()
    with pytest.raises(CommandError, match="set PUNCTUAL_SECRETS_KEYS"):
        reseal()
