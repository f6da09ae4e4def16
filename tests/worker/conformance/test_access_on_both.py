"""Tokens and one-time addresses, on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

from worker import access
from worker.access import Scope, Sort
from worker.db.connection import open_database
from worker.settings import WorkerSettings

NOW = 1_800_000_000.0


@pytest.mark.requirement("AP-01")
def test_an_address_opens_once_and_a_token_until_it_is_revoked(settings: WorkerSettings) -> None:
    """Stored as hashes, found by them, with the last use; a browser counts for its user alone."""
    with open_database(settings) as db:
        once = access.new_address(db, Scope.ADMIN, actor="test", now=NOW)
        entered = access.enter(db, once.secret, now=NOW + 1, user_id=7)
        assert entered is not None
        assert access.enter(db, once.secret, now=NOW + 2, user_id=7) is None
        for user, found in ((7, True), (8, False), (None, False)):
            held = access.holder(db, Sort.BROWSER, entered.secret, now=NOW + 3, user_id=user)
            assert (held is not None) == found

        secret, token = access.new_token(db, Scope.READ, actor="test", now=NOW, days=1)
        access.note_use(db, token, now=NOW + 5)
        held = access.holder(db, Sort.TOKEN, secret, now=NOW + 6)
        assert held is not None
        assert (held.scope, held.last_used_at) == (Scope.READ, NOW + 5)
        assert access.holder(db, Sort.TOKEN, secret, now=NOW + access.DAY_S) is None
        access.revoke(db, token.id, now=NOW + 7)
        assert access.holder(db, Sort.TOKEN, secret, now=NOW + 8) is None
        with pytest.raises(access.TokenNotFoundError):
            access.revoke(db, 99, now=NOW)
