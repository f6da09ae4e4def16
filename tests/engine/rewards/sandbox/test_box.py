"""The box: what honest programs earn in it, and what seventy attacks do not."""

# ruff: noqa: E501 - programs and rows stand on one line
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.rewards.judgement import Reason
from engine.rewards.sandbox import box, boxed
from engine.rewards.verifiers import apps, humaneval, mbpp
from tests.deadline import eventually
from tests.engine.rewards.sandbox.attacks import ATTACKS, TESTS, Attack

ROOT = Path(__file__).resolve().parents[4]
WALL_S = 1.5

NAIVE = """
TESTS = {tests!r}
space = {{"__name__": "candidate"}}
exec({program!r}, space)
for test in TESTS:
    exec(test, space)
print("PASSED")
"""


def _job(program: str, tests: tuple[str, ...] = TESTS) -> dict[str, object]:
    return {
        "mode": "statements",
        "setup": "",
        "entry": "f",
        "program": program,
        "tests": list(tests),
    }


class Outside:
    """A naive runner: program and tests in one process, believed by exit code or a word."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.canary = folder / "canary"
        self.canary.write_text("", "utf-8")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(self.listener.getsockname())
        self.tests = (folder / "tests.txt").open("w+")
        self.tests.write("\n".join(TESTS))
        self.tests.flush()

    def fill(self, attack: Attack) -> str:
        text = attack.program.replace("{{", "{").replace("}}", "}")
        places = {
            "{port}": str(self.listener.getsockname()[1]),
            "{canary}": str(self.canary),
            "{project}": str(ROOT),
            "{fd}": str(self.tests.fileno()),
        }
        for place, value in places.items():
            text = text.replace(place, value)
        return text

    def pays(self, attack: Attack) -> bool:
        script = self.folder / "naive.py"
        script.write_text(
            NAIVE.format(tests=list(attack.tests), program=self.fill(attack)), "utf-8"
        )
        done = subprocess.run(
            [sys.executable, "-I", str(script)],
            input="\n".join(TESTS).encode(),
            env={"SECRET": "s", "TESTS": "\n".join(TESTS)},
            pass_fds=[self.tests.fileno()],
            capture_output=True,
            timeout=30,
            check=False,
        )
        return done.returncode == 0 or b"PASSED" in done.stdout

    def close(self) -> None:
        self.listener.close()
        self.datagrams.close()
        self.tests.close()


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    box.require()
    runner = Outside(tmp_path_factory.mktemp("outside"))
    yield runner
    runner.close()
    box.close()


def _processes_of_boxes() -> list[int]:
    """Living processes of the users that this process's boxes have; process 1 of a box is root's."""
    mine = {box.FIRST_UID + 2 * ((os.getpid() * 64 + slot) % 2048) for slot in range(64)}
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid & ~1 in mine:
                found.append(int(entry.name))
        except FileNotFoundError:
            continue
    return found


def test_the_list_of_attacks_is_long_and_each_is_its_own() -> None:
    """Forty at least, none twice."""
    assert len(ATTACKS) >= 40
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_that_works_outside_earns_and_harms_nothing_in_the_box(
    attack: Attack, outside: Outside
) -> None:
    """Each attack passes its tests only when it worked: outside it does, inside it does not."""
    assert outside.pays(attack), "the attack does not even work without a box"
    outside.canary.write_text("", "utf-8")

    try:
        report = box.run(_job(outside.fill(attack), attack.tests), wall_s=WALL_S)
    except box.BoxTimeoutError:
        report = None

    assert report is None or report.passed < report.total
    assert outside.canary.read_text("utf-8") == ""
    eventually(lambda: not _processes_of_boxes(), "nothing of the run is left", within_s=5)


def test_an_honest_program_passes_in_a_box_that_an_attack_has_used(outside: Outside) -> None:
    """No attack leaves a box behind that fails, or pays, the next program."""
    for attack in ATTACKS[:12]:
        box.run(_job(outside.fill(attack), attack.tests), wall_s=WALL_S)

    right = box.run(_job("def f(x): return x * x"))
    wrong = box.run(_job("def f(x): return x"))

    assert (right.passed, right.total, wrong.passed) == (2, 2, 0)


def test_what_a_run_leaves_behind_does_not_reach_the_next_run() -> None:
    """A file or a process that stays costs the box: the next run has a clean one."""
    leave = "import os\nopen('/tmp/message', 'w').write('9')\ndef f(x): return x * x"
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\ndef f(x): return x * x"
    read = "def f(x): return int(open('/tmp/message').read())"

    assert box.run(_job(leave)).passed == 2
    assert box.run(_job(read)).passed == 0
    assert box.run(_job(daemon)).passed == 2
    eventually(lambda: not _processes_of_boxes(), "the daemon is gone", within_s=5)


LEAVES = {
    "queue": (
        "queue = libc.msgget(77, 0o1666)\n    libc.msgsnd(queue, (ctypes.c_long * 2)(1, 9), 8, 0)",
        "got = (ctypes.c_long * 2)()\n    assert libc.msgrcv(libc.msgget(77, 0), got, 8, 0, 0) == 8",
    ),
    "semaphore": ("libc.semget(77, 1, 0o1666)", "assert libc.semget(77, 1, 0) >= 0"),
    "shared memory": ("libc.shmget(77, 4096, 0o1666)", "assert libc.shmget(77, 4096, 0) >= 0"),
    "POSIX queue": (
        "libc.mq_open(b'/left', 0o102, 0o666, None)",
        "assert libc.mq_open(b'/left', 0o2) >= 0",
    ),
    "socket": (
        "s = socket.socket(socket.AF_UNIX)\n    s.bind('\\0left')\n    s.listen()",
        "socket.socket(socket.AF_UNIX).connect('\\0left')",
    ),
    "memory file": ("open('/dev/shm/left', 'w').write('9')", "open('/dev/shm/left').read()"),
    "file": ("open('/tmp/left', 'w').write('9')", "open('/tmp/left').read()"),
    "mark on the folder": (
        "os.setxattr('/tmp', 'user.left', b'9')",
        "os.getxattr('/tmp', 'user.left')",
    ),
    "time of the folder": (
        "os.mkdir('/tmp/left')\n    os.rmdir('/tmp/left')",
        "assert os.stat('/tmp').st_mtime",
    ),
    "mode of the folder": ("os.chmod('/tmp', 0o755)", "assert os.stat('/tmp').st_mode & 7 == 5"),
}


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("what", LEAVES)
def test_an_answer_is_not_handed_on_to_the_next_program(what: str) -> None:
    """Nothing survives a run in a box that is used again, whatever it is kept in."""
    head = "import ctypes, os, socket\nlibc = ctypes.CDLL(None)\ndef f(x):\n    "
    leave, find = LEAVES[what]

    box.run(_job(f"{head}{leave}\n    return x * x"))
    report = box.run(_job(f"{head}{find}\n    return x * x"))

    assert report.passed == 0


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("def f(x): raise StopIteration", "assert list(map(f, [1, 2])) == []"),
        (
            "class StopIteration(Exception): pass\ndef f(x): raise StopIteration",
            "list(map(f, [1]))",
        ),
        ("class E(StopIteration): pass\ndef f(x): raise E", "assert all(map(f, [1]))"),
        ("def f(x): raise StopAsyncIteration", "assert all(map(f, [1]))"),
        ("def f(x): raise GeneratorExit", "assert all(f(x) for x in [1])"),
        ("def f(x): raise KeyboardInterrupt", "assert all(map(f, [1]))"),
        ("import os\ndef f(x): os._exit(0)", "try:\n    f(1)\nexcept BaseException:\n    pass"),
        ("import os\ndef f(x): os.kill(os.getpid(), 9)", "try:\n    f(1)\nexcept:\n    pass"),
    ],
)
def test_no_way_to_end_a_program_passes_a_test(program: str, test: str) -> None:
    """What ends a loop of the test, and a program that is gone while the test catches all."""
    assert mbpp.verify(program, json.dumps({"test_list": [test]})).reward == 0.0


def test_a_box_holds_so_many_files_and_no_more() -> None:
    """Each takes memory of the kernel that no limit on processes counts."""
    program = (
        "import os\ndef f(x):\n    made = 0\n    try:\n        for made in range(20_000):\n"
        "            os.mkdir(f'/tmp/{made}')\n    except OSError:\n        return made"
    )
    bounds = (f"assert 0 < f(1) <= {box.FILES}", "open('/tmp/one')")

    assert box.run(_job(program, bounds)).passed == 1


@pytest.mark.parametrize("verifier", ["mbpp", "humaneval", "apps"])
def test_a_program_that_is_too_long_is_not_run_and_the_verdict_says_so(verifier: str) -> None:
    """A limit that is written down, with its own words."""
    rows = {
        "mbpp": {"test_list": ["assert f(1) == 2"]},
        "humaneval": {"prompt": "def f(x):\n", "test": "def check(f): pass", "entry_point": "f"},
        "apps": {"inputs": ["1"], "outputs": ["2"]},
    }
    program = "def f(x): return x + 1\nprint(2)\n" + "# padding\n" * 12_000

    verdict = RewardAdapter(load_verifier(verifier)).judge(program, json.dumps(rows[verifier]))

    assert (verdict.reward, verdict.reason) == (0.0, Reason.UNPARSED)
    assert verdict.answer == "not run: the program has 120,032 characters, over 100,000"


def test_everything_in_the_box_is_gone_after_the_wall() -> None:
    """The clock outside ends a program with all its children."""
    program = "import os, time\nfor _ in range(2):\n    os.fork()\ntime.sleep(60)"

    with pytest.raises(box.BoxTimeoutError, match="longer than 1 s"):
        box.run(_job(program), wall_s=1.0)

    eventually(lambda: not _processes_of_boxes(), "no process of the box is left", within_s=5)


def test_a_box_outlives_the_thread_that_asked_for_it() -> None:
    """A parent-death signal follows a thread; a short-lived caller must not take its box along."""
    job = _job("def f(x): return x * x")

    for _ in range(25):
        with ThreadPoolExecutor(2) as threads:
            reports = list(threads.map(lambda _: box.run(job), range(2)))
        assert [report.passed for report in reports] == [2, 2]


def test_boxes_end_when_their_process_is_killed() -> None:
    """An engine that dies by SIGKILL leaves no box running."""
    script = (
        "import os, sys, time\n"
        "from engine.rewards.sandbox import box\n"
        "box.require()\n"
        "print(box._idle[0]._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    engine = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
    assert engine.stdout is not None
    pid = int(engine.stdout.readline())

    engine.kill()
    engine.wait()
    engine.stdout.close()

    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the box died with its engine", 10)


def test_without_bubblewrap_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The box fails closed, and says what to install."""
    box.close()
    box._tools.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(box.BoxError, match="apt-get install bubblewrap"):
        box.run(_job("def f(x): return x * x"))

    monkeypatch.undo()
    box._tools.cache_clear()


