BEGIN TRANSACTION;
CREATE TABLE calls (
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL,
        agent TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        model TEXT NOT NULL,
        seconds FLOAT NOT NULL,
        raw BLOB NOT NULL,
        error TEXT,
        usage TEXT -- JSON; null after a failure
        );
CREATE TABLE commands (
        "row" INTEGER NOT NULL PRIMARY KEY,
        verb TEXT NOT NULL,
        session TEXT NOT NULL, -- empty for a command about the whole run
        options TEXT NOT NULL, -- JSON, without keys
        version TEXT NOT NULL,
        created FLOAT NOT NULL, -- seconds since 1970
        UNIQUE (verb, session, created)
        );
INSERT INTO "commands" VALUES(1,'generate','','{"concurrency":2,"timeout":600.0,"max_wait":600.0,"order":"depth","equal_roles":false,"acknowledge_misuse":false,"sources":[],"limit":null}','0.1.0',1.79532226737778139117e+09);
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
    estimated INTEGER NOT NULL
,
        seconds FLOAT NOT NULL,
        model TEXT NOT NULL,
        UNIQUE (session, turn, behaviour, judge)
        );
CREATE TABLE lists (
        "row" INTEGER NOT NULL PRIMARY KEY,
        id TEXT NOT NULL UNIQUE, -- axis, and the positions it depends on
        items TEXT NOT NULL, -- JSON
        complete INTEGER NOT NULL,
        usage TEXT NOT NULL, -- JSON
        calls INTEGER NOT NULL
        );
CREATE TABLE marks (
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        mark TEXT NOT NULL,
        note TEXT NOT NULL,
        created FLOAT NOT NULL, -- seconds since 1970
        UNIQUE (session, mark)
        );
