"""
Addresses made unreadable, in their own fields and inside free text.

`jane.doe@example.com` becomes `j***@e***.com`, `+16045550123` becomes `+1***23`: enough for a person on call to
tell rows apart, too little to write to anybody. No hash stands beside it, since addresses can be guessed.

`mask_text` is for whatever comes from outside: providers' answers, exceptions, log lines. It finds e-mail
addresses as they are written and as programs quote them (percent, JSON, HTML and MIME escapes, base64, display
names), and telephone numbers in their usual spellings. In doubt it masks. It leaves alone what operators need:
UUIDs, ISO dates and times, durations, SMTP codes, IP addresses, digits that belong to a longer word.
"""

import base64
import binascii
import re

#: characters of provider text that are stored and shown.
DEFAULT_LIMIT = 1024

_HIDDEN = "***"

#: digits; a number with fewer is no telephone number that could be dialled from abroad (E.164).
_FEWEST_DIGITS = 7

#: times the limit; of a longer text only the beginning is looked at.
_MAX_INPUT = 16

#: characters dropped before the raw cut, so that no cut number or address is left at the end.
_CUT_MARGIN = 64

#: characters; an address of 254 octets, percent-encoded, is shorter.
_LONGEST_WORD = 1_000


def mask_email(address: str) -> str:
    """Mask an e-mail address: first letters and the top-level domain stay. Text without an @ goes wholly."""
    local, at, domain = address.rpartition("@")
    if not at:
        return _HIDDEN
    first = local.lstrip('"*')[:1]
    if domain.startswith("["):  # an address literal, RFC 5321 §4.1.3
        return f"{first}{_HIDDEN}@[{_HIDDEN}]"
    name, dot, tld = domain.rstrip(".").rpartition(".")
    if not dot:
        name, tld = tld, ""
    return f"{first}{_HIDDEN}@{name.lstrip('*')[:1]}{_HIDDEN}{dot}{tld}"


def mask_phone(number: str) -> str:
    """Mask a telephone number: a leading + with the next digit, and the last two digits, stay."""
    digits = [character for character in number if character.isdigit()]
    if len(digits) < _FEWEST_DIGITS:
        return _HIDDEN
    start = f"+{digits[0]}" if number.lstrip("( ").startswith("+") else ""
    return f"{start}{_HIDDEN}{digits[-2]}{digits[-1]}"


def mask_address(channel: str, address: str) -> str:
    """Mask an address of a channel; an unknown channel shows nothing of it."""
    if channel == "email":
        return mask_email(address)
    return mask_phone(address) if channel == "sms" else _HIDDEN


def mask_text(text: str, limit: int = DEFAULT_LIMIT) -> str:
    """
    Mask every address in a text, then cut it.

    Args:
        text: what came from outside.
        limit: characters of the result; a cut is shown by an ellipsis within it. Masking comes first, so no
            half address is left at the cut. NUL and lone surrogates, which Postgres cannot hold, are replaced.
    """
    if "\0" in text or not text.isascii():
        text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    was_cut = len(text) > limit * _MAX_INPUT
    if was_cut:
        text = text[: limit * _MAX_INPUT]
    if _BASE64_TOKEN.search(text):
        text = _BASE64_TOKEN.sub(_mask_base64, text)
    if _AT.search(text):
        text = _mask_emails(_USER_INFO.sub(f"://{_HIDDEN}@", text))
    if _SEVEN_DIGITS.search(text):
        text = _PHONE.sub(_mask_phone_match, text)
    if was_cut:
        text = _drop_last_word(text[:-_CUT_MARGIN])
    return text if len(text) <= limit and not was_cut else text[: limit - 1] + "…"


def _drop_last_word(text: str) -> str:
    end = max(text.rfind(separator) for separator in ' \n\t<>",;')
    return text[: max(end, len(text) - _LONGEST_WORD)]


# E-mail ------------------------------------------------------------------------------------------------------

#: The @ itself, and as URLs, JSON, HTML, quoted-printable and East Asian keyboards write it.
_AT = re.compile(r"@|＠|%(?:25)*40|=40(?=[A-Za-z])|\\u0040|&#(?:64|[xX]40);|&commat;")

_LOCAL_CHARS = r"[^\s<>()\[\]\"',;:@＠\\`]"
_LOCAL_BEFORE = re.compile(rf"(?:\"[^\"]{{1,64}}\"|{_LOCAL_CHARS}(?:{_LOCAL_CHARS}|')*)\Z")
_DOMAIN_AFTER = re.compile(r"(?:\[[^\]\s]{0,64}\]|[\w.*%-]*[\w*])?")

#: `to=` and the like, or the part of a URL before the address: kept, since it says where the address stood.
_KEY_BEFORE = re.compile(
    r"(?://.*[/?&=]|.*\?.*[&=]|(?:.*&)?(?:to|from|cc|bcc|rcpt|recipient|orig_to|e?-?mail|user|address|sender)=)(?=[^/?&=]*\Z)",
    re.IGNORECASE,
)

