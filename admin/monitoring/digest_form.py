"""
`/admin/monitoring/digests/channels/new` and `…/NAME/edit`: a digest channel set up or changed in a form.

The command and the form have one set of rules (`shared.ledger.digest_setup.read`). What may be a secret, and addresses,
are taken from the form and never put into one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from flask import abort, flash, make_response, redirect, render_template, request, url_for
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring.access import acts, operator
from admin.monitoring.frame import page, pages
from admin.monitoring.snapshot_cache import outdate
from shared.domain.digest_channels import NEEDED, OPTIONAL, OWN_SETTINGS, SECRETS, ChannelError, Setup
from shared.domain.digests import ChannelType, Severity
from shared.domain.endpoints import host_list
from shared.domain.masking import mask_text
from shared.domain.webhook_signature import new_secret
from shared.ledger import digest_channels, digest_setup, tenants
from shared.ledger.digest_channels import DigestChannel, Wishes

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class _Form:
    """What a form shows: the given that may be shown, and the fault of each field."""

    type: ChannelType
    shown: Mapping[str, object] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)


@pages.get("/digests/channels/new")
@acts
def new_channel() -> str:
    """Ask for the type of a new channel, then for what that type needs."""
    type_ = _type()
    return _answer(None if type_ is None else _Form(type_))


@pages.post("/digests/channels/new")
@acts
def add_channel() -> AnyResponse:
    """Set it up; audited. A signing secret that was made here is shown in this answer and never again."""
    type_ = _type()
    if type_ is None:
        abort(HTTPStatus.NOT_FOUND)
    name = _line("name")
    given = _given(request.form)
    made = new_secret() if type_ is ChannelType.WEBHOOK and not given["signing_secret"] else None
    given["signing_secret"] = given["signing_secret"] or made
    try:
        known = _add(type_, name, given)
    except ChannelError as error:
        return _refused(_Form(type_, _shown(request.form), error.faults))
    flash(f"{name} is set up." + ("" if known is None else f" {known:,} that are there already are not told."))
    _tell_pages()
    if made is None:
        return redirect(url_for("monitoring.digest_page"), code=HTTPStatus.SEE_OTHER)
    # Without the snapshot, which may not be there just now: the secret would be lost.
    return make_response(render_template("monitoring/digest_secret.html", channel_name=name, secret=made))


@pages.get("/digests/channels/<name>/edit")
@acts
def edit_channel(name: str) -> str:
    """Show a channel's filter and settings to be changed; what is never shown stays unless it is given anew."""
    channel = _channel(name)
    return _answer(_Form(ChannelType(channel.type), _as_fields(channel)), channel=channel)


@pages.post("/digests/channels/<name>/edit")
@acts
def change_channel(name: str) -> AnyResponse:
    """Change it; audited."""
    channel = _channel(name)
    type_ = ChannelType(channel.type)
    try:
        setup, wishes = _read(type_, _given(request.form), partial=True, unset=request.form.getlist("unset"))
    except ChannelError as error:
        return _refused(_Form(type_, _shown(request.form), error.faults), channel=channel)
    with services().ledger.transaction() as connection:
        known = digest_setup.change(
            connection,
            channel,
            setup=setup,
            wishes=wishes,
            operator=operator(),
            tell_existing=bool(request.form.get("tell_existing")),
        )
    said = f" {known:,} that are there already are not told." if known else ""
    flash(f"{channel.name} is changed. A test shows whether it works.{said}")
    _tell_pages()
    return redirect(url_for("monitoring.digest_page"), code=HTTPStatus.SEE_OTHER)


