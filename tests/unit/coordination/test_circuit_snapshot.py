from datetime import UTC, datetime

import pytest

from shared.coordination.circuit_snapshot import CircuitPolicy, CircuitSnapshot, read_snapshot

NOW_S = 1_800_000_000.0
OPENED = {"state": "open", "opened_at": str(int(NOW_S - 10) * 1000), "reopened": "2", "epoch": "7"}
ISOLATED = {
    "isolated_at": str(int(NOW_S - 60) * 1000),
    "isolated_reason": "password refused",
    "isolated_code": "auth",
    "recheck_at": str(int(NOW_S + 240) * 1000),
}
HELD = {"held_at": str(int(NOW_S - 5) * 1000), "held_by": "kim", "held_reason": "maintenance"}
PROBING = {"probe_token": "t", "probe_until": str(int(NOW_S + 20) * 1000)}
LAPSED = {"probe_token": "t", "probe_until": str(int(NOW_S - 1) * 1000)}


def read(*parts: dict[str, str], failures: tuple[str, ...] = ()) -> CircuitSnapshot:
    fields = {name: value for part in parts for name, value in part.items()}
    return read_snapshot("ches:a1", fields, failures, now_s=NOW_S, policy=CircuitPolicy())


@pytest.mark.parametrize(
    ("parts", "state", "next_probe_in_s"),
    [
        ((), "closed", None),
        (({"epoch": "7"},), "closed", None),
        ((OPENED,), "open", 20),
        ((OPENED, PROBING), "half-open", None),
        ((OPENED, LAPSED), "open", 20),
        ((ISOLATED,), "open", 240),
        ((ISOLATED, PROBING), "half-open", None),
        ((OPENED, ISOLATED), "open", 240),
        ((HELD,), "open", None),
        ((HELD, OPENED, PROBING), "open", None),
    ],
)
def test_state_and_time_to_the_next_probe(
    parts: tuple[dict[str, str], ...], state: str, next_probe_in_s: float | None
) -> None:
    snapshot = read(*parts)
    assert (snapshot.state, snapshot.next_probe_in_s) == (state, next_probe_in_s)


def test_hold_and_isolation_are_two_reasons_side_by_side() -> None:
    snapshot = read(OPENED, ISOLATED, HELD)
    assert snapshot.hold is not None
    assert (snapshot.hold.by, snapshot.hold.reason) == ("kim", "maintenance")
    assert snapshot.isolation is not None
    assert snapshot.isolation.code == "auth"
    assert snapshot.opened_at == datetime.fromtimestamp(NOW_S - 10, tz=UTC)
    assert snapshot.reopened == 2


def test_only_failures_inside_the_window_count() -> None:
    times = tuple(str(int((NOW_S - ago) * 1000)) for ago in (11, 10, 9, 1))
    assert read(failures=times).failures_in_window == 2
