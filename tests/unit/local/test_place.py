import stat
from pathlib import Path

import pytest

from admin.local import place
from admin.local.place import SetupError, make_private, package_folder, reachable, write_secret
from admin.local.tether import Account


@pytest.fixture(autouse=True)
def _own_system_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(place, "SYSTEM_FOLDER", tmp_path / "system")


@pytest.fixture
def stranger(tmp_path: Path) -> Account:
    """An account that owns nothing here."""
    status = tmp_path.stat()
    return Account("stranger", status.st_uid + 1, status.st_gid + 1)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_ordinary_user_keeps_everything_in_a_folder_closed_to_others(tmp_path: Path) -> None:
    assert make_private(tmp_path / "checkout" / ".local", None) == tmp_path / "checkout" / ".local"
    assert mode(tmp_path / "checkout" / ".local") == 0o700


def test_where_the_servers_account_cannot_get_the_data_goes_elsewhere_with_a_link_to_it(
    tmp_path: Path, stranger: Account
) -> None:
    tmp_path.chmod(0o700)
    first, second = (make_private(tmp_path / name / ".local", stranger) for name in ("first", "second"))
    assert first != second
    assert (tmp_path / "first" / ".local" / "servers").resolve() == first
    assert first.name.startswith("first-")
    assert (first / "belongs-to").read_text() == f"{tmp_path / 'first' / '.local'}\n"
    assert make_private(tmp_path / "first" / ".local", stranger) == first


def test_programs_out_of_the_accounts_reach_are_copied_once_and_opened(tmp_path: Path, stranger: Account) -> None:
    tmp_path.chmod(0o700)
    program = tmp_path / "site" / "package" / "bin" / "server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    (tmp_path / "site" / "unrelated").mkdir()
    copies = [reachable(tmp_path / "site", [program.parent], copy_name="package-1", account=stranger) for _ in range(2)]
    assert copies[0] == copies[1] == tmp_path / "system" / "programs" / "package-1"
    assert mode(copies[0] / "package" / "bin" / "server") == 0o755
    assert not (copies[0] / "unrelated").exists()
    assert [path.name for path in copies[0].parent.iterdir()] == ["package-1"]


def test_programs_stay_where_they_are_for_the_present_user(tmp_path: Path) -> None:
    assert reachable(tmp_path, [tmp_path], copy_name="x", account=None) == tmp_path


def test_a_missing_package_is_named_with_the_way_out() -> None:
    with pytest.raises(SetupError, match=r"no_such_package is not installed.*set DATABASE_URL"):
        package_folder("no_such_package", instead="DATABASE_URL")


def test_a_secret_is_readable_for_the_present_user_alone_and_replaced_whole(tmp_path: Path) -> None:
    for text in ("one", "two"):
        write_secret(tmp_path / "secret", text)
    assert (tmp_path / "secret").read_text() == "two"
    assert mode(tmp_path / "secret") == 0o600
    assert len(list(tmp_path.iterdir())) == 1
