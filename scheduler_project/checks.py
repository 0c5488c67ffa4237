"""Refuses to start in production with settings that only a developer's machine may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from scheduler_project.settings.environment import DEVELOPMENT_SECRET_KEY, Environment, read_environment

MIN_SECRET_KEY_LENGTH = 50


@dataclass(frozen=True, slots=True)
class Insecurity:
    id: str
    message: str


def insecurities(environment: Environment) -> list[Insecurity]:
    """What is wrong with these settings in production; nothing is wrong with any of them in development."""
    if environment.mode != "production":
        return []
    key = environment.secret_key.get_secret_value()
    hosts = environment.allowed_hosts
    flower_is_guarded = environment.flower_basic_auth or environment.flower_auth_provider
    rules = [
        (
            key == DEVELOPMENT_SECRET_KEY or len(key) < MIN_SECRET_KEY_LENGTH,
            Insecurity(
                "punctual.E001",
                f"SECRET_KEY is the default one or shorter than {MIN_SECRET_KEY_LENGTH} characters;"
                " set it to a long random value.",
            ),
        ),
        (
            environment.debug,
            Insecurity("punctual.E002", "DEBUG is on and would show secrets to visitors; turn it off."),
        ),
        (
            not hosts or "*" in hosts,
            Insecurity(
                "punctual.E003", "ALLOWED_HOSTS is empty or allows any host; name the hosts that serve Punctual."
            ),
        ),
        (
            not flower_is_guarded,
            Insecurity(
                "punctual.E004",
                "Flower would be open to everybody; set FLOWER_BASIC_AUTH to user:password, or FLOWER_AUTH_PROVIDER.",
            ),
        ),
    ]
    return [insecurity for broken, insecurity in rules if broken]


def check_production_settings(**_: object) -> Sequence[CheckMessage]:
    return [Error(found.message, id=found.id) for found in insecurities(read_environment())]


def refuse_insecure_start() -> None:
    """For processes that Django's own checks do not reach: the web server, beat, workers, Flower."""
    found = insecurities(read_environment())
    if found:
        lines = "\n".join(f"  {insecurity.message}" for insecurity in found)
        raise ImproperlyConfigured(
            f"Punctual does not start in production with these settings:\n{lines}\n"
            "On a developer's machine set PUNCTUAL_ENV=development."
        )
