"""The page of the API: served safely, and rendered by a real browser without any other host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from service.dashboard.browser import ServedShop


def test_files_are_served_safely(served: ServedShop) -> None:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        first = client.get("/docs")
        assert first.status_code == 200
        assert "default-src 'none'" in first.headers["content-security-policy"]
        assert "http" not in first.text
        names = re.findall(r'"(docs/[^"]+)"', first.text)
        assert len(names) == 3
        assert {client.get(f"/{name}").status_code for name in names} == {200}
        for name in ("__init__.py", "..%2F__init__.py", "nothing.js", "index.j2", "swagger-editor-bundle.js"):
            assert client.get(f"/docs/{name}").status_code == 404


def test_a_browser_shows_every_call(browser: Any, served: ServedShop) -> None:
    page = browser.new_page()
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(f"{served.url}docs")
    page.wait_for_selector(".opblock", timeout=60_000)
    paths = httpx.get(f"{served.url}openapi.json", timeout=60).json()["paths"]
    assert page.locator(".opblock").count() == sum(len(calls) for calls in paths.values())
    assert all(url.startswith((served.url, "data:")) for url in asked)
    assert errors == []
    page.close()
