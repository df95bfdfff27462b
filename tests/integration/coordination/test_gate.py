import pytest

from shared.coordination.gate import Gate
from shared.coordination.redis import RedisLink
from tests.support.waiting import wait_until


@pytest.fixture
def gate(link: RedisLink, namespace: str) -> Gate:
    return Gate(link, provider="ches", credential="a1", namespace=namespace)


def test_a_gate_is_open_at_first(gate: Gate) -> None:
    assert gate.closed_for_s() == 0


def test_a_closed_gate_says_for_how_long(gate: Gate) -> None:
    assert gate.close(20) == 20
    assert 19 < gate.closed_for_s() <= 20


def test_a_smaller_later_wish_does_not_shorten_it(gate: Gate) -> None:
    gate.close(20)
    assert 19 < gate.close(5) <= 20
    assert 19 < gate.closed_for_s() <= 20
    assert gate.close(60) == 60


def test_it_opens_by_itself(gate: Gate) -> None:
    gate.close(0.5)
    assert 0 < gate.closed_for_s() <= 1
    wait_until(lambda: gate.closed_for_s() == 0)


def test_gates_of_two_credentials_are_two(gate: Gate, link: RedisLink, namespace: str) -> None:
    gate.close(20)
    assert Gate(link, provider="ches", credential="b2", namespace=namespace).closed_for_s() == 0
