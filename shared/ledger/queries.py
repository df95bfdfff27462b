"""
The named statements of `sql/*.sql`.

A file is a list of statements, each headed by `-- name: verb_noun` and a comment that says what it does, who
calls it and what guards it. `statement("name")` is called at import of the module that uses it, so a name that
is missing fails at start-up; `check()` fails on a statement nobody asked for, or a name used twice.
"""

import re
from importlib import resources
from typing import LiteralString, cast

_HEAD = re.compile(r"^-- name: ([a-z0-9_]+)\s*$", re.MULTILINE)


class QueryError(Exception):
    """A statement is missing, defined twice, or used by nobody."""


def _load() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(resources.files("shared.ledger").joinpath("sql").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
        parts = _HEAD.split(file.read_text(encoding="utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise QueryError(f"shared/ledger/sql/{file.name}: statement {name} is defined twice")
            lines = [line for line in body.strip().splitlines() if not line.lstrip().startswith("--")]
            found[name] = "\n".join(lines).strip().removesuffix(";")
    return found


_STATEMENTS = _load()
_used: set[str] = set()


def statement(name: str) -> LiteralString:
    """
    Return one statement's text, with `%(name)s` parameters.

    Raises: QueryError for a name that no file defines.
    """
    if name not in _STATEMENTS:
        raise QueryError(f"no statement named {name} in shared/ledger/sql/")
    _used.add(name)
    return cast("LiteralString", _STATEMENTS[name])  # type: ignore[redundant-cast]


def check() -> None:
    """
    Import every module of the ledger and compare what they use with what the files hold.

    Raises: QueryError naming the statements nobody uses. Called at each process start.
    """
    import importlib
    import pkgutil

    import shared.ledger

    for module in pkgutil.iter_modules(shared.ledger.__path__):
        importlib.import_module(f"shared.ledger.{module.name}")
    unused = sorted(set(_STATEMENTS) - _used)
    if unused:
        raise QueryError(f"statements in shared/ledger/sql/ that nothing uses: {', '.join(unused)}")
