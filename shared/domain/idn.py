"""International domains as people read them. What is stored and sent is their ASCII form (RFC 5890 §2.3.2)."""

_ACE = "xn--"


def readable(address: str) -> str:
    """
    Write the domain of an e-mail address in its own letters; anything else is given back as it is.

    For showing, beside the ASCII form: letters of two scripts can look alike.
    """
    local, at, domain = address.rpartition("@")
    if _ACE not in domain.lower():
        return address
    return f"{local}{at}{'.'.join(map(_label, domain.split('.')))}"


def _label(label: str) -> str:
    if not label.lower().startswith(_ACE):
        return label
    try:
        # The bare transcription: Python's codec `idna` is that of 2003 and refuses an ß.
        read = label[len(_ACE) :].encode("ascii").decode("punycode")
    except (UnicodeError, ValueError, OverflowError):
        return label
    return read if read and read.isprintable() and "." not in read and "@" not in read else label
