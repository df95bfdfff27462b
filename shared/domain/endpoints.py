"""Where digests may go: the form of an endpoint's address, and which network addresses are refused."""

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

#: Carry an IPv4 address inside IPv6. Source: RFC 6052 §2.1 (NAT64), RFC 3056 §2 (6to4).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: Counted as public by `ipaddress`. Sources: Azure, "What is IP address 168.63.129.16?" (the host's own services);
#: RFC 4291 §2.5.5.1 (IPv4-compatible), RFC 3879 (site-local), RFC 9602 (identifiers of segment routing).
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network) for network in ("168.63.129.16/32", "::/96", "fec0::/10", "5f00::/16")
)
_VISIBLE = re.compile(r"[!-~]+")
MAX_URL_CHARS = 2_000


class EndpointError(ValueError):
    """Not an address that a digest may be sent to; the text says why and what would do, without the address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that may be called; `shown` is what people see of it."""

    url: str
    host: str

    @property
    def shown(self) -> str:
        """Scheme and host: what follows may be a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"


def read_endpoint(url: str, *, plain_http: Collection[str] = (), private: Collection[str] = ()) -> Endpoint:
    """
    Check an address of a digest channel.

    `plain_http` and `private` are host names, in lower case, that may be reached without TLS, and that may have an
    address that is not public.

    Raises: EndpointError.
    """
    if not _VISIBLE.fullmatch(url) or len(url) > MAX_URL_CHARS:
        raise EndpointError(f"must be an address of up to {MAX_URL_CHARS:,} visible ASCII characters, without spaces")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise EndpointError("is not an address such as https://hooks.example.com/path") from None
    if parts.scheme not in {"https", "http"} or not host or port == 0:
        raise EndpointError("must be an address such as https://hooks.example.com/path")
    if parts.username is not None or parts.password is not None:
        raise EndpointError("must not hold a user or password; give them as an auth header or token")
    if parts.fragment:
        raise EndpointError("must not hold a # part: it never leaves this machine")
    if parts.scheme == "http" and host not in plain_http:
        raise EndpointError(
            f"must be https://; DIGEST_PLAIN_HTTP_HOSTS names the hosts that need no TLS, {host} is not"
        )
    if host not in private and _is_refused_literal(host):
        raise EndpointError(f"is no public address; DIGEST_PRIVATE_HOSTS names the hosts that may be, {host} is not")
    return Endpoint(url, host)


def is_public(address: str) -> bool:
    """
    Whether a network address is one of the public internet: not private, loopback, link-local, of a cloud's
    own services, shared by a carrier, multicast or reserved; IPv4 inside IPv6 counts as what it carries.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast and not any(found in network for network in _NOT_PUBLIC)


def host_list(text: str) -> frozenset[str]:
    """Host names with spaces between, in lower case."""
    return frozenset(text.lower().replace("[", "").replace("]", "").split())


def _is_refused_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return not is_public(host)
