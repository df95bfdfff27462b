from shared.coordination.circuit_snapshot import CircuitPolicy
from shared.coordination.local_share import Grant, LocalShare, Refusal


def share(cap: int = 20) -> LocalShare:
    return LocalShare(cap=cap, policy=CircuitPolicy(), cap_poll_s=0.5)


def enter(local: LocalShare, *, now: float, want: int = 25, in_flight: int = 0, workers: int = 4) -> Grant | Refusal:
    return local.enter(want, in_flight=in_flight, workers=workers, now=now)


def test_the_share_is_the_cap_over_the_workers_and_at_least_one() -> None:
    assert [share(20).share(workers) for workers in (0, 1, 3, 20, 100)] == [20, 20, 6, 1, 1]
    assert share(0).share(4) is None


def test_calls_in_flight_are_taken_off_the_share() -> None:
    assert enter(share(), now=0, in_flight=3) == Grant(calls=2, probe=False)
    assert enter(share(), now=0, in_flight=5) == Refusal(reason="cap", retry_in_s=0.5)
    assert enter(share(), now=0, in_flight=20) == Refusal(reason="cap", retry_in_s=0.5)


def test_without_a_cap_the_window_gets_what_it_wants() -> None:
    assert enter(share(0), now=0, want=100, in_flight=500) == Grant(calls=100, probe=False)


def test_five_failures_in_ten_seconds_open_it() -> None:
    local = share()
    local.results(successes=0, failures=4, probe=False, now=100)
    local.results(successes=50, failures=1, probe=False, now=109)
    assert enter(local, now=110) == Refusal(reason="circuit", retry_in_s=29)


def test_five_failures_in_more_than_ten_seconds_do_not() -> None:
    local = share()
    local.results(successes=0, failures=4, probe=False, now=100)
    local.results(successes=0, failures=1, probe=False, now=110)
    assert enter(local, now=110) == Grant(calls=5, probe=False)


def test_one_probe_after_the_open_time() -> None:
    local = share()
    local.results(successes=0, failures=9, probe=False, now=100)
    assert enter(local, now=130) == Grant(calls=1, probe=True)
    assert enter(local, now=131) == Refusal(reason="circuit", retry_in_s=34)
    local.results(successes=0, failures=1, probe=True, now=132)
    assert enter(local, now=132) == Refusal(reason="circuit", retry_in_s=30)
    assert enter(local, now=162) == Grant(calls=1, probe=True)
    local.results(successes=1, failures=0, probe=True, now=163)
    assert enter(local, now=163) == Grant(calls=5, probe=False)


def test_a_probe_without_a_result_is_handed_on() -> None:
    local = share()
    local.results(successes=0, failures=5, probe=False, now=100)
    assert enter(local, now=130) == Grant(calls=1, probe=True)
    local.results(successes=0, failures=0, probe=True, now=131)
    assert enter(local, now=131) == Grant(calls=1, probe=True)


def test_late_failures_do_not_prolong_an_open_circuit() -> None:
    local = share()
    local.results(successes=0, failures=5, probe=False, now=100)
    local.results(successes=0, failures=5, probe=False, now=120)
    assert enter(local, now=130) == Grant(calls=1, probe=True)


def test_what_redis_said_last_is_kept_until_its_time() -> None:
    local = share()
    local.heard(Refusal(reason="circuit", retry_in_s=12), now=100)
    assert enter(local, now=111) == Refusal(reason="circuit", retry_in_s=1)
    assert enter(local, now=112) == Grant(calls=5, probe=False)


def test_a_hold_has_no_time_of_its_own() -> None:
    local = share()
    local.heard(Refusal(reason="hold", retry_in_s=5), now=100)
    assert enter(local, now=10_000) == Refusal(reason="hold", retry_in_s=30)
    local.close_gate(60, now=10_000)
    assert enter(local, now=20_000) == Refusal(reason="hold", retry_in_s=30)
    local.heard(None, now=20_000)
    assert enter(local, now=20_000) == Grant(calls=5, probe=False)


def test_a_gate_is_never_shortened() -> None:
    local = share()
    local.close_gate(20, now=100)
    local.close_gate(5, now=100)
    assert enter(local, now=119) == Refusal(reason="gate", retry_in_s=1)
    assert enter(local, now=120) == Grant(calls=5, probe=False)
