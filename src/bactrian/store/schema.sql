-- Schema 1 of a run. It is frozen from the first release on: a change of it is then a step in database.py, which also
-- brings older runs to it.
-- record_tables.py maps the records to these columns; a seal is the checksum of its row.

CREATE TABLE migrations (
    number INTEGER NOT NULL PRIMARY KEY, -- the largest is the schema of the run
    applied FLOAT NOT NULL, -- seconds since 1970, for display only
    seal INTEGER
);

CREATE TABLE run (
    "row" INTEGER NOT NULL PRIMARY KEY, -- always 1
    recipe TEXT NOT NULL, -- JSON: what the run is made from, frozen at its start
    created FLOAT NOT NULL, -- seconds since 1970, for display only
    seal INTEGER
);

CREATE TABLE lists (
    "row" INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL UNIQUE, -- axis, and the positions it depends on
    items TEXT NOT NULL, -- JSON
    complete INTEGER NOT NULL,
    usage TEXT NOT NULL, -- JSON
    calls INTEGER NOT NULL,
    seal INTEGER
);

CREATE TABLE sessions (
    "row" INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    assistant_role TEXT NOT NULL,
    assistant_description TEXT NOT NULL,
    user_role TEXT NOT NULL,
    user_description TEXT NOT NULL,
    original_task TEXT NOT NULL,
    specified_task TEXT,
    planned_task TEXT,
    provenance TEXT NOT NULL, -- JSON
    preparation TEXT NOT NULL, -- JSON: tokens of specifier and planner
    axis_values TEXT NOT NULL, -- JSON
    mark TEXT,
    created FLOAT NOT NULL, -- seconds since 1970, for display only
    ending TEXT, -- it and the columns below are null until the session has ended
    ending_turn INTEGER,
    ending_speaker TEXT,
    ending_evidence TEXT,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cached_tokens INTEGER,
    seal INTEGER
);

CREATE INDEX sessions_progress ON sessions (
    id, ending, ending_turn, prompt_tokens, completion_tokens, cached_tokens
);

CREATE TABLE turns (
    "row" INTEGER NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    number INTEGER NOT NULL,
    speaker TEXT NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    said TEXT, -- JSON: the instruction or solution read from the text
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    written_tokens INTEGER NOT NULL DEFAULT 0, -- to the provider's cache, part of the prompt's
    tier TEXT NOT NULL DEFAULT '', -- of its price
    seconds FLOAT NOT NULL,
    first_token FLOAT,
    model TEXT NOT NULL,
    finish TEXT NOT NULL,
    lossy INTEGER NOT NULL,
    fingerprint TEXT, -- the endpoint's name for the exact system that answered
    thought TEXT NOT NULL,
    checksum INTEGER NOT NULL, -- CRC-32 of the text
    seal INTEGER,
    UNIQUE (session, number)
);

-- Every call to a model, so that a failure is recorded, too.
CREATE TABLE calls (
    "row" INTEGER NOT NULL PRIMARY KEY,
    session TEXT NOT NULL,
    agent TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    model TEXT NOT NULL,
    seconds FLOAT NOT NULL,
    raw BLOB NOT NULL,
    error TEXT,
    usage TEXT, -- JSON; after a failure an estimate or null
    seal INTEGER
);

-- Candidates for turns.
CREATE TABLE proposals (
    "row" INTEGER NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    number INTEGER NOT NULL, -- of the turn
    round INTEGER NOT NULL,
    place INTEGER NOT NULL,
    speaker TEXT NOT NULL,
    text TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    written_tokens INTEGER NOT NULL DEFAULT 0, -- to the provider's cache, part of the prompt's
    tier TEXT NOT NULL DEFAULT '', -- of its price
    seconds FLOAT NOT NULL,
    model TEXT NOT NULL,
    finish TEXT NOT NULL,
    lossy INTEGER NOT NULL,
    parent INTEGER, -- in a search, the place of the proposal for the turn before
    fingerprint TEXT,
    thought TEXT NOT NULL,
    seal INTEGER,
    UNIQUE (session, number, round, place)
);

