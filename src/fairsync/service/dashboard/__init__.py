"""The dashboard: static files that a browser runs without a build step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.requests import Request

# Group labels are untrusted input: even if one were inserted as markup, the policy would not let its scripts run.
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def routes() -> list[Route]:
    """Return the routes of the dashboard: ``/``, and its files under ``/dashboard/``. The page asks for the token.

    Examples
    --------
    >>> [route.path for route in routes()]
    ['/', '/dashboard/{name}']
    """
    files = StaticFiles(packages=[("fairsync.service.dashboard", "static")])

    async def page(request: Request) -> Response:
        try:
            response = await files.get_response(request.path_params.get("name", "index.html"), request.scope)
        except HTTPException as error:
            response = Response(status_code=error.status_code)
        response.headers.update(_HEADERS)
        return response

    return [Route("/", page, name="dashboard"), Route("/dashboard/{name}", page, name="dashboard_file")]
