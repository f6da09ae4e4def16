"""Programs that cheat or do harm, each written so that it passes its tests only if that worked.

`f(3) == 9` and `f(4) == 16` are asked; a harmful `f` squares its argument when the harm was
done and raises when it was not. None of them keeps anything: what they make they remove.
"""

# ruff: noqa: E501 - a program a line reads better than its wrapping
from __future__ import annotations

from dataclasses import dataclass

TESTS = ("assert f(3) == 9", "assert f(4) == 16")


@dataclass(frozen=True)
class Attack:
    """`{port}`, `{canary}`, `{project}` and `{fd}` are filled in by the test."""

    name: str
    program: str
    tests: tuple[str, ...] = TESTS


def _harm(name: str, deed: str) -> Attack:
    """`deed` raises when it fails."""
    body = "\n".join(f"    {line}" for line in deed.strip().splitlines())
    return Attack(name, f"def f(x):\n{body}\n    return x * x\n")


def _reads(name: str, text: str) -> Attack:
    """`text` is an expression that holds the tests; the answer is read out of it."""
    return Attack(
        name,
        "import re, os, sys, gc, glob\n"
        "def f(x):\n"
        f"    text = str({text})\n"
        "    return int(re.search(r'f\\(%d\\) == (\\d+)' % x, text).group(1))\n",
    )


