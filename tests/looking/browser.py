"""Chromium without a window, for tests that look at pages."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
OPTIONS = [
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LIBRARIES = ("playwright", "axe_playwright_python")


def missing() -> str:
    """Return why pages cannot be looked at here; "" if they can."""
    if os.environ.get("ZMQDATA_LOOKING") != "1":
        return "`make test-looking` runs it"
    lacking = [name for name in LIBRARIES if find_spec(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}; `make test-looking` installs them"
    return "" if os.path.exists(CHROMIUM) else f"there is no {CHROMIUM}"


LOOKING = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "it can be looked at"),
    pytest.mark.realprocess,
    pytest.mark.timeout(300),
]


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Run a browser of playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, headless=True, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser: Any, url: str, width: int = 1280, **options: Any) -> Iterator[Any]:
    """Open a page, and fail if it asks another host, logs an error or raises one.

    Args:
        browser: a browser of playwright.
        url: address of the page.
        width: width of the window in pixels.
        options: further options of a context of playwright.
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = context.new_page()
    own = url.partition("?")[0].rstrip("/")
    foreign: list[str] = []
    errors: list[str] = []
    page.on(
        "request",
        lambda request: request.url.startswith((own, "data:")) or foreign.append(request.url),
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: line.type == "error" and errors.append(line.text))
    try:
        page.goto(url)
        yield page
        assert (foreign, errors) == ([], [])
    finally:
        context.close()


def violations(page: Any) -> list[str]:
    """Return the rules of accessibility that a page violates, each with an element."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]
