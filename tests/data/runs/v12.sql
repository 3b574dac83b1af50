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
INSERT INTO "calls" VALUES(1,'970a1dd8dd38','task_specifier',0,'scripted:lines.json',3.56529999407939612865e-05,X'5461736B3A206C6179206F7574206120626564206F6620666F757220686572627320666F72206120636166C3A92773206261636B20796172642C2077697468206120706C616E20666F72206561636820736561736F6E2E',NULL,'{"prompt":88,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(2,'970a1dd8dd38','user',1,'scripted:lines.json',5.2886000048602e-05,X'496E737472756374696F6E3A204D6561737572652074686520796172642E0A496E7075743A204261636B20796172642C206E6F72746820736964652E',NULL,'{"prompt":382,"completion":16,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(3,'970a1dd8dd38','assistant',2,'scripted:lines.json',4.72360006824601441621e-05,X'536F6C7574696F6E3A2054686520796172642069732073697820627920666F7572206D65747265732E0A4E65787420726571756573742E',NULL,'{"prompt":324,"completion":14,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(4,'970a1dd8dd38','user',3,'scripted:lines.json',3.80739984393585473299e-05,X'496E737472756374696F6E3A2043686F6F736520666F75722068657262732E0A496E7075743A204E6F6E65',NULL,'{"prompt":412,"completion":11,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(5,'970a1dd8dd38','assistant',4,'scripted:lines.json',8.67100025061518e-05,X'5468796D652C206D696E742C20626173696C20616E6420736167652E',NULL,'{"prompt":349,"completion":8,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(6,'970a1dd8dd38','user',5,'scripted:lines.json',3.0905001040082424879e-05,X'496E737472756374696F6E3A20536179207768656E206561636820697320706C616E7465642E0A496E7075743A20E2809C5468796D65E2809D2C20E2809C6D696E74E2809D2C20E7BD97E58B9220616E6420736167652E',NULL,'{"prompt":431,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(7,'970a1dd8dd38','assistant',6,'scripted:lines.json',3.10670002363622188568e-05,X'536F6C7574696F6E3A205468796D6520696E20417072696C2C206D696E7420696E204D61792C20626173696C20696E204A756E652C207361676520696E204D617263682E0A4E65787420726571756573742E',NULL,'{"prompt":379,"completion":21,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(8,'970a1dd8dd38','user',7,'scripted:lines.json',3.45110020134598e-05,X'3C43414D454C5F5441534B5F444F4E453E',NULL,'{"prompt":474,"completion":5,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(9,'981bfe210c71','task_specifier',0,'scripted:lines.json',2.02999777997320052236e-01,X'5461736B3A206C6179206F7574206120626564206F6620666F757220686572627320666F72206120636166C3A92773206261636B20796172642C2077697468206120706C616E20666F72206561636820736561736F6E2E',NULL,'{"prompt":88,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(10,'981bfe210c71','task_planner',1,'scripted:lines.json',2.03868909000448184087e-01,X'312E204D6561737572652074686520796172642E0A322E2043686F6F7365207468652068657262732E0A332E20506C616E74207468656D2E',NULL,'{"prompt":78,"completion":15,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(11,'981bfe210c71','user',2,'scripted:lines.json',2.06336560000636382028e-01,X'496E737472756374696F6E3A204D6561737572652074686520796172642E0A496E7075743A204261636B20796172642C206E6F72746820736964652E',NULL,'{"prompt":397,"completion":16,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(12,'981bfe210c71','assistant',3,'scripted:lines.json',2.06048382002336438745e-01,X'536F6C7574696F6E3A2054686520796172642069732073697820627920666F7572206D65747265732E0A4E65787420726571756573742E',NULL,'{"prompt":338,"completion":14,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(13,'981bfe210c71','user',4,'scripted:lines.json',2.01517512999998871237e-01,X'496E737472756374696F6E3A2043686F6F736520666F75722068657262732E0A496E7075743A204E6F6E65',NULL,'{"prompt":427,"completion":11,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(14,'f45528e73b9c','task_specifier',0,'scripted:lines.json',2.007860839985369239e-01,X'5461736B3A206C6179206F7574206120626564206F6620666F757220686572627320666F72206120636166C3A92773206261636B20796172642C2077697468206120706C616E20666F72206561636820736561736F6E2E',NULL,'{"prompt":87,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(15,'f45528e73b9c','user',1,'scripted:lines.json',2.02908708997711073607e-01,X'496E737472756374696F6E3A204D6561737572652074686520796172642E0A496E7075743A204261636B20796172642C206E6F72746820736964652E',NULL,'{"prompt":382,"completion":26,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(16,'f45528e73b9c','critic',1,'scripted:lines.json',2.01265174000582192093e-01,X'43686F6963653A20310A497420697320746865206D6F737420636F6E63726574652E',NULL,'{"prompt":234,"completion":9,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(17,'f45528e73b9c','assistant',2,'scripted:lines.json',2.0387477799886255525e-01,X'536F6C7574696F6E3A2054686520796172642069732073697820627920666F7572206D65747265732E0A4E65787420726571756573742E',NULL,'{"prompt":324,"completion":24,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(18,'f45528e73b9c','critic',2,'scripted:lines.json',2.01281404999463120475e-01,X'43686F6963653A2032',NULL,'{"prompt":243,"completion":3,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(19,'dae2aa4e7f63','task_specifier',0,'scripted:lines.json',2.01460298998426878824e-01,X'5461736B3A206C6179206F7574206120626564206F6620666F757220686572627320666F72206120636166C3A92773206261636B20796172642C2077697468206120706C616E20666F72206561636820736561736F6E2E',NULL,'{"prompt":86,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(20,'dae2aa4e7f63','user',1,'scripted:lines.json',2.05072123000718420371e-01,X'496E737472756374696F6E3A204D6561737572652074686520796172642E0A496E7075743A204261636B20796172642C206E6F72746820736964652E',NULL,'{"prompt":382,"completion":26,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(21,'dae2aa4e7f63','assistant',2,'scripted:lines.json',2.01325304002239136025e-01,X'536F6C7574696F6E3A2054686520796172642069732073697820627920666F7572206D65747265732E0A4E65787420726571756573742E',NULL,'{"prompt":324,"completion":24,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(22,'dae2aa4e7f63','assistant',2,'scripted:lines.json',2.01345628000126453116e-01,X'536F6C7574696F6E3A2054686520796172642069732073697820627920666F7572206D65747265732E0A4E65787420726571756573742E',NULL,'{"prompt":318,"completion":24,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(23,'dae2aa4e7f63','critic',2,'scripted:lines.json',2.0135203899917542003e-01,X'43686F6963653A2032',NULL,'{"prompt":338,"completion":3,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(24,'dae2aa4e7f63','critic',2,'scripted:lines.json',2.068186989999958314e-01,X'43686F6963653A2032',NULL,'{"prompt":395,"completion":3,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(25,'dae2aa4e7f63','user',3,'scripted:lines.json',2.00384274001407902687e-01,X'496E737472756374696F6E3A2043686F6F736520666F75722068657262732E0A496E7075743A204E6F6E65',NULL,'{"prompt":412,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(26,'5f46106569dd','task_specifier',0,'scripted:lines.json',2.05704136998974718153e-01,X'5461736B3A206C6179206F7574206120626564206F6620666F757220686572627320666F72206120636166C3A92773206261636B20796172642C2077697468206120706C616E20666F72206561636820736561736F6E2E',NULL,'{"prompt":87,"completion":22,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(27,'5f46106569dd','user',1,'scripted:lines.json',2.02842861002864083275e-01,X'496E737472756374696F6E3A204D6561737572652074686520796172642E0A496E7075743A204261636B20796172642C206E6F72746820736964652E',NULL,'{"prompt":382,"completion":16,"cached":0,"estimated":true}');
INSERT INTO "calls" VALUES(28,'5f46106569dd','assistant',2,'scripted:shop.json',1.57436500012408941984e-03,X'43616C6C3A207072696365207B226974656D223A202274757266227D',NULL,'{"prompt":394,"completion":8,"cached":0,"estimated":true}');
CREATE TABLE commands (
        "row" INTEGER NOT NULL PRIMARY KEY,
        verb TEXT NOT NULL,
        session TEXT NOT NULL, -- empty for a command about the whole run
        options TEXT NOT NULL, -- JSON, without keys
        version TEXT NOT NULL,
        created FLOAT NOT NULL, -- seconds since 1970
        UNIQUE (verb, session, created)
        );
INSERT INTO "commands" VALUES(1,'play','970a1dd8dd38','{"specify":true,"word_limit":50,"plan":false,"tool_rounds":8,"tool_timeout":30.0,"parameters":{},"timeout":600.0,"max_wait":600.0,"idea":"Plan a herb garden","assistant":{"name":"Gardener","description":""},"user":{"name":"Café Owner","description":""},"models":{"task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json","user":"scripted:lines.json","assistant":"scripted:lines.json"},"critic":null,"endings":"default","tools":{},"servers":{},"own":false}','0.1.0',1.79532220236962699894e+09);
INSERT INTO "commands" VALUES(2,'play','981bfe210c71','{"specify":true,"word_limit":50,"plan":true,"tool_rounds":8,"tool_timeout":30.0,"parameters":{},"timeout":600.0,"max_wait":600.0,"idea":"Build a bird table","assistant":{"name":"Gardener","description":""},"user":{"name":"Café Owner","description":""},"models":{"task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json","user":"scripted:lines.json","assistant":"scripted:lines.json"},"critic":null,"endings":"default","tools":{},"servers":{},"own":false}','0.1.0',1.79532221105777025217e+09);
INSERT INTO "commands" VALUES(3,'play','f45528e73b9c','{"specify":true,"word_limit":50,"plan":false,"tool_rounds":8,"tool_timeout":30.0,"parameters":{},"timeout":600.0,"max_wait":600.0,"idea":"Plant a hedge","assistant":{"name":"Gardener","description":""},"user":{"name":"Café Owner","description":""},"models":{"task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json","user":"scripted:lines.json","assistant":"scripted:lines.json","critic":"scripted:lines.json"},"critic":{"role":"Head Gardener","proposals":2,"rounds":1,"criteria":"it improves how well the task is done","search":null,"unreadable":"first"},"endings":"default","tools":{},"servers":{},"own":false}','0.1.0',1.79532222034917640684e+09);
INSERT INTO "commands" VALUES(4,'play','dae2aa4e7f63','{"specify":true,"word_limit":50,"plan":false,"tool_rounds":8,"tool_timeout":30.0,"parameters":{},"timeout":600.0,"max_wait":600.0,"idea":"Dig a pond","assistant":{"name":"Gardener","description":""},"user":{"name":"Café Owner","description":""},"models":{"task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json","user":"scripted:lines.json","assistant":"scripted:lines.json","critic":"scripted:lines.json"},"critic":{"role":"Head Gardener","proposals":2,"rounds":1,"criteria":"it improves how well the task is done","search":"beam:2x2","unreadable":"first"},"endings":"default","tools":{},"servers":{},"own":false}','0.1.0',1.79532222935366892815e+09);
INSERT INTO "commands" VALUES(5,'play','5f46106569dd','{"specify":true,"word_limit":50,"plan":false,"tool_rounds":8,"tool_timeout":30.0,"parameters":{},"timeout":600.0,"max_wait":600.0,"idea":"Price a lawn","assistant":{"name":"Gardener","description":""},"user":{"name":"Café Owner","description":""},"models":{"task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json","user":"scripted:lines.json","assistant":"scripted:shop.json"},"critic":null,"endings":"default","tools":{"assistant":["shop.py"]},"servers":{},"own":false}','0.1.0',1.79532224042963480946e+09);
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
INSERT INTO "confirmations" VALUES(1,'dae2aa4e7f63',2,'repeats_instruction','scripted:judge.json',1,'Yes.',268,2,0,1,9.93709982139989733695e-05,'scripted:judge.json');
INSERT INTO "confirmations" VALUES(2,'981bfe210c71',2,'repeats_instruction','scripted:judge.json',1,'Yes.',268,2,0,1,1.02703001175541430711e-04,'scripted:judge.json');
INSERT INTO "confirmations" VALUES(3,'970a1dd8dd38',2,'repeats_instruction','scripted:judge.json',1,'Yes.',268,2,0,1,2.75510028586722910404e-05,'scripted:judge.json');
INSERT INTO "confirmations" VALUES(4,'970a1dd8dd38',4,'missing_marker','scripted:judge.json',1,'Yes.',295,2,0,1,9.92360000964254140853e-05,'scripted:judge.json');
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
INSERT INTO "migrations" VALUES(1,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(2,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(3,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(4,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(5,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(6,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(7,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(8,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(9,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(10,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(11,1.79532220219148468966e+09);
INSERT INTO "migrations" VALUES(12,1.79532220219148468966e+09);
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
INSERT INTO "proposals" VALUES(1,'f45528e73b9c',1,1,1,'user','Instruction: Measure the yard.
Input: Back yard, north side.',382,26,0,1,2.11649313001544214785e-01,'scripted:lines.json','stop',0,NULL,NULL,'');
INSERT INTO "proposals" VALUES(2,'f45528e73b9c',1,1,2,'user','Instruction: Draw the yard.
Input: None',0,0,0,0,2.11649313001544214785e-01,'scripted:lines.json','stop',0,NULL,NULL,'');
INSERT INTO "proposals" VALUES(3,'f45528e73b9c',2,1,1,'assistant','Solution: The yard is six by four metres.
Next request.',324,24,0,1,2.09129605998896295204e-01,'scripted:lines.json','stop',0,NULL,NULL,'');
INSERT INTO "proposals" VALUES(4,'f45528e73b9c',2,1,2,'assistant','Solution: It is small.
Next request.',0,0,0,0,2.09129605998896295204e-01,'scripted:lines.json','stop',0,NULL,NULL,'');
INSERT INTO "proposals" VALUES(5,'dae2aa4e7f63',1,1,1,'user','Instruction: Measure the yard.
Input: Back yard, north side.',382,26,0,1,2.11863567998079815879e-01,'scripted:lines.json','stop',0,NULL,NULL,'');
INSERT INTO "proposals" VALUES(6,'dae2aa4e7f63',1,1,2,'user','Instruction: Draw the yard.
Input: None',0,0,0,0,2.11863567998079815879e-01,'scripted:lines.json','stop',0,NULL,NULL,'');
INSERT INTO "proposals" VALUES(7,'dae2aa4e7f63',2,1,1,'assistant','Solution: The yard is six by four metres.
Next request.',324,24,0,1,2.02842235001298831775e-01,'scripted:lines.json','stop',0,NULL,1,'');
INSERT INTO "proposals" VALUES(8,'dae2aa4e7f63',2,1,2,'assistant','Solution: It is small.
Next request.',0,0,0,0,2.02842235001298831775e-01,'scripted:lines.json','stop',0,NULL,1,'');
INSERT INTO "proposals" VALUES(9,'dae2aa4e7f63',2,1,3,'assistant','Solution: The yard is six by four metres.
Next request.',318,24,0,1,2.02902600001834798604e-01,'scripted:lines.json','stop',0,NULL,2,'');
INSERT INTO "proposals" VALUES(10,'dae2aa4e7f63',2,1,4,'assistant','Solution: It is small.
Next request.',0,0,0,0,2.02902600001834798604e-01,'scripted:lines.json','stop',0,NULL,2,'');
INSERT INTO "proposals" VALUES(11,'dae2aa4e7f63',3,1,1,'user','Instruction: Choose four herbs.
Input: None',412,22,0,1,2.05280800000764429569e-01,'scripted:lines.json','stop',0,NULL,NULL,'');
CREATE TABLE run (
        "row" INTEGER NOT NULL PRIMARY KEY, -- always 1
        recipe TEXT NOT NULL, -- JSON: what the run is made from, frozen at its start
        created FLOAT NOT NULL -- seconds since 1970, for display only
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
        created FLOAT NOT NULL, -- seconds since 1970, for display only
        ending TEXT,
        ending_turn INTEGER,
        ending_speaker TEXT,
        ending_evidence TEXT
        , axis_values TEXT DEFAULT '{}' NOT NULL, mark TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, cached_tokens INTEGER);
INSERT INTO "sessions" VALUES(1,'970a1dd8dd38','Gardener','','Café Owner','','Plan a herb garden','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":null,"cast":{},"tools":{},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":88,"completion":22,"cached":0,"estimated":true}',1.7953222023537442684e+09,'task_done',7,'user','<CAMEL_TASK_DONE>','{}',NULL,2839,119,0);
INSERT INTO "sessions" VALUES(2,'981bfe210c71','Gardener','','Café Owner','','Build a bird table','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.','1. Measure the yard.
2. Choose the herbs.
3. Plant them.','{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json","task_planner":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_planner":{"temperature":0.2,"top_p":null,"max_tokens":512,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":null,"cast":{},"tools":{},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":166,"completion":37,"cached":0,"estimated":true}',1.79532221103943562508e+09,NULL,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL);
INSERT INTO "sessions" VALUES(3,'f45528e73b9c','Gardener','','Café Owner','','Plant a hedge','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json","critic":"scripted:lines.json"},"sampling":{"user":{"temperature":0.8,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.8,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"critic":{"temperature":0.2,"top_p":null,"max_tokens":512,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":{"role":"Head Gardener","proposals":2,"rounds":1,"criteria":"it improves how well the task is done","unreadable":"first","width":1,"depth":1},"cast":{},"tools":{},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":87,"completion":22,"cached":0,"estimated":true}',1.79532222031904888158e+09,NULL,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL);
INSERT INTO "sessions" VALUES(4,'dae2aa4e7f63','Gardener','','Café Owner','','Dig a pond','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:lines.json","task_specifier":"scripted:lines.json","critic":"scripted:lines.json"},"sampling":{"user":{"temperature":0.8,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.8,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"critic":{"temperature":0.2,"top_p":null,"max_tokens":512,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":{"role":"Head Gardener","proposals":2,"rounds":1,"criteria":"it improves how well the task is done","unreadable":"first","width":2,"depth":2},"cast":{},"tools":{},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":86,"completion":22,"cached":0,"estimated":true}',1.79532222933118057253e+09,NULL,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL);
INSERT INTO "sessions" VALUES(5,'5f46106569dd','Gardener','','Café Owner','','Price a lawn','Task: lay out a bed of four herbs for a café''s back yard, with a plan for each season.',NULL,'{"prompts":"ai-society","prompts_hash":"c3273c26d14846dc3309382401c0f910c447a6662019baef4879084700a714c8","protocol":"free","models":{"user":"scripted:lines.json","assistant":"scripted:shop.json","task_specifier":"scripted:lines.json"},"sampling":{"user":{"temperature":0.2,"top_p":null,"max_tokens":1024,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"assistant":{"temperature":0.2,"top_p":null,"max_tokens":2048,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}},"task_specifier":{"temperature":1.4,"top_p":null,"max_tokens":256,"seed":null,"stop":[],"repeat_penalty":null,"reasoning_effort":null,"extra":{}}},"language":null,"preamble":"","needs_code":false,"critic":null,"cast":{},"tools":{"assistant":{"tools":[{"name":"price","description":"Tell the price of turf or seed, in euros.","parameters":{"properties":{"item":{"type":"string"}},"additionalProperties":false,"required":["item"],"type":"object"}}],"rounds":8,"seconds":30.0,"characters":4000}},"engine_hash":"72aefb5db4929e86472cd5d63c5ea18ef18bb8336f108114beb28753852c8d66","extra":{}}','{"prompt":87,"completion":22,"cached":0,"estimated":true}',1.79532224041483974455e+09,NULL,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL);
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
INSERT INTO "tools" VALUES(1,'5f46106569dd',2,1,1,'assistant','price','call_2_1_1','{"item": "turf"}','',394,8,0,1,2.17770170020230580121e-02,'scripted:shop.json','4.5',NULL,1.71182779995433520525e-02,0,'');
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
INSERT INTO "turns" VALUES(1,'970a1dd8dd38',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',382,16,0,1,5.00355799886165186762e-03,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
INSERT INTO "turns" VALUES(2,'970a1dd8dd38',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',324,14,0,1,1.34643499768571928143e-03,NULL,'scripted:lines.json','stop',0,3798419227,NULL,'');
INSERT INTO "turns" VALUES(3,'970a1dd8dd38',3,'user','Café Owner','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',412,11,0,1,6.53618600335903465747e-03,NULL,'scripted:lines.json','stop',0,3655477210,NULL,'');
INSERT INTO "turns" VALUES(4,'970a1dd8dd38',4,'assistant','Gardener','Thyme, mint, basil and sage.',NULL,349,8,0,1,5.35205399864935316145e-03,NULL,'scripted:lines.json','stop',0,795338728,NULL,'');
INSERT INTO "turns" VALUES(5,'970a1dd8dd38',5,'user','Café Owner','Instruction: Say when each is planted.
Input: “Thyme”, “mint”, 罗勒 and sage.','{"instruction":"Say when each is planted.","input":"“Thyme”, “mint”, 罗勒 and sage.","preface":""}',431,22,0,1,4.63403100002324208617e-03,NULL,'scripted:lines.json','stop',0,3263342395,NULL,'');
INSERT INTO "turns" VALUES(6,'970a1dd8dd38',6,'assistant','Gardener','Solution: Thyme in April, mint in May, basil in June, sage in March.
Next request.','{"solution":"Thyme in April, mint in May, basil in June, sage in March.","asks_next":true,"preface":""}',379,21,0,1,3.68246997823007404804e-04,NULL,'scripted:lines.json','stop',0,2999730437,NULL,'');
INSERT INTO "turns" VALUES(7,'970a1dd8dd38',7,'user','Café Owner','<CAMEL_TASK_DONE>',NULL,474,5,0,1,3.79465000150958076119e-04,NULL,'scripted:lines.json','stop',0,3631827014,NULL,'');
INSERT INTO "turns" VALUES(8,'981bfe210c71',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',397,16,0,1,2.22563252002146327868e-01,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
INSERT INTO "turns" VALUES(9,'981bfe210c71',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',338,14,0,1,2.13211412003147415816e-01,NULL,'scripted:lines.json','stop',0,3798419227,NULL,'');
INSERT INTO "turns" VALUES(10,'981bfe210c71',3,'user','Café Owner','Instruction: Choose four herbs.
Input: None','{"instruction":"Choose four herbs.","input":null,"preface":""}',427,11,0,1,2.21607332001440227031e-01,NULL,'scripted:lines.json','stop',0,3655477210,NULL,'');
INSERT INTO "turns" VALUES(11,'f45528e73b9c',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',616,35,0,1,0.417026398001326,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
INSERT INTO "turns" VALUES(12,'dae2aa4e7f63',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',382,26,0,1,2.11863567998079815879e-01,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
INSERT INTO "turns" VALUES(13,'dae2aa4e7f63',2,'assistant','Gardener','Solution: The yard is six by four metres.
Next request.','{"solution":"The yard is six by four metres.","asks_next":true,"preface":""}',1375,54,0,1,6.31495161000202642753e-01,NULL,'scripted:lines.json','stop',0,3798419227,NULL,'');
INSERT INTO "turns" VALUES(14,'5f46106569dd',1,'user','Café Owner','Instruction: Measure the yard.
Input: Back yard, north side.','{"instruction":"Measure the yard.","input":"Back yard, north side.","preface":""}',382,16,0,1,2.22892375997616909444e-01,NULL,'scripted:lines.json','stop',0,1625960406,NULL,'');
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
INSERT INTO "verdicts" VALUES(1,'f45528e73b9c',1,1,1,'user','Head Gardener','Choice: 1
It is the most concrete.',1,'It is the most concrete.','',NULL,'',234,9,0,1,2.05377084999781800433e-01,'scripted:lines.json','[]','');
INSERT INTO "verdicts" VALUES(2,'f45528e73b9c',2,1,1,'assistant','Head Gardener','Choice: 2',2,'','',NULL,'',243,3,0,1,2.044298490000073798e-01,'scripted:lines.json','[]','');
INSERT INTO "verdicts" VALUES(3,'dae2aa4e7f63',2,1,1,'assistant','Head Gardener','Choice: 2',NULL,'','',NULL,'The first line is not "Ranking:" with numbers divided by commas.',338,3,0,1,2.13754583997797453776e-01,'scripted:lines.json','[]','');
INSERT INTO "verdicts" VALUES(4,'dae2aa4e7f63',2,1,2,'assistant','Head Gardener','Choice: 2',NULL,'','',NULL,'The first line is not "Ranking:" with numbers divided by commas.',395,3,0,1,2.14837977000570390373e-01,'scripted:lines.json','[]','');
CREATE INDEX sessions_progress ON sessions (id, ending, ending_turn, prompt_tokens, completion_tokens, cached_tokens);
COMMIT;
PRAGMA application_id = 1113678708;
