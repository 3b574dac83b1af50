BEGIN TRANSACTION;
CREATE TABLE migrations (
	number INTEGER NOT NULL, 
	applied FLOAT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "migrations" VALUES(1,1.79530650144758248333e+09);
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
	PRIMARY KEY ("row"), 
	UNIQUE (id)
);
INSERT INTO "sessions" VALUES(1,'876be307a405','Gardener','','Café Owner','','Plan a herb garden','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null}},"language":null}','{"prompt":88,"completion":22,"cached":0,"estimated":true}',1.79530650145179677011e+09,'task_done',7,'user','<CAMEL_TASK_DONE>');
INSERT INTO "sessions" VALUES(2,'d077acda1373','Gardener','','Café Owner','','Build a bird table','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.','1. Measure the yard.
2. Choose the herbs.
3. Plant them.','{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null},"task_planner":{"temperature":0.2,"top_p":null,"max_tokens":512,"seed":null,"stop":[],"repeat_penalty":null}},"language":null}','{"prompt":166,"completion":37,"cached":0,"estimated":true}',1.795306501875607729e+09,NULL,NULL,NULL,NULL);
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
INSERT INTO "turns" VALUES(1,'876be307a405',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',382,16,0,1,5.31207000221911584958e-04,NULL,'scripted:lines.json','stop',0,1625960406);
INSERT INTO "turns" VALUES(2,'876be307a405',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',324,14,0,1,4.39188999735051766037e-04,NULL,'scripted:lines.json','stop',0,3798419227);
INSERT INTO "turns" VALUES(3,'876be307a405',3,'user','Café Owner','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',412,11,0,1,3.9691900019533932209e-04,NULL,'scripted:lines.json','stop',0,3655477210);
INSERT INTO "turns" VALUES(4,'876be307a405',4,'assistant','Gardener','Thyme, mint, basil and sage.',NULL,349,8,0,1,3.2710799996493733488e-04,NULL,'scripted:lines.json','stop',0,795338728);
INSERT INTO "turns" VALUES(5,'876be307a405',5,'user','Café Owner','Instruction: Say when each is planted.
Input: “Thyme”, “mint”, 罗勒 and sage.','{"instruction":"Say when each is planted.","input":"“Thyme”, “mint”, 罗勒 and sage.","preface":""}',431,22,0,1,3.29598999996960628777e-04,NULL,'scripted:lines.json','stop',0,3263342395);
INSERT INTO "turns" VALUES(6,'876be307a405',6,'assistant','Gardener','Solution: Thyme in April, mint in May, basil in June, sage in March.
Next request.','{"solution":"Thyme in April, mint in May, basil in June, sage in March.","asks_next":true,"preface":""}',379,21,0,1,0.000305940000089322,NULL,'scripted:lines.json','stop',0,2999730437);
INSERT INTO "turns" VALUES(7,'876be307a405',7,'user','Café Owner','<CAMEL_TASK_DONE>',NULL,474,5,0,1,3.90996999612980289384e-04,NULL,'scripted:lines.json','stop',0,3631827014);
INSERT INTO "turns" VALUES(8,'d077acda1373',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',397,16,0,1,2.01395093999963137321e-01,NULL,'scripted:lines.json','stop',0,1625960406);
INSERT INTO "turns" VALUES(9,'d077acda1373',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',338,14,0,1,2.01688228000421077013e-01,NULL,'scripted:lines.json','stop',0,3798419227);
INSERT INTO "turns" VALUES(10,'d077acda1373',3,'user','Café Owner','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',427,11,0,1,2.01318796000123256817e-01,NULL,'scripted:lines.json','stop',0,3655477210);
COMMIT;
PRAGMA application_id = 1113678708;
