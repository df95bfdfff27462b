"""
Addresses: e-mail and telephone numbers of recipients, and senders.

White space and invisible marks around an address are dropped, since people paste them; within an e-mail address
they are faults. The messages of AddressError never repeat the address.

**E-mail.** One address without a display name. The domain is lower-cased and may be international; the local
part keeps its case, except for role names such as `Postmaster` (RFC 2142), and must be ASCII, since not every
relay takes SMTPUTF8. Refused are quoted local parts, address literals, comments, and domains that get no mail
from outside (`localhost`, `.test`, `.invalid`, `.local`, …); `example.com` is an ordinary domain. Plain ASCII
addresses take one regular expression (1 µs), all others email-validator (60 µs); a test holds both together.
Source: RFC 5321 §4.1.2 and §4.5.3.1 (64 octets before the @, 254 in all), RFC 1035 §2.3.4 (label 63).

**Telephone.** Stored as E.164. A number without `+` is read in the given region, with that region's own
prefixes: 00 stands for `+` where it is dialled so (Britain, not Canada). Separators, one `tel:` and `(0)` are
understood; letters, extensions and second numbers are refused, as is what no numbering plan can contain. Numbers
that are possible but not assigned (reserved for fiction, new ranges) are accepted.
Source: ITU-T E.164, RFC 3966, and libphonenumber's table of numbering plans.
"""

import re
from typing import NamedTuple

import phonenumbers
from email_validator import SPECIAL_USE_DOMAIN_NAMES, EmailNotValidError, validate_email
from email_validator.rfc_constants import CASE_INSENSITIVE_MAILBOX_NAMES

from shared.domain.text_checks import check_header_text, check_storable, has_header_hazard

__all__ = [
    "AddressError",
    "EmailAddress",
    "Sender",
    "check_header_text",
    "check_storable",
    "dedupe_key",
    "has_header_hazard",
    "parse_email",
    "parse_phone",
    "parse_sender",
]

#: octets of an e-mail address: the path of 256 without its brackets, RFC 5321 §4.5.3.1.3.
MAX_EMAIL_OCTETS = 254

#: octets before the @, RFC 5321 §4.5.3.1.1.
MAX_LOCAL_OCTETS = 64

#: octets between two dots of a domain, RFC 1035 §2.3.4.
MAX_LABEL_OCTETS = 63

#: characters; nothing longer than this is looked at any closer.
MAX_INPUT_CHARS = 1_000

#: characters of a sender's display name; readers of mail show fewer.
MAX_SENDER_NAME_CHARS = 200

#: Zero-width characters, byte-order mark, and the direction marks that phones put around a copied number.
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_EDGES = _INVISIBLE + "".join(filter(str.isspace, map(chr, range(0x3001))))

# A label with two hyphens in a row may be an IDN, and goes the long way; so does a domain that ends in a digit.
_ATEXT = r"[A-Za-z0-9_!#$%&'*+\-/=?^`{|}~]+"
_LABEL = r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
_PLAIN_EMAIL = re.compile(rf"({_ATEXT}(?:\.{_ATEXT})*)@((?:{_LABEL}\.)+({_LABEL})(?<=[A-Za-z]))")
_SPECIAL_TLDS = frozenset(name.rpartition(".")[2] for name in SPECIAL_USE_DOMAIN_NAMES)
_ROLE_NAMES = frozenset(CASE_INSENSITIVE_MAILBOX_NAMES)

_NANP_E164 = re.compile(r"\+1[2-9][0-9]{2}[2-9][0-9]{6}")
_NANP_SPELLED = re.compile(
    r"(\+?1[ .-]?)?(?:\(([2-9][0-9]{2})\) ?|([2-9][0-9]{2})[ .-]?)([2-9][0-9]{2})[ .-]?([0-9]{4})"
)
_NANP_REGIONS = frozenset({"CA", "US"})
_PHONE_TEXT = re.compile(r"[+＋]?[\d\s()./\-\u2010-\u2015\u2212]+")
#: 6.04555E+09, or 6,04555E+09: what a spreadsheet makes of a long number in a narrow column.
_SCIENTIFIC = re.compile(r"[+-]?\d{1,3}(?:[.,]\d{1,20})?[eE][+-]?\d{1,3}")
_TEL_SCHEME = re.compile(r"tel:(?=\+)", re.IGNORECASE)

_SENDER = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>")
_QUOTED_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"')


class AddressError(ValueError):
    """An address that cannot be used; the text says why, and never repeats the address."""


class EmailAddress(NamedTuple):
    """`normalized` is kept and shown, `ascii` (the domain in Punycode) goes to providers."""

    normalized: str
    ascii: str


class Sender(NamedTuple):
    """A From or Reply-To. `name` is empty where none was given; `address` is ASCII."""

    name: str
    address: str

    @property
    def spelled(self) -> str:
        """As it stands in a header: `"Doe, Jane" <jane@example.com>`."""
        if not self.name:
            return self.address
        escaped = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}" <{self.address}>'


def parse_email(text: str) -> EmailAddress:
    """
    Read a recipient's e-mail address.

    Raises:
        AddressError: not one deliverable address.
    """
    return _parse_plain_email(text) or _parse_any_email(trim_edges(text))


