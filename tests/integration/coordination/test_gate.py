import pytest

from shared.coordination import keys
from shared.coordination.gate import Gate
from shared.coordination.redis import RedisLink
from tests.support.waiting import wait_until


@pytest.fixture
def gate(link: RedisLink, namespace: str) -> Gate:
    return Gate(link, provider="ches", credential="a1", namespace=namespace)


def test_a_gate_is_open_at_first(gate: Gate) -> None:
    assert gate.closed_for_s() == 0


def test_a_closed_gate_says_for_how_long(gate: Gate) -> None:
    assert gate.close(300) == 300
    assert 200 < gate.closed_for_s() <= 300


def test_a_smaller_later_wish_does_not_shorten_it(gate: Gate) -> None:
    gate.close(300)
    assert 200 < gate.close(5) <= 300
    assert 200 < gate.closed_for_s() <= 300
    assert gate.close(600) == 600


def test_it_opens_by_itself(gate: Gate) -> None:
    assert gate.close(0.5) == 0.5
    wait_until(lambda: gate.closed_for_s() == 0)


def test_gates_of_two_credentials_are_two(gate: Gate, link: RedisLink, namespace: str) -> None:
    gate.close(20)
    assert Gate(link, provider="ches", credential="b2", namespace=namespace).closed_for_s() == 0


def growth(namespace: str) -> str:
    return keys.GATE_GROWTH.name(namespace, provider=keys.provider_part("ches", "a1"))


def let_it_open(link: RedisLink, namespace: str, ago_s: float = 0.0) -> None:
    """As if its time had passed, and some seconds more."""
    gate = keys.GATE.name(namespace, provider=keys.provider_part("ches", "a1"))
    last_ms = int(link.pipeline([("GET", growth(namespace))])[0])
    link.pipeline([("DEL", gate), ("PEXPIRE", growth(namespace), round(last_ms - ago_s * 1000))])


def test_refused_again_soon_after_it_opened_it_closes_for_twice_as_long_up_to_a_bound(
    gate: Gate, link: RedisLink, namespace: str
) -> None:
    closed = []
    for _ in range(5):
        closed.append(gate.close(30, grows_to_s=200))
        let_it_open(link, namespace)
    assert closed == [30, 60, 120, 200, 200]


def test_calls_that_were_in_flight_when_it_closed_do_not_make_it_longer(gate: Gate) -> None:
    gate.close(300, grows_to_s=3600)
    assert all(200 < gate.close(300, grows_to_s=3600) <= 300 for _ in range(50))
    assert gate.close(600) == 600  # another's wish does
    assert 500 < gate.close(300, grows_to_s=3600) <= 600


def test_once_it_was_open_for_as_long_as_it_had_been_closed_it_begins_anew(
    gate: Gate, link: RedisLink, namespace: str
) -> None:
    gate.close(30, grows_to_s=3600)
    let_it_open(link, namespace, ago_s=30)
    assert gate.close(30, grows_to_s=3600) == 30
