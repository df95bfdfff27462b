from collections.abc import Iterator

import pytest

from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand
from tests.support.books import assert_books_balance


@pytest.fixture
def balanced(ledger: Ledger) -> Iterator[None]:
    """After the test the books of every send balance."""
    yield
    assert_books_balance(ledger)


@pytest.fixture
def hand(ledger: Ledger) -> Hand:
    return Hand(ledger)


@pytest.fixture
def other(ledger: Ledger) -> Hand:
    return Hand(ledger)