def _parse_plain_email(text: str) -> EmailAddress | None:
    """Give what email-validator would, or None to ask it."""
    if len(text) > MAX_EMAIL_OCTETS or (match := _PLAIN_EMAIL.fullmatch(text)) is None:
        return None
    local, domain, tld = match.groups()
    domain = domain.lower()
    if len(local) > MAX_LOCAL_OCTETS or tld.lower() in _SPECIAL_TLDS or local.lower() in _ROLE_NAMES:
        return None
    if len(domain) > MAX_LABEL_OCTETS and any(len(label) > MAX_LABEL_OCTETS for label in domain.split(".")):
        return None
    address = f"{local}@{domain}"
    return EmailAddress(address, address)


def _parse_any_email(text: str) -> EmailAddress:
    if len(text) > MAX_INPUT_CHARS:
        raise AddressError(f"is longer than {MAX_EMAIL_OCTETS} characters")
    if "<" in text or '"' in text:
        raise AddressError("is not a plain address; leave out the display name, quotes and <>")
    if text.count("@") > 1:
        raise AddressError("holds more than one @; give one address for each recipient")
    try:
        found = validate_email(text, check_deliverability=False, strict=True, allow_smtputf8=False)
    except EmailNotValidError as error:
        # With a cause, the text in brackets is idna's, which quotes the domain.
        message = str(error).split(" (")[0] if error.__cause__ else str(error)
        raise AddressError(f"is not an e-mail address: {message[:300]}") from None
    # Without SMTPUTF8 there is an ASCII form of every address; `or` is for the type checker.
    return EmailAddress(found.normalized, found.ascii_email or found.normalized)


def parse_phone(text: str, region: str | None) -> str:
    """
    Read a recipient's telephone number.

    Args:
        text: the number as it was written.
        region: ISO 3166 code that numbers without `+` are read in (the tenant's setting); None refuses them.

    Returns:
        The number as E.164, `+16045550123`.

    Raises:
        AddressError: not one possible number, or without `+` where no region is set.
    """
    if _NANP_E164.fullmatch(text):
        return text
    text = trim_edges(text)
    if (spelled := _NANP_SPELLED.fullmatch(text)) and (text[0] == "+" or region in _NANP_REGIONS):
        _, bracketed, bare, exchange, line = spelled.groups()
        return f"+1{bracketed or bare}{exchange}{line}"
    return _parse_any_phone(_TEL_SCHEME.sub("", text, count=1) if text[:1] in "tT" else text, region)


def _parse_any_phone(text: str, region: str | None) -> str:
    if _SCIENTIFIC.fullmatch(text):
        raise AddressError(
            "is a number in a spreadsheet's scientific notation; make its column text, or a number without decimals,"
            " and export it again"
        )
    if not _PHONE_TEXT.fullmatch(text[:MAX_INPUT_CHARS]):
        raise AddressError("is not a telephone number: digits, spaces, ( ) . - / and a leading + only, no extension")
    if region is None and text[0] not in "+＋":
        raise AddressError("has no country code; write it as +, country code, number, or set a default region")
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        raise AddressError("is not a telephone number; write it as +, country code, number") from None
    # is_possible_number would also take a number that lacks its area code.
    if phonenumbers.is_possible_number_with_reason(number) != phonenumbers.ValidationResult.IS_POSSIBLE:
        raise AddressError("has too few or too many digits; write it as +, country code, number")
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def dedupe_key(channel: str, normalized: str) -> str:
    """
    Give what two addresses of one recipient have in common.

    E-mail is compared in lower case: local parts that differ in case only are the same mailbox in practice,
    whatever RFC 5321 §2.4 allows. E.164 numbers are compared as they are.
    """
    return normalized.lower() if channel == "email" else normalized


def parse_sender(text: str) -> Sender:
    """
    Read a From or Reply-To: `jane@example.com`, `Jane <jane@example.com>` or `"Doe, Jane" <jane@example.com>`.

    Raises:
        AddressError: not one such sender, or with characters that could forge a header.
    """
    if (problem := check_header_text(text)) is not None:
        raise AddressError(problem)
    text = trim_edges(text)
    if "<" not in text and ">" not in text:
        return Sender("", parse_email(text).ascii)
    if len(text) > MAX_INPUT_CHARS or (match := _SENDER.fullmatch(text)) is None:
        raise AddressError("is not a sender; write it as Name <name@example.com>")
    name = trim_edges(match["name"])
    if quoted := _QUOTED_NAME.fullmatch(name):
        name = re.sub(r"\\(.)", r"\1", quoted[1])
    elif '"' in name:
        raise AddressError('has a quote within the display name; put the whole name in quotes, as in "Doe, Jane"')
    if len(name) > MAX_SENDER_NAME_CHARS:
        raise AddressError(f"has a display name longer than {MAX_SENDER_NAME_CHARS} characters")
    return Sender(name, parse_email(match["address"]).ascii)


def trim_edges(text: str) -> str:
    """Drop white space, no-break spaces and invisible marks at both ends."""
    return text.strip(_EDGES)