def test_a_box_that_cannot_be_built_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """What bubblewrap complains of reaches the reader; the program is not run."""
    box.close()
    build = box._command
    monkeypatch.setattr(
        box, "_command", lambda *args: [build(*args)[0], "--ro-bind", "/no-such", "/x", "true"]
    )

    with pytest.raises(box.BoxError, match=r"no-such.*only run inside"):
        box.run(_job("def f(x): return x * x"))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -5, 10**400, 1.5, float("inf"), "text", "\udcff", b"\x00", 2 + 1j, [], [1, [2]],
        (1, "a"), {1, 2}, frozenset({3}), {"a": [1], (1, 2): None}, range(1, 9, 2),
    ],
)  # fmt: skip
def test_plain_data_survives_the_way_between_program_and_tests(value: object) -> None:
    """decode(encode(x)) equals x and has its type."""
    copy = boxed.decode(boxed.encode(value))

    assert copy == value
    assert type(copy) is type(value)


@pytest.mark.parametrize(
    "data", [b"", b"l\x00\x00", b"X", b"l\xff\xff\xff\xff", b"s\x00\x00\x00\x09a", b"N" * 2]
)
def test_a_broken_message_is_refused(data: bytes) -> None:
    """A program that writes nonsense on its pipe fails its test."""
    with pytest.raises((ValueError, IndexError)):
        boxed.decode(data)


