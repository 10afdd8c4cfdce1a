"""A site's own server may order texts by a language; statements over our tables order them by their bytes."""

from __future__ import annotations

import psycopg

from probing_cluster.core import settings
from probing_cluster.db import migrate
from probing_cluster.live.session import postgres
from probing_cluster.live.table import Scan


def test_a_comparison_of_texts_finds_what_its_bytes_say(debian_server):
    """In English 'alpha' lies before 'B', by its bytes after it."""
    with psycopg.connect(
        debian_server.owner_url.replace("/probing?", "/postgres?"), autocommit=True
    ) as maintenance:
        maintenance.execute(
            "CREATE DATABASE english TEMPLATE template0 ENCODING 'UTF8' "
            "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"
        )
    url = debian_server.owner_url.replace("/probing?", "/english?")
    migrate.upgrade(url)
    keys = ("alpha", "Alpha", "Charlie")
    with psycopg.connect(url, autocommit=True) as english:
        english.cursor().executemany(
            "INSERT INTO probing.state (key, value) VALUES (%s, '1')", [(key,) for key in keys]
        )
    database = postgres.Postgres(settings.Settings(database=settings.DatabaseSettings(url=url)))

    def rows(op: str) -> set[str]:
        condition = {"op": op, "column": "key", "value": "B"}
        found = database.fetch(Scan(table="probing.state", columns=("key",), condition=condition))
        return set(found["key"].to_pylist()).intersection(keys)

    found = {op: rows(op) for op in (">=", ">", "<", "<=", "!=")}
    database._reader.close()
    after = {"alpha", "Charlie"}
    assert found == {">=": after, ">": after, "<": {"Alpha"}, "<=": {"Alpha"}, "!=": set(keys)}
