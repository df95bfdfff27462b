"""Load-test mode: a credential binds itself to a tenant. Off, the address does not exist."""

import logging

from pydantic import BaseModel

from admin.api.body import read_model
from admin.api.operations import operation
from admin.api.schemas import BindRequest, Bound
from admin.auth import credential
from admin.errors import Fault, ProblemError, not_found
from admin.extensions import services
from shared.ledger import tenants

_log = logging.getLogger(__name__)


@operation(
    "POST",
    "/loadtest/bind",
    summary="Bind a load-test credential to a tenant",
    body=BindRequest,
    answer=Bound,
    problems=(400, 401, 404, 409, 413, 415, 422, 503),
)
def bind_credential() -> BaseModel:
    """
    Bind the calling key to the tenant of that name, which is made if it is missing.

    Exists only in load-test mode. Binding again to the same tenant changes nothing; a key bound elsewhere stays
    there (409).
    """
    if not services().settings.loadtest_mode:
        raise not_found("address")
    caller = credential()
    wanted = read_model(BindRequest)
    try:
        with services().ledger.transaction() as connection:
            tenant_id = tenants.bind_key(connection, key_id=caller.key_id, tenant_name=wanted.tenant)
    except tenants.BoundElsewhereError:
        raise ProblemError(409, "bound-elsewhere", "This key is bound to another tenant.") from None
    except tenants.TenantError as error:
        raise ProblemError(
            422, "invalid-body", "The body has faults; nothing was changed.", faults=[Fault("/tenant", str(error))]
        ) from None
    _log.info("key_bound", extra={"key_id": caller.key_id, "tenant_id": tenant_id})
    return Bound(tenant=wanted.tenant)
