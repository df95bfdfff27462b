"""`tidings digest …` over a real worker and a scripted endpoint."""

import re

import pytest

from shared.domain.digests import Severity
from shared.ledger import audit
from shared.ledger.db import Ledger
from tests.integration.cli.conftest import Install, Installation
from tests.support.digests import LOOPBACK, finding, post, put, statuses
from tests.support.ledger_rows import scalar
from tests.support.requeuing import finish
from tests.support.scripted_http import ScriptedHttp, answer, free_port, scripted_http

HOSTS = {name.upper(): value for name, value in LOOPBACK.items()}


@pytest.fixture
def installation(install: Install) -> Installation:
    return install(**HOSTS, DIGEST_INTERVAL_MS="3600000")


def add(installation: Installation, server: ScriptedHttp, *more: str, name: str = "ops") -> str:
    done = installation.tidings(
        "digest", "channel", "add", name, "--tenant", "demo", "--type", "webhook", *more,
        TIDINGS_CHANNEL_URL=f"{server.url}/hook?key=secret-part",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def test_a_variable_that_was_left_set_does_not_move_a_channel(installation: Installation) -> None:
    with scripted_http() as server:
        for path in ("/hook", "/other"):
            server.always(path, answer(200))
        add(installation, server)
        installation.work()
        edit = ("digest", "channel", "edit", "ops")
        done = installation.tidings(*edit, "--min-severity", "low", TIDINGS_CHANNEL_URL=f"{server.url}/other")
        assert "TIDINGS_CHANNEL_URL is set and was not used; `--url -` takes it." in done.output
        installation.tidings("digest", "channel", "test", "ops")
        assert (len(server.posts("/hook")), len(server.posts("/other"))) == (1, 0)
        assert installation.tidings(*edit, "--url", "-", TIDINGS_CHANNEL_URL=f"{server.url}/other").exit_code == 0
        installation.tidings("digest", "channel", "test", "ops")
        assert (len(server.posts("/hook")), len(server.posts("/other"))) == (1, 1)


def test_a_channel_is_set_up_tried_used_and_removed(installation: Installation, ledger: Ledger) -> None:
    with scripted_http() as server:
        server.always("/hook", answer(200, {"ok": True}))
        put(ledger, "there before", tenant="demo")
        secret = add(installation, server)
        assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
        installation.work()
        tried = installation.tidings("digest", "channel", "test", "ops")
        assert tried.output == 'ops answered: HTTP 200: {"ok": true}\n'
        post(ledger, "a", "b", tenant="demo")
        assert installation.tidings("digest", "run").output == "2 newly found, 2 told, 1 messages taken\n"
        assert installation.tidings("digest", "run").output == "Nothing is due.\n"
        shown = installation.tidings("digest", "channel", "show", "ops").output
        assert "http://127.0.0.1" in shown
        for hidden in ("secret-part", secret):
            assert hidden not in shown + installation.tidings("digest", "channel", "list").output
        history = installation.tidings("digest", "history", "--channel", "ops").output
        assert [re.search(r"sent|suppressed", line)[0] for line in history.splitlines()[1:]] == [  # type: ignore[index]
            "sent",
            "sent",
            "suppressed",
        ]
        assert "2  " in installation.tidings("digest", "history", "--messages").output
        server.once("/hook", answer(404, b"no such hook, key=secret-part"))
        failed = installation.tidings("digest", "channel", "test", "ops")
        assert failed.exit_code == 1
        assert "ops answered: HTTP 404: no such hook" in failed.output
        assert "secret-part" not in failed.output
        assert installation.tidings("digest", "channel", "disable", "ops").exit_code == 0
        post(ledger, "c", tenant="demo")
        assert installation.tidings("digest", "run").output == "Nothing is due.\n"
        installation.tidings("digest", "channel", "enable", "ops")
        assert installation.tidings("digest", "run").output == "1 newly found, 1 told, 1 messages taken\n"
        removed = installation.tidings("digest", "channel", "remove", "ops", "--yes", "--reason", "moved")
        assert removed.exit_code == 0
        assert "4 notifications and 2 messages; 0 wait to be told, 0 are dead letters." in removed.output
        assert installation.tidings("digest", "channel", "show", "ops").exit_code == 1
    with ledger.autocommit() as connection:
        entries = audit.newest(connection, limit=10)
    assert entries[0].reason == "moved"
    done = [entry.action for entry in entries]
    runs_and_tests = {"run digests", "test channel"}
    assert [one for one in done if one not in runs_and_tests] == [
        "remove channel",
        "enable channel",
        "disable channel",
        "add channel",
    ]
    assert (done.count("run digests"), done.count("test channel")) == (4, 2)


def test_a_dead_letter_is_requeued(installation: Installation, ledger: Ledger) -> None:
    with scripted_http() as server:
        server.always("/hook", answer(400, b"no"))
        add(installation, server, "--max-attempts", "1")
        post(ledger, "a", "b", tenant="demo")
        installation.work()
        assert "1 not taken" in installation.tidings("digest", "run").output
        dead = installation.tidings("digest", "history", "--status", "dead_lettered").output
        ids = [line.split()[0] for line in dead.splitlines()[1:]]
        assert len(ids) == 2
        assert installation.tidings("digest", "requeue", "ops").exit_code == 2
        shown = installation.tidings("digest", "requeue", "ops", ids[0], "9999", "--dry-run").output
        assert "1 would be told again" in shown
        assert "1 left out: no such dead letter of this channel" in shown
        assert installation.tidings("digest", "requeue", "ops", ids[0]).exit_code == 1  # nobody has said yes
        planned = installation.tidings("digest", "requeue", "ops", ids[0], "--yes").stdout.split()[-1]
        assert installation.tidings("operation", "undo", planned).output == "Undone: nothing was done.\n"
        assert set(statuses(ledger).values()) == {"dead_lettered"}
        assert installation.tidings("digest", "requeue", "ops", "--all", "--yes", "--now").exit_code == 0
        finish(ledger)
        assert set(statuses(ledger).values()) == {"pending"}
        assert installation.tidings("digest", "requeue", "ops", "--all", "--yes").exit_code == 1
        server.always("/hook", answer(200))
        installation.tidings("digest", "run")
        assert statuses(ledger) == {"a": "sent", "b": "sent"}


def test_all_that_is_wrong_with_a_channel_is_told_at_once(installation: Installation) -> None:
    done = installation.tidings(
        "digest", "channel", "add", "Bad Name", "--tenant", "demo", "--type", "webhook", "--url", "http://example.com/x",
        "--auth-header", "Host: x", "--token", "t", "--kind", "CVE", "--max-attempts", "21",
    )  # fmt: skip
    assert done.exit_code == 1
    for word in (
        "--url must be https://",
        "--auth-header must not be a header",
        "--token a webhook channel has none",
        "--name has 1 to",
        "--kind a kind has small letters",
        "--max-attempts is a whole number from 1 to 20",
    ):
        assert word in done.output
    for url, fault in {
        "https://10.0.0.1/x": "is no public address",
        "https://[::1]/x": "is no public address",
        "https://u:p@example.com/": "must not hold a user",
        "ftp://example.com/": "must be an address",
        "https://example.com/ü": "visible ASCII",
    }.items():
        refused = installation.tidings(
            "digest", "channel", "add", "x", "--tenant", "demo", "--type", "slack", "--url", url
        )
        assert fault in refused.output, url
    named = installation.tidings(
        "digest", "channel", "add", "Bad Name", "--tenant", "demo", "--type", "slack", "--url", "https://example.com/x"
    )
    assert "--name has 1 to 60 small letters" in named.output


def test_a_change_tells_what_came_before_by_the_filter_as_it_was(installation: Installation, ledger: Ledger) -> None:
    with scripted_http() as server:
        server.always("/hook", answer(200))
        add(installation, server, "--kind", "update")
        post(ledger, "before", tenant="demo")
        edited = installation.tidings(
            "digest", "channel", "edit", "ops", "--min-severity", "critical", "--retention-days", "7"
        )
        assert edited.exit_code == 0, edited.output
        shown = installation.tidings("digest", "channel", "show", "ops").output
        assert re.search(r"kinds +update\n", shown)
        assert re.search(r"severity from +critical\n", shown)
        assert re.search(r"kept +7 days\n", shown)
        post(ledger, "after", tenant="demo")
        installation.work()
        installation.tidings("digest", "run")
        assert statuses(ledger) == {"before": "sent"}
        put(ledger, finding("of another kind", severity=Severity.CRITICAL), tenant="demo")
        wider = installation.tidings("digest", "channel", "edit", "ops", "--all-kinds", "--unset", "retention-days")
        assert "1 that are there already count as known and are not told" in wider.output
        assert re.search(r"kinds +all\n", installation.tidings("digest", "channel", "show", "ops").output)


def test_an_auth_header_is_removed_by_name(installation: Installation) -> None:
    with scripted_http() as server:
        server.always("/hook", answer(200))
        add(installation, server, "--auth-header", "Authorization: Bearer secret-part")
        installation.work()
        edit = ("digest", "channel", "edit", "ops", "--unset", "auth-header")
        refused = installation.tidings(*edit, "--auth-header", "Authorization: Bearer other-part")
        assert "--auth-header is given and removed at once" in refused.output
        assert "--token cannot be removed" in installation.tidings(*edit, "--unset", "token").output
        for times in range(2):
            assert installation.tidings("digest", "channel", "test", "ops").exit_code == 0
            if times == 0:
                assert "From now on it goes without an auth header." in installation.tidings(*edit).output
        assert ["authorization" in request.headers for request in server.posts("/hook")] == [True, False]


def test_dead_letters_are_discarded(installation: Installation, ledger: Ledger) -> None:
    with scripted_http() as server:
        server.always("/hook", answer(400))
        add(installation, server, "--max-attempts", "1")
        post(ledger, "a", "b", tenant="demo")
        installation.work()
        installation.tidings("digest", "run")
        command = ("digest", "discard", "ops", "--all", "--yes", "--now")
        assert "--reason is needed" in installation.tidings(*command).output
        done = installation.tidings(*command, "--reason", "nobody wants them")
        assert "2 would be discarded." in done.output
        finish(ledger)
        assert "dead-lettered  0" in installation.tidings("digest", "channel", "show", "ops").output
        assert "2 left out: " in installation.tidings("digest", "requeue", "ops", "--all", "--dry-run").output
        assert installation.tidings("digest", "history").output.count("dead-lettered, discarded") == 2
        assert statuses(ledger) == {"a": "dead_lettered", "b": "dead_lettered"}


def test_an_email_digest_is_a_send(installation: Installation, ledger: Ledger) -> None:
    done = installation.tidings(
        "digest", "channel", "add", "mail", "--tenant", "demo", "--type", "email", "--to", "-",
        stdin="ada@example.com\nbob@example.com\n",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "a***@e***.com, b***@e***.com" in installation.tidings("digest", "channel", "show", "mail").output
    post(ledger, "{{ a }} <b>", tenant="demo")
    installation.work()
    assert "1 told" in installation.tidings("digest", "run").output
    with ledger.autocommit() as connection:
        ((send, name),) = connection.execute("SELECT id, name FROM send").fetchall()
    assert name == "Digest mail"
    assert installation.tidings("show", str(send), "--watch").exit_code == 0
    with ledger.autocommit() as connection:
        mails = connection.execute("SELECT address, subject, text, html FROM sandbox_message ORDER BY 1").fetchall()
    assert [mail[0] for mail in mails] == ["ada@example.com", "bob@example.com"]
    assert mails[0][1] == "mail: 1 event, high"
    assert "[high] update: about {{ a }} <b>" in mails[0][2]
    assert "about {{ a }} &lt;b&gt;" in mails[0][3]


def test_what_no_worker_could_be_told_of_is_over(installation: Installation, ledger: Ledger) -> None:
    done = installation.tidings("digest", "run", REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert done.exit_code == 1
    assert "Redis (REDIS_URL) does not answer" in done.output
    assert scalar(ledger, "SELECT count(*) FROM digest_run WHERE ended_at IS NULL") == 0


def test_without_a_worker_the_command_says_so(installation: Installation) -> None:
    done = installation.tidings("digest", "run", "--wait", "1")
    assert done.exit_code == 1
    assert "start `worker_ops`; see `tidings queue list`" in done.output
