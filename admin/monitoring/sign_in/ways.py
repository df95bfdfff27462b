"""Which ways in there are with these settings."""

from dataclasses import dataclass

from shared.settings import Settings

#: What single sign-on needs; without all of it the settings are not accepted, so one of them tells.
OIDC_SETTINGS = (
    "OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "OIDC_ROLE_CLAIM", "PUBLIC_URL", "SECRET_KEY",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ways:
    """`why_no_link` is empty where a one-time link opens the pages."""

    sso: bool
    why_no_link: str

    @property
    def links(self) -> bool:
        """Whether one-time links are made and honoured."""
        return not self.why_no_link


def ways_in(settings: Settings) -> Ways:
    """Give the ways into the pages; there may be none."""
    sso = settings.oidc_issuer is not None
    return Ways(sso=sso, why_no_link=_why_no_link(settings, sso=sso))


def _why_no_link(settings: Settings, *, sso: bool) -> str:
    if settings.secret_key is None:
        return "SECRET_KEY is not set: links are signed with it, and every process must have the same"
    if settings.admin_links == "on":
        return ""
    if settings.admin_links == "off":
        return "ADMIN_LINKS is off"
    if sso:
        return "people sign in by single sign-on; ADMIN_LINKS=on allows links beside it"
    if settings.environment.lower() == "production":
        return "ENVIRONMENT is production: set single sign-on up, or allow links with ADMIN_LINKS=on"
    return ""
