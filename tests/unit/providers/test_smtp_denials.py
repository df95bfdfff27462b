"""How many refusals, and which, it takes to set a relay aside; and how that ends."""

import pytest

from workers.providers.smtp_denials import DENIED_IN_A_ROW, Denials, cause_of

PEOPLE = [f"person{n}@host{n}.example" for n in range(50)]


class Now:
    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def denials(now: Now) -> Denials:
    return Denials(now)


def denied(denials: Denials, *people: str, text: str = "<{}>: Relay access denied") -> list[bool]:
    return [denials.note(person, text.format(person)) for person in people]


def test_the_fifth_recipient_refused_in_the_same_words_makes_it_ours(denials: Denials) -> None:
    assert denied(denials, *PEOPLE[:7]) == [False] * 4 + [True] * 3


def test_one_recipient_refused_again_and_again_is_one(denials: Denials) -> None:
    assert not any(denied(denials, *[PEOPLE[0]] * 20))


def test_refusals_for_different_causes_are_counted_apart(denials: Denials) -> None:
    words = ("no relaying", "relaying is not allowed here", "we do not relay")
    assert not any(denials.note(person, words[n % 3]) for n, person in enumerate(PEOPLE[:12]))


def test_a_message_taken_in_between_begins_the_count_anew(denials: Denials) -> None:
    denied(denials, *PEOPLE[:4])
    denials.forget()
    assert not any(denied(denials, *PEOPLE[:4]))


def test_a_relay_that_takes_no_mail_but_others_is_not_set_aside_for_ever(denials: Denials, now: Now) -> None:
    denied(denials, *PEOPLE[:DENIED_IN_A_ROW])
    now.s += 300.0
    assert denied(denials, PEOPLE[10]) == [True]
    now.s += 300.0
    assert denied(denials, PEOPLE[10]) == [False]  # it fails, and the others get their turn
    denials.forget()  # one of them was taken
    assert denied(denials, *PEOPLE[11:15]) == [False] * 4


@pytest.mark.parametrize("look_s", [300.0, 3_600.0])
def test_a_relay_that_takes_nothing_fails_one_recipient_each_time_its_words_are_forgotten_and_no_more(
    denials: Denials, now: Now, look_s: float
) -> None:
    denied(denials, *PEOPLE[:DENIED_IN_A_ROW])
    for person in PEOPLE[10:15]:
        looks = [True]
        while looks[-1]:  # each by the same recipient, which is due at once
            now.s += look_s
            looks += denied(denials, person)
        assert len(looks) == 1 + max(1, round(600 / look_s))
        # Now the circuit is closed: all others are tried at once, with one that was refused before.
        assert denied(denials, PEOPLE[4], *PEOPLE[20:40]) == [True] * 21


def test_slow_mail_is_noticed_too(denials: Denials, now: Now) -> None:
    told = []
    for person in PEOPLE[:5]:
        now.s += 500.0
        told += denied(denials, person)
    assert told == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<a@x.example>: Relay access denied", "<b@y.example>: Relay access denied"),
        ("relaying mail to X.example is not allowed", "relaying mail to y.example is not allowed"),
        ("a@x.example... Relaying denied (id 1rX-0004Ab)", "b@y.example... Relaying denied (id 1rY-0009Zz)"),
        ("unable to relay for a@x.example [4F2A1B0C9D]", "Unable to relay for b@y.example [77AB01CCDE]"),
    ],
)
def test_words_are_the_same_whoever_they_speak_of(one: str, other: str) -> None:
    assert cause_of("a@x.example", one) == cause_of("b@y.example", other)
