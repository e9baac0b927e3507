"""The dashboard: static files that a browser runs without a build step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

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


def mount(app: Starlette) -> None:
    """Serve the dashboard at ``/`` and its files under ``/dashboard/``. No token is needed: the page asks for one.

    Parameters
    ----------
    app
        The application that has the API under ``/v1``.

    Examples
    --------
    >>> from starlette.applications import Starlette
    >>> app = Starlette()
    >>> mount(app)
    >>> [str(app.url_path_for("dashboard")), str(app.url_path_for("dashboard_file", name="app.js"))]
    ['/', '/dashboard/app.js']
    """
    files = StaticFiles(packages=[("fairsync.service.dashboard", "static")])

    async def answer(name: str, request: Request) -> Response:
        response = await files.get_response(name, request.scope)
        response.headers.update(_HEADERS)
        return response

    async def page(request: Request) -> Response:
        return await answer("index.html", request)

    async def file(request: Request) -> Response:
        return await answer(request.path_params["name"], request)

    app.add_route("/", page, methods=["GET"], name="dashboard", include_in_schema=False)
    app.add_route("/dashboard/{name}", file, methods=["GET"], name="dashboard_file", include_in_schema=False)
