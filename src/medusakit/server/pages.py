"""The web pages: files of this package, sent as they are. They load nothing from elsewhere; the browser is told so."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@router.get("/")
def page() -> Response:
    return part("index.html")


@router.get("/docs")
def docs() -> Response:
    return part("docs.html")


@router.get("/page/{name}")
def part(name: str) -> Response:
    """One of the page's files, 404 if it has no such file."""
    for file in resources.files("medusakit.server").joinpath("page").iterdir():
        if file.name == name:
            kind = TYPES[name.rpartition(".")[2]]
            return Response(file.read_bytes(), media_type=f"{kind}; charset=utf-8", headers=HEADERS)
    raise HTTPException(404, "the page has no such file")