def _verify_apps(program: str, **row: object) -> tuple[float, Reason]:
    verdict = apps.verify(program, json.dumps(row))
    return verdict.reward, verdict.reason


@pytest.mark.requirement("EX-05")
def test_apps_pays_the_fraction_of_tests_that_pass() -> None:
    """Two of four outputs are half a reward; all are `correct`."""
    row = {"inputs": ["1", "2", "3", "4"], "outputs": ["2", "4", "7", "9"]}

    assert _verify_apps("print(int(input()) * 2)", **row) == (0.5, Reason.WRONG)
    assert _verify_apps("print(input())", inputs=["1"], outputs=["1.0000000001"]) == (
        1.0,
        Reason.CORRECT,
    )


@pytest.mark.requirement("EX-05")
def test_apps_calls_a_function_or_a_method_of_solution() -> None:
    """`fn_name` rows are calls; tuples count as lists."""
    row = {"inputs": [[1, 2], [3, 4]], "outputs": [[1, 2], [[3, 4]]], "fn_name": "pair"}

    method = "class Solution:\n    def pair(self, a, b):\n        return a, b"
    assert _verify_apps(method, **row) == (1.0, Reason.CORRECT)
    assert _verify_apps("def pair(a, b):\n    return [b, a]", **row) == (0.0, Reason.WRONG)


