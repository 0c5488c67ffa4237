"""What Django itself checks before every command of `manage.py`, and `call_command` does not."""

from __future__ import annotations

from django.core.management import call_command


def test_django_finds_nothing_wrong() -> None:
    call_command("check", fail_level="WARNING")
