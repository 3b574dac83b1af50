BEGIN TRANSACTION;
CREATE TABLE calls (
	"row" INTEGER NOT NULL, 
	session TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	ordinal INTEGER NOT NULL, 
	model TEXT NOT NULL, 
	seconds FLOAT NOT NULL, 
	raw BLOB NOT NULL, 
	error TEXT, 
	usage TEXT, 
	PRIMARY KEY ("row")
);
CREATE TABLE lists (
	"row" INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	items TEXT NOT NULL, 
	complete INTEGER NOT NULL, 
	usage TEXT NOT NULL, 
	calls INTEGER NOT NULL, 
	PRIMARY KEY ("row"), 
	UNIQUE (id)
);
CREATE TABLE migrations (
	number INTEGER NOT NULL, 
	applied FLOAT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "migrations" VALUES(1,1.79530651415590381623e+09);
INSERT INTO "migrations" VALUES(2,1.79530651415590381623e+09);
INSERT INTO "migrations" VALUES(3,1.79530651415590381623e+09);
INSERT INTO "migrations" VALUES(4,1.79530651415590381623e+09);
CREATE TABLE proposals (
	"row" INTEGER NOT NULL, 
	session TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	round INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	speaker TEXT NOT NULL, 
	text TEXT NOT NULL, 
	prompt_tokens INTEGER NOT NULL, 
	completion_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	estimated INTEGER NOT NULL, 
	seconds FLOAT NOT NULL, 
	model TEXT NOT NULL, 
	finish TEXT NOT NULL, 
	lossy INTEGER NOT NULL, 
	PRIMARY KEY ("row"), 
	UNIQUE (session, number, round, place), 
	FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE TABLE run (
	"row" INTEGER NOT NULL, 
	recipe TEXT NOT NULL, 
	created FLOAT NOT NULL, 
	PRIMARY KEY ("row")
);
INSERT INTO "run" VALUES(1,'{"recipe":{"name":"yards","description":"Two gardeners and two owners.","red_team":false,"axes":[{"name":"assistant_role","count":2,"given":["Gardener","Landscape Architect"],"per":[],"each":false,"fresh":false,"max_tokens":4096},{"name":"user_role","count":2,"given":["Café Owner","Schoolteacher"],"per":[],"each":false,"fresh":false,"max_tokens":4096}],"role_play":{"assistant":"{{ assistant_role }}","user":"{{ user_role }}","idea":"Plant the yard of the {{ user_role }}","assistant_description":"","user_description":"","specify":true,"word_limit":50,"plan":false,"endings":"default","needs_code":false,"preamble":""}},"prompts":{"name":"ai-society","hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8"},"models":{"lister":"scripted:lines.json","task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json","user":"scripted:lines.json","assistant":"scripted:lines.json"},"seed":7}',1.79530651416635727885e+09);
CREATE TABLE sessions (
	"row" INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	assistant_role TEXT NOT NULL, 
	assistant_description TEXT NOT NULL, 
	user_role TEXT NOT NULL, 
	user_description TEXT NOT NULL, 
	original_task TEXT NOT NULL, 
	specified_task TEXT, 
	planned_task TEXT, 
	provenance TEXT NOT NULL, 
	preparation TEXT NOT NULL, 
	created FLOAT NOT NULL, 
	ending TEXT, 
	ending_turn INTEGER, 
	ending_speaker TEXT, 
	ending_evidence TEXT, 
	axis_values TEXT DEFAULT '{}' NOT NULL, 
	mark TEXT, 
	prompt_tokens INTEGER, 
	completion_tokens INTEGER, 
	cached_tokens INTEGER, 
	PRIMARY KEY ("row"), 
	UNIQUE (id)
);
INSERT INTO "sessions" VALUES(1,'001_001','Gardener','','Café Owner','','Plant the yard of the Café Owner','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":7,"stop":[],"repeat_penalty":null},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":7,"stop":[],"repeat_penalty":null},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":7,"stop":[],"repeat_penalty":null}},"language":null,"preamble":"","needs_code":false,"critic":null}','{"prompt":92,"completion":22,"cached":0,"estimated":true}',1.79530651417842435839e+09,'task_done',7,'user','<CAMEL_TASK_DONE>','{"assistant_role":"Gardener","user_role":"Café Owner"}',NULL,2843,119,0);
INSERT INTO "sessions" VALUES(2,'001_002','Gardener','','Schoolteacher','','Plant the yard of the Schoolteacher','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":10007,"stop":[],"repeat_penalty":null},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":10007,"stop":[],"repeat_penalty":null},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":10007,"stop":[],"repeat_penalty":null}},"language":null,"preamble":"","needs_code":false,"critic":null}','{"prompt":93,"completion":22,"cached":0,"estimated":true}',1.79530651417853093143e+09,'task_done',7,'user','<CAMEL_TASK_DONE>','{"assistant_role":"Gardener","user_role":"Schoolteacher"}',NULL,2848,119,0);
INSERT INTO "sessions" VALUES(3,'002_001','Landscape Architect','','Café Owner','','Plant the yard of the Café Owner','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":20007,"stop":[],"repeat_penalty":null},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":20007,"stop":[],"repeat_penalty":null},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":20007,"stop":[],"repeat_penalty":null}},"language":null,"preamble":"","needs_code":false,"critic":null}','{"prompt":95,"completion":22,"cached":0,"estimated":true}',1.79530651663328313831e+09,NULL,NULL,NULL,NULL,'{"assistant_role":"Landscape Architect","user_role":"Café Owner"}',NULL,NULL,NULL,NULL);
INSERT INTO "sessions" VALUES(4,'002_002','Landscape Architect','','Schoolteacher','','Plant the yard of the Schoolteacher','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":30007,"stop":[],"repeat_penalty":null},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":30007,"stop":[],"repeat_penalty":null},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":30007,"stop":[],"repeat_penalty":null}},"language":null,"preamble":"","needs_code":false,"critic":null}','{"prompt":96,"completion":22,"cached":0,"estimated":true}',1.79530651663352608677e+09,NULL,NULL,NULL,NULL,'{"assistant_role":"Landscape Architect","user_role":"Schoolteacher"}',NULL,NULL,NULL,NULL);
CREATE TABLE turns (
	"row" INTEGER NOT NULL, 
	session TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	speaker TEXT NOT NULL, 
	role TEXT NOT NULL, 
	text TEXT NOT NULL, 
	said TEXT, 
	prompt_tokens INTEGER NOT NULL, 
	completion_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	estimated INTEGER NOT NULL, 
	seconds FLOAT NOT NULL, 
	first_token FLOAT, 
	model TEXT NOT NULL, 
	finish TEXT NOT NULL, 
	lossy INTEGER NOT NULL, 
	checksum INTEGER NOT NULL, 
	PRIMARY KEY ("row"), 
	UNIQUE (session, number), 
	FOREIGN KEY(session) REFERENCES sessions (id)
);
INSERT INTO "turns" VALUES(1,'001_001',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',382,16,0,1,3.00689324999893869971e-01,NULL,'scripted:lines.json','stop',0,1625960406);
INSERT INTO "turns" VALUES(2,'001_002',1,'user','Schoolteacher','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',383,16,0,1,0.300720629999887,NULL,'scripted:lines.json','stop',0,1625960406);
INSERT INTO "turns" VALUES(3,'001_001',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',324,14,0,1,3.00658063999890146078e-01,NULL,'scripted:lines.json','stop',0,3798419227);
INSERT INTO "turns" VALUES(4,'001_002',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',324,14,0,1,3.0071713500001351349e-01,NULL,'scripted:lines.json','stop',0,3798419227);
INSERT INTO "turns" VALUES(5,'001_001',3,'user','Café Owner','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',412,11,0,1,3.01582906000021466752e-01,NULL,'scripted:lines.json','stop',0,3655477210);
INSERT INTO "turns" VALUES(6,'001_002',3,'user','Schoolteacher','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',413,11,0,1,3.01675531000000773929e-01,NULL,'scripted:lines.json','stop',0,3655477210);
INSERT INTO "turns" VALUES(7,'001_001',4,'assistant','Gardener','Thyme, mint, basil and sage.',NULL,349,8,0,1,3.021800039996378473e-01,NULL,'scripted:lines.json','stop',0,795338728);
INSERT INTO "turns" VALUES(8,'001_002',4,'assistant','Gardener','Thyme, mint, basil and sage.',NULL,349,8,0,1,0.302217427999949,NULL,'scripted:lines.json','stop',0,795338728);
INSERT INTO "turns" VALUES(9,'001_001',5,'user','Café Owner','Instruction: Say when each is planted.
Input: “Thyme”, “mint”, 罗勒 and sage.','{"instruction":"Say when each is planted.","input":"“Thyme”, “mint”, 罗勒 and sage.","preface":""}',431,22,0,1,3.0094745799988231738e-01,NULL,'scripted:lines.json','stop',0,3263342395);
INSERT INTO "turns" VALUES(10,'001_002',5,'user','Schoolteacher','Instruction: Say when each is planted.
Input: “Thyme”, “mint”, 罗勒 and sage.','{"instruction":"Say when each is planted.","input":"“Thyme”, “mint”, 罗勒 and sage.","preface":""}',432,22,0,1,3.00989997999749903101e-01,NULL,'scripted:lines.json','stop',0,3263342395);
INSERT INTO "turns" VALUES(11,'001_001',6,'assistant','Gardener','Solution: Thyme in April, mint in May, basil in June, sage in March.
Next request.','{"solution":"Thyme in April, mint in May, basil in June, sage in March.","asks_next":true,"preface":""}',379,21,0,1,3.01310718999957316555e-01,NULL,'scripted:lines.json','stop',0,2999730437);
INSERT INTO "turns" VALUES(12,'001_002',6,'assistant','Gardener','Solution: Thyme in April, mint in May, basil in June, sage in March.
Next request.','{"solution":"Thyme in April, mint in May, basil in June, sage in March.","asks_next":true,"preface":""}',379,21,0,1,3.01333844000055250944e-01,NULL,'scripted:lines.json','stop',0,2999730437);
INSERT INTO "turns" VALUES(13,'001_001',7,'user','Café Owner','<CAMEL_TASK_DONE>',NULL,474,5,0,1,3.0061314800013860804e-01,NULL,'scripted:lines.json','stop',0,3631827014);
INSERT INTO "turns" VALUES(14,'001_002',7,'user','Schoolteacher','<CAMEL_TASK_DONE>',NULL,475,5,0,1,3.00648547000037069665e-01,NULL,'scripted:lines.json','stop',0,3631827014);
INSERT INTO "turns" VALUES(15,'002_001',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',385,16,0,1,0.301135732000148,NULL,'scripted:lines.json','stop',0,1625960406);
INSERT INTO "turns" VALUES(16,'002_002',1,'user','Schoolteacher','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',386,16,0,1,3.01115588999891770072e-01,NULL,'scripted:lines.json','stop',0,1625960406);
CREATE TABLE verdicts (
	"row" INTEGER NOT NULL, 
	session TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	round INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	speaker TEXT NOT NULL, 
	chooser TEXT NOT NULL, 
	text TEXT NOT NULL, 
	place INTEGER, 
	reason TEXT NOT NULL, 
	feedback TEXT NOT NULL, 
	"instead" TEXT, 
	problem TEXT NOT NULL, 
	prompt_tokens INTEGER NOT NULL, 
	completion_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	estimated INTEGER NOT NULL, 
	seconds FLOAT NOT NULL, 
	model TEXT NOT NULL, 
	PRIMARY KEY ("row"), 
	UNIQUE (session, number, round, attempt), 
	FOREIGN KEY(session) REFERENCES sessions (id)
);
CREATE INDEX sessions_progress ON sessions (id, ending, ending_turn, prompt_tokens, completion_tokens, cached_tokens);
COMMIT;
PRAGMA application_id = 1113678708;