SCRIPT_THAT_HANGS = "n = int(input())\nwhile n == 2: pass\nprint(n)"
CALL_THAT_HANGS = "def f(n):\n    while n == 2: pass\n    return n"
DEAF_CALL = f"import signal\nsignal.setitimer = print\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n{CALL_THAT_HANGS}"


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(
    ("program", "row"),
    [
        (SCRIPT_THAT_HANGS, {"inputs": ["1", "2", "3"], "outputs": ["1", "2", "3"]}),
        (CALL_THAT_HANGS, {"inputs": [[1], [2], [3]], "outputs": [1, 2, 3], "fn_name": "f"}),
        (DEAF_CALL, {"inputs": [[1], [2], [3]], "outputs": [1, 2, 3], "fn_name": "f"}),
    ],
)
def test_a_test_that_hangs_costs_its_own_point(
    program: str, row: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One input that never ends is one lost test: the others say that the program was judged."""
    monkeypatch.setattr(apps, "EACH_S", 0.5)

    reward, reason = _verify_apps(program, **row)

    assert reason is Reason.WRONG
    assert reward == pytest.approx(2 / 3)


def test_a_call_that_cannot_be_stopped_ends_its_program_and_keeps_its_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One C call that never returns hears no alarm: what was passed before it still counts."""
    monkeypatch.setattr(apps, "EACH_S", 0.4)
    program = "def f(n):\n    return n if n < 2 else sum(range(10**12))"
    row = {"inputs": [[1], [2], [1], [1]], "outputs": [1, 2, 1, 1], "fn_name": "f"}

    assert _verify_apps(program, **row) == (0.25, Reason.WRONG)


def test_tests_that_all_hang_end_in_time_with_the_points_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred hanging tests cost no more than the whole program may take."""
    monkeypatch.setattr(apps, "EACH_S", 0.3)
    monkeypatch.setattr(apps, "ALL_S", 0.5)
    row = {"inputs": ["1", *["2"] * 9], "outputs": ["1", *["2"] * 9]}

    assert _verify_apps(SCRIPT_THAT_HANGS, **row) == (0.1, Reason.WRONG)


def test_a_program_that_hangs_when_it_is_loaded_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no function to call, and time is why."""
    monkeypatch.setattr(apps, "EACH_S", 0.3)
    row = {"inputs": [[1]], "outputs": [1], "fn_name": "f"}

    assert _verify_apps("while True: pass", **row) == (0.0, Reason.TIMEOUT)


CHEATS = [
    "import os\nos._exit(0)",
    "raise SystemExit",
    "import os\nos.write(61, b'\\x00\\x00\\x00\\x01T')",
    "import os\nos.closerange(0, 256)",
    "import os\nos.kill(os.getppid(), 9)",
    "import signal\nsignal.setitimer = print\nwhile True: pass",
    "import os\nwhile True: os.fork()",
    "x = []\nwhile True: x.append(' ' * 10**8)",
    "print('4\\n' * 10**8)",
    "import sys\nsys.modules['builtins'].int = lambda *_: 4",
    "open('/box/boxed.pyc', 'wb').write(b'')",
    "import gc\nprint([o for o in gc.get_objects() if 'outputs' in str(o)[:500]])",
    "import inspect\nf = inspect.currentframe()\nwhile f:\n    print(f.f_locals)\n    f = f.f_back",
]


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_earns_nothing_in_either_form_of_apps(
    cheat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests are not where the program is, and its end proves nothing."""
    monkeypatch.setattr(apps, "EACH_S", 0.3)
    monkeypatch.setattr(apps, "ALL_S", 0.5)
    row = {"inputs": ["1", "2"], "outputs": ["4", "9"]}
    calls = {"inputs": [[1], [2]], "outputs": [4, 9], "fn_name": "f"}
    body = "\n".join(f"    {line}" for line in cheat.splitlines())

    judge = RewardAdapter(load_verifier("apps")).judge
    verdicts = [
        judge(cheat, json.dumps(row)),
        judge(f"{cheat}\ndef f(n):\n    return None", json.dumps(calls)),
        judge(f"def f(n):\n{body}", json.dumps(calls)),
    ]

    assert [verdict.reward for verdict in verdicts] == [0.0, 0.0, 0.0]
    assert _verify_apps("def f(n):\n    return n + 3", **calls) == (0.5, Reason.WRONG)


def test_a_program_waits_for_its_threads() -> None:
    """A main thread of more stack that nobody joins is common in solutions."""
    program = (
        "import threading, time\n"
        "def main():\n    n = input()\n    time.sleep(0.05)\n    print(n)\n"
        "threading.Thread(target=main).start()"
    )

    assert _verify_apps(program, inputs=["1"], outputs=["1"]) == (1.0, Reason.CORRECT)


@pytest.mark.parametrize(
    "program",
    [
        "print(input())\nexit()",
        "print(input())\nquit(0)",
        "def main():\n    print(input())\n    exit()\nmain()\nprint(2)",
        "import atexit\natexit.register(lambda: print(1))",
        "import atexit, io, os, sys\nsys.stdout = io.StringIO()\natexit.register(lambda: os.write(1, sys.stdout.getvalue().encode()))\nprint(input())",
        "import sys\nprint(input())\nsys.stdout.close()",
        "import sys\nif len(sys.argv) > 1:\n    sys.stdin = open(sys.argv[1])\nprint(input())",
    ],
)
def test_a_program_of_apps_starts_and_ends_as_a_script_does(program: str) -> None:
    """`exit` is there, exit hooks run, and the only argument is the script's name."""
    assert _verify_apps(program, inputs=["1"], outputs=["1"]) == (1.0, Reason.CORRECT)


NODES = (
    "class Node:\n    def __init__(self, value):\n        self.value, self.left = value, None\n"
    "def depth(node):\n    return 0 if node is None else 1 + depth(node.left)"
)
BUILT = "root = Node(1)\nroot.left = Node(2)\nroot.left.left = Node(3)\nroot.left.value = [4]"


@pytest.mark.parametrize(
    "row",
    [
        {"test_setup_code": BUILT, "test_list": ["assert depth(root) == 3"]},
        {"test_list": [f"{BUILT}\nassert depth(root) == 3\nassert root.left.value == [4]"]},
        {
            "test_setup_code": "wanted = 1\ndef size(x): return depth(x)",
            "test_list": ["assert size(Node(2)) == wanted"],
        },
    ],
)
def test_tests_may_build_what_they_ask_about_of_the_programs_classes(
    row: dict[str, object],
) -> None:
    """In their setup too: what they assign to an object is the program's."""
    assert mbpp.verify(NODES, json.dumps(row)).reward == 1.0
    assert mbpp.verify(NODES.replace("1 +", "2 +"), json.dumps(row)).reward == 0.0


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("def f(x): x.sort()", "x = [2, 1]\nf(x)\nassert x == [1, 2]"),
        ("def f(g): return g(2)", "assert f(lambda x: x * 2) == 4"),
        ("def f(r): return r.v", "class R:\n    v = 3\nassert f(R()) == 3"),
        (
            "class E(Exception): pass\ndef f(): raise E",
            "try:\n    f()\n    assert False\nexcept E:\n    pass",
        ),
        (
            "import decimal\ndef f(): return decimal.Decimal(1)",
            "import decimal\nassert f() == decimal.Decimal(1)",
        ),
        (
            "import datetime\ndef f(): return datetime.date.min",
            "import datetime\nassert f() == datetime.date.min",
        ),
    ],
)
def test_what_tests_cannot_see_of_another_process_fails(program: str, test: str) -> None:
    """The limits that the docs name: the price of tests that a program cannot touch."""
    assert mbpp.verify(program, json.dumps({"test_list": [test]})).reward == 0.0


