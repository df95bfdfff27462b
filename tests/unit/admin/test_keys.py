import pytest

from shared.domain.states import Mode
from shared.ledger.tenants import looks_like_key, new_secret


@pytest.mark.parametrize("mode", Mode)
def test_a_new_key_names_its_mode_and_has_a_right_checksum(mode: Mode) -> None:
    secret = new_secret(mode)
    assert secret.startswith(f"tid_{mode.value}_")
    assert looks_like_key(secret)


@pytest.mark.parametrize("at", range(9, 58))
def test_one_wrong_character_is_noticed_without_asking_the_ledger(at: int) -> None:
    secret = new_secret(Mode.LIVE)
    wrong = "A" if secret[at] != "A" else "B"
    assert not looks_like_key(secret[:at] + wrong + secret[at + 1 :])


@pytest.mark.parametrize(
    "text", ["", "tid_live_", "tid_live_" + "0" * 43, "tid_live_" + "0" * 49 + "\n", "sk_live_" + "a" * 49, "é" * 58]
)
def test_what_is_not_a_key_is_told_without_asking_the_ledger(text: str) -> None:
    assert not looks_like_key(text)
