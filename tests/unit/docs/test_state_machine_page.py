from importlib import import_module
from pkgutil import resolve_name

import pytest

from shared.domain.digests import NOTIFICATION_EDGES
from shared.domain.states import DELIVERY_EDGES, SEND_EDGES
from tests.support.state_machine_page import delivery_edges, makers, notification_edges, send_edges


def test_the_page_draws_exactly_the_edges_of_the_code() -> None:
    assert send_edges() == SEND_EDGES
    assert delivery_edges() == DELIVERY_EDGES
    assert notification_edges() == NOTIFICATION_EDGES


def test_the_tables_name_exactly_the_edges_of_the_diagrams() -> None:
    assert set(makers("Sends")) == send_edges()
    assert set(makers("Deliveries")) == delivery_edges()
    assert set(makers("Notifications")) == notification_edges()


def test_every_edge_of_a_send_has_somebody_who_makes_it() -> None:
    assert all(makers("Sends").values())


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            name
            for section in ("Sends", "Deliveries", "Notifications")
            for names in makers(section).values()
            for name in names
        }
    ),
)
def test_every_function_named_exists(name: str) -> None:
    module, _, function = name.rpartition(".")
    assert callable(getattr(import_module(f"shared.ledger.{module}"), function))


def test_the_other_functions_of_the_text_exist() -> None:
    for name in ("acceptance.store_send", "acceptance.store_rows"):
        assert callable(resolve_name(f"shared.ledger.{name.replace('.', ':', 1)}"))
    assert callable(resolve_name("shared.domain.retry:decide"))