#: `"Jane Doe" <`, or two and more capitalised words before it.
_NAME_BEFORE = re.compile(r"(?:\"[^\"<>]{1,200}\"|(?:[^\W\d_a-z][\w'’.-]*[ \t]+){1,5}[^\W\d_a-z][\w'’.-]*)[ \t]*<\Z")

_USER_INFO = re.compile(r"://[^\s/@]{1,512}@")

#: characters looked at before an @: 64 of a local part, three times that when percent-encoded, and a name.
_REACH = 320


def _mask_emails(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for at in _AT.finditer(text):
        if at.start() < done:
            continue
        before = text[max(done, at.start() - _REACH) : at.start()]
        found = _LOCAL_BEFORE.search(before)
        if found is None or before.endswith(f"://{_HIDDEN}"):  # the second is a masked user and password
            continue
        local, key = found[0], _KEY_BEFORE.match(found[0])
        start = at.start() - len(local) + (key.end() if key else 0)
        after = _DOMAIN_AFTER.match(text, at.end())
        domain = after[0] if after else ""
        name = _NAME_BEFORE.search(text, max(done, start - _REACH), start)
        pieces.append(text[done : name.start() if name else start])
        pieces.append(f"{_HIDDEN} <" if name else "")
        pieces.append(mask_email(f"{text[start : at.start()]}@{domain}").replace("@", at[0], 1))
        done = at.end() + len(domain)
    pieces.append(text[done:])
    return "".join(pieces)


# Base64 ------------------------------------------------------------------------------------------------------

#: twelve characters are nine octets, the shortest worthwhile address (`a@bc.info`).
_BASE64_TOKEN = re.compile(r"[A-Za-z0-9+/]{12,}={0,2}|[A-Za-z0-9_-]{12,}={0,2}")


def _mask_base64(token: re.Match[str]) -> str:
    body = token[0].rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(body[: len(body) // 4 * 4] if len(body) % 4 == 1 else body + "=" * (-len(body) % 4))
        readable = decoded.decode()
    except (binascii.Error, UnicodeDecodeError):
        return token[0]
    is_address = readable.isprintable() and ("@" in readable or _PHONE.fullmatch(readable) is not None)
    return _HIDDEN if is_address else token[0]


# Telephone ---------------------------------------------------------------------------------------------------

_SEVEN_DIGITS = re.compile(r"\d(?:\D{0,3}\d){6}")

#: Separators within a number, plain and percent-encoded.
_GAP = r"(?:[\s().\-/\u2010-\u2015]|%(?:20|28|29|2[DdEe]))"

_PHONE = re.compile(
    rf"""
    (?P<kept>
        [0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}(?![\w.+-]*@)     # a UUID
      | (?<![\d-])(?:19|20)\d\d-(?:0[1-9]|1[0-2])-[0-3]\d(?!\d)                      # an ISO date, with its time
        (?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:[ ]?[+-]\d\d:?\d\d)?)?
      | (?<!\d)20\d\d(?:0[1-9]|1[0-2])[0-3]\d[T]?[0-2]\d[0-5]\d[0-5]\d(?!\d)         # the same without separators
    )
    | (?:[+＋]|%2[Bb]){_GAP}?[1-9](?:{_GAP}{{0,3}}\d){{6,14}}                        # +44 (0)7700 900123
    | (?<![\w%])(?<!\d\.)(?:
          (?:1{_GAP}?)?(?:\(|%28)?[2-9]\d\d{_GAP}{{0,2}}[2-9]\d\d{_GAP}?\d{{4}}      # (604) 555-0123
        | 0\d(?:{_GAP}{{0,2}}\d){{8,13}}                                             # 07700 900123, 0016045550123
        | [2-9]\d{{10,14}}                                                           # 447700900123; not 1764520000123
      )(?![\w:])
    """,
    re.VERBOSE,
)


def _mask_phone_match(found: re.Match[str]) -> str:
    return found["kept"] or mask_phone(found[0].replace("%2B", "+").replace("%2b", "+"))


# Rows of a database ------------------------------------------------------------------------------------------

#: What Postgres adds to an error: the row or the line that it met, with a recipient's params in it. It ends with the
#: next part of the error, or with the exception.
_ROW = re.compile(
    r"^([ |]*)(DETAIL|CONTEXT):(?:(?<=DETAIL:)|(?= +COPY ))"
    r".*?(?=^[ |]*(?:HINT|CONTEXT|QUERY|LOCATION):|^[ |]*\n[ |]*(?:During handling|The above exception)|\Z)",
    re.MULTILINE | re.DOTALL,
)


def without_rows(text: str) -> str:
    """Leave out what an error of Postgres tells of a row; which rule it broke stays."""
    return _ROW.sub(r"\1\2: (left out)\n", text).rstrip("\n") if "DETAIL:" in text or "COPY" in text else text
