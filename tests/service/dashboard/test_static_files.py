"""The files of the dashboard as the service sends them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from service.dashboard.browser import ServedShop


def test_files_are_served_safely(served: ServedShop) -> None:
    client = httpx.Client(base_url=served.url, timeout=60)
    first = client.get("/")
    assert first.status_code == 200
    assert "default-src 'none'" in first.headers["content-security-policy"]
    assert client.get("/", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    for name in re.findall(r'"(dashboard/[^"]+)"', first.text):
        assert client.get(f"/{name}").status_code == 200
        assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", client.get(f"/{name}").text)
    for name in ("__init__.py", "..%2F__init__.py", "nothing.js"):
        assert client.get(f"/dashboard/{name}").status_code == 404
    client.close()
