"""Names and values of parameters."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.merge_values import (
    MAX_NAME_CHARS,
    MAX_VALUE_CHARS,
    check_param_value,
    normalise_name,
    normalise_params,
    show,
)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("First Name", "first_name"),
        (" first-name ", "first_name"),
        ("FIRST_NAME", "first_name"),
        ("First\u00a0Name", "first_name"),
        ("Amount (CAD)", "amount_cad"),
        ("Prénom", "prénom"),
        ("Pre\u0301nom", "prénom"),
        ("2nd", "2nd"),
        ("__class__", "class"),
        ("#", ""),
        ("", ""),
    ],
)
def test_a_name_has_one_spelling(written: str, name: str) -> None:
    assert normalise_name(written) == name


@given(st.text(alphabet="aB1 _-\u00a0éİßﬁǅ\u0301#", max_size=12))
def test_normalising_a_name_twice_changes_nothing(written: str) -> None:
    once = normalise_name(written)
    assert normalise_name(once) == once


def test_params_are_taken_under_their_normalised_names() -> None:
    assert normalise_params({"First Name": "Jane", "n": 0}) == ({"first_name": "Jane", "n": 0}, [])


def test_two_spellings_of_one_name_are_refused_instead_of_one_being_picked() -> None:
    _, faults = normalise_params({"First Name": "a", "first_name": "b"})
    assert faults == [("first_name", "is the same name as another parameter: both are read as first_name")]


def test_every_fault_of_the_params_is_told_at_once() -> None:
    _, faults = normalise_params({"": "a", "n" * (MAX_NAME_CHARS + 1): "b", "l": [], "ok": "c"})
    assert [name for name, _ in faults] == ["", "n" * MAX_NAME_CHARS, "l"]


@pytest.mark.parametrize("value", ["", "x", 0, -1, 10**50, 1.5, Decimal("1e30"), True, None, "\uffff", "é"])
def test_text_numbers_booleans_and_null_are_values(value: object) -> None:
    assert check_param_value(value) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "a list"),
        (["a"], "a list"),
        ({"a": 1}, "an object"),
        (b"x", "bytes"),
        ("a\0b", "NUL"),
        ("\ud83d", "surrogate"),
        pytest.param("x" * (MAX_VALUE_CHARS + 1), "65,536", id="a long text"),
        (float("nan"), "finite"),
        (Decimal("Infinity"), "finite"),
        pytest.param(10**5000, "digits", id="5,001 digits"),
        pytest.param(Decimal("1." + "1" * 300), "digits", id="301 digits"),
    ],
)
def test_other_values_are_refused_without_being_repeated(value: object, problem: str) -> None:
    message = check_param_value(value)
    assert message is not None
    assert problem in message
    assert len(message) < 100


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_shown_number_is_the_number(value: Decimal) -> None:
    assert Decimal(show(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_shown_float_is_the_float(value: float) -> None:
    assert float(show(value)) == value
