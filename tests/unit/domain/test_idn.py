import pytest

from shared.domain.address import parse_email
from shared.domain.idn import readable


@pytest.mark.parametrize(
    "address", ["ada@münchen.example", "ada@fußball.example", "ada@例え.jp", "a@b.münchen.example"]
)
def test_what_was_typed_is_read_again_from_the_form_that_is_stored(address: str) -> None:
    assert readable(parse_email(address).ascii) == address


@pytest.mark.parametrize(
    "address",
    [
        "ada@example.com",
        "+16045550100",
        "",
        "xn--mnchen-3ya@example.com",
        "a@xn--.com",
        "a@xn--\x1b.com",
        "a@xn--é.com",
    ],
)
def test_what_is_no_international_domain_is_left_as_it_is(address: str) -> None:
    assert readable(address) == address
