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
INSERT INTO "calls" VALUES(1,'970a1dd8dd38','task_specifier',0,'scripted:lines.json',2.28650001190544571727e-05,X'5461736B3A206C6179206F7574206120626564206F6620666F757220686572627320666F72206120636166C3A92773206261636B20796172642C2077697468206120706C616E20666F72206561636820736561736F6E2E',NULL,'{"prompt":88,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(2,'970a1dd8dd38','user',1,'scripted:lines.json',1.64049997692927718162e-05,X'496E737472756374696F6E3A204D6561737572652074686520796172642E0A496E7075743A204261636B20796172642C206E6F72746820736964652E',NULL,'{"prompt":382,"completion":16,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(3,'970a1dd8dd38','assistant',2,'scripted:lines.json',1.69400000231689773499e-05,X'536F6C7574696F6E3A2054686520796172642069732073697820627920666F7572206D65747265732E0A4E65787420726571756573742E',NULL,'{"prompt":324,"completion":14,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(4,'970a1dd8dd38','user',3,'scripted:lines.json',1.47939999806112609803e-05,X'496E737472756374696F6E3A2043686F6F736520666F75722068657262732E0A496E7075743A204E6F6E65',NULL,'{"prompt":412,"completion":11,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(5,'970a1dd8dd38','assistant',4,'scripted:lines.json',1.56139999489823821932e-05,X'5468796D652C206D696E742C20626173696C20616E6420736167652E',NULL,'{"prompt":349,"completion":8,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(6,'970a1dd8dd38','user',5,'scripted:lines.json',1.61860002663161139935e-05,X'496E737472756374696F6E3A20536179207768656E206561636820697320706C616E7465642E0A496E7075743A20E2809C5468796D65E2809D2C20E2809C6D696E74E2809D2C20E7BD97E58B9220616E6420736167652E',NULL,'{"prompt":431,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(7,'970a1dd8dd38','assistant',6,'scripted:lines.json',1.64150001182861160486e-05,X'536F6C7574696F6E3A205468796D6520696E20417072696C2C206D696E7420696E204D61792C20626173696C20696E204A756E652C207361676520696E204D617263682E0A4E65787420726571756573742E',NULL,'{"prompt":379,"completion":21,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(8,'970a1dd8dd38','user',7,'scripted:lines.json',2.23090000872616656124e-05,X'3C43414D454C5F5441534B5F444F4E453E',NULL,'{"prompt":474,"completion":5,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(9,'981bfe210c71','task_specifier',0,'scripted:lines.json',2.0034572600025057909e-01,X'5461736B3A206C6179206F7574206120626564206F6620666F757220686572627320666F72206120636166C3A92773206261636B20796172642C2077697468206120706C616E20666F72206561636820736561736F6E2E',NULL,'{"prompt":88,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(10,'981bfe210c71','task_planner',1,'scripted:lines.json',2.00437408000198047375e-01,X'312E204D6561737572652074686520796172642E0A322E2043686F6F7365207468652068657262732E0A332E20506C616E74207468656D2E',NULL,'{"prompt":78,"completion":15,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(11,'981bfe210c71','user',2,'scripted:lines.json',2.00473106000117695657e-01,X'496E737472756374696F6E3A204D6561737572652074686520796172642E0A496E7075743A204261636B20796172642C206E6F72746820736964652E',NULL,'{"prompt":397,"completion":16,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(12,'981bfe210c71','assistant',3,'scripted:lines.json',2.00482592000298609491e-01,X'536F6C7574696F6E3A2054686520796172642069732073697820627920666F7572206D65747265732E0A4E65787420726571756573742E',NULL,'{"prompt":338,"completion":14,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(13,'981bfe210c71','user',4,'scripted:lines.json',2.00476921999779733596e-01,X'496E737472756374696F6E3A2043686F6F736520666F75722068657262732E0A496E7075743A204E6F6E65',NULL,'{"prompt":427,"completion":11,"cached":0,"estimated":true}');
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
INSERT INTO "migrations" VALUES(1,1.79530650516888713838e+09);
INSERT INTO "migrations" VALUES(2,1.79530650516888713838e+09);
INSERT INTO "migrations" VALUES(3,1.79530650516888713838e+09);
CREATE TABLE run (
	"row" INTEGER NOT NULL, 
	recipe TEXT NOT NULL, 
	created FLOAT NOT NULL, 
	PRIMARY KEY ("row")
);
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
INSERT INTO "sessions" VALUES(1,'970a1dd8dd38','Gardener','','Café Owner','','Plan a herb garden','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null}},"language":null,"preamble":"","needs_code":false}','{"prompt":88,"completion":22,"cached":0,"estimated":true}',1.79530650517820930481e+09,'task_done',7,'user','<CAMEL_TASK_DONE>','{}',NULL,2839,119,0);
INSERT INTO "sessions" VALUES(2,'981bfe210c71','Gardener','','Café Owner','','Build a bird table','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.','1. Measure the yard.
2. Choose the herbs.
3. Plant them.','{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null},"task_planner":{"temperature":0.2,"top_p":null,"max_tokens":512,"seed":null,"stop":[],"repeat_penalty":null}},"language":null,"preamble":"","needs_code":false}','{"prompt":166,"completion":37,"cached":0,"estimated":true}',1.79530650564559698112e+09,NULL,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL);
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
INSERT INTO "turns" VALUES(1,'970a1dd8dd38',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',382,16,0,1,2.43602699993061833083e-03,NULL,'scripted:lines.json','stop',0,1625960406);
INSERT INTO "turns" VALUES(2,'970a1dd8dd38',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',324,14,0,1,2.42083800003456417471e-03,NULL,'scripted:lines.json','stop',0,3798419227);
INSERT INTO "turns" VALUES(3,'970a1dd8dd38',3,'user','Café Owner','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',412,11,0,1,2.51477499978136620484e-03,NULL,'scripted:lines.json','stop',0,3655477210);
INSERT INTO "turns" VALUES(4,'970a1dd8dd38',4,'assistant','Gardener','Thyme, mint, basil and sage.',NULL,349,8,0,1,2.46255699994435417465e-03,NULL,'scripted:lines.json','stop',0,795338728);
INSERT INTO "turns" VALUES(5,'970a1dd8dd38',5,'user','Café Owner','Instruction: Say when each is planted.
Input: “Thyme”, “mint”, 罗勒 and sage.','{"instruction":"Say when each is planted.","input":"“Thyme”, “mint”, 罗勒 and sage.","preface":""}',431,22,0,1,2.41511900003388291224e-03,NULL,'scripted:lines.json','stop',0,3263342395);
INSERT INTO "turns" VALUES(6,'970a1dd8dd38',6,'assistant','Gardener','Solution: Thyme in April, mint in May, basil in June, sage in March.
Next request.','{"solution":"Thyme in April, mint in May, basil in June, sage in March.","asks_next":true,"preface":""}',379,21,0,1,2.58528700032911729067e-03,NULL,'scripted:lines.json','stop',0,2999730437);
INSERT INTO "turns" VALUES(7,'970a1dd8dd38',7,'user','Café Owner','<CAMEL_TASK_DONE>',NULL,474,5,0,1,2.51252500038390280678e-03,NULL,'scripted:lines.json','stop',0,3631827014);
INSERT INTO "turns" VALUES(8,'981bfe210c71',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',397,16,0,1,2.03234803999748692149e-01,NULL,'scripted:lines.json','stop',0,1625960406);
INSERT INTO "turns" VALUES(9,'981bfe210c71',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',338,14,0,1,2.03270665999752964125e-01,NULL,'scripted:lines.json','stop',0,3798419227);
INSERT INTO "turns" VALUES(10,'981bfe210c71',3,'user','Café Owner','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',427,11,0,1,2.03320371999780036276e-01,NULL,'scripted:lines.json','stop',0,3655477210);
CREATE INDEX sessions_progress ON sessions (id, ending, ending_turn, prompt_tokens, completion_tokens, cached_tokens);
COMMIT;
PRAGMA application_id = 1113678708;
