import pytest

from admin.monitoring.sign_in.return_path import HOME, safe_return


@pytest.mark.parametrize(
    "path",
    [
        "/admin", "/admin/", "/inbox", "/inbox/17", "/admin/monitoring/failures?since=1h&channel=email",
        "/admin/monitoring/failures/groups/0a1b", "/admin/monitoring/audit?operator=k%20im",
    ],
)  # fmt: skip
def test_our_own_pages_are_gone_back_to(path: str) -> None:
    assert safe_return(path) == path


@pytest.mark.parametrize(
    "path",
    [
        None, "", "/", "admin", "//evil.example/admin", "/\\evil.example", "/admin\\@evil.example",
        "https://evil.example",
        "/admin//evil", "/admin/../api", "/admin/./x", "/admin/.hidden", "/administration", "/inboxes", "/api/v1/sends",
        "/admin\n/x", "/admin/x\r\nLocation: //evil", "/admin/é", "/admin/sign-in", "/admin/sign-out",
        "/admin/signed-out",
        "/admin/" + "x" * 2000,
    ],
)  # fmt: skip
def test_nothing_else_is(path: str | None) -> None:
    assert safe_return(path) == HOME
