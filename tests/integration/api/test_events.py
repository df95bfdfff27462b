"""Events and findings through the door: stored once, all faults at once, nobody else's."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from shared.domain.digests import Severity
from shared.domain.states import Mode
from shared.ledger import events
from shared.ledger.db import Ledger
from tests.integration.api.conftest import Api, faults, key_of
from tests.support.ledger_rows import scalar
from tests.support.waiting import wait_until

EVENT = {"dedup_key": "nginx 1.3", "kind": "update-available", "subject": "nginx 1.3 is out", "severity": "low"}
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
FINDING = {"kind": "cve", "subject": "CVE-2026-1 in nginx", "severity": "high"}


def put(api: Api, path: str, body: object) -> TestResponse:
    return api.call("PUT", path, data=json.dumps(body).encode(), content_type="application/json")


def stored(ledger: Ledger, table: str = "event") -> list[Any]:
    with ledger.autocommit() as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()  # type: ignore[arg-type]


def test_an_event_is_stored_once_and_raised_when_it_gets_worse(api: Api, ledger: Ledger) -> None:
    first = api.post("/events", EVENT)
    assert (first.status_code, first.get_json()) == (202, {"dedup_key": "nginx 1.3", "result": "new"})
    assert api.post("/events", {**EVENT, "subject": "other words"}).get_json()["result"] == "known"
    assert api.post("/events", {**EVENT, "severity": "high"}).get_json()["result"] == "raised"
    assert api.post("/events", {**EVENT, "severity": "medium"}).get_json()["result"] == "known"
    assert len(stored(ledger)) == 1


def test_keys_are_compared_letter_by_letter_and_nested_ones_kept(api: Api, ledger: Ledger) -> None:
    for key in ("A", "a", "ключ", "a/b?c=d#e", "日本 語"):
        assert api.post("/events", {**EVENT, "dedup_key": key}).get_json()["result"] == "new"
    assert len(stored(ledger)) == 5


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"dedup_key": ""}, "/dedup_key"),
        ({"dedup_key": "a "}, "/dedup_key"),
        ({"dedup_key": None}, "/dedup_key"),
        ({"dedup_key": "a\nb"}, "/dedup_key"),
        ({"dedup_key": "x" * 256}, "/dedup_key"),
        ({"kind": "Update Available"}, "/kind"),
        ({"subject": " "}, "/subject"),
        ({"subject": "two\nlines"}, "/subject"),
        ({"severity": "awful"}, "/severity"),
        ({"severity": 3}, "/severity"),
        ({"details": ["a list"]}, "/details"),
        ({"details": {"much": "x" * 5_000}}, "/details"),
        ({"finding": ""}, "/finding"),
        ({"subject": "a\u0000b"}, "/subject"),
        ({"dedupkey": "x"}, "/dedupkey"),
    ],
)
def test_a_fault_is_told_at_its_place_and_nothing_is_stored(
    api: Api, ledger: Ledger, change: dict[str, object], pointer: str
) -> None:
    assert list(faults(api.post("/events", {**EVENT, **change}))) == [pointer]
    assert stored(ledger) == []


def test_all_faults_of_a_bulk_are_told_at_once(api: Api, ledger: Ledger) -> None:
    body = {"events": [EVENT, {**EVENT, "kind": "!"}, {"dedup_key": "x"}]}
    assert set(faults(api.post("/events/bulk", body))) == {"/events/1/kind", "/events/2/kind", "/events/2/subject"}
    twice = {"events": [EVENT, {**EVENT, "dedup_key": "x"}, EVENT]}
    assert faults(api.post("/events/bulk", twice)) == {"/events/2/dedup_key": "is that of /events/0 too"}
    many = api.post("/events/bulk", {"events": [{}] * 100}).get_json()
    assert (len(many["errors"]), many["error_count"]) == (20, 300)
    assert stored(ledger) == []


def test_a_bulk_says_what_became_of_each(api: Api, ledger: Ledger) -> None:
    api.post("/events", EVENT)
    body = {"events": [{**EVENT, "dedup_key": f"e{n}"} for n in range(2_000)] + [EVENT]}
    answer = api.post("/events/bulk", body)
    assert answer.status_code == 202
    assert (answer.get_json()["new"], answer.get_json()["known"]) == (2_000, 1)
    assert answer.get_json()["events"][-1] == {"dedup_key": "nginx 1.3", "result": "known"}
    assert api.post("/events/bulk", body).get_json()["known"] == 2_001
    assert len(stored(ledger)) == 2_001


def test_a_finding_is_made_changed_and_taken_back(api: Api, ledger: Ledger) -> None:
    made = put(api, "/findings/image:docker.io/library/nginx", FINDING)
    assert made.status_code == 200
    assert made.get_json()["dedup_key"] == "image:docker.io/library/nginx"
    assert made.get_json()["active"] is True
    again = put(api, "/findings/image:docker.io/library/nginx", FINDING).get_json()
    assert again == made.get_json()
    over = put(api, "/findings/image:docker.io/library/nginx", {**FINDING, "active": False}).get_json()
    assert (over["active"], over["inactive_at"] is None, over["changed_at"]) == (False, False, again["changed_at"])
    assert api.get("/findings/image:docker.io/library/nginx").get_json() == over
    assert api.call("DELETE", "/findings/image:docker.io/library/nginx").get_json() == over
    assert api.get("/findings/image:docker.io/library/nginx").status_code == 404
    assert api.call("DELETE", "/findings/image:docker.io/library/nginx").status_code == 404


def test_a_source_replaces_its_own_findings_and_nobody_elses(api: Api, ledger: Ledger) -> None:
    put(
        api, "/findings", {"findings": [{**FINDING, "key": "other", "source": "elsewhere"}, {**FINDING, "key": "mine"}]}
    )
    answer = put(api, "/sources/scanner/findings", {"findings": [{**FINDING, "key": key} for key in "abc"]})
    assert answer.get_json() == {"given": 3, "changed": 3, "ended": 0}
    answer = put(api, "/sources/scanner/findings", {"findings": [{**FINDING, "key": key} for key in "bd"]})
    assert answer.get_json() == {"given": 2, "changed": 1, "ended": 2}
    active = api.get("/findings?active=true").get_json()["findings"]
    assert [one["key"] for one in active] == ["b", "d", "mine", "other"]
    assert put(api, "/sources/scanner/findings", {"findings": []}).get_json()["ended"] == 2
    assert [one["key"] for one in api.get("/findings?source=scanner&active=false").get_json()["findings"]] == list(
        "abcd"
    )


def test_two_sets_of_one_source_do_not_lock_each_other_out(api: Api, ledger: Ledger) -> None:
    put(api, "/sources/scanner/findings", {"findings": [{**FINDING, "key": key} for key in "ab"]})
    mine = events.NewFinding("b", "b", "cve", "other words", Severity.HIGH, source="scanner")
    others = {"findings": [{**FINDING, "key": "a", "subject": "other words"}]}
    with ThreadPoolExecutor() as pool:
        with ledger.transaction() as connection:
            events.lock_findings(connection, api.tenant_id)
            events.put_findings(connection, api.tenant_id, [mine])
            answer = pool.submit(put, api, "/sources/scanner/findings", others)
            wait_until(lambda: scalar(ledger, _WAITING), what="the other set to wait")
            events.end_others(connection, api.tenant_id, source="scanner", named=["b"])
        assert answer.result().get_json() == {"given": 1, "changed": 1, "ended": 1}
    assert [one["key"] for one in api.get("/findings?active=true").get_json()["findings"]] == ["a"]


def test_a_bulk_and_a_set_do_not_lock_each_other_out(api: Api, other: Api, ledger: Ledger) -> None:
    put(api, "/sources/scanner/findings", {"findings": [{**FINDING, "key": key} for key in "abc"]})
    new = {**FINDING, "subject": "other words"}
    bulk = {"findings": [{**new, "key": key, "source": "scanner"} for key in "abc"]}
    with ThreadPoolExecutor() as pool:
        with ledger.transaction() as connection:
            connection.execute("SELECT 1 FROM finding WHERE key = 'b' FOR UPDATE")
            put_ = pool.submit(put, api, "/findings", bulk)  # has `a`, and waits for `b`
            wait_until(lambda: scalar(ledger, _WAITING) == 1, what="the bulk to wait")
            replaced = pool.submit(put, api, "/sources/scanner/findings", {"findings": [{**new, "key": "c"}]})
            wait_until(lambda: scalar(ledger, _WAITING) == 2, what="the set to wait")
            assert put(other, "/findings/a", FINDING).status_code == 200  # another tenant's do not
        assert [put_.result().status_code, replaced.result().status_code] == [200, 200]
    assert [one["key"] for one in api.get("/findings?active=true").get_json()["findings"]] == ["c"]


def test_findings_are_listed_a_page_at_a_time(api: Api) -> None:
    put(api, "/findings", {"findings": [{**FINDING, "key": f"k{n}ü"} for n in range(5)]})
    seen, cursor = [], ""
    for _ in range(3):
        page = api.get(f"/findings?limit=2{cursor}").get_json()
        seen += [one["key"] for one in page["findings"]]
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [f"k{n}ü" for n in range(5)]
    assert page["next_cursor"] is None
    assert api.get("/findings?cursor=!").status_code == 422


def test_tenants_do_not_see_each_other(api: Api, other: Api, ledger: Ledger) -> None:
    put(api, "/findings/mine", FINDING)
    assert other.get("/findings/mine").status_code == 404
    assert other.call("DELETE", "/findings/mine").status_code == 404
    assert other.get("/findings").get_json()["findings"] == []
    assert other.post("/events", EVENT).get_json()["result"] == "new"
    assert api.post("/events", EVENT).get_json()["result"] == "new"


def test_a_test_key_reaches_no_endpoint(app: Flask, api: Api, ledger: Ledger) -> None:
    _, _, secret = key_of(ledger, "acme", mode=Mode.TEST)
    test = Api(app.test_client(), secret, 0, 0)
    assert test.post("/events", EVENT).get_json()["type"].endswith("#test-key")
    assert put(test, "/findings/a", FINDING).status_code == 403
    put(api, "/findings/a", FINDING)
    assert test.call("DELETE", "/findings/a").status_code == 403
    assert api.get("/findings/a").status_code == 200


def test_a_bad_key_in_the_path_is_told(api: Api) -> None:
    answer = put(api, "/findings/%20a", FINDING)
    assert answer.status_code == 422
    assert "begins or ends with a space" in answer.get_json()["detail"]
    assert put(api, f"/findings/{'x' * 256}", FINDING).status_code == 422
    for key in ("a%00b", "%ff%fe"):
        assert put(api, f"/findings/{key}", FINDING).status_code == 422
        for method in ("GET", "DELETE"):
            assert api.call(method, f"/findings/{key}").status_code == 422, key
    assert put(api, f"/sources/{'x' * 101}/findings", {"findings": []}).status_code == 422
    for query in ("source=%00", "cursor=AA"):
        assert api.get(f"/findings?{query}").get_json()["type"].endswith("#invalid-query")


def _nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize("details", [_nested(32), _nested(256), _nested(5_000), '{"a": 1e400}', '{"a": [[-1e999]]}'])
def test_details_that_could_not_be_shown_again_are_refused_at_their_place(api: Api, details: str) -> None:
    body = json.dumps(FINDING)[:-1] + f', "details": {details}}}'
    answer = api.call("PUT", "/findings/a", data=body, content_type="application/json")
    assert answer.status_code in {400, 422}
    if answer.status_code == 422:
        assert all(pointer.startswith("/details") for pointer in faults(answer))
    assert api.get("/findings/a").status_code == 404
    put(api, "/findings/a", {**FINDING, "details": json.loads(_nested(31))})
    assert api.get("/findings").get_json()["findings"][0]["details"] == json.loads(_nested(31))
