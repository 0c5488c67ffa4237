"""Renders a state as a coloured badge with its name."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

GREEN, RED, AMBER, BLUE, GREY = "#1a7f37", "#b42318", "#9a6700", "#0757ba", "#57606a"

COLOUR_BY_STATE = {
    "succeeded": GREEN,
    "online": GREEN,
    "running": BLUE,
    "claimed": BLUE,
    "scheduled": BLUE,
    "failed": RED,
    "timed_out": RED,
    "lost": RED,
    "missed": AMBER,
    "backing_off": AMBER,
    "draining": AMBER,
    "suspect": AMBER,
}


def render_badge(state: str) -> SafeString:
    style = (
        f"background:{COLOUR_BY_STATE.get(state, GREY)};color:#fff;border-radius:4px;padding:1px 7px;white-space:nowrap"
    )
    return format_html('<span style="{}">{}</span>', style, state.replace("_", " "))
