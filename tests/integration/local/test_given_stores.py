"""What `make up` does with DATABASE_URL and REDIS_URL: its own of an earlier run, and servers that do not answer."""

import re
import shlex
from pathlib import Path

import pytest

from admin.local.given import place_of, without_own
from tests.integration.local.test_up import Up, checkout, up
from tests.support.scripted_http import free_port

__all__ = ["checkout", "up"]

EMBEDDED = {"DATABASE_URL": "", "REDIS_URL": ""}


def _left_behind(folder: Path) -> dict[str, str]:
    words = shlex.split((folder / "env").read_text())
    return dict(word.split("=", 1) for word in words)


def test_a_shell_that_read_the_env_file_of_an_earlier_run_gets_servers_that_run(up: Up) -> None:
    migrate = f"release: cd {Path(__file__).parents[3]} && python -m admin.cli release\nweb: python web.py\n"
    first = up(migrate, **EMBEDDED)
    assert first.terminate() == 0
    second = up(migrate, **_left_behind(up.folder))
    assert "starting the embedded Postgres" in second.output()
    assert "starting the embedded Valkey" in second.output()
    assert second.terminate() == 0


def test_only_the_embedded_servers_own_addresses_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "postgres.password").write_text("pg-word")
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "valkey.password").write_text("valkey-word")
    own = {
        "DATABASE_URL": "postgresql://tidings:pg-word@127.0.0.1:1/tidings",
        "REDIS_URL": "redis://:valkey-word@127.0.0.1:2/0",
    }
    foreign = {
        "DATABASE_URL": "postgresql://tidings:pg-word@db.example.com/tidings",
        "REDIS_URL": "redis://127.0.0.1:2/0",
    }
    assert without_own(own | {"EMAIL_PROVIDER": "smtp"}, tmp_path) == {"EMAIL_PROVIDER": "smtp"}
    assert without_own(foreign, tmp_path) == foreign
    assert without_own(own, tmp_path / "elsewhere") == own


@pytest.mark.parametrize(
    ("variable", "url", "said"),
    [
        ("REDIS_URL", "redis://:hidden-word@127.0.0.1:{port}/0", "REDIS_URL: the server at 127.0.0.1:{port} cannot"),
        ("DATABASE_URL", "postgresql://u:hidden-word@127.0.0.1:{port}/d", "DATABASE_URL: the server at 127.0.0.1"),
        ("REDIS_URL", "redis://:hidden-word@127.0.0.1/0?foo=1", "REDIS_URL is not an address that Redis"),
        ("REDIS_URL", "redis://:hidden-word@127.0.0.1:port/0", "REDIS_URL is not an address that Redis"),
    ],
)  # fmt: skip
def test_a_store_that_cannot_be_used_is_one_sentence_before_anything_starts(
    up: Up, variable: str, url: str, said: str
) -> None:
    port = free_port()
    running = up("release: touch started\nweb: touch started\n", ready="!!!", **{variable: url.format(port=port)})
    assert running.wait() == 1
    assert said.format(port=port) in running.output()
    assert f"without {variable}, `make up` starts one of its own" in running.output()
    assert len(re.findall(r"\n", running.output())) == 1
    assert "hidden-word" not in running.output()
    assert not (up.checkout / "started").exists()


def test_the_place_of_an_address_has_no_secret_in_it() -> None:
    assert place_of("redis://:hidden@h.example.com:7/0") == "h.example.com:7"
    assert place_of("unix:///run/redis.sock") == "/run/redis.sock"
    assert place_of("redis://:hidden@h.example.com:port/0") == "h.example.com"


def test_an_address_with_an_unknown_parameter_is_one_sentence(up: Up) -> None:
    running = up("web: touch started\n", ready="!!!", DATABASE_URL="postgres://u:hidden-word@127.0.0.1/d?foo=1")
    assert running.wait() == 1
    assert running.output().splitlines()[1] == (
        '  DATABASE_URL: is not an address that Postgres understands: invalid URI query parameter: "foo"'
    )
    assert "Traceback" not in running.output()
