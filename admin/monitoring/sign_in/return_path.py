"""Where a browser goes after it signed in: to a page of ours, and nowhere else."""

import re

HOME = "/admin/monitoring"

#: A path below /admin or /inbox in plain characters, with its query: no `//` and no backslash, which browsers take for
#: the beginning of another host, and no `..`. Not the way in and out itself.
_OURS = re.compile(r"/(?:admin|inbox)(?:/(?!\.)[A-Za-z0-9._~-]+)*/?(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?", re.ASCII)
_WAY_IN = re.compile(r"/admin/sign")
_LONGEST = 1_000


def safe_return(path: str | None) -> str:
    """Give the path if it is one of our pages; else the first page."""
    if path is not None and len(path) <= _LONGEST and _OURS.fullmatch(path) and not _WAY_IN.match(path):
        return path
    return HOME