CREATE TABLE migrations (number INTEGER NOT NULL PRIMARY KEY, applied FLOAT NOT NULL);
INSERT INTO "migrations" VALUES(1,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(2,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(3,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(4,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(5,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(6,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(7,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(8,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(9,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(10,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(11,1.79532226714545273781e+09);
INSERT INTO "migrations" VALUES(12,1.79532226714545273781e+09);
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
    estimated INTEGER NOT NULL
,
        seconds FLOAT NOT NULL,
        model TEXT NOT NULL,
        finish TEXT NOT NULL,
        lossy INTEGER NOT NULL, fingerprint TEXT, parent INTEGER, thought TEXT DEFAULT '' NOT NULL,
        UNIQUE (session, number, round, place)
        );
CREATE TABLE run (
        "row" INTEGER NOT NULL PRIMARY KEY, -- always 1
        recipe TEXT NOT NULL, -- JSON: what the run is made from, frozen at its start
        created FLOAT NOT NULL -- seconds since 1970, for display only
        );
INSERT INTO "run" VALUES(1,'{"recipe":{"name":"yards","description":"Two gardeners and two owners.","red_team":false,"axes":[{"name":"assistant_role","count":2,"given":["Gardener","Landscape Architect"],"per":[],"each":false,"fresh":false,"max_tokens":4096},{"name":"user_role","count":2,"given":["Café Owner","Schoolteacher"],"per":[],"each":false,"fresh":false,"max_tokens":4096}],"role_play":{"assistant":"{{ assistant_role }}","user":"{{ user_role }}","idea":"Plant the yard of the {{ user_role }}","assistant_description":"","user_description":"","specify":true,"word_limit":50,"plan":false,"endings":"default","needs_code":false,"preamble":""}},"prompts":{"name":"ai-society","hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8"},"models":{"lister":"scripted:lines.json","task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json","user":"scripted:lines.json","assistant":"scripted:lines.json"},"seed":7,"seeds":2}',1.79532226732361793516e+09);
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
        created FLOAT NOT NULL, -- seconds since 1970, for display only
        ending TEXT,
        ending_turn INTEGER,
        ending_speaker TEXT,
        ending_evidence TEXT
        , axis_values TEXT DEFAULT '{}' NOT NULL, mark TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, cached_tokens INTEGER);
INSERT INTO "sessions" VALUES(1,'001_001','Gardener','','Café Owner','','Plant the yard of the Café Owner','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":7562809053382759,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":7562809053382759,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":7562809053382759,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":null,"cast":{},"tools":{},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":92,"completion":22,"cached":0,"estimated":true}',1.79532226741168570525e+09,'task_done',7,'user','<CAMEL_TASK_DONE>','{"assistant_role":"Gardener","user_role":"Café Owner"}',NULL,2843,119,0);
INSERT INTO "sessions" VALUES(2,'001_002','Gardener','','Schoolteacher','','Plant the yard of the Schoolteacher','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":5938020616163795,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":5938020616163795,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":5938020616163795,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":null,"cast":{},"tools":{},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":93,"completion":22,"cached":0,"estimated":true}',1.79532226741185522078e+09,'task_done',7,'user','<CAMEL_TASK_DONE>','{"assistant_role":"Gardener","user_role":"Schoolteacher"}',NULL,2848,119,0);
INSERT INTO "sessions" VALUES(3,'002_001','Landscape Architect','','Café Owner','','Plant the yard of the Café Owner','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":5358253067099899,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":5358253067099899,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":5358253067099899,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":null,"cast":{},"tools":{},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":95,"completion":22,"cached":0,"estimated":true}',1.79532226992249393463e+09,NULL,NULL,NULL,NULL,'{"assistant_role":"Landscape Architect","user_role":"Café Owner"}',NULL,NULL,NULL,NULL);
INSERT INTO "sessions" VALUES(4,'002_002','Landscape Architect','','Schoolteacher','','Plant the yard of the Schoolteacher','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":6009628973236255,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":6009628973236255,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":6009628973236255,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":null,"cast":{},"tools":{},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":96,"completion":22,"cached":0,"estimated":true}',1.79532226992274308204e+09,NULL,NULL,NULL,NULL,'{"assistant_role":"Landscape Architect","user_role":"Schoolteacher"}',NULL,NULL,NULL,NULL);
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
    estimated INTEGER NOT NULL
,
        seconds FLOAT NOT NULL,
        model TEXT NOT NULL,
        result TEXT, -- null until the tool returned
        problem TEXT,
        tool_seconds FLOAT,
        cut INTEGER, thought TEXT DEFAULT '' NOT NULL,
        UNIQUE (session, number, round, place)
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
    estimated INTEGER NOT NULL
,
        seconds FLOAT NOT NULL,
        first_token FLOAT,
        model TEXT NOT NULL,
        finish TEXT NOT NULL,
        lossy INTEGER NOT NULL,
        checksum INTEGER NOT NULL, fingerprint TEXT, thought TEXT DEFAULT '' NOT NULL, -- CRC-32 of the text
        UNIQUE (session, number)
        );
INSERT INTO "turns" VALUES(1,'001_001',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',382,16,0,1,3.05176922000100603327e-01,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
INSERT INTO "turns" VALUES(2,'001_002',1,'user','Schoolteacher','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',383,16,0,1,3.20864841000002343207e-01,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
INSERT INTO "turns" VALUES(3,'001_001',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',324,14,0,1,3.01995762998558348044e-01,NULL,'scripted:lines.json','stop',0,3798419227,NULL,'');
INSERT INTO "turns" VALUES(4,'001_002',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',324,14,0,1,3.0196060699745430611e-01,NULL,'scripted:lines.json','stop',0,3798419227,NULL,'');
INSERT INTO "turns" VALUES(5,'001_001',3,'user','Café Owner','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',412,11,0,1,3.0249211300179013051e-01,NULL,'scripted:lines.json','stop',0,3655477210,NULL,'');
INSERT INTO "turns" VALUES(6,'001_002',3,'user','Schoolteacher','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',413,11,0,1,3.02481114998954581096e-01,NULL,'scripted:lines.json','stop',0,3655477210,NULL,'');
INSERT INTO "turns" VALUES(7,'001_001',4,'assistant','Gardener','Thyme, mint, basil and sage.',NULL,349,8,0,1,3.01900045000365935266e-01,NULL,'scripted:lines.json','stop',0,795338728,NULL,'');
INSERT INTO "turns" VALUES(8,'001_002',4,'assistant','Gardener','Thyme, mint, basil and sage.',NULL,349,8,0,1,3.01879116999771213158e-01,NULL,'scripted:lines.json','stop',0,795338728,NULL,'');
INSERT INTO "turns" VALUES(9,'001_001',5,'user','Café Owner','Instruction: Say when each is planted.
Input: “Thyme”, “mint”, 罗勒 and sage.','{"instruction":"Say when each is planted.","input":"“Thyme”, “mint”, 罗勒 and sage.","preface":""}',431,22,0,1,3.04340930000762455165e-01,NULL,'scripted:lines.json','stop',0,3263342395,NULL,'');
INSERT INTO "turns" VALUES(10,'001_002',5,'user','Schoolteacher','Instruction: Say when each is planted.
Input: “Thyme”, “mint”, 罗勒 and sage.','{"instruction":"Say when each is planted.","input":"“Thyme”, “mint”, 罗勒 and sage.","preface":""}',432,22,0,1,3.04317285997967701405e-01,NULL,'scripted:lines.json','stop',0,3263342395,NULL,'');
INSERT INTO "turns" VALUES(11,'001_001',6,'assistant','Gardener','Solution: Thyme in April, mint in May, basil in June, sage in March.
Next request.','{"solution":"Thyme in April, mint in May, basil in June, sage in March.","asks_next":true,"preface":""}',379,21,0,1,3.07968568999058334156e-01,NULL,'scripted:lines.json','stop',0,2999730437,NULL,'');
INSERT INTO "turns" VALUES(12,'001_002',6,'assistant','Gardener','Solution: Thyme in April, mint in May, basil in June, sage in March.
Next request.','{"solution":"Thyme in April, mint in May, basil in June, sage in March.","asks_next":true,"preface":""}',379,21,0,1,3.07751141997869126498e-01,NULL,'scripted:lines.json','stop',0,2999730437,NULL,'');
INSERT INTO "turns" VALUES(13,'001_001',7,'user','Café Owner','<CAMEL_TASK_DONE>',NULL,474,5,0,1,3.03592189997289096936e-01,NULL,'scripted:lines.json','stop',0,3631827014,NULL,'');
INSERT INTO "turns" VALUES(14,'001_002',7,'user','Schoolteacher','<CAMEL_TASK_DONE>',NULL,475,5,0,1,3.03954181999870343133e-01,NULL,'scripted:lines.json','stop',0,3631827014,NULL,'');
INSERT INTO "turns" VALUES(15,'002_001',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',385,16,0,1,3.1180991200017160736e-01,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
INSERT INTO "turns" VALUES(16,'002_002',1,'user','Schoolteacher','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',386,16,0,1,3.11756993000017246231e-01,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
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
        "instead" TEXT, -- what a person wrote in place of all proposals
        problem TEXT NOT NULL,
        
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL
,
        seconds FLOAT NOT NULL,
        model TEXT NOT NULL, kept TEXT DEFAULT '[]' NOT NULL, thought TEXT DEFAULT '' NOT NULL,
        UNIQUE (session, number, round, attempt)
        );
CREATE INDEX sessions_progress ON sessions (id, ending, ending_turn, prompt_tokens, completion_tokens, cached_tokens);
COMMIT;
PRAGMA application_id = 1113678708;
