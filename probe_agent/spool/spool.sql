-- The spool's two tables (SQLite). Run at every start; harmless when they exist.
-- item: what waits for Postgres. seq = order of arrival; id = 16-byte identity; lane = event, check, allocation;
--       rank = 2 high, 1 low, 0 info; open = 1 while a fold may still grow (not delivered yet);
--       folded = sightings this row stands for; bytes = length of body.
-- state: cursors, baselines, expectations and totals (JSON), always written in the transaction of the items they explain.
CREATE TABLE IF NOT EXISTS item (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    id     BLOB NOT NULL UNIQUE,
    lane   TEXT NOT NULL,
    rank   INTEGER NOT NULL,
    open   INTEGER NOT NULL,
    folded INTEGER NOT NULL,
    bytes  INTEGER NOT NULL,
    body   BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS item_order ON item (open, rank DESC, seq);
CREATE TABLE IF NOT EXISTS state (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
