from admin.live_route import live_routes
from shared.settings import Settings, load

STORES = {"database_url": "postgres://h/d", "redis_url": "redis://h"}


def _said(**given: object) -> tuple[list[str], list[str]]:
    settings: Settings = load(**STORES, **given)
    routes = live_routes(settings)
    return [route.words for route in routes], [route.warning for route in routes if route.warning]


def test_the_sandbox_and_none_are_not_taken_for_a_way_out() -> None:
    words, warnings = _said(email_provider="sandbox", sms_provider="none")

    assert words == [
        "Live e-mail stays in the sandbox's inbox: nothing leaves this installation",
        "Live SMS goes nowhere and waits: SMS_PROVIDER is none",
    ]
    assert warnings == []


def test_a_real_provider_is_named_with_its_host() -> None:
    words, warnings = _said(
        email_provider="smtp", smtp_host="relay.example.com", sms_provider="acs",
        acs_endpoint="https://city.communication.azure.com", acs_access_key="c2VjcmV0", acs_from="+16045550100",
    )  # fmt: skip

    assert words == [
        "Live e-mail goes to smtp at relay.example.com:587, and from there to real people",
        "Live SMS goes to acs at city.communication.azure.com, and from there to real people",
    ]
    assert warnings == []


def test_a_half_configured_provider_is_named_with_what_it_lacks() -> None:
    _, warnings = _said(email_provider="smtp", sms_provider="twilio", twilio_account_sid="AC1")

    assert warnings == [
        "smtp takes live e-mail and is not set up: SMTP_HOST is missing. What is sent waits until then",
        (
            "twilio takes live SMS and is not set up: TWILIO_AUTH_TOKEN, TWILIO_FROM or TWILIO_MESSAGING_SERVICE_SID "
            "are missing. What is sent waits until then"
        ),
    ]
