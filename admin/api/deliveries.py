"""Deliveries: what became of each recipient."""

from uuid import UUID

from pydantic import BaseModel

from admin.api.operations import operation
from admin.api.paging import DeliveryQuery, decode_row_cursor, encode_cursor
from admin.api.schemas import DeliveryDetail, DeliveryPage, DeliveryView
from admin.auth import credential, tenant_id_of
from admin.errors import not_found
from admin.extensions import services
from shared.domain.ids import IdError, delivery_id, parse_delivery_id, parse_send_id
from shared.ledger import sends


@operation(
    "GET",
    "/sends/{send_id}/deliveries",
    summary="List a send's deliveries",
    query=DeliveryQuery,
    answer=DeliveryPage,
    problems=(401, 403, 404, 422, 503),
)
def list_deliveries(send_id: str, query: DeliveryQuery) -> BaseModel:
    """List deliveries in the order they were submitted, e-mail before SMS."""
    tenant_id = tenant_id_of(credential())
    try:
        send = parse_send_id(send_id)
    except IdError:
        raise not_found("send") from None
    after = decode_row_cursor(query.cursor) if query.cursor else 0
    with services().ledger.transaction() as connection:
        if not sends.exists(connection, tenant_id=tenant_id, send_id=send):
            raise not_found("send")
        found = sends.delivery_page(connection, send_id=send, status=query.status, after=after, limit=query.limit + 1)
    shown = found[: query.limit]
    return DeliveryPage(
        deliveries=[DeliveryView.model_validate(_fields(send, delivery)) for delivery in shown],
        next_cursor=encode_cursor(shown[-1].row_no) if len(found) > query.limit else None,
    )


@operation(
    "GET",
    "/deliveries/{delivery_id}",
    summary="Look at a delivery",
    answer=DeliveryDetail,
    problems=(401, 403, 404, 503),
)
def get_delivery(delivery_id: str) -> BaseModel:
    """Show a delivery and every attempt at it, oldest first."""
    tenant_id = tenant_id_of(credential())
    try:
        send, row_no = parse_delivery_id(delivery_id)
    except IdError:
        raise not_found("delivery") from None
    with services().ledger.transaction() as connection:
        found = sends.find_delivery(connection, tenant_id=tenant_id, send_id=send, row_no=row_no)
    if found is None:
        raise not_found("delivery")
    delivery, attempts = found
    return DeliveryDetail.model_validate(
        {**_fields(send, delivery), "attempts": [vars(attempt) for attempt in attempts]}
    )


def _fields(send_id: UUID, delivery: sends.Delivery) -> dict[str, object]:
    fields = dict(vars(delivery))
    fields["id"] = delivery_id(send_id, fields.pop("row_no"))
    fields["to"] = fields.pop("address")
    return {**fields, "send_id": send_id}
