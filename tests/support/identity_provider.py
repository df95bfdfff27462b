"""
An OpenID Connect provider on loopback: discovery, authorisation, tokens, userinfo and keys, with real signatures.

A test says who signs in and what is wrong with what they bring:

    provider.person = {"sub": "17", "preferred_username": "kim", "roles": ["NOTIFY_ADMIN"]}
    provider.spoil_claims = lambda claims: {**claims, "aud": "somebody-else"}
"""

import base64
import contextlib
import functools
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from tests.support.scripted_http import Received, ScriptedHttp, Step, answer, form, scripted_http

CLIENT_ID, CLIENT_SECRET = "tidings", "the-secret-of-the-client"

Claims = dict[str, Any]


class IdentityProvider:
    """
    One provider and its only person. `asked` are the parameters of each authorisation request.

    `claims_in`: which of "id_token" and "userinfo" carry the person's claims beside `sub`. `refuses`: the person's
    tokens are good for nothing any more. `with_refresh`: whether refresh tokens are given; each works once.
    """

    def __init__(self, server: ScriptedHttp) -> None:
        self.server, self.issuer = server, f"{server.url}/realm"
        self.key = _first_key()
        self.person: Claims = {"sub": "17", "preferred_username": "kim", "roles": ["NOTIFY_ADMIN"]}
        self.claims_in = {"id_token", "userinfo"}
        self.spoil_claims: Callable[[Claims], Claims] = dict
        self.sign: Callable[[Claims], str] = self.signed
        self.userinfo_sub: str | None = None
        self.with_refresh, self.refuses = True, False
        self.says_it_is = self.issuer
        self.asked: list[dict[str, str]] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._access, self.refresh_tokens = set[str](), set[str]()
        for path, step in {
            "/.well-known/openid-configuration": self._discovery,
            "/keys": self._keys,
            "/authorize": self._authorize,
            "/token": self._token,
            "/userinfo": self._userinfo,
        }.items():
            server.always(f"/realm{path}", step)

    def change_key(self) -> None:
        """Sign with another key from now on."""
        self.key = RSAKey.generate_key(2048, parameters={"kid": secrets.token_hex(4)}, auto_kid=False)

    def signed(self, claims: Claims, *, key: RSAKey | None = None) -> str:
        key = key or self.key
        return str(jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key))

    def unsigned(self, claims: Claims) -> str:
        """A token of `alg: none`."""
        parts = ({"alg": "none", "kid": self.key.kid}, claims)
        return (
            ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."
        )

    def signed_with_the_secret(self, claims: Claims) -> str:
        """A token of `alg: HS256` under the client's secret, which more than the provider know."""
        key = OctKey.import_key(CLIENT_SECRET.encode())
        return str(jwt.encode({"alg": "HS256", "kid": self.key.kid}, claims, key, algorithms=["HS256"]))

    def _discovery(self, request: Received) -> Step:
        del request
        names = ("authorization", "token", "userinfo")
        body: dict[str, object] = {f"{name}_endpoint": f"{self.issuer}/{name}" for name in names}
        body["authorization_endpoint"] = f"{self.issuer}/authorize"
        body |= {
            "issuer": self.says_it_is,
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        }
        return answer(200, body)

    def _keys(self, request: Received) -> Step:
        del request
        return answer(200, {"keys": [self.key.as_dict(private=False, use="sig", alg="RS256")]})

    def _authorize(self, request: Received) -> Step:
        given = dict(parse_qsl(urlsplit(request.path).query))
        self.asked.append(given)
        code = secrets.token_urlsafe(8)
        self._codes[code] = given
        back = urlencode({"code": code, "state": given["state"]})
        return answer(302, headers={"Location": f"{given['redirect_uri']}?{back}"})

    def _token(self, request: Received) -> Step:
        given = form(request)
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return answer(401, {"error": "invalid_client"})
        if given.get("grant_type") == "refresh_token":
            if self.refuses or given["refresh_token"] not in self.refresh_tokens:
                return answer(400, {"error": "invalid_grant"})
            self.refresh_tokens.discard(given["refresh_token"])
            return self._tokens(nonce=None)
        asked = self._codes.pop(given.get("code", ""), None)
        verifier = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if asked is None or asked["code_challenge"] != challenge or asked["code_challenge_method"] != "S256":
            return answer(400, {"error": "invalid_grant"})
        return self._tokens(nonce=asked["nonce"])

    def _tokens(self, *, nonce: str | None) -> Step:
        now = int(time.time())
        claims: Claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "sub": self.person["sub"]}
        if nonce is not None:
            claims["nonce"] = nonce
        if "id_token" in self.claims_in:
            claims |= self.person
        body: dict[str, object] = {"access_token": secrets.token_hex(8), "token_type": "Bearer", "expires_in": 300}
        self._access.add(str(body["access_token"]))
        if self.with_refresh:
            body["refresh_token"] = secrets.token_hex(8)
            self.refresh_tokens.add(str(body["refresh_token"]))
        return answer(
            200, {**body, "id_token": self.sign(self.spoil_claims(claims))}, {"Content-Type": "application/json"}
        )

    def _userinfo(self, request: Received) -> Step:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.refuses or token not in self._access:
            return answer(401, {"error": "invalid_token"})
        claims = self.person if "userinfo" in self.claims_in else {}
        return answer(200, {**claims, "sub": self.userinfo_sub or self.person["sub"]})


@functools.cache
def _first_key() -> RSAKey:
    return RSAKey.generate_key(2048, parameters={"kid": "first"}, auto_kid=False)


@contextlib.contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Run one for the time of a block."""
    with scripted_http() as server:
        yield IdentityProvider(server)


def settings_for(provider: IdentityProvider) -> dict[str, str]:
    """Give the settings that make an installation use it."""
    return {
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_role_claim": "roles",
        "public_url": "http://localhost",
    }
