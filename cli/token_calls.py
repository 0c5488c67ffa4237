"""The verbs about tokens, and the one that needs none: logging in."""

from __future__ import annotations

from cli.calls import Calls, segment
from cli.token_records import MadeToken, Token


class TokenCalls(Calls):
    def log_in(self, username: str, password: str, *, scope: str, name: str) -> MadeToken:
        body = {"username": username, "password": password, "scope": scope, "name": name}
        return MadeToken.parse(self._transport.send("POST", "login", body))

    def tokens(self, *, limit: int = 50) -> list[Token]:
        return [Token.parse(item) for item in self._listing("tokens", {}, limit)]

    def token(self, token_id: str) -> Token:
        return Token.parse(self._transport.get(f"tokens/{segment(token_id)}"))

    def own_token(self) -> Token:
        """The one that this client sends."""
        return Token.parse(self._transport.get("tokens/self"))

    def create_token(
        self, name: str, *, scope: str, days: int | None = None, never: bool = False, pool: str = ""
    ) -> MadeToken:
        """Good for so many days, for ever, or for as long as the server gives by itself."""
        body: dict[str, object] = {"name": name, "scope": scope}
        if pool:
            body["pool"] = pool
        if never:
            body["expires_at"] = None
        elif days is not None:
            body["expires_in_days"] = days
        return MadeToken.parse(self._transport.send("POST", "tokens", body))

    def revoke_token(self, token_id: str) -> None:
        self._transport.send("DELETE", f"tokens/{segment(token_id)}")

    def revoke_own_token(self) -> None:
        self._transport.send("DELETE", "tokens/self")
