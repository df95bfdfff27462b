"""
Single sign-on: what the OpenID Connect provider says of a person, at sign-in and again and again after it.

Authorization code with PKCE, state and nonce (RFC 9700 §2.1); the ID token's signature, issuer, audience, time and
nonce are checked, asymmetric signatures alone are taken. Roles are looked for in the ID token, then in userinfo.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from authlib.common.errors import AuthlibBaseError  # type: ignore[import-untyped]  # it has no types
from authlib.integrations.base_client.errors import MismatchingStateError  # type: ignore[import-untyped]
from authlib.integrations.flask_client import OAuth  # type: ignore[import-untyped]
from authlib.integrations.requests_client import OAuth2Session  # type: ignore[import-untyped]
from flask import Flask, session
from joserfc.errors import JoseError
from requests import HTTPError, RequestException
from werkzeug.wrappers import Response as AnyResponse

from shared.domain.roles import operator_name, roles_at
from shared.settings import Settings

_log = logging.getLogger(__name__)

#: Seconds one call to the provider may take: somebody waits for the page.
_TIMEOUT_S = 5
#: Seconds the provider's clock may differ from ours.
_LEEWAY_S = 60
#: Sign-ins that one browser may have under way; each is kept in its cookie, which has 4 KB.
_UNDER_WAY = 3
#: Signatures with a private key: one made with a shared secret, or none, proves nothing to us.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_NAME = "oidc"
_STATE = f"_state_{_NAME}_"  # where Authlib keeps a sign-in that is under way


class RefusedError(Exception):
    """The provider did not vouch for the person, or what came is no proof that it did; the text may be shown."""


class ProviderAwayError(Exception):
    """The provider could not be asked; the text may be shown."""


@dataclass(frozen=True, slots=True)
class Person:
    """Whom the provider vouches for. `roles` is None where no claim of that name came; `tokens` to ask again with."""

    subject: str
    name: str
    roles: frozenset[str] | None
    tokens: Mapping[str, str]


@contextmanager
def _faults() -> Iterator[None]:
    """Turn what can go wrong in a talk with the provider into the two exceptions of this module."""
    try:
        yield
    except MismatchingStateError:
        raise RefusedError(
            "This answer belongs to no sign-in that this browser began, or to one that is too long ago."
        ) from None
    except HTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in {400, 401, 403}:
            raise RefusedError(f"The sign-in provider refused: HTTP {status}.") from None
        raise ProviderAwayError(f"The sign-in provider answers with HTTP {status}.") from None
    except (RequestException, OSError) as error:
        raise ProviderAwayError(f"The sign-in provider cannot be reached: {type(error).__name__}.") from None
    except (AuthlibBaseError, JoseError) as error:
        # Its description may quote claims; the code of the error is of a fixed set.
        raise RefusedError(f"The sign-in provider's answer is no proof: {error.error or 'no reason given'}.") from None
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        _log.warning("sign_in_answer_unreadable", exc_info=error)
        raise ProviderAwayError("The sign-in provider's answer cannot be understood; the log says more.") from None


class Provider:
    """The provider that these settings name. Its addresses and keys are fetched when they are first needed."""

    def __init__(self, app: Flask, settings: Settings) -> None:
        issuer, secret, claim = settings.oidc_issuer, settings.oidc_client_secret, settings.oidc_role_claim
        if issuer is None or secret is None or claim is None:
            raise ValueError("single sign-on is not set up")
        self._issuer, self._role_claim = issuer, claim
        self._client_id, self._secret = settings.oidc_client_id or "", secret.get_secret_value()
        self._app = OAuth(app).register(
            _NAME,
            client_id=self._client_id,
            client_secret=self._secret,
            server_metadata_url=f"{issuer}/.well-known/openid-configuration",
            client_kwargs={
                "scope": settings.oidc_scopes,
                "code_challenge_method": "S256",
                "default_timeout": _TIMEOUT_S,
            },
        )

    def begin(self, redirect_uri: str) -> AnyResponse:
        """Send the browser to the provider. Raises: ProviderAwayError."""
        under_way = sorted((key for key in session if key.startswith(_STATE)), key=lambda key: session[key]["exp"])
        for key in under_way[: -_UNDER_WAY + 1]:
            del session[key]
        with _faults():
            self._metadata()
            answer: AnyResponse = self._app.authorize_redirect(redirect_uri)
        return answer

    def complete(self) -> Person:
        """Give the person the provider sent back with this request. Raises: RefusedError, ProviderAwayError."""
        with _faults():
            self._metadata()
            token = self._app.authorize_access_token(claims_options=self._expected(), leeway=_LEEWAY_S)
            claims = token.get("userinfo")
            if not claims:
                raise RefusedError("The sign-in provider sent no ID token: OIDC_SCOPES must contain openid.")
            return self._person(claims, token)

    def ask_again(self, subject: str, tokens: Mapping[str, str]) -> Person:
        """
        Give what the provider says of a person now.

        Raises: RefusedError when it vouches for them no more, ProviderAwayError.
        """
        with _faults():
            metadata = self._metadata()
            fresh: dict[str, Any] = dict(tokens)
            claims: Mapping[str, object] = {"sub": subject}
            if "refresh_token" in tokens:
                with self._session() as client:
                    fresh = client.refresh_token(metadata["token_endpoint"], refresh_token=tokens["refresh_token"])
                if "id_token" in fresh:
                    claims = self._app.parse_id_token(fresh, nonce=None, claims_options=self._expected())
            person = self._person(claims, fresh)
        if person.subject != subject:
            raise RefusedError("The sign-in provider speaks of somebody else now.")
        return person

    def sign_out_url(self, back_to: str) -> str | None:
        """Give where a browser ends its session at the provider too; None where the provider has no such place."""
        try:
            with _faults():
                endpoint = self._metadata().get("end_session_endpoint")
        except (RefusedError, ProviderAwayError):
            return None
        query = urlencode({"client_id": self._client_id, "post_logout_redirect_uri": back_to})
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}" if endpoint else None

    def _metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = self._app.load_server_metadata()
        named = str(found.get("issuer"))
        if named.rstrip("/") != self._issuer:
            found.clear()  # it is asked again next time: the mistake may be the provider's
            raise ProviderAwayError(f"OIDC_ISSUER is {self._issuer}, and the provider there says it is {named}.")
        offered = found.get("id_token_signing_alg_values_supported") or ["RS256"]
        found["id_token_signing_alg_values_supported"] = [one for one in offered if one in _ALGORITHMS] or ["RS256"]
        ways = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        found["token_endpoint_auth_method"] = ways[0] if "client_secret_basic" not in ways else "client_secret_basic"
        return found

    def _expected(self) -> dict[str, dict[str, object]]:
        issuer = self._app.server_metadata["issuer"]
        return {
            "iss": {"essential": True, "value": issuer},
            "aud": {"essential": True, "value": self._client_id},
            "exp": {"essential": True},
            "sub": {"essential": True},
        }

    def _session(self) -> Any:
        return OAuth2Session(
            self._client_id,
            self._secret,
            token_endpoint_auth_method=self._app.server_metadata["token_endpoint_auth_method"],
            default_timeout=_TIMEOUT_S,
        )

    def _person(self, claims: Mapping[str, object], token: Mapping[str, Any]) -> Person:
        roles = roles_at(claims, self._role_claim)
        if roles is None and "userinfo_endpoint" in self._app.server_metadata:
            told = self._userinfo(token)
            if told.get("sub") != claims["sub"]:
                raise RefusedError("The sign-in provider's userinfo is about somebody else.")
            claims, roles = {**told, **claims}, roles_at(told, self._role_claim)
        kept = ("refresh_token",) if token.get("refresh_token") else ("access_token",)
        return Person(
            subject=str(claims["sub"]),
            name=operator_name(claims),
            roles=roles,
            tokens={name: str(token[name]) for name in kept},
        )

    def _userinfo(self, token: Mapping[str, Any]) -> Mapping[str, object]:
        bearer: Callable[..., Any] = self._session
        with bearer() as client:
            client.token = {"token_type": "Bearer", "access_token": token["access_token"]}
            answer = client.get(self._app.server_metadata["userinfo_endpoint"])
            answer.raise_for_status()
            found = answer.json()
        if not isinstance(found, dict):
            raise TypeError("userinfo is no object")
        return found