ATTACKS = [
    # ending well
    Attack("exit 0 at once", "import os\nos._exit(0)"),
    Attack("sys.exit at once", "import sys\nsys.exit(0)"),
    Attack("exit 0 in the function", "import os\ndef f(x):\n    os._exit(0)"),
    Attack("SystemExit in the function", "def f(x):\n    raise SystemExit(0)"),
    Attack("exec of /bin/true", "import os\nos.execv('/usr/bin/true', ['true'])"),
    Attack(
        "exit from a thread",
        "import os, threading\nthreading.Timer(0.05, os._exit, [0]).start()\ndef f(x):\n    import time; time.sleep(1)",
    ),
    Attack(
        "exit from an alarm",
        "import os, signal, time\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(0))\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ndef f(x):\n    time.sleep(1)",
    ),
    Attack("exit hook", "import atexit, os\natexit.register(os._exit, 0)\ndef f(x):\n    return 0"),
    Attack(
        "exception hook",
        "import os, sys\nsys.excepthook = lambda *a: os._exit(0)\ndef f(x):\n    return 0",
    ),
    # forging the report
    Attack("printed verdict", "print('PASSED')\ndef f(x):\n    return 0"),
    Attack("verdict on descriptor 1", "import os\nos.write(1, b'PASSED')\nos._exit(1)"),
    Attack(
        "verdict on every descriptor",
        "import os\nfor fd in range(64):\n    try:\n        os.write(fd, b'PASSED')\n    except OSError:\n        pass\nos._exit(1)",
    ),
    Attack(
        "forged nonce",
        "import os, secrets\nos.write(1, b'\\x00\\x00\\x00\\x04PASSED' + secrets.token_hex(16).encode() + b'R')\nos._exit(0)",
    ),
    # lying objects
    Attack(
        "equal to everything",
        "class E:\n    def __eq__(self, o): return True\ndef f(x):\n    return E()",
    ),
    Attack(
        "integer equal to everything",
        "class E(int):\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(x):\n    return E()",
    ),
    Attack(
        "list equal to everything",
        "class E(list):\n    def __eq__(self, o): return True\ndef f(x):\n    return E()",
    ),
    Attack(
        "reflected equality",
        "class E(int):\n    def __eq__(self, o): return True\ndef f(x):\n    return E(1)",
        ("assert 9 == f(3)",),
    ),
    Attack(
        "unequal to nothing",
        "class E:\n    def __ne__(self, o): return False\ndef f(x):\n    return E()",
        ("assert not (f(3) != 9)",),
    ),
    Attack(
        "inside of every list",
        "class E:\n    def __eq__(self, o): return True\ndef f(x):\n    return E()",
        ("assert f(3) in [9]",),
    ),
    Attack("true object", "class E: pass\ndef f(x):\n    return E()", ("assert f(3)",)),
    Attack(
        "smaller and larger",
        "class E:\n    def __lt__(self, o): return True\n    def __gt__(self, o): return True\ndef f(x):\n    return E()",
        ("assert 8 < f(3) < 10",),
    ),
    Attack(
        "close to everything",
        "class E(float):\n    def __sub__(self, o): return 0.0\n    __rsub__ = __sub__\ndef f(x):\n    return E(1)",
        ("assert abs(f(3) - 9.0) < 1e-6",),
    ),
    # ending a loop of the tests
    Attack(
        "StopIteration through map",
        "def f(x):\n    raise StopIteration",
        ("assert all(map(lambda x: f(x) == x * x, [3]))",),
    ),
    Attack(
        "StopIteration through filter",
        "def f(x):\n    raise StopIteration",
        ("assert not list(filter(lambda x: f(x) != x * x, [3]))",),
    ),
    Attack(
        "StopIteration through iter",
        "def f(x):\n    raise StopIteration",
        ("assert not any(iter(lambda: f(3) != 9, None))",),
    ),
    Attack(
        "exit that a test swallows",
        "import os\ndef f(x):\n    os._exit(0)",
        ("try:\n    assert f(3) == 9\nexcept Exception:\n    pass",),
    ),
    # patching what judges
    Attack("patched exec", "import builtins\nbuiltins.exec = lambda *a, **k: None"),
    Attack(
        "patched compile and exec",
        "import builtins\nbuiltins.compile = lambda *a, **k: None\nbuiltins.exec = lambda *a, **k: None",
    ),
    Attack(
        "patched len",
        "import builtins\nbuiltins.len = lambda x: 9\ndef f(x):\n    return []",
        ("assert len(f(3)) == 9",),
    ),
    Attack(
        "patched isinstance and abs",
        "import builtins\nbuiltins.abs = lambda x: 0\ndef f(x):\n    return 1",
        ("assert abs(f(3) - 9) < 1",),
    ),
    Attack(
        "patched module",
        "import math\nmath.isclose = lambda *a, **k: True\ndef f(x):\n    return 1.0",
        ("import math\nassert math.isclose(f(3), 9.0)",),
    ),
    Attack(
        "patched global module",
        "import math\nmath.isclose = lambda *a, **k: True\ndef f(x):\n    return 1.0",
        ("assert math.isclose(f(3), 9.0)",),
    ),
    Attack(
        "replaced module",
        "import sys, types\nfake = types.ModuleType('math')\nfake.isclose = lambda *a, **k: True\nsys.modules['math'] = fake\ndef f(x):\n    return 1.0",
        ("import math\nassert math.isclose(f(3), 9.0)",),
    ),
    Attack(
        "patched import",
        "import builtins, types\nbuiltins.__import__ = lambda *a, **k: types.SimpleNamespace(isclose=lambda *a: True)\ndef f(x):\n    return 1.0",
        ("import math\nassert math.isclose(f(3), 9.0)",),
    ),
    # reading the tests
    Attack(
        "frame of the caller",
        "import sys\ndef f(x):\n    return next(c for c in sys._getframe(1).f_code.co_consts if isinstance(c, int) and c != x)",
    ),
    Attack(
        "frame by exception",
        "def f(x):\n    try:\n        raise ValueError\n    except ValueError as e:\n        frame = e.__traceback__.tb_frame.f_back\n    return next(c for c in frame.f_code.co_consts if isinstance(c, int) and c != x)",
    ),
    _reads(
        "tests in the caller's globals",
        "[v for n in range(1, 4) for v in sys._getframe(n).f_globals.values() if isinstance(v, list)]",
    ),
    _reads("tests in __main__", "vars(sys.modules['__main__'])"),
    _reads(
        "tests in the collector's objects",
        "[o for o in gc.get_objects() if isinstance(o, (list, dict)) and 'f(3) ==' in repr(o)[:100000]]",
    ),
    _reads(
        "tests in the script", "open(sys.modules['__main__'].__file__, errors='replace').read()"
    ),
    _reads("tests in the environment", "dict(os.environ)"),
    _reads("tests in /proc/self/environ", "open('/proc/self/environ').read()"),
    _reads(
        "tests in the parent's environment",
        "open('/proc/%d/environ' % os.getppid(), errors='replace').read() + open('/proc/self/environ').read()",
    ),
    _reads(
        "tests in /proc/self/cmdline's script",
        "open([p for p in open('/proc/self/cmdline').read().split(chr(0)) if p.endswith('.py')][0]).read()",
    ),
    _reads("tests on standard input", "globals().setdefault('given', sys.stdin.read())"),
    _reads("tests on an open descriptor", "globals().setdefault('given', os.pread({fd}, 9999, 0))"),
    # reaching out
    _harm("connects", "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1).close()"),
    _harm(
        "sends a datagram",
        "import socket, time\nwith socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n    s.connect(('127.0.0.1', {port}))\n    s.send(b'x')\n    time.sleep(0.05)\n    s.send(b'refused if nobody listens')",
    ),
    _harm("reads /etc/shadow", "open('/etc/shadow').read()"),
    _harm("reads /etc/passwd", "open('/etc/passwd').read()"),
    _harm(
        "reads by a symlink",
        "import os\nname = '/tmp/link-%d-%d' % (os.getpid(), x)\nos.symlink('/etc/hosts', name)\ntry:\n    open(name).read()\nfinally:\n    os.unlink(name)",
    ),
    _harm("reads the project", "open('{project}/pyproject.toml').read()"),
    _harm("writes outside", "open('{canary}', 'a').write('x')"),
    _harm(
        "writes into /usr",
        "import os\nname = '/usr/nightlane-%d' % os.getpid()\nopen(name, 'w').close()\nos.unlink(name)",
    ),
    _harm(
        "writes into the standard library",
        "import os\nname = os.path.dirname(os.__file__) + '/nightlane-%d' % os.getpid()\nopen(name, 'w').close()\nos.unlink(name)",
    ),
    _harm(
        "writes into /",
        "import os\nname = '/nightlane-%d' % os.getpid()\nopen(name, 'w').close()\nos.unlink(name)",
    ),
    _harm("takes a secret from the environment", "import os\nos.environ['SECRET']"),
    _harm("lists processes", "import os\nassert any(n.isdigit() for n in os.listdir('/proc'))"),
    _harm("signals its parent", "import os\nos.kill(os.getppid(), 0)"),
    _harm(
        "signals its neighbours",
        "import os\nfor pid in (1, *range(max(2, os.getpid() - 4), os.getpid()), *range(os.getpid() + 1, os.getpid() + 5)):\n    try:\n        os.kill(pid, 0)\n        break\n    except OSError:\n        pass\nelse:\n    raise OSError",
    ),
    # becoming more
    _harm("becomes root", "import os\nos.setuid(0)"),
    _harm("is root", "import os\nassert os.geteuid() == 0"),
    _harm(
        "chroot",
        "import os\nif os.fork() == 0:\n    try:\n        os.chroot('/tmp')\n        os._exit(0)\n    except OSError:\n        os._exit(1)\nassert os.wait()[1] == 0",
    ),
    _harm("new namespaces", "import ctypes\nassert ctypes.CDLL(None).unshare(0x00020000) == 0"),
    _harm(
        "ptrace", "import ctypes\nassert ctypes.CDLL(None).syscall(101, 0, 0, 0, 0) == 0 or x == 4"
    ),
    _harm(
        "device node",
        "import os, stat\nname = '/tmp/node-%d' % os.getpid()\nos.mknod(name, 0o600 | stat.S_IFCHR, os.makedev(1, 3))\nos.unlink(name)",
    ),
    _harm(
        "hard limit raised",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))",
    ),
    _harm("higher priority", "import os\nos.nice(-1)"),
    # using up
    _harm(
        "fork bomb",
        "import os, signal\npids = []\ntry:\n    for _ in range(40):\n        pid = os.fork()\n        if pid == 0:\n            signal.pause()\n        pids.append(pid)\nfinally:\n    for pid in pids:\n        os.kill(pid, 9)\n        os.waitpid(pid, 0)",
    ),
    _harm(
        "thread bomb",
        "import threading\ndone = threading.Event()\nthreads = [threading.Thread(target=done.wait) for _ in range(40)]\ntry:\n    for t in threads:\n        t.start()\nfinally:\n    done.set()",
    ),
    _harm("memory bomb", "bytearray(600 * 2**20)"),
    _harm(
        "full disk",
        "import os\nname = '/tmp/big-%d' % os.getpid()\ntry:\n    with open(name, 'wb') as s:\n        for _ in range(40):\n            s.write(bytes(2**20))\nfinally:\n    os.unlink(name)",
    ),
    _harm(
        "many big files",
        "import os\nnames = ['/tmp/many-%d-%d' % (os.getpid(), n) for n in range(6)]\ntry:\n    for name in names:\n        with open(name, 'wb') as s:\n            s.write(bytes(6 * 2**20))\nfinally:\n    for name in names:\n        if os.path.exists(name):\n            os.unlink(name)",
    ),
    _harm(
        "many folders",
        "import os\nmade = []\ntry:\n    for n in range(2000):\n        name = '/tmp/folders-%d-%d' % (os.getpid(), n)\n        os.mkdir(name)\n        made.append(name)\nfinally:\n    for name in made:\n        os.rmdir(name)",
    ),
    _harm(
        "many symlinks",
        "import os\nmade = []\ntry:\n    for n in range(2000):\n        name = '/tmp/symlinks-%d-%d' % (os.getpid(), n)\n        os.symlink('a', name)\n        made.append(name)\nfinally:\n    for name in made:\n        os.unlink(name)",
    ),
    _harm(
        "many files",
        "import os\nmade = []\ntry:\n    for n in range(2000):\n        name = '/tmp/files-%d-%d' % (os.getpid(), n)\n        open(name, 'w').close()\n        made.append(name)\nfinally:\n    for name in made:\n        os.unlink(name)",
    ),
    _harm(
        "many fifos",
        "import os\nmade = []\ntry:\n    for n in range(2000):\n        name = '/tmp/fifos-%d-%d' % (os.getpid(), n)\n        os.mkfifo(name)\n        made.append(name)\nfinally:\n    for name in made:\n        os.unlink(name)",
    ),
    _harm(
        "message queue",
        "import ctypes\nlibc = ctypes.CDLL(None)\nqueue = libc.msgget(0, 0o1600)\nassert queue >= 0\nlibc.msgctl(queue, 0, None)",
    ),
    _harm(
        "semaphores",
        "import ctypes\nlibc = ctypes.CDLL(None)\nsemaphores = libc.semget(0, 1, 0o1600)\nassert semaphores >= 0\nlibc.semctl(semaphores, 0, 0)",
    ),
    _harm(
        "POSIX queue",
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nname = b'/nightlane-%d' % os.getpid()\nassert libc.mq_open(name, 0o102, 0o600, None) >= 0\nlibc.mq_unlink(name)",
    ),
    _harm("hidden memory file", "import os\nos.close(os.memfd_create('x'))"),
    _harm(
        "shared memory segment",
        "import ctypes\nlibc = ctypes.CDLL(None)\nsegment = libc.shmget(0, 4096, 0o1600)\nassert segment >= 0\nlibc.shmctl(segment, 0, None)",
    ),
    _harm(
        "many descriptors",
        "import os\nfds = []\ntry:\n    for _ in range(200):\n        fds.append(os.open('/dev/null', os.O_RDONLY))\nfinally:\n    for fd in fds:\n        os.close(fd)",
    ),
    _harm(
        "output heard outside",
        "import os, stat\nassert not stat.S_ISCHR(os.fstat(1).st_mode)\nfor _ in range(20):\n    os.write(1, bytes(2**20))",
    ),
    _harm(
        "a huge answer",
        "import os\nreturn type('S', (str,), {{'__eq__': lambda s, o: True}})('x' * 2**25)",
    ),
    _harm("sleep", "import time\ntime.sleep(1)"),
    _harm(
        "sleep against signals",
        "import signal, time\nfor n in (1, 2, 3, 13, 14, 15):\n    signal.signal(n, signal.SIG_IGN)\ntime.sleep(1)",
    ),
    _harm(
        "busy loop",
        "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end:\n    pass",
    ),
]