-- Decisions of a critic or a person on proposals.
CREATE TABLE verdicts (
    "row" INTEGER NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    number INTEGER NOT NULL, -- of the turn
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    speaker TEXT NOT NULL, -- whose proposals they are
    chooser TEXT NOT NULL,
    text TEXT NOT NULL,
    place INTEGER, -- of the chosen proposal; null if the decision cannot be read
    reason TEXT NOT NULL,
    feedback TEXT NOT NULL,
    "instead" TEXT, -- what a person wrote instead of all proposals
    problem TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    written_tokens INTEGER NOT NULL DEFAULT 0, -- to the provider's cache, part of the prompt's
    tier TEXT NOT NULL DEFAULT '', -- of its price
    seconds FLOAT NOT NULL,
    model TEXT NOT NULL,
    kept TEXT NOT NULL, -- JSON: in a search, the places of the lines that continue
    thought TEXT NOT NULL,
    seal INTEGER,
    UNIQUE (session, number, round, attempt)
);

-- The tools that agents called during their turns.
CREATE TABLE tools (
    "row" INTEGER NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    number INTEGER NOT NULL, -- of the turn
    round INTEGER NOT NULL,
    place INTEGER NOT NULL,
    speaker TEXT NOT NULL,
    name TEXT NOT NULL,
    call TEXT NOT NULL, -- the model's name for the call
    arguments TEXT NOT NULL, -- as the model wrote them
    text TEXT NOT NULL, -- what the agent wrote beside its calls
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    written_tokens INTEGER NOT NULL DEFAULT 0, -- to the provider's cache, part of the prompt's
    tier TEXT NOT NULL DEFAULT '', -- of its price
    seconds FLOAT NOT NULL,
    model TEXT NOT NULL,
    thought TEXT NOT NULL,
    result TEXT, -- it and the columns below are null until the tool returned
    problem TEXT,
    tool_seconds FLOAT,
    cut INTEGER,
    seal INTEGER,
    UNIQUE (session, number, round, place)
);

-- A judge's answers about findings.
CREATE TABLE confirmations (
    "row" INTEGER NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    turn INTEGER NOT NULL,
    behaviour TEXT NOT NULL,
    judge TEXT NOT NULL, -- model, as the user named it
    holds INTEGER, -- null if the answer cannot be read
    text TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    written_tokens INTEGER NOT NULL DEFAULT 0, -- to the provider's cache, part of the prompt's
    tier TEXT NOT NULL DEFAULT '', -- of its price
    seconds FLOAT NOT NULL,
    model TEXT NOT NULL,
    seal INTEGER,
    UNIQUE (session, turn, behaviour, judge)
);

-- Marks and notes that a person gives to sessions.
CREATE TABLE marks (
    "row" INTEGER NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    mark TEXT NOT NULL,
    note TEXT NOT NULL,
    created FLOAT NOT NULL, -- seconds since 1970
    seal INTEGER,
    UNIQUE (session, mark)
);

-- The commands that worked on the run.
CREATE TABLE commands (
    "row" INTEGER NOT NULL PRIMARY KEY,
    verb TEXT NOT NULL,
    session TEXT NOT NULL, -- empty for a command about the whole run
    options TEXT NOT NULL, -- JSON, without keys
    version TEXT NOT NULL,
    created FLOAT NOT NULL, -- seconds since 1970
    seal INTEGER,
    UNIQUE (verb, session, created)
);

-- Votes of people on pairs of solutions.
CREATE TABLE votes (
    "row" INTEGER NOT NULL PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    pair TEXT NOT NULL,
    voter TEXT NOT NULL, -- a pseudonym
    repeated INTEGER NOT NULL, -- 1 if the pair was shown again, the other way round
    "left" TEXT NOT NULL,
    choice TEXT NOT NULL,
    comment TEXT NOT NULL,
    texts TEXT NOT NULL, -- SHA-256 of what was shown
    seconds FLOAT NOT NULL,
    created FLOAT NOT NULL, -- seconds since 1970
    seal INTEGER,
    UNIQUE (session, pair, voter, repeated)
);

-- The number and the sum of the rows of each table, up to row `last`.
CREATE TABLE totals (
    name TEXT NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    sum INTEGER NOT NULL,
    unsealed INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO totals VALUES
    ('migrations', 0, 0, 0, 0),
    ('run', 0, 0, 0, 0),
    ('lists', 0, 0, 0, 0),
    ('sessions', 0, 0, 0, 0),
    ('turns', 0, 0, 0, 0),
    ('calls', 0, 0, 0, 0),
    ('proposals', 0, 0, 0, 0),
    ('verdicts', 0, 0, 0, 0),
    ('tools', 0, 0, 0, 0),
    ('confirmations', 0, 0, 0, 0),
    ('marks', 0, 0, 0, 0),
    ('commands', 0, 0, 0, 0),
    ('votes', 0, 0, 0, 0);
