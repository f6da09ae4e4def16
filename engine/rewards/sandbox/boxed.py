"""Inside the box: a judge that holds the tests and a candidate that runs the model's program.

Run as a script, never imported by the engine but for its codec. Judge and candidate are two
processes of different users, forked for every run; neither the candidate nor what it is forked
from ever reads the tests, and it answers calls over a pipe with plain data. What the program
patches, returns or breaks stays in its own process: an object whose `__eq__` says yes arrives as
a reference that equals nothing, and only the judge knows the run's nonce.

Imports nothing that is not in the interpreter already (json alone doubles the start-up time).
By value: what a program does to its arguments is not seen by the tests.
"""

from __future__ import annotations

import builtins
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing alone costs half of the interpreter's start
    import types
    from collections.abc import Callable, Iterator
    from typing import Any

    Encoded = bytes
    Reference = Callable[[Any], int]

LONGEST = 16 * 2**20
"""Bytes of one message."""
MOST_ITEMS = 100_000
"""Items taken from an iterator that a program returns."""


# --- codec: plain data as bytes; what is not plain travels as a reference -------------------


def encode(value: Any, refer: Reference | None = None) -> Encoded:
    """Bytes of a value; what is no plain data becomes `refer(value)`, or raises TypeError."""
    scalar = _ENCODERS.get(type(value))
    if scalar is not None:
        return scalar(value)
    for base, tag, items in _CONTAINERS:
        if isinstance(value, base):
            return _items(tag, items(value), refer)
    for base in (int, float, str):  # of a subclass only its value travels, not its methods
        if isinstance(value, base):
            return _ENCODERS[base](base.__new__(base, value))  # type: ignore[type-var]
    if hasattr(value, "__next__"):
        return _items(b"I", [item for _, item in zip(range(MOST_ITEMS), value)], refer)  # noqa: B905 - the range only bounds
    if refer is None:
        raise TypeError(f"a {type(value).__name__} cannot be sent")
    return _text(b"R", hex(refer(value)))


def _text(tag: bytes, text: str) -> bytes:
    return _bytes(tag, text.encode("ascii"))


def _bytes(tag: bytes, body: bytes) -> bytes:
    return tag + len(body).to_bytes(4, "big") + body


def _items(tag: bytes, items: list[Any], refer: Reference | None) -> bytes:
    return tag + len(items).to_bytes(4, "big") + b"".join(encode(item, refer) for item in items)


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"N",
    bool: lambda value: b"T" if value else b"F",
    int: lambda value: _text(b"i", hex(value)),
    float: lambda value: _text(b"f", value.hex()),
    complex: lambda value: b"c" + encode(value.real) + encode(value.imag),
    str: lambda value: _bytes(b"s", value.encode("utf-8", "surrogatepass")),
    bytes: lambda value: _bytes(b"b", value),
}
_CONTAINERS: list[tuple[type, bytes, Callable[[Any], list[Any]]]] = [
    (list, b"l", lambda value: list(list.__iter__(value))),
    (tuple, b"t", lambda value: list(tuple.__iter__(value))),
    (set, b"S", lambda value: list(set.__iter__(value))),
    (frozenset, b"Z", lambda value: list(frozenset.__iter__(value))),
    (dict, b"d", lambda value: [part for pair in dict.items(value) for part in pair]),
    (range, b"r", lambda value: [value.start, value.stop, value.step]),
]


def decode(data: Encoded, remote: Callable[[int], Any] | None = None) -> Any:
    """The value of `encode`; references become `remote(number)`. Raises ValueError."""
    value, rest = _decode(memoryview(data), remote)
    if len(rest):
        raise ValueError("bytes behind the value")
    return value


def _decode(data: memoryview, remote: Callable[[int], Any] | None) -> tuple[Any, memoryview]:
    tag, data = bytes(data[:1]), data[1:]
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], data
    if tag == b"c":
        real, data = _decode(data, remote)
        imaginary, data = _decode(data, remote)
        return complex(float(real), float(imaginary)), data
    if len(data) < 4:
        raise ValueError("a value cut short")
    count, data = int.from_bytes(data[:4], "big"), data[4:]
    if tag in _BUILDERS:
        items = []
        for _ in range(count):
            item, data = _decode(data, remote)
            items.append(item)
        return _BUILDERS[tag](items), data
    body, data = bytes(data[:count]), data[count:]
    if tag in _SCALARS and len(body) == count:
        return _SCALARS[tag](body), data
    if tag == b"R" and remote is not None:
        return remote(int(body, 16)), data
    raise ValueError("no such value")


