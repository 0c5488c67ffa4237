"""/schema and /docs: the same for everybody, made once, and nothing of the page comes from anywhere else.

The static files come through the same middleware that serves them in a running stack.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from django.http import HttpResponseBase
from django.test import Client
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

from jobs.api.docs import _rendered
from tests.integration.api.conftest import API

pytestmark = pytest.mark.django_db
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "form": "action"}


class Page(HTMLParser):
    """What a page loads, and what of it is written in the page itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(LOADING.get(tag, ""))
        if address is not None:
            self.addresses.append(address)
        elif tag in ("script", "style"):
            self.inline.append(tag)
        self.inline += [name for name in given if name == "style" or name.startswith("on")]


def body_of(response: HttpResponseBase) -> bytes:
    return b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined]


def test_the_page_loads_nothing_from_another_host_and_all_of_it_is_there() -> None:
    browser = Client()
    response = browser.get(f"{API}/docs")
    page = Page(response.content.decode())
    assert len(page.addresses) >= 5
    assert page.inline == []
    for address in page.addresses:
        assert urlsplit(address)[:2] == ("", ""), address
        served = browser.get(address)
        assert served.status_code == 200, address
        assert len(body_of(served)) > 100, address


def test_the_policy_of_the_page_forbids_other_origins() -> None:
    policy = dict(
        part.strip().split(" ", 1) for part in Client().get(f"{API}/docs")["Content-Security-Policy"].split(";")
    )
    assert policy.pop("default-src") == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert set(" ".join(policy.values()).split()) == {"'none'", "'self'", "data:"}


def test_the_script_asks_nobody_whether_the_schema_is_valid() -> None:
    script = Client().get(f"{API}/docs?script=").content.decode()
    assert '"validatorUrl": null' in script
    assert f'url: "{API}/schema"' in script
    assert "http:" not in script
    assert "https:" not in script


def test_the_schema_is_for_everybody_in_either_format_and_made_once() -> None:
    as_yaml = Client().get(f"{API}/schema")
    as_json = Client().get(f"{API}/schema", headers={"Accept": OpenApiJsonRenderer.media_type})
    assert as_yaml["Content-Type"] == f"{OpenApiYamlRenderer.media_type}; charset=utf-8"
    assert as_json["Content-Type"] == OpenApiJsonRenderer.media_type
    version = json.loads(as_json.content)["openapi"]
    assert as_yaml.content.startswith(f"openapi: {version}\n".encode())
    made = _rendered.cache_info().misses
    Client().get(f"{API}/schema")
    assert _rendered.cache_info().misses == made