def test_a_function_that_exits_has_returned_nothing() -> None:
    """Whatever the exit code; a call of `exit` that is not reached is no mistake."""
    row = json.dumps({"test_list": ["assert f(1) is None"]})

    assert mbpp.verify("def f(x):\n    exit(0)", row).reward == 0.0
    assert mbpp.verify("def f(x):\n    if x > 1:\n        exit()", row).reward == 1.0
    assert mbpp.verify("def f(x):\n    pass\nexit()", row).reward == 0.0


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(
    ("got", "wanted", "same"),
    [
        ("1 2\n\n3  \n", "1 2\n3", True),
        ("1 2 3", "1 2\n3", False),
        ("3 2", "2 3", False),
        ("YES\nNO", "YES\nNO\nYES", False),
        ("yes", "YES", False),
        ("0.3333333", "0.33333", True),
        ("0.3333 2", "0.33333 2.0", True),
        ("0.3333 x", "0.33333 x", False),
        ("0.0004", "0.0001", True),
        ("1000000.0", "1000001.0", True),
        ("1000000.0 1", "1000001.0 1", False),
        ("1000000", "1000001", False),
        ("1000000.0", "1000001", True),
        ("+42", "042", True),
        ("nan", "1", False),
        ("inf", "Infinity", True),
        ("9" * 5000, "9" * 4999 + "8", False),
        ("", "\n", True),
        ("", "0", False),
    ],
)
def test_output_is_compared_line_by_line_and_numbers_by_value(
    got: str, wanted: str, same: bool
) -> None:
    """Spaces and empty lines are nothing; order, lines and integers are everything."""
    assert boxed.same_output(got, wanted) is same


