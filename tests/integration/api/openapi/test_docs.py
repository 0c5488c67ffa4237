"""/schema and /docs: public, cached, and without resources of other hosts.

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

from jobs.api.openapi.views import _render_schema
from tests.integration.api.conftest import API

pytestmark = pytest.mark.django_db
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "form": "action"}


class Page(HTMLParser):
    """Collect the files a page loads and its inline scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        address = attributes.get(LOADING.get(tag, ""))
        if address is not None:
            self.addresses.append(address)
        elif tag in ("script", "style"):
            self.inline.append(tag)
        self.inline += [name for name in attributes if name == "style" or name.startswith("on")]


def body_of(response: HttpResponseBase) -> bytes:
    return b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined]


def test_docs_page_loads_only_local_files() -> None:
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


def test_docs_csp_forbids_other_origins() -> None:
    policy = dict(
        part.strip().split(" ", 1) for part in Client().get(f"{API}/docs")["Content-Security-Policy"].split(";")
    )
    assert policy.pop("default-src") == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert set(" ".join(policy.values()).split()) == {"'none'", "'self'", "data:"}


def test_docs_script_uses_no_online_validator() -> None:
    script = Client().get(f"{API}/docs?script=").content.decode()
    assert '"validatorUrl": null' in script
    assert f'url: "{API}/schema"' in script
    assert "http:" not in script
    assert "https:" not in script


def test_schema_is_public_in_both_formats_and_cached() -> None:
    as_yaml = Client().get(f"{API}/schema")
    as_json = Client().get(f"{API}/schema", headers={"Accept": OpenApiJsonRenderer.media_type})
    assert as_yaml["Content-Type"] == f"{OpenApiYamlRenderer.media_type}; charset=utf-8"
    assert as_json["Content-Type"] == OpenApiJsonRenderer.media_type
    version = json.loads(as_json.content)["openapi"]
    assert as_yaml.content.startswith(f"openapi: {version}\n".encode())
    misses_before = _render_schema.cache_info().misses
    Client().get(f"{API}/schema")
    assert _render_schema.cache_info().misses == misses_before
