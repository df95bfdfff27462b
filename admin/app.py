"""The web process: registers what others define, and decides nothing itself."""

import re
from uuid import uuid4

from flask import Flask, Response, g, request

from admin import errors, extensions
from admin.api import deliveries, events, loadtest, openapi, receipts, sends
from admin.api.limits import MAX_SMALL_BODY_BYTES
from admin.api.operations import api
from admin.monitoring import (
    access,
    audit,
    bulk,
    compressing,
    digest_form,
    digest_history,
    digest_requeue,
    digests,
    failure_group,
    failure_item,
    failures,
    health,
    inbox,
    looks,
    metrics,
    operations,
    overview,
    recipient_search,
    send_actions,
    snapshot_cache,
    stream,
    system,
)
from admin.monitoring import sends as send_pages
from admin.monitoring.fault_pages import fault_page
from admin.monitoring.frame import doors, pages
from admin.monitoring.sign_in import routes as sign_in
from admin.monitoring.sign_in.oidc import Provider
from admin.monitoring.sign_in.session import Sessions
from shared.settings import Settings

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

#: Modules whose import puts their routes on the API's blueprint.
_API_MODULES = (deliveries, events, loadtest, openapi, receipts, sends)
#: Likewise for the pages.
_PAGE_MODULES = (
    audit, bulk, digest_form, digest_history, digest_requeue, digests, failure_group, failure_item, failures,
    operations, overview, recipient_search, send_actions, send_pages, system,
)  # fmt: skip


def create_app(settings: Settings) -> Flask:
    """
    Build the application of one process; connections are made when they are first needed.

    Call it after the fork: the ledger's pool has threads, and those do not survive one (no gunicorn --preload).
    """
    app = Flask("admin", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_SMALL_BODY_BYTES
    app.url_map.strict_slashes = False
    services = extensions.install(app, settings)
    snapshot_cache.install(app, services)
    stream.install(app, services)
    looks.install(app)
    compressing.install(app)
    errors.register(app, fault_page)
    app.before_request(_name_request)
    app.after_request(_tell_request_name)
    provider = Provider(app, settings) if settings.oidc_issuer else None
    access.install(app, Sessions(settings, services.reading, provider))
    app.register_blueprint(api)
    app.register_blueprint(health.blueprint(settings))
    app.register_blueprint(metrics.blueprint(settings))
    app.register_blueprint(sign_in.pages)
    app.register_blueprint(doors)
    app.register_blueprint(pages)
    app.register_blueprint(inbox.blueprint(settings))
    return app


def _name_request() -> None:
    given = request.headers.get("X-Request-Id", "")
    g.request_id = given if _REQUEST_ID.fullmatch(given) else uuid4().hex


def _tell_request_name(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.get("request_id", "")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    if request.path.startswith("/api/"):
        response.headers.setdefault("Cache-Control", "no-store")
    return response