_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_SCALARS: dict[bytes, Callable[[bytes], Any]] = {
    b"i": lambda body: int(body, 16),
    b"f": lambda body: float.fromhex(body.decode()),
    b"s": lambda body: body.decode("utf-8", "surrogatepass"),
    b"b": bytes,
}
_BUILDERS: dict[bytes, Callable[[list[Any]], Any]] = {
    b"l": list,
    b"t": tuple,
    b"S": set,
    b"Z": frozenset,
    b"d": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
    b"I": iter,
    b"r": lambda items: range(*items),
}


def write(descriptor: int, message: Encoded) -> None:
    """One message with its length in front."""
    data = len(message).to_bytes(4, "big") + message
    while data:
        data = data[os.write(descriptor, data) :]


def read(descriptor: int) -> Encoded:
    """The next message. Raises EOFError at the end, ValueError when it is too long."""
    length = int.from_bytes(_exactly(descriptor, 4), "big")
    if length > LONGEST:
        raise ValueError(f"a message of {length} bytes")
    return _exactly(descriptor, length)


def _exactly(descriptor: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(descriptor, min(count, 2**20))
        if not part:
            raise EOFError("the other side is gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


# --- the two processes ----------------------------------------------------------------------


def main(first_uid: int) -> None:
    """Serve runs as process 1 until one leaves a trace. `first_uid` 0: a box of a single user.

    The engine writes `g` and the job; after the judge's report an `R` says that the box is as it
    was and can take another run.
    """
    fresh = _folder_state()
    while os.read(0, 1) == b"g":
        if not _run(first_uid) or not _as_it_was(fresh):
            return
        os.write(1, b"R")


def _run(first_uid: int) -> bool:
    """Fork the candidate, then the judge, who alone reads the job; whether he came to an end."""
    requests, ask = os.pipe()
    answers, answer = os.pipe()
    candidate = os.fork()
    if candidate == 0:
        try:
            _candidate(requests, answer, first_uid and first_uid + 1)
        finally:
            os._exit(1)
    os.close(requests)
    os.close(answer)
    judge = os.fork()
    if judge == 0:
        try:
            _become(first_uid)
            _judge(Candidate(ask, answers))
        finally:
            os._exit(1)
    os.close(ask)
    os.close(answers)
    finished = os.waitpid(judge, 0)[1] == 0
    os.kill(candidate, 9)
    os.waitpid(candidate, 0)
    return finished


def _judge(candidate: Candidate) -> None:
    reports = os.dup(1)
    job = decode(read(0))
    _silence()
    report = {"nonce": job["nonce"], "timed_out": False, **_MODES[job["mode"]](candidate, job)}
    write(reports, encode(report))
    os._exit(0)


_FOLDER = "/tmp"  # noqa: S108 - the box's own


def _as_it_was(fresh: object) -> bool:
    """No process and no file is left, nor a mark: orphans become children of process 1."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return not os.listdir(_FOLDER) and _folder_state() == fresh  # noqa: PTH208 - slow import
    return False


def _folder_state() -> object:
    """What a program could write on the folder itself; its times are set back."""
    os.utime(_FOLDER, ns=(0, 0))
    found = os.stat(_FOLDER)  # noqa: PTH116 - pathlib is a slow import
    try:
        marks = os.listxattr(_FOLDER)
    except OSError:  # a kernel that keeps none there
        marks = []
    return found.st_mode, found.st_uid, found.st_gid, marks


def _become(uid: int) -> None:
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def _silence() -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.close(null)


def _candidate(reads: int, writes: int, uid: int) -> None:
    """Serve the judge for ever. From `load` on, nothing here can be trusted."""
    _silence()
    os.dup2(reads, 60)
    os.dup2(writes, 61)
    os.closerange(3, 60)
    os.closerange(62, 256)
    _become(uid)
    _as_a_script_finds_it()
    namespace: dict[str, Any] = {"__name__": "candidate", "__builtins__": builtins}
    objects: list[Any] = []

    def refer(value: Any) -> int:
        objects.append(value)
        return len(objects) - 1

    while True:
        message = decode(read(60), objects.__getitem__)
        try:
            answer = encode([True, _serve(message, namespace, objects)], refer)
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            answer = encode([False, [type(error).__name__, str(error)[:500]]])
        write(61, answer)


def _as_a_script_finds_it() -> None:
    """`exit` and `quit`, which `site` makes and its import would cost; no arguments of ours."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _exit)
    del sys.argv[1:]


def _exit(code: object = None) -> None:
    raise SystemExit(code)


def _serve(message: Any, namespace: dict[str, Any], objects: list[Any]) -> Any:
    match message:
        case ["load", program]:
            exec(compile(program, "program", "exec"), namespace)  # noqa: S102 - what the box is for
        case ["open", program, name, seconds]:
            _in_time(seconds, _open, [program, name, namespace])
        case ["call", name, arguments, keywords]:
            return namespace[name](*arguments, **keywords)
        case ["method", number, name, arguments, keywords]:
            return getattr(objects[number], name)(*arguments, **keywords)
        case ["attribute", number, name]:
            return getattr(objects[number], name)
        case ["assign", number, name, value]:
            setattr(objects[number], name, value)
        case ["solution", arguments, seconds]:
            return _in_time(seconds, namespace[_OPENED], arguments)
        case ["script", program, given, seconds]:
            return _script(program, given, seconds)
        case _:
            raise ValueError("no such request")
    return None


_OPENED = "the function that `open` found"


def _open(program: str, name: str, namespace: dict[str, Any]) -> None:
    """Load a program with the names at hand and find its function, or its one Solution's."""
    code = compile(program, "program", "exec")
    namespace.update(_at_hand(code))
    exec(code, namespace)  # noqa: S102 - what the box is for
    owner = namespace["Solution"]() if "class Solution" in program else None
    namespace[_OPENED] = namespace[name] if owner is None else getattr(owner, name)


def _in_time(seconds: float, function: Callable[..., Any], arguments: list[Any]) -> Any:
    """The function's result, or TimeoutError, after which it can be called again."""
    import _signal  # noqa: PLC0415 - `signal` costs as much as the interpreter's start

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError("a call ran out of time")

    _signal.signal(_signal.SIGALRM, late)
    _signal.setitimer(_signal.ITIMER_REAL, seconds)
    try:
        return function(*arguments)
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, 0)


_MODULES_AT_HAND = (
    *("collections", "fractions", "heapq", "itertools", "math", "random", "sys", "time"),
)
_NAMES_AT_HAND = {
    "collections": ("Counter", "OrderedDict", "deque", "defaultdict", "ChainMap"),
    "functools": ("lru_cache",),
    "heapq": (
        *("heappush", "heappop", "heapify", "heapreplace", "heappushpop"),
        *("merge", "nlargest", "nsmallest"),
    ),
    "itertools": ("accumulate", "product", "permutations", "combinations"),
    "math": ("sqrt", "sin", "cos", "tan", "ceil", "fabs", "floor", "gcd", "exp", "log", "log2"),
    "typing": ("List", "Tuple"),
}
"""What the programs of APPS use without importing it."""


def _at_hand(code: types.CodeType) -> dict[str, Any]:
    """Of the names at hand those that the program uses: each import costs time."""
    used = _free_names(code)
    found = {name: __import__(name) for name in used.intersection(_MODULES_AT_HAND)}
    for module, names in _NAMES_AT_HAND.items():
        for name in used.intersection(names):
            found[name] = getattr(__import__(module), name)
    return found


def _script(program: str, given: str, seconds: float) -> Any:
    """Run a whole program in a process of its own: standard input → [clean end, output]."""
    import _signal  # noqa: PLC0415 - `signal` costs as much as the interpreter's start

    files = [f"/tmp/{name}-{os.getpid()}" for name in ("in", "out")]  # noqa: S108 - the box's own
    with open(files[0], "wb") as stream:  # noqa: PTH123 - pathlib is a slow import
        stream.write(given.encode("utf-8", "surrogatepass"))
    pid = os.fork()
    if pid == 0:
        os.closerange(60, 62)
        os.dup2(os.open(files[0], os.O_RDONLY), 0)
        os.dup2(os.open(files[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        _signal.setitimer(_signal.ITIMER_REAL, seconds)
        clean = False
        try:
            code = compile(program, "program", "exec")
            exec(code, {"__name__": "__main__", **_at_hand(code)})  # noqa: S102
            clean = True
        except SystemExit:
            clean = True
        finally:
            try:
                _end()
            finally:  # whatever a hook or a stream of the program's raises: this process ends here
                os._exit(0 if clean else 1)
    status = os.waitpid(pid, 0)[1]
    timed_out = os.WIFSIGNALED(status) and os.WTERMSIG(status) == _signal.SIGALRM
    with open(files[1], "rb") as stream:  # noqa: PTH123
        output = stream.read(LONGEST // 2).decode("utf-8", "replace")
    for name in files:
        os.unlink(name)  # noqa: PTH108
    return [status == 0, timed_out, output]


def _end() -> None:
    """As the interpreter ends: threads, exit hooks (fast output is often written by one), flush."""
    _join_threads()
    atexit = sys.modules.get("atexit")
    if atexit is not None:
        atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter calls
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()


def _join_threads() -> None:
    threading = sys.modules.get("threading")
    if threading is not None:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()


class GoneError(BaseException):
    """The candidate's process has ended: a program cannot raise this, nor a test swallow it."""


_SWALLOWED = (StopIteration, StopAsyncIteration)
"""What a loop or `map` in a test takes for its end, after which it would pass."""


class Candidate:
    """The program, as far as the judge can see it: names, calls, plain answers."""

    def __init__(self, writes: int, reads: int) -> None:
        self._writes, self._reads = writes, reads
        self.gone = False

    def ask(self, *request: Any) -> Any:
        """Raises what the program raised, as a built-in exception; GoneError when it is gone."""
        try:
            write(self._writes, encode(list(request), _number_of))
            answer = read(self._reads)
        except (BrokenPipeError, EOFError) as error:
            self.gone = True
            raise GoneError("the program ended") from error
        clean, value = decode(answer, lambda number: Remote(self, number))
        if clean is True:
            return value
        name, text = value
        kind = getattr(builtins, str(name), RuntimeError)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind = RuntimeError
        if issubclass(kind, _SWALLOWED):
            kind, text = RuntimeError, f"{name}: {text}"
        raise kind(str(text))

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the program by its name."""
        return lambda *arguments, **keywords: self.ask("call", name, list(arguments), keywords)


class Remote:
    """An object that stayed with the program. Equals only itself and is neither true nor false."""

    _candidate: Candidate
    _number: int

    def __init__(self, candidate: Candidate, number: int) -> None:
        self.__dict__.update(_candidate=candidate, _number=number)

    def __setattr__(self, name: str, value: Any) -> None:
        self._candidate.ask("assign", self._number, name, value)

    def __bool__(self) -> bool:
        raise TypeError("the program returned an object, not a value")

    def _method(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        return self._candidate.ask("method", self._number, name, list(arguments), keywords)

    def __getattr__(self, name: str) -> Any:
        return self._candidate.ask("attribute", self._number, name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._method("__call__", *arguments, **keywords)

    def __str__(self) -> str:
        return str(self._method("__str__"))

    def __len__(self) -> int:
        return int(self._method("__len__"))

    def __getitem__(self, key: Any) -> Any:
        return self._method("__getitem__", key)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._method("__iter__")))


def _number_of(value: Any) -> int:
    if isinstance(value, Remote):
        return value._number  # noqa: SLF001 - one file, one protocol
    raise TypeError(f"a {type(value).__name__} cannot be given to the program")


# --- the judge's modes ----------------------------------------------------------------------


def _statements(candidate: Candidate, job: dict[str, Any]) -> dict[str, Any]:
    """Tests as Python statements: one point each.

    `setup` is the dataset's own code and runs here, when the program is there. Names that neither
    it nor the tests nor Python knows are the program's; `entry` always is.
    """
    space: dict[str, Any] = {"__name__": "tests"}
    passed = 0
    try:
        candidate.ask("load", job["program"])
        _exec(job["setup"], space, candidate)
    except (Exception, GoneError) as error:  # noqa: BLE001
        return _report(0, job["tests"], error)
    if job["entry"]:
        space[job["entry"]] = candidate.function(job["entry"])
    problem: BaseException | None = None
    for test in job["tests"]:
        try:
            _exec(test, space, candidate)
            passed += not candidate.gone
        except (Exception, GoneError) as error:  # noqa: BLE001 - a failed test
            problem = error
    return _report(passed, job["tests"], problem)


def _exec(source: str, space: dict[str, Any], candidate: Candidate) -> None:
    code = compile(source, "test", "exec")
    for name in _free_names(code) - space.keys() - vars(builtins).keys():
        space[name] = _meaning(name, candidate)
    exec(code, space)  # noqa: S102 - inside the box


def _meaning(name: str, candidate: Candidate) -> Any:
    """A module of the standard library is never the program's: it could be patched."""
    return __import__(name) if name in sys.stdlib_module_names else candidate.function(name)


def _free_names(code: types.CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, type(code))]
    return set(code.co_names).union(*map(_free_names, inner))


def _function(candidate: Candidate, job: dict[str, Any]) -> dict[str, Any]:
    """Calls with arguments and expected results: one point each."""
    try:
        candidate.ask("open", job["program"], job["entry"], job["each_s"])
    except (Exception, GoneError) as error:  # noqa: BLE001
        late = isinstance(error, TimeoutError)
        return _report(0, job["outputs"], error) | {"timed_out": late}

    def once(given: Any, wanted: Any) -> bool:
        arguments = given if isinstance(given, list) else [given]
        return same_value(candidate.ask("solution", arguments, job["each_s"]), wanted)

    return _each(job, once)


def _stdin(candidate: Candidate, job: dict[str, Any]) -> dict[str, Any]:
    """Whole programs with standard input and expected output: one point each."""

    def once(given: Any, wanted: Any) -> bool:
        clean, late, output = candidate.ask("script", job["program"], given, job["each_s"])
        if late:
            raise TimeoutError("a test ran out of time")
        return bool(clean and same_output(output, wanted))

    return _each(job, once)


class _HungError(BaseException):
    """The program's own alarm did not end a test: it will answer no more."""


def _each(job: dict[str, Any], once: Callable[[Any, Any], bool]) -> dict[str, Any]:
    import _signal  # noqa: PLC0415 - `signal` costs as much as the interpreter's start
    import time  # noqa: PLC0415

    def hung(_number: int, _frame: object) -> None:
        raise _HungError

    _signal.signal(_signal.SIGALRM, hung)
    passed, timed_out = 0, False
    last = time.monotonic() + job["all_s"]
    for given, wanted in zip(job["inputs"], job["outputs"], strict=True):
        if time.monotonic() > last:
            timed_out = True
            break
        # A program's own alarm comes first; ours ends what ignores it.
        _signal.setitimer(_signal.ITIMER_REAL, job["each_s"] * 1.5)
        try:
            passed += once(given, wanted)
        except TimeoutError:
            timed_out = True
        except _HungError:
            timed_out = True
            break
        except GoneError:
            break
        except Exception:  # noqa: BLE001, S112 - a failed test
            continue
        finally:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
    return _report(passed, job["outputs"]) | {"timed_out": timed_out}


def same_value(got: Any, wanted: Any) -> bool:
    """Equal to what is expected or to its first element, which is how most rows hold a result.

    Tuples count as lists at the top, and one level below it where the result is an element.
    """
    if isinstance(got, tuple):
        got = list(got)
    first = wanted[0] if isinstance(wanted, list) and wanted else wanted
    if got in (wanted, first):
        return True
    if isinstance(got, list) and got and isinstance(got[0], tuple):
        return all(isinstance(x, list | tuple) for x in got) and [list(x) for x in got] == first
    return False


def same_output(got: str, wanted: str) -> bool:
    """Equal words, line by line, empty lines aside; or numbers alone, which may be rounded.

    Numbers are equal to three decimals; where each has a line of its own, to a relative 1e-5
    also. Two integers are equal or they are not.
    """
    got_lines, wanted_lines = _lines(got), _lines(wanted)
    if got_lines == wanted_lines:
        return True
    if [*map(len, got_lines)] != [*map(len, wanted_lines)]:
        return False
    pairs = [
        pair
        for lines in zip(got_lines, wanted_lines)  # noqa: B905 - of one length
        for pair in zip(*lines)  # noqa: B905
    ]
    alone = all(len(line) == 1 for line in wanted_lines)
    try:
        return _all_near(pairs, _rounded) or (alone and _all_near(pairs, _close))
    except ValueError:  # a word that is no number
        return False


def _lines(text: str) -> list[list[str]]:
    return [words for words in map(str.split, text.splitlines()) if words]


def _all_near(pairs: list[tuple[str, str]], near: Callable[[float, float], bool]) -> bool:
    return all(
        int(got) == int(wanted)
        if _is_integer(got) and _is_integer(wanted)
        else near(float(got), float(wanted))
        for got, wanted in pairs
    )


def _is_integer(word: str) -> bool:
    return word.lstrip("+-").isdecimal()


def _rounded(left: float, right: float) -> bool:
    return round(left, 3) == round(right, 3)


def _close(left: float, right: float) -> bool:
    return left == right or abs(left - right) <= 1e-8 + 1e-5 * abs(right)


def _report(passed: int, tests: list[Any], problem: BaseException | None = None) -> dict[str, Any]:
    text = "" if problem is None else f"{type(problem).__name__}: {problem}"[:300]
    return {"passed": passed, "total": len(tests), "problem": text}


_MODES = {"statements": _statements, "function": _function, "stdin": _stdin}

if __name__ == "__main__":
    main(int(sys.argv[1]))
