"""Resealing secrets re-encrypts every one and keeps its value, also across interruptions."""

from __future__ import annotations

import io
import secrets as randomness
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from jobs.access.secrets import create_secret, reseal_secrets, rotate_secret
from jobs.domain.encryption import Keyring
from jobs.domain.errors import SecretsKeysNotConfigured
from jobs.models import Secret
from tests.support.factories import make_user

pytestmark = pytest.mark.django_db
OLD, NEW = randomness.token_hex(32), randomness.token_hex(32)


@pytest.fixture
def old_secrets(settings: Settings) -> list[Secret]:
    """Secrets sealed with the old key, which is no longer the first."""
    settings.PUNCTUAL_SECRETS_KEYS = OLD
    owner = make_user()
    secrets = [create_secret(owner=owner, name=f"s{n}", value=f"value {n}") for n in range(5)]
    settings.PUNCTUAL_SECRETS_KEYS = f"{NEW},{OLD}"
    return secrets


def opened(key: str) -> list[str]:
    rows = Secret.objects.order_by("id")
    return [Keyring([key]).open(bytes(each.sealed), owner_id=each.owner_id, name=each.name) for each in rows]


def reseal() -> str:
    out = io.StringIO()
    call_command("reseal_secrets", stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_reseal_uses_the_first_key_and_changes_nothing_else(
    old_secrets: list[Secret],
) -> None:
    def untouched() -> list[Any]:
        return list(Secret.objects.order_by("id").values("id", "version", "updated_at"))

    before = untouched()
    # As a process that is killed after its first page.
    first = reseal_secrets(limit=2)
    assert (first.resealed, first.last_id) == (2, old_secrets[1].id)
    assert reseal() == "3 secrets resealed.\n"
    assert opened(NEW) == [f"value {n}" for n in range(5)]
    assert untouched() == before
    assert reseal() == "0 secrets resealed.\n"


def test_reseal_works_page_by_page(old_secrets: list[Secret]) -> None:
    last, pages = None, []
    while (page := reseal_secrets(after=last, limit=2)).last_id is not None:
        pages.append(page.resealed)
        last = page.last_id
    assert pages == [2, 2, 1]
    assert len(opened(NEW)) == 5


def test_unreadable_secret_is_reported_and_kept(old_secrets: list[Secret]) -> None:
    Secret.objects.filter(id=old_secrets[0].id).update(sealed=Keyring(["x" * 32]).seal("v", owner_id=1, name="s0"))
    errors = io.StringIO()
    with pytest.raises(CommandError, match="1 could not be opened"):
        call_command("reseal_secrets", stdout=io.StringIO(), stderr=errors)
    assert "The secret s0 was sealed with a key that this process does not have" in errors.getvalue()
    rotate_secret(old_secrets[0].id, value="value 0")
    assert len(opened(NEW)) == 5


def test_missing_keys_error_names_the_setting(old_secrets: list[Secret], settings: Settings) -> None:
    settings.PUNCTUAL_SECRETS_KEYS = ""
    with pytest.raises(SecretsKeysNotConfigured):
        reseal_secrets()
    with pytest.raises(CommandError, match="set PUNCTUAL_SECRETS_KEYS"):
        reseal()
