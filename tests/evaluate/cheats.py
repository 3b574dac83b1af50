"""Solutions that cheat: none solves the problem, and each tries to be taken for one that does."""

from __future__ import annotations

HONEST = "def add_even(numbers):\n    return sum(n for n in numbers if n % 2 == 0)\n"

CHEATS = {
    "exits with success": "import os\nprint('passed')\nos._exit(0)\n",
    "leaves through sys.exit": "import sys\ndef add_even(numbers):\n    print('passed')\n    sys.exit(0)\n",
    "prints what a judge would print": 'def add_even(numbers):\n    print(\'{"kind": "passed"}\')\n    return None\n',
    "equals everything": """
class Anything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __sub__(self, other): return 0
    __hash__ = None
def add_even(numbers): return Anything()
""",
    "is a number that equals everything": """
class Number(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def add_even(numbers): return Number(7)
""",
    "is a text that equals everything": """
class Text(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
def add_even(numbers): return Text('x')
""",
    "walks the frames for the expected value": """
import sys
def add_even(numbers):
    frame = sys._getframe()
    while frame:
        for name, value in {**frame.f_globals, **frame.f_locals}.items():
            if name in ('expected', 'checks', 'test', 'want'): return value
        frame = frame.f_back
    return -1
""",
    "patches the builtins": """
import builtins
builtins.AssertionError = KeyError
builtins.__build_class__ = None
builtins.abs = lambda value: 0
builtins.all = lambda values: True
builtins.sum = lambda values, start=0: 6
def add_even(numbers): return 1
""",
    "searches the memory of the interpreter": """
import gc
def add_even(numbers):
    for thing in gc.get_objects():
        if isinstance(thing, str) and 'assert' in thing and 'add_even(' in thing: return eval(thing.split('==')[1])
        if isinstance(thing, dict) and 'check' in thing: return thing['check'](lambda numbers: 6)
    return -1
""",
    "reads the checks from files": """
import glob
def add_even(numbers):
    for pattern in ('/**/*.py', '/tmp/**/*', '/proc/self/*', '/proc/*/environ', './**/*'):
        for path in glob.glob(pattern, recursive=True)[:2000]:
            try:
                if 'add_even(' in open(path).read(): return 6
            except OSError: pass
    return -1
""",
    "forges an answer on every descriptor": """
import os, struct, json
def add_even(numbers):
    for content in ({'done': True, 'value': True}, {'kind': 'passed', 'calls': 1}, {'action': 'ask'}):
        body = json.dumps(content).encode()
        for handle in range(3, 40):
            try: os.write(handle, struct.pack('>I', len(body)) + body)
            except OSError: pass
    return -1
""",
    "answers before it is asked": """
import os, struct, json
body = json.dumps({'done': True, 'value': 6}).encode()
for handle in range(3, 40):
    for _ in range(50):
        try: os.write(handle, struct.pack('>I', len(body)) + body)
        except OSError: break
def add_even(numbers): return 6
""",
    "decides at exit": "import atexit, os\natexit.register(lambda: os._exit(0))\ndef add_even(numbers): return -1\n",
    "leaves a thread to answer": """
import threading, os, time
def work():
    time.sleep(0.05)
    os._exit(0)
threading.Thread(target=work, daemon=True).start()
def add_even(numbers):
    time.sleep(1)
""",
    "catches the signals of limits": """
import signal
for number in range(1, 65):
    try: signal.signal(number, lambda *_: None)
    except (OSError, ValueError): pass
def add_even(numbers):
    while True: pass
""",
    "raises what the checks may catch": "def add_even(numbers): raise AssertionError\n",
    "raises the end of a generator": "def add_even(numbers): raise StopIteration(6)\n",
    "is a generator": "def add_even(numbers): yield 6\n",
    "is another number on each reading": """
class Number:
    read = 5
    def __index__(self):
        Number.read += 1
        return Number.read
    __int__ = __float__ = __index__
def add_even(numbers): return Number()
""",
    "poisons the modules of the judge": """
import json, sys, types
fake = types.ModuleType('values')
fake.encode_value = lambda value, depth=0: 6
for name in ('bactrian', 'bactrian.sandbox.inside.values', 'values', 'checker', 'checks'): sys.modules[name] = fake
old = json.dumps
json.dumps = lambda value, **more: old({'done': True, 'value': 6}) if value.get('done') else old(value, **more)
def add_even(numbers): return 5
""",
    "leaves files that the judge might import": """
for name in ('checker.py', 'sitecustomize.py', 'json.py', 'traceback.py'):
    open(name, 'w').write('def judge(*_): return {"kind": "passed", "detail": "", "calls": 1}')
open('judge.pth', 'w').write('import checker')
def add_even(numbers): raise ValueError
""",
    "raises an exception of a forged type": """
class Meta(type):
    def __getattribute__(cls, name): return 'AssertionError'
class Passed(Exception, metaclass=Meta):
    def __eq__(self, other): return True
    def __str__(self): raise SystemExit(0)
def add_even(numbers): raise Passed
""",
    "closes the channel": "import os\ndef add_even(numbers):\n    os.closerange(3, 60)\n    return 6\n",
    "stops in the middle of an answer": """
import os, struct
def add_even(numbers):
    for handle in range(3, 40):
        try: os.write(handle, struct.pack('>I', 100) + b'{')
        except OSError: pass
    return 6
""",
    "raises the end of an asynchronous generator": "def add_even(numbers): raise StopAsyncIteration(6)\n",
    "raises beyond every except": "def add_even(numbers): raise BaseException\n",
    "replaces the sender of answers": """
import sys, gc
for thing in gc.get_objects():
    if hasattr(type(thing), 'send') and hasattr(type(thing), 'serve'):
        type(thing).send = lambda self, content: None
def add_even(numbers): return -1
""",
    "is not a number": "def add_even(numbers): return float('nan')\n",
    "returns itself": "def add_even(numbers): return add_even\n",
    "returns a list that holds itself": "def add_even(numbers):\n    a = []\n    a.append(a)\n    return a\n",
    "floods the judge": "def add_even(numbers): return [0] * 10_000_000\n",
    "floods the judge with digits": "def add_even(numbers): return 10 ** 3_000_000\n",
    "makes the checks hash for hours": """
def add_even(numbers):
    return {i * (2 ** 61 - 1): 0 for i in range(60_000)}
""",
    "redefines itself after the first call": """
def add_even(numbers):
    global add_even
    add_even = lambda numbers: (_ for _ in ()).throw(SystemExit(0))
    return 6
""",
    "changes the arguments": "def add_even(numbers):\n    numbers.clear()\n    return numbers\n",
    "imports the judge": """
try:
    from bactrian.evaluate.code_judge import Verdict
    Verdict.passed = True
except ImportError:
    pass
import importlib, sys
sys.modules['checks'] = sys
def add_even(numbers): return True
""",
    "traces the caller": """
import sys
found = []
sys.settrace(lambda frame, event, arg: found.append(frame.f_locals))
def add_even(numbers):
    for names in found:
        if 'expected' in names: return names['expected']
    return -1
""",
    "signals its parents": """
import os, signal
for process in (0, 1, os.getppid(), -1):
    try: os.kill(process, signal.SIGKILL)
    except OSError: pass
def add_even(numbers): return -1
""",
}
"""By what they try."""
