"""
The values and names of merge: what a parameter may be, how it is shown, when it counts as true.

Names are matched without regard to spelling: `First Name`, `first-name` and `FIRST_NAME` are all `first_name`,
in templates, JSON and CSV headers alike. So a spreadsheet needs no renaming, and two parameters that differ in
spelling only are refused instead of one of them being picked.
"""

import math
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

from shared.domain.text_checks import check_storable

#: characters; a larger value belongs into the template. A cell of a spreadsheet holds at most 32,767.
MAX_VALUE_CHARS = 65_536

#: characters; column headers that people write are shorter, and a name is stored with every recipient.
MAX_NAME_CHARS = 64

#: decimal places moved; numbers between 1e-20 and 1e40 are written out, without an exponent.
_SMALLEST_EXPONENT, _LARGEST_EXPONENT = -20, 40

#: digits; beyond it a number is a mistake, and int-to-text is refused by Python near 4,300.
_MAX_DIGITS = 200

_NOT_NAME = re.compile(r"[\W_]+")

#: Texts that make a condition false, since a CSV can only spell `false` and `0` as text; 0.00 is 0 too.
_FALSE_TEXT = re.compile(r"\s*(?:[-+]?0+(?:\.0*)?(?:e[-+]?\d+)?|[-+]?\.0+|false)?\s*", re.IGNORECASE | re.ASCII)


@lru_cache(maxsize=4096)
def normalise_name(name: str) -> str:
    """
    Give the one spelling of a parameter's name: lower-case, other than letters and digits to single underscores.

    Compatibility forms are unified (NFKC), so a no-break space is a space; leading and trailing marks go.
    Empty when the name has neither letter nor digit.
    """
    return _NOT_NAME.sub("_", unicodedata.normalize("NFKC", name).lower()).strip("_")


def normalise_params(params: Mapping[str, object]) -> tuple[dict[str, object], list[tuple[str, str]]]:
    """
    Take a recipient's or a send's parameters as they came: names normalised, values checked.

    Returns:
        The parameters that are right, and the faults as pairs of the name as written and what is wrong with it.
    """
    accepted: dict[str, object] = {}
    faults: list[tuple[str, str]] = []
    for written, value in params.items():
        name = normalise_name(written) if len(written) <= MAX_NAME_CHARS else ""
        if not name:
            faults.append(
                (written[:MAX_NAME_CHARS], f"a name has 1 to {MAX_NAME_CHARS} characters, with a letter or digit")
            )
        elif name in accepted:
            faults.append((written, f"is the same name as another parameter: both are read as {name}"))
        elif (problem := check_param_value(value)) is not None:
            faults.append((written, problem))
        else:
            accepted[name] = value
    return accepted, faults


def check_param_value(value: object) -> str | None:
    """
    Say what is wrong with a parameter's value; None when it can be merged.

    Text, numbers, true and false can; null can too and counts as missing. The text is never in the answer.
    """
    if type(value) is str:
        if len(value) > MAX_VALUE_CHARS:
            return f"is longer than {MAX_VALUE_CHARS:,} characters"
        return None if value.isascii() and "\0" not in value else check_storable(value)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, (int, float, Decimal)):
        return _check_number(value)
    kind = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__
    return f"is {kind}; give text, a number, true or false"


def _check_number(value: float | Decimal) -> str | None:
    if isinstance(value, int):
        in_range = value.bit_length() < _MAX_DIGITS * 3
    elif isinstance(value, float):
        in_range = math.isfinite(value)
    else:
        in_range = value.is_finite() and len(value.as_tuple().digits) <= _MAX_DIGITS
    return None if in_range else f"is not a finite number of at most {_MAX_DIGITS} digits; give it as text"


def show(value: object) -> str:
    """
    Give a value the way it was given: 0 is "0", False "false", 1.10 as Decimal "1.10".

    Numbers keep their digits and are written without an exponent between 1e-20 and 1e40. The value must have
    passed `check_param_value`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    number = value if isinstance(value, Decimal) else Decimal(repr(value))
    if _SMALLEST_EXPONENT <= number.adjusted() <= _LARGEST_EXPONENT:
        return format(number, "f")
    return str(number).lower().replace("e+", "e")


def holds(value: object) -> bool:
    """
    Say whether `{% if name %}` is true of a value.

    False are: missing or null, empty text or only spaces, false and 0, also as the text a CSV carries
    ("FALSE", "0", "0.00").
    """
    if value is None:
        return False
    if isinstance(value, str):
        return bool(value.strip()) and _FALSE_TEXT.fullmatch(value) is None
    return bool(value)


def equals(value: object, constant: object) -> bool:
    """
    Say whether `{% if name == constant %}` is true: both look the same when shown.

    So the text "1" of a CSV equals the number 1 of JSON. true and false are compared in any case.
    A missing value equals nothing.
    """
    if value is None:
        return False
    if isinstance(constant, bool):
        return show(value).strip().lower() == show(constant)
    return show(value) == show(constant)
