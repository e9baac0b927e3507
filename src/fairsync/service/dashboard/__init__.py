"""The dashboard: for the people who promised the exposure. Plain files that any browser runs as they are."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Labels of groups are other people's text: even if one got into the page as markup, nothing foreign would run.
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Asset(NamedTuple):
    content: bytes
    media_type: str
    etag: str


def routes() -> list[Route]:
    """Return the routes of the dashboard: ``/``, and its files under ``/dashboard/``. The page asks for the token.

    Examples
    --------
    >>> [route.path for route in routes()]
    ['/', '/dashboard/{name}']
    """
    assets = _read()

    def page(request: Request) -> Response:
        return _answer(assets["index.html"], request)

    def file(request: Request) -> Response:
        asset = assets.get(request.path_params["name"])
        return Response(status_code=404) if asset is None else _answer(asset, request)

    return [Route("/", page, name="dashboard"), Route("/dashboard/{name}", file, name="dashboard_file")]


def _read() -> dict[str, _Asset]:
    """Return the files by name. All are read at once: what is served cannot change, and no path leads elsewhere."""
    assets = {}
    for file in files(__name__).iterdir():
        kind = _TYPES.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            assets[file.name] = _Asset(content, kind, f'"{hashlib.sha256(content).hexdigest()[:20]}"')
    return assets


def _answer(asset: _Asset, request: Request) -> Response:
    headers = {**_HEADERS, "ETag": asset.etag}
    if request.headers.get("If-None-Match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
