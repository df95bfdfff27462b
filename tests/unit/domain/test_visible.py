import pytest

from shared.domain.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\r\0", r"a\nb\tc\r\x00"),
        ("\a\x7f\x9b31m", r"\x07\x7f\x9b31m"),
        ("moc.elpmaxe@\u202eada", r"moc.elpmaxe@\u202eada"),
        ("\ud800", r"\ud800"),
        ("Zoë Ünal 李 👋🏽", "Zoë Ünal 李 👋🏽"),
    ],
)
def test_controls_are_shown_and_letters_are_left(text: str, shown: str) -> None:
    assert visible(text) == shown
