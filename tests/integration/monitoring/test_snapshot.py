"""The snapshot's document: sections that stand and fall alone, and what the pages say of it."""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jinja2 import ChoiceLoader, DictLoader

from admin.extensions import installed
from admin.monitoring import panels, snapshot
from admin.monitoring.panels import Panel
from admin.monitoring.snapshot import Section, Sources
from admin.monitoring.snapshot_shape import SHAPE, shape_of
from shared.coordination import keys
from shared.coordination.redis import RedisLink, Script
from shared.domain.roles import Role
from shared.settings import Settings
from tests.integration.api.conftest import app, make_app, settings, unused_port
from tests.support.browser import Browser

__all__ = ["app", "make_app", "settings", "unused_port"]

AddSection = Callable[[Section], None]


@pytest.fixture
def add_section() -> Iterator[AddSection]:
    """Add a section for the time of a test."""
    kept = dict(snapshot.SECTIONS)
    yield lambda section: snapshot.SECTIONS.__setitem__(section.name, section)
    snapshot.SECTIONS.clear()
    snapshot.SECTIONS.update(kept)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return Browser(app).client


def look(client: FlaskClient) -> Any:
    answer = client.get("/admin/monitoring/queues")
    assert answer.status_code == 200
    return answer.get_json()


def one(sources: Sources) -> dict[str, Any]:
    with sources.connection() as connection:
        row = connection.execute("SELECT 1, current_setting('statement_timeout')").fetchone()
    assert row is not None
    return {"one": row[0], "timeout": row[1]}


def test_a_section_is_sampled_from_its_store_within_its_time(client: FlaskClient, add_section: AddSection) -> None:
    add_section(Section("trial", "postgres", one))
    document = look(client)
    assert document["sections"]["trial"]["data"] == {"one": 1, "timeout": "2s"}
    assert document["sections"]["trial"]["status"] == "ok"
    assert document["stores"] == {
        "postgres": {"status": "ok", "since": None, "back_at": None},
        "redis": {"status": "ok", "since": None, "back_at": None},
    }


def test_a_fault_or_a_slow_statement_costs_its_own_section_only(client: FlaskClient, add_section: AddSection) -> None:
    def slow(sources: Sources) -> dict[str, Any]:
        with sources.connection() as connection:
            connection.execute("SET LOCAL statement_timeout = '20ms'")
            connection.execute("SELECT pg_sleep(5)")
        return {}

    add_section(Section("faulty", "postgres", lambda sources: {"x": 1 / 0}))
    add_section(Section("unwritable", "redis", lambda sources: {"x": object()}))
    add_section(Section("slow", "postgres", slow))
    add_section(Section("trial", "postgres", one))
    sections = look(client)["sections"]
    assert [sections[name]["status"] for name in ("faulty", "unwritable", "slow", "trial")] == [
        "unavailable", "unavailable", "unavailable", "ok",
    ]  # fmt: skip
    assert sections["slow"]["since"]


def test_a_rule_that_raises_costs_no_page_and_is_named_on_it(client: FlaskClient, add_section: AddSection) -> None:
    times = {"last_pass_at": "no moment", "first_send_at": None, "last_tick_at": None}
    add_section(Section("recovery", "postgres", lambda sources: {**times, "retention": None}))
    said = [warning["text"] for warning in look(client)["warnings"]]
    assert "The rule ReconcilerLate could not be judged: whether it is so is not known." in said
    page = client.get("/admin/monitoring")
    assert page.status_code == 200
    assert said[0] in page.text


def test_a_document_of_another_release_is_as_if_it_were_not_there(app: Flask, client: FlaskClient) -> None:
    theirs = {key: key.name("tidings", shape="00000000") for key in (keys.SNAPSHOT, keys.SNAPSHOT_BUILD)}
    link, now = installed(app).link, datetime.now(UTC)
    document = {"v": round(now.timestamp() * 1000) + 5_000, "at": now.isoformat(), "of": "another release"}
    link.pipeline([("SET", theirs[keys.SNAPSHOT], json.dumps(document)), ("SET", theirs[keys.SNAPSHOT_BUILD], "done")])
    assert set(look(client)["stores"]) == {"postgres", "redis"}
    assert client.get("/admin/monitoring/system").status_code == 200
    (kept,) = link.pipeline([("GET", theirs[keys.SNAPSHOT])])
    assert json.loads(kept) == document, "and theirs is left to them"