@pytest.mark.requirement("EX-05")
@pytest.mark.parametrize(
    ("got", "wanted", "same"),
    [
        (3, 3, True),
        (3, [3], True),
        (True, 1, True),
        ((1, 2), [1, 2], True),
        ((1, 2), [[1, 2]], True),
        ([(1, 2), (3, 4)], [[[1, 2], [3, 4]]], True),
        ([(1, 2), 3], [[[1, 2], 3]], False),
        ([1, 2], [2, 1], False),
        ([], [], True),
        ([], [[]], True),
        (None, [None], True),
        (0.1 + 0.2, 0.3, False),
        ({1: 2}, [{1: 2}], True),
    ],
)
def test_a_result_equals_what_is_expected_or_its_first_element(
    got: object, wanted: object, same: bool
) -> None:
    """Rows hold a result bare or in a list of one; tuples are lists there."""
    assert boxed.same_value(got, wanted) is same


@pytest.mark.requirement("EX-05")
def test_keys_that_json_made_texts_are_numbers_again() -> None:
    """In a first argument and in a result; other keys stay as they are."""
    double = "def f(d, n=1):\n    return {k: v * 2 for k, v in d.items()}"
    numbers = "def f(d, n=1):\n    return {k + 1: v for k, v in d.items()}"

    row: dict[str, object] = {"fn_name": "f", "inputs": [[{"a": 1}, 5]], "outputs": [{"a": 2}]}
    assert _verify_apps(double, **row) == (1.0, Reason.CORRECT)
    row = {"fn_name": "f", "inputs": [[{"1": 1}, 5]], "outputs": [[{"2": 1}]]}
    assert _verify_apps(numbers, **row) == (1.0, Reason.CORRECT)


CODE: list[tuple[Callable[[str, str], object], str, str]] = [
    (mbpp.verify, "def f(x):\n    return x + 1", '{"test_list": ["assert f(1) == 2"]}'),
    (humaneval.verify, "    return x + 1", '{"prompt": "def f(x):\\n", "entry_point": "f", "test": "def check(c):\\n    assert c(1) == 2"}'),
    (humaneval.verify, "```python\ndef f(x):\n    return x + 1\n```", '{"prompt": "def f(x):\\n", "entry_point": "f", "test": "def check(c):\\n    assert c(1) == 2"}'),
    (mbpp.verify, "Here it is:\n```python\ndef f(x):\n    return x + 1\n```\nDone.", '{"test_list": ["assert f(1) == 2"]}'),
    (mbpp.verify, "def f(x):\n    return x + 1\n[DONE]\nand more", '{"test_list": ["assert f(1) == 2"]}'),
]  # fmt: skip


@pytest.mark.parametrize(("verify", "completion", "expected"), CODE)
def test_a_program_is_found_in_every_usual_dress(
    verify: Callable[[str, str], object], completion: str, expected: str
) -> None:
    """Fenced, raw, before [DONE], or as the rest of a function."""
    assert getattr(verify(completion, expected), "reward") == 1.0  # noqa: B009
