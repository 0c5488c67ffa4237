"""Checks that refuse to start in production with insecure settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from scheduler_project.plaintext_links import find_plaintext_links
from scheduler_project.settings.environment import DEVELOPMENT_SECRET_KEY, Environment, read_environment

MIN_SECRET_KEY_LENGTH = 50


@dataclass(frozen=True, slots=True)
class InsecureSetting:
    id: str
    message: str


def find_insecure_settings(environment: Environment) -> list[InsecureSetting]:
    """Return the insecure settings; none in development."""
    if environment.mode != "production":
        return []
    key = environment.secret_key.get_secret_value()
    hosts = environment.allowed_hosts
    flower_is_guarded = environment.flower_basic_auth or environment.flower_auth_provider
    rules = [
        (
            key == DEVELOPMENT_SECRET_KEY or len(key) < MIN_SECRET_KEY_LENGTH,
            InsecureSetting(
                "punctual.E001",
                f"SECRET_KEY is the default one or shorter than {MIN_SECRET_KEY_LENGTH} characters;"
                " set it to a long random value.",
            ),
        ),
        (
            environment.debug,
            InsecureSetting("punctual.E002", "DEBUG is on and would show secrets to visitors; turn it off."),
        ),
        (
            not hosts or "*" in hosts,
            InsecureSetting(
                "punctual.E003", "ALLOWED_HOSTS is empty or allows any host; name the hosts that serve Punctual."
            ),
        ),
        (
            not flower_is_guarded,
            InsecureSetting(
                "punctual.E004",
                "Flower would be public; set FLOWER_BASIC_AUTH to user:password, or FLOWER_AUTH_PROVIDER.",
            ),
        ),
    ]
    return [setting for broken, setting in rules if broken] + [
        InsecureSetting(
            "punctual.E005",
            f"{link.variable} leads to another machine without encryption: {link.remedy}, or allow it with"
            f" PUNCTUAL_ALLOW_PLAINTEXT={link.name}.",
        )
        for link in find_plaintext_links(environment)
    ]


def check_production_settings(**_: object) -> Sequence[CheckMessage]:
    return [Error(setting.message, id=setting.id) for setting in find_insecure_settings(read_environment())]


def require_secure_settings() -> None:
    """Raise on insecure settings, in processes that do not run Django's checks: web server, beat, workers, Flower."""
    settings = find_insecure_settings(read_environment())
    if settings:
        lines = "\n".join(f"  {setting.message}" for setting in settings)
        raise ImproperlyConfigured(
            f"Punctual does not start in production with these settings:\n{lines}\n"
            "On a developer's machine set PUNCTUAL_ENV=development."
        )
