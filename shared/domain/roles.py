"""What a person may do on the pages, and how that is read from what an identity provider says of them."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum


class Role(StrEnum):
    """`ADMIN` sees and does everything, `READ` sees everything."""

    ADMIN = "admin"
    READ = "read"

    @property
    def may_act(self) -> bool:
        """Whether something may be changed."""
        return self is Role.ADMIN


def claims_at(claims: Mapping[str, object], path: str) -> Iterator[object]:
    """
    Give what stands at a path of names with dots between them.

    A name may have dots of its own (`https://example.com/roles`), so each way to read the path is tried.
    """
    if path in claims:
        yield claims[path]
    for dot in (place for place, character in enumerate(path) if character == "."):
        inner = claims.get(path[:dot])
        if isinstance(inner, Mapping):
            yield from claims_at(inner, path[dot + 1 :])


def roles_at(claims: Mapping[str, object], path: str) -> frozenset[str] | None:
    """Give the roles at a path: a list of texts, or one text. None where nothing of that kind stands there."""
    for found in claims_at(claims, path):
        if isinstance(found, str):
            return frozenset({found})
        if isinstance(found, list):
            return frozenset(one for one in found if isinstance(one, str))
    return None


def role_among(roles: Iterable[str], *, admin: str, read: str | None) -> Role | None:
    """Give the most that these roles allow; a role counts only if it is the same letter by letter."""
    given = set(roles)
    if admin in given:
        return Role.ADMIN
    return Role.READ if read is not None and read in given else None


def operator_name(claims: Mapping[str, object]) -> str:
    """Give a short name for a person, for the audit; of an e-mail address only what is before the @."""
    for claim in ("preferred_username", "nickname", "name", "email", "sub"):
        given = claims.get(claim)
        name = " ".join(given.split("@")[0].split()) if isinstance(given, str) else ""
        if name and name.isprintable():
            return name[:80]
    return "unnamed"