def _add(type_: ChannelType, name: str, given: dict[str, object]) -> int | None:
    """Set a channel up; how much of what is there is not told, None where all of it is."""
    faults: dict[str, str] = {}
    tells_existing = bool(request.form.get("tell_existing"))
    with services().ledger.transaction() as connection:
        tenant = tenants.find_tenant(connection, _line("tenant"))
        if tenant is None:
            faults["tenant"] = "is none of those there are"
        try:
            setup, wishes = _read(type_, given, name=name)
        except ChannelError as error:
            faults |= error.faults
        if tenant is None or faults:
            raise ChannelError(faults)
        known = digest_setup.add(
            connection,
            tenant_id=tenant.id,
            name=name,
            type_=type_,
            setup=setup,
            wishes=wishes,
            tell_existing=tells_existing,
            operator=operator(),
        )
    return None if tells_existing else known


def _read(
    type_: ChannelType,
    given: dict[str, object],
    *,
    name: str | None = None,
    partial: bool = False,
    unset: Collection[str] = (),
) -> tuple[Setup, Wishes]:
    settings = services().settings
    return digest_setup.read(
        type_,
        given,
        plain_http=host_list(settings.digest_plain_http_hosts),
        private=host_list(settings.digest_private_hosts),
        name=name,
        partial=partial,
        unset=unset,
    )


def _given(form: MultiDict[str, str]) -> dict[str, object]:
    one_line = (*SECRETS, "from", "min_severity", *OWN_SETTINGS)
    given: dict[str, object] = {name: form.get(name, "").strip() for name in one_line}
    lines = [line.strip() for line in form.get("to", "").splitlines()]
    return given | {"to": [line for line in lines if line], "kinds": form.get("kinds", "").replace(",", " ").split()}


def _shown(form: MultiDict[str, str]) -> dict[str, object]:
    """What of a refused form is shown again."""
    names = ("name", "tenant", "kinds", "min_severity", "tell_existing", *OWN_SETTINGS)
    return {name: form.get(name, "") for name in names}


def _as_fields(channel: DigestChannel) -> dict[str, object]:
    return {
        "kinds": " ".join(channel.kinds or ()),
        "min_severity": channel.min_severity,
        "retry_base_delay_ms": channel.retry_base_delay_ms,
        "max_attempts": channel.max_delivery_attempts,
        "retention_days": channel.retention_days,
    }


def _refused(form: _Form, *, channel: DigestChannel | None = None) -> AnyResponse:
    return make_response(_answer(form, channel=channel), HTTPStatus.UNPROCESSABLE_ENTITY)


def _answer(form: _Form | None, *, channel: DigestChannel | None = None) -> str:
    settings = services().settings
    with services().reading.transaction() as connection:
        names = [tenant.name for tenant in tenants.list_tenants(connection)]
    return page(
        "digests",
        "monitoring/digest_form.html",
        form=form,
        channel=channel,
        sender=mask_text(channel.config.get("from", "")) if channel else "",
        fields=() if form is None else (*NEEDED[form.type], *OPTIONAL.get(form.type, ())),
        needed=() if form is None or channel else NEEDED[form.type],
        removable=OPTIONAL.get(form.type, ()) if form and channel else (),
        types=list(ChannelType),
        severities=list(Severity),
        tenants=sorted(names),
        usual={
            "retry_base_delay_ms": settings.retry_base_delay_ms,
            "max_attempts": settings.max_delivery_attempts,
            "retention_days": settings.notification_retention_days,
        },
        most=OWN_SETTINGS,
        allowed={"without TLS": settings.digest_plain_http_hosts, "private": settings.digest_private_hosts},
    )


def _type() -> ChannelType | None:
    given = request.args.get("type", "")
    return ChannelType(given) if given in list(ChannelType) else None


def _line(name: str) -> str:
    return request.form.get(name, "").replace("\0", "").strip()[:_LONGEST_NAME]


def _channel(name: str) -> DigestChannel:
    with services().reading.transaction() as connection:
        found = digest_channels.find(connection, name.replace("\0", ""))
    if found is None:
        abort(HTTPStatus.NOT_FOUND)
    return found


def _tell_pages() -> None:
    outdate()
    services().doorbell.ring("digests", "digest_channels")
