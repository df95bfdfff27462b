import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.roles import Role, operator_name, role_among, roles_at


@pytest.mark.parametrize(
    ("claims", "path", "roles"),
    [
        ({"roles": ["a", "b"]}, "roles", {"a", "b"}),
        ({"roles": "a b"}, "roles", {"a b"}),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", {"a"}),
        ({"resource_access": {"my.app": {"roles": ["a"]}}}, "resource_access.my.app.roles", {"a"}),
        ({"https://example.com/roles": ["a"]}, "https://example.com/roles", {"a"}),
        ({"https://example.com/x": {"roles": ["a"]}}, "https://example.com/x.roles", {"a"}),
        ({"roles": ["a", 1, None, ["b"]]}, "roles", {"a"}),
        ({"roles": []}, "roles", set()),
        ({"roles": {"a": True}}, "roles", None),
        ({"roles": True}, "roles", None),
        ({"roles": None}, "roles", None),
        ({"realm_access": ["roles"]}, "realm_access.roles", None),
        ({}, "roles", None),
    ],
)
def test_roles_are_read_where_they_stand(claims: dict[str, object], path: str, roles: set[str] | None) -> None:
    assert roles_at(claims, path) == roles


def test_the_greater_role_counts() -> None:
    assert role_among(["READER", "ADMIN"], admin="ADMIN", read="READER") is Role.ADMIN
    assert role_among(["READER"], admin="ADMIN", read="READER") is Role.READ
    assert role_among(["READER"], admin="ADMIN", read=None) is None


@given(st.text(max_size=20))
def test_nothing_but_the_very_name_is_the_role(role: str) -> None:
    assert (role_among([role], admin="NOTIFY_ADMIN", read=None) is Role.ADMIN) == (role == "NOTIFY_ADMIN")


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "kim", "name": "Kim Lee", "sub": "17"}, "kim"),
        ({"preferred_username": "kim@example.com", "sub": "17"}, "kim"),
        ({"name": " Kim \n Lee ", "sub": "17"}, "Kim Lee"),
        ({"email": "kim.lee@example.com", "sub": "17"}, "kim.lee"),
        ({"preferred_username": "@", "sub": "17"}, "17"),
        ({"preferred_username": "k\x1b[31mim", "sub": "17"}, "17"),
        ({"preferred_username": ["kim"], "sub": 17}, "unnamed"),
        ({"name": "x" * 500}, "x" * 80),
    ],
)
def test_an_operator_has_a_short_name_and_no_address(claims: dict[str, object], name: str) -> None:
    assert operator_name(claims) == name
