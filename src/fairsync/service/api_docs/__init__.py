"""The API in a browser: Swagger UI at ``/docs``, from files of the package swagger-ui-py and our own."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.requests import Request

_OURS, _THEIRS = ("index.html", "start.js"), ("swagger-ui.css", "swagger-ui-bundle.js")
_HEADERS = {
    "Cache-Control": "no-cache",
    # Swagger UI sets styles of single elements, and its icons are in its style sheet.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def routes() -> list[Route]:
    """Return the routes: ``/docs``, and its files below it; none if swagger-ui-py is not installed.

    Examples
    --------
    >>> [route.path for route in routes()]
    ['/docs', '/docs/{name}']
    """
    if importlib.util.find_spec("swagger_ui") is None:
        return []
    ours = StaticFiles(packages=[("fairsync.service.api_docs", "static")])
    theirs = StaticFiles(packages=[("swagger_ui", "static")])

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        try:
            if name not in (*_OURS, *_THEIRS):
                raise HTTPException(404)
            response = await (ours if name in _OURS else theirs).get_response(name, request.scope)
        except HTTPException as error:
            response = Response(status_code=error.status_code)
        response.headers.update(_HEADERS)
        return response

    return [Route("/docs", page, name="api_docs"), Route("/docs/{name}", page, name="api_docs_file")]
