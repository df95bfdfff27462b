"""
What is sent compressed to a browser that takes it: static files, packed once at start; pages, and panels of pages.

One with the token of a form in it is sent as it is where it may repeat something of its request: whoever can make a
browser ask for it again and again could otherwise guess the token from the length of the answers.

Source: RFC 9110 §12.5.3 for Accept-Encoding; breachattack.com for the guessing.
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from flask import Flask, Response, abort, request, url_for

from admin.errors import is_page

_STATIC = Path(__file__).parents[1] / "static"
#: A file's address names what is in it, so it never changes.
_FOR_GOOD = "public, max-age=31536000, immutable"
_TOKEN = b"csrf_token"
_PACKED_TYPES = frozenset({"text/html", "application/json"})
#: Of gzip: each page is packed while somebody waits, and more than this gains nothing.
_LEVEL_OF_PAGES = 5


@dataclass(frozen=True)
class _File:
    body: bytes
    packed: bytes
    type: str
    digest: str


def _read(path: Path) -> _File:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return _File(body, gzip.compress(body, 9, mtime=0), kind, hashlib.sha256(body).hexdigest()[:10])


_FILES = {path.relative_to(_STATIC).as_posix(): _read(path) for path in _STATIC.rglob("*") if path.is_file()}


def asset(name: str) -> str:
    """The address of a static file, which changes with what is in it: browsers may keep it for good."""
    return url_for("static", filename=name, v=_FILES[name].digest)


def install(app: Flask) -> None:
    """Serve the static files, and pack pages; the app must serve none by itself."""
    app.add_url_rule("/static/<path:filename>", endpoint="static", view_func=_static)
    app.after_request(_pack_page)


def _static(filename: str) -> Response:
    file = _FILES.get(filename)
    if file is None:
        abort(HTTPStatus.NOT_FOUND)
    is_packed = _takes_gzip()
    response = Response(file.packed if is_packed else file.body, mimetype=file.type)
    response.vary.add("Accept-Encoding")
    if is_packed:
        response.content_encoding = "gzip"
    response.set_etag(f"{file.digest}-gzip" if is_packed else file.digest)
    response.cache_control.no_cache = True
    if request.args.get("v") == file.digest:  # during a roll-out a page of the next version asks this one for its files
        response.headers["Cache-Control"] = _FOR_GOOD
    response.make_conditional(request)
    return response


def _pack_page(response: Response) -> Response:
    if not is_page() or request.method not in {"GET", "HEAD"} or response.status_code != HTTPStatus.OK:
        return response
    if response.mimetype not in _PACKED_TYPES or response.is_streamed:
        return response
    body = response.get_data()
    # A path that is answered with 200 names something that is there, so what the page repeats of it nobody chose.
    if request.query_string and _TOKEN in body:
        return response
    response.vary.add("Accept-Encoding")
    if _takes_gzip():
        response.set_data(gzip.compress(body, _LEVEL_OF_PAGES))
        response.content_encoding = "gzip"
    return response


def _takes_gzip() -> bool:
    return request.accept_encodings.quality("gzip") > 0
