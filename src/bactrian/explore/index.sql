PRAGMA page_size = 16384;
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;
-- A number is never given twice: the full-text index may still know the rows of a run that was forgotten.
CREATE TABLE IF NOT EXISTS runs (number INTEGER PRIMARY KEY AUTOINCREMENT, path BLOB NOT NULL UNIQUE);
-- About a run; its row is 0 in the run.
CREATE TABLE IF NOT EXISTS meta (row INTEGER, key TEXT, value, PRIMARY KEY (row, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (no INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
-- Narrow, so that a count over all sessions reads little. text_turns and seen_turns: how many turns are in the
-- full-text index, and were searched for behaviours. In these, and in cost and findings, -1 means not known yet.
-- A group chat has no user: the names of its agents are in `assistant`, and each is a trait.
CREATE TABLE IF NOT EXISTS facts (
    row INTEGER PRIMARY KEY, assistant TEXT NOT NULL, user TEXT NOT NULL, task INTEGER NOT NULL, language TEXT,
    kind TEXT NOT NULL, ending TEXT NOT NULL, turns INTEGER NOT NULL, tokens INTEGER NOT NULL DEFAULT 0,
    cost REAL NOT NULL DEFAULT -1, findings INTEGER NOT NULL DEFAULT -1, mark TEXT, final INTEGER NOT NULL,
    text_turns INTEGER NOT NULL DEFAULT -1, seen_turns INTEGER NOT NULL DEFAULT -1,
    needs_code INTEGER NOT NULL DEFAULT 0, has_instructor INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS heads (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL, task TEXT NOT NULL, created REAL NOT NULL
);
-- What counts: what detectors found and readers did not reject, and candidates that readers confirmed.
CREATE TABLE IF NOT EXISTS shown (
    behaviour TEXT, row INTEGER, turn INTEGER, PRIMARY KEY (behaviour, row, turn)
) WITHOUT ROWID;
-- What detectors found, candidates among it.
CREATE TABLE IF NOT EXISTS evidence (row INTEGER PRIMARY KEY, packed BLOB NOT NULL);
-- What readers say of turns. found: 1 if detectors found it, 0 for a candidate, NULL if it is neither.
CREATE TABLE IF NOT EXISTS answers (
    row INTEGER, turn INTEGER, behaviour TEXT, holds INTEGER NOT NULL, found INTEGER,
    PRIMARY KEY (row, turn, behaviour)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (mark TEXT, row INTEGER, note TEXT, PRIMARY KEY (mark, row)) WITHOUT ROWID;
-- What a session may have several of: behaviours, models, agents, verdicts on its code, and items of its recipe's axes
-- (`axis: item`).
CREATE TABLE IF NOT EXISTS traits (
    facet TEXT, value TEXT, row INTEGER, PRIMARY KEY (facet, value, row)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS points (
    what TEXT, row INTEGER, turn INTEGER NOT NULL, x INTEGER NOT NULL, y INTEGER NOT NULL, topic INTEGER NOT NULL,
    PRIMARY KEY (what, row, turn)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS heads_id ON heads (id);
CREATE INDEX IF NOT EXISTS shown_row ON shown (row);
CREATE INDEX IF NOT EXISTS marks_row ON marks (row);
CREATE INDEX IF NOT EXISTS traits_row ON traits (row);
CREATE INDEX IF NOT EXISTS facts_ending ON facts (ending);
CREATE INDEX IF NOT EXISTS facts_roles ON facts (assistant, user, ending);
CREATE INDEX IF NOT EXISTS facts_assistant ON facts (assistant);
CREATE INDEX IF NOT EXISTS facts_user ON facts (user);
CREATE INDEX IF NOT EXISTS facts_task ON facts (task);
CREATE INDEX IF NOT EXISTS facts_language ON facts (language);
CREATE INDEX IF NOT EXISTS facts_turns ON facts (turns);
CREATE INDEX IF NOT EXISTS facts_tokens ON facts (tokens);
CREATE INDEX IF NOT EXISTS facts_findings ON facts (findings);
CREATE INDEX IF NOT EXISTS facts_cost ON facts (cost);
CREATE INDEX IF NOT EXISTS facts_open ON facts (row) WHERE final = 0;
CREATE INDEX IF NOT EXISTS facts_unread ON facts (row) WHERE text_turns <> turns;
CREATE INDEX IF NOT EXISTS facts_unseen ON facts (row) WHERE seen_turns <> turns;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(
    task, talk, content='', tokenize='unicode61 remove_diacritics 2'
);
COMMIT;
