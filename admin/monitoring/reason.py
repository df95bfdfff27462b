"""The reason a person gives in a form: one line of bounded length, with no address in it."""

from flask import request

from shared.domain.masking import mask_text

#: Characters that are kept.
LONGEST = 500


def given_reason() -> str:
    """The running request's reason, empty where none was given."""
    return mask_text(" ".join(request.form.get("reason", "").replace("\0", "").split())[:LONGEST])
