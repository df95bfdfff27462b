"""Ids as arguments: a wrong or empty one is told before anything is asked of the installation."""

from typing import Any

import click


class SendId(click.ParamType[str]):
    """The id of a send."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Give it in small letters, as everything else writes it."""
        from shared.domain.ids import IdError, parse_send_id

        try:
            return str(parse_send_id(str(value)))
        except IdError:
            # As Python writes it: an empty one, or one with a newline from `$(…)`, can be seen.
            self.fail(f"{value!r} is not the id of a send; `tidings list` shows them", param, ctx)


class DeliveryId(click.ParamType[str]):
    """The id of a delivery."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Give it in small letters."""
        from shared.domain.ids import IdError, delivery_id, parse_delivery_id

        try:
            return delivery_id(*parse_delivery_id(str(value)))
        except IdError:
            self.fail(f"{value!r} is not the id of a delivery: <id of its send>.<row number>", param, ctx)


class SendOrDeliveryId(click.ParamType[str]):
    """Either; one with a dot is a delivery's."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As the two others."""
        kind: click.ParamType[str] = DeliveryId() if "." in str(value) else SendId()
        return kind.convert(value, param, ctx)
