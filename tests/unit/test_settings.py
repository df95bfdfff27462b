"""What the settings refuse, and that all of it is said at once."""

from pathlib import Path

import pytest

from shared.settings import Settings, SettingsError, load

STORES = {"database_url": "postgresql://db.example.com/x", "redis_url": "redis://redis.example.com"}


def refusal(**given: object) -> str:
    with pytest.raises(SettingsError) as refused:
        load(**{**STORES, **given})
    return str(refused.value)


def accepted(**given: object) -> Settings:
    return load(**{**STORES, **given})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("email_from", "news"),
        ("email_from", "News news@example.com"),
        ("smtp_host", "smtp.example.com:587"),
        ("smtp_host", "smtp://smtp.example.com"),
        ("smtp_host", "smtp.example.com/"),
        ("smtp_ca_file", "/nowhere/at/all.pem"),
        ("message_id_domain", "news@example.com"),
        ("message_id_domain", "example"),
        ("acs_access_key", "not base64!"),
        ("twilio_from", "604 555 0100"),
        ("twilio_from", "much too long a name"),
        ("acs_from", "+0"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(name: str, value: str) -> None:
    text = refusal(**{name: value})
    assert f"  {name.upper()}: " in text
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("email_from", "news@example.com"),
        ("email_from", '"News, daily" <news@example.com>'),
        ("smtp_host", "localhost"),
        ("smtp_host", "127.0.0.1"),
        ("smtp_host", "::1"),
        ("smtp_host", "mail_1.internal.example.com"),
        ("message_id_domain", "mail.example.com"),
        ("twilio_from", "+16045550100"),
        ("twilio_from", "Example 1"),
        ("acs_from", "12345"),
    ],
)
def test_what_can_work_is_taken_as_it_is(name: str, value: str) -> None:
    assert getattr(accepted(**{name: value}), name) == value


def test_a_file_of_authorities_must_hold_a_certificate(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    assert "SMTP_CA_FILE: holds no certificate" in refusal(smtp_ca_file=str(empty))
    real = Path(__file__).parents[1] / "support" / "loopback.pem"
    assert accepted(smtp_ca_file=str(real)).smtp_ca_file == str(real)


def test_a_secret_that_is_refused_is_not_repeated() -> None:
    assert "hunter2" not in refusal(acs_access_key="hunter2!", secret_key="hunter2", email_from="news")


def test_faults_between_settings_are_told_with_those_of_single_ones() -> None:
    text = refusal(
        database_url="mysql://x", smtp_port="many", lease_ms=5_000, retry_after_min_ms=9_000, retry_after_max_ms=1_000
    )
    places = [line.split(":")[0].strip() for line in text.splitlines()[1:]]
    assert sorted(places) == ["DATABASE_URL", "SMTP_PORT", "together", "together"]
    assert "LEASE_MS must be at least twice" in text
    assert "RETRY_AFTER_MIN_MS must not" in text


def test_a_setting_at_fault_is_not_held_against_others_too() -> None:
    text = refusal(lease_ms="soon", lease_renew_ms=60_000)
    assert [line.split(":")[0].strip() for line in text.splitlines()[1:]] == ["LEASE_MS"]


def test_without_stores_the_other_faults_are_told_all_the_same() -> None:
    with pytest.raises(SettingsError) as refused:
        load(lease_ms=5_000)
    text = str(refused.value)
    assert "DATABASE_URL: is not set" in text
    assert "REDIS_URL: is not set" in text
    assert "together: LEASE_MS" in text


SIGN_ON = {
    "oidc_issuer": "https://sso.example.com/realm",
    "oidc_client_id": "tidings",
    "oidc_client_secret": "not-to-be-repeated",
    "oidc_role_claim": "roles",
    "public_url": "https://tidings.example.com",
    "secret_key": "k" * 32,
}


@pytest.mark.parametrize("missing", SIGN_ON)
def test_half_of_single_sign_on_is_refused_and_the_rest_named(missing: str) -> None:
    text = refusal(**{name: value for name, value in SIGN_ON.items() if name != missing})

    assert f"{missing.upper()} missing" in text
    assert "not-to-be-repeated" not in text


def test_every_part_of_single_sign_on_that_is_missing_is_named_at_once() -> None:
    text = refusal(oidc_client_id="tidings")
    assert "OIDC_ISSUER, OIDC_CLIENT_SECRET, OIDC_ROLE_CLAIM, PUBLIC_URL, SECRET_KEY missing" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("oidc_issuer", "http://sso.example.com"),
        ("public_url", "http://tidings.example.com"),
        ("oidc_scopes", "profile email"),
        ("admin_read_role", "NOTIFY_ADMIN"),
    ],
)
def test_single_sign_on_that_others_could_read_or_that_cannot_work_is_refused(name: str, value: str) -> None:
    assert name.upper() in refusal(**{**SIGN_ON, name: value})


def test_single_sign_on_on_this_machine_itself_needs_no_tls() -> None:
    for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000"):
        accepted(**{**SIGN_ON, "public_url": f"http://{host}", "oidc_issuer": f"http://{host}/realm"})