def test_the_shape_follows_the_code(tmp_path: Path) -> None:
    module = tmp_path / "shared" / "domain" / "health.py"
    module.parent.mkdir(parents=True)
    shapes = set()
    for source in ("", "x = 1\n", "x = 2\n"):
        module.write_text(source)
        shapes |= {shape_of(tmp_path), shape_of(tmp_path)}
    assert len(shapes) == 3
    assert keys.SNAPSHOT.name("tidings", shape=SHAPE) == f"tidings:{{snapshot}}:{SHAPE}:document"
    assert re.fullmatch(r"[0-9a-f]{8}", SHAPE)


def test_over_a_snapshot_that_nobody_renews_nothing_is_called_well(app: Flask, client: FlaskClient) -> None:
    document = look(client)
    well = {"text": "Sending normally.", "severity": "ok", "since": None}
    cache = app.extensions["tidings-snapshots"]
    for age_s, verdict in (
        (0, "Sending normally."),
        (90, "These figures are 1 min old"),
        (180, "These figures are 3 min"),
    ):
        at = datetime.now(UTC) - timedelta(seconds=age_s)
        cache._known = snapshot.Snapshot({**document, "at": at.isoformat(), "warnings": [], "verdict": well})
        cache._fresh_until = math.inf
        page = client.get("/admin/monitoring/panels?page=overview").get_json()
        assert page["verdict"].startswith(verdict)
        assert verdict in page["panels"]["verdict"]["html"]


def test_without_redis_its_sections_are_gone_and_those_of_postgres_live(
    make_app: Any, settings: Settings, unused_port: int, add_section: AddSection
) -> None:
    add_section(Section("trial", "postgres", one))
    add_section(Section("elsewhere", "redis", lambda sources: {}))
    url = f"redis://127.0.0.1:{unused_port}/0"
    client = Browser(make_app(settings.model_copy(update={"redis_url": type(settings.redis_url)(url)}))).client
    document = look(client)
    assert document["sections"]["trial"]["status"] == "ok"
    assert document["sections"]["elsewhere"]["status"] == "unavailable"
    assert document["stores"]["redis"]["status"] == "away"
    assert look(client)["v"] == document["v"], "built again within two seconds"
    page = client.get("/admin/monitoring").text
    assert "Redis does not answer: what runs goes on without shared caps and circuits" in page


def test_the_panels_are_sent_once_and_then_only_when_they_changed(client: FlaskClient, add_section: AddSection) -> None:
    first = client.get("/admin/monitoring/panels?page=overview&have=").get_json()
    have = ",".join(f"{name}:{panel['hash']}" for name, panel in first["panels"].items())
    again = client.get(f"/admin/monitoring/panels?page=overview&have={have}").get_json()
    assert {"verdict", "tabs"} <= set(first["panels"])
    assert again["panels"] == {}
    assert again["poll_ms"] == panels.POLL_MS
    assert client.get("/admin/monitoring/panels?page=nothing").status_code == 404


def test_a_panel_is_rendered_once_for_all_who_may_do_the_same(app: Flask, add_section: AddSection) -> None:
    """Each rendering of the panel's template is seen by what it shows: the next number."""
    numbers = itertools.count()
    app.jinja_loader = ChoiceLoader(
        [
            DictLoader({f"monitoring/panels/{name}.html": "{{ next_number() }}" for name in ("shared", "personal")}),
            app.jinja_loader or DictLoader({}),
        ]
    )
    app.jinja_env.globals["next_number"] = lambda: next(numbers)
    panels.add_page("two", Panel("shared", "Shared"), Panel("personal", "Personal", context=lambda view: {}), tab="")
    shown: dict[str, list[str]] = {"shared": [], "personal": []}
    look(Browser(app).client)
    app.extensions["tidings-snapshots"]._fresh_until = float("inf")  # all of them see one snapshot
    for browser in (Browser(app), Browser(app), Browser(app, name="lee"), Browser(app, role=Role.READ)):
        found = browser.get("/admin/monitoring/panels?page=two&have=shared:x,personal:x").get_json()["panels"]
        for name, seen in shown.items():
            seen.append(re.findall(r"\d+", found[name]["html"].partition("</h2>")[2])[0])
    panels.PAGES.pop("two")
    assert len(set(shown["personal"])) == 4
    assert shown["shared"][0] == shown["shared"][1] == shown["shared"][2] != shown["shared"][3]


def test_who_never_heard_that_it_is_to_build_is_told_again_and_nobody_else(redis_url: str) -> None:
    """A Redis that hung answers late what was asked: its asker has long given up, and would keep all others waiting."""
    link, look_script = RedisLink(redis_url), Script("snapshot_look")
    states = [
        link.run(look_script, keys=["document", "build"], args=(token, 8000))[1] for token in ("ours", "ours", "theirs")
    ]
    link.close()
    assert states == ["yours", "yours", "building"]
