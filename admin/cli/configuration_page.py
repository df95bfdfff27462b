"""docs/configuration.md, made from the settings' own declarations."""

import inspect
import re
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from shared.settings import Settings

_INTRODUCTION = """\
# Configuration

Made from `shared/settings.py` by `tidings docs`; a test compares the two.

Every setting is an environment variable, read once when a process starts. An empty one counts as not set. All faults
are reported together, and `tidings config` checks an environment without starting anything. Times are in the unit the
name ends with: `_MS` is milliseconds.
"""
#: In the source: the line that opens a section, or the first line of a setting.
_LINE = re.compile(r"^    (?:# --- (?P<section>[^-]+?) -+|(?P<field>[a-z][a-z0-9_]*): .*= Field\()", re.MULTILINE)


def configuration_page() -> str:
    """The whole page, section by section in the order of the source."""
    parts = [_INTRODUCTION]
    for section, names in sections().items():
        parts.append(
            f"\n## {section[0].upper()}{section[1:]}\n\n| variable | default | values | meaning |\n|---|---|---|---|\n"
        )
        parts.extend(_row(name, Settings.model_fields[name]) for name in names)
    return "".join(parts)


def sections() -> dict[str, list[str]]:
    """Section → names of its settings, as the comments in the source divide them."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for match in _LINE.finditer(inspect.getsource(Settings)):
        if match["section"]:
            names = found.setdefault(match["section"], [])
        else:
            names.append(match["field"])
    return found


def value_of(value: object) -> str:
    """A setting's value as its variable would be written; of a secret only that there is one."""
    if isinstance(value, SecretStr):
        return "***"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def default_of(field: FieldInfo) -> str:
    """The default as its variable would be written; empty where there is none."""
    return "" if field.is_required() else value_of(field.default)


def _row(name: str, field: FieldInfo) -> str:
    default = "**required**" if field.is_required() else f"`{default_of(field)}`" if default_of(field) else "–"
    meaning = (field.description or "").replace("|", "\\|")
    return f"| `{name.upper()}` | {default} | {_values(field)} | {meaning} |\n"


def _values(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    if field.annotation is bool:
        return "`true`, `false`"
    low = next((limit.ge for limit in field.metadata if isinstance(limit, Ge)), None)
    high = next((limit.le for limit in field.metadata if isinstance(limit, Le)), None)
    if low is not None or high is not None:
        return f"{low:,} – {high:,}"
    kinds = get_args(field.annotation) or (field.annotation,)
    return "secret" if SecretStr in kinds else "text"
