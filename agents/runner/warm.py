"""A Python program run in a fork of the zygote."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import gc
import importlib.machinery
import importlib.util
import io
import locale
import os
import pkgutil
import runpy
import signal
import site
import sys
import threading
import time
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from supervisor.host.procfs import slurp

# Process title
# -------------
# How a forked process shows itself in /proc: there it has the command line and the environment of the process that it was forked
# from.
#
# The daemon knows a runner by its command line and an agent's processes by the tag in their environment, so a fork has to show its
# own. Linux keeps both in memory of the process, which it may overwrite but not enlarge: whoever is to be forked is started with
# room to spare (`agents.zygote`). Elsewhere there is nothing to write to, and nothing is read either.


class Title:
    """The two areas of this process. A fork has them at the same addresses, so one look serves all forks."""

    __slots__ = ("_environment", "_words")

    def __init__(self) -> None:
        fields = slurp("/proc/self/stat").rpartition(b")")[2].split()
        start, end, env_start, env_end = map(int, fields[45:49]) if len(fields) >= 49 else (0, 0, 0, 0)  # fields 48 to 51 of proc(5)
        self._words = start, end - start
        self._environment = env_start, env_end - env_start

    def holds(self, words: Sequence[bytes]) -> bool:
        """Whether `words` fit whole; always where there is no place to show them."""
        return not self._words[0] or len(_joined(words)) <= self._words[1]

    def show(self, words: Sequence[bytes]) -> None:
        """Be shown with the command line `words`, cut to the room that there is."""
        _fill(*self._words, _joined(words))

    def show_environment(self, entries: Sequence[bytes]) -> None:
        """Be shown with the environment `entries`, `NAME=value`. `os.environ` must have been cleared: until then it lives in that place."""
        _fill(*self._environment, _joined(entries))


def _joined(words: Sequence[bytes]) -> bytes:
    return b"".join(word + b"\0" for word in words)


def _fill(start: int, size: int, data: bytes) -> None:
    """What is left of the area becomes NUL: with any other last byte the kernel shows the first word alone (proc(5), setproctitle)."""
    if start and size > 0:
        ctypes.memmove(start, data[: size - 1].ljust(size, b"\0"), size)


# Huge pages
# ----------
# Puts the memory of a process that is about to be forked often into huge pages.
#
# A fork copies its parent's page tables and gives them back as it ends: an entry for each 4 KiB that was ever written, or one for 2
# MiB. A page that a fork then writes is split from its huge page and copied alone, as without them; nobody has more memory for it.


SIZE = 2**21
"""Bytes of a huge page on x86-64, and on ARM with pages of 4 KiB; where it is another, the kernel refuses, and nothing changes."""
_MADV_COLLAPSE = 25
"""At once, and whatever the machine's setting for huge pages (Linux 6.1 and later, madvise(2)); nothing where there is none."""


def collapse() -> int:
    """Put what this process has written into huge pages, as far as the kernel has some free; how many it gave. Each costs about 3 ms."""
    try:
        madvise = ctypes.CDLL(None).madvise
    except (AttributeError, OSError):
        return 0
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(madvise(start, SIZE, _MADV_COLLAPSE) == 0 for start in written(slurp("/proc/self/maps")))


def written(maps: bytes) -> Iterator[int]:
    """Where a huge page fits into memory of its own that a process may write, by its `/proc/PID/maps` (proc(5)); not into a stack."""
    for line in maps.splitlines():
        area, mode, _, _, _, *name = line.split()
        if mode == b"rw-p" and name in ([], [b"[heap]"]):
            start, end = (int(address, 16) for address in area.split(b"-"))
            yield from range(-(-start // SIZE) * SIZE, end // SIZE * SIZE, SIZE)


# Venv
# ----
# The virtual environment that a zygote has preloaded from, and others that hold the very same files.
#
# An agent's worktree has its own copy of the template's `.venv`, at another path. Its program may be served what was preloaded from
# the template as long as importing it anew would run the same code. `matching` compares pyvenv.cfg, the names in `site-packages`
# (installing or removing anything changes those), and what was preloaded: a directory with the template's inode number and times is
# the template's, whose files do not change (an overlay shows it so until something in it is written, a link always); in any other,
# each preloaded file must have the template's size and time, by which Python decides whether a `.pyc` fits its source. (Directories
# first, because a preload of 3,000 modules in 99 directories costs 45 ms to compare by files.)
#
# `enter` then does in the fork what `site` does when an interpreter of that environment starts, its `.pth` files included. What was
# preloaded keeps its `__file__` and `__path__` in the template, which holds the same bytes and can be read, but never changed, in
# every sandbox: writing thousands of attributes anew would copy the memory that they lie in. What is imported later comes from the
# worktree, submodules too.


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory with preloaded files."""

    identity: tuple[int, int, int]
    """Of `_identity`."""
    files: tuple[tuple[str, int, int], ...]
    """Name, bytes, and time of change in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Preloaded:
    """The environment that modules were imported from, as it was then."""

    packages: str
    """Its `site-packages`."""
    names: frozenset[str]
    """What lies in there."""
    folders: Mapping[str, Folder]
    """Of each directory in there that something was preloaded from."""
    config: str
    """Its pyvenv.cfg."""
    path: tuple[str, ...]
    """`sys.path` without any other environment: the standard library, `packages`, and what preloaded modules added."""
    finders: tuple[Any, ...]
    """`sys.meta_path`, likewise."""
    apart: tuple[str, ...]
    """Names of modules in memory that are no part of it: nightcrew's own, and those it depends on."""

    @property
    def prefix(self) -> str:
        return _above(self.packages, 3)


_known: list[Preloaded] = []
_kept_venv: list[object] = []


def note(packages: str, modules: Iterable[str], finders: Iterable[Any], apart: Iterable[str]) -> None:
    """Remember that the files `modules`, all below `packages`, are preloaded; for forks to come. Does nothing when that is in no virtual
    environment, or in one that shares the packages of its base. Call it with the `sys.path` that they were imported with."""
    try:
        config = _text(f"{_above(packages, 3)}/pyvenv.cfg")
        names = _names(packages)
        folders = _folders(packages, modules)
    except OSError:
        return
    if not _shares(config):
        _known.append(Preloaded(packages, names, folders, config, tuple(sys.path), tuple(finders), tuple(apart)))


def matching(prefix: str) -> Preloaded | None:
    """What was preloaded, if the environment `prefix` would import the same; None when it would not, or has changed since."""
    for one in _known:
        inside = os.path.relpath(one.packages, one.prefix)
        packages = f"{prefix}/{inside}"
        try:
            config = _text(f"{prefix}/pyvenv.cfg")
            if config != one.config.replace(_above(one.prefix, 1), _above(prefix, 1)) or _names(packages) != one.names:
                continue
            if all(_is_same(f"{packages}/{name}", folder) for name, folder in one.folders.items()):
                return one
        except OSError:
            continue
    return None


def enter(preloaded: Preloaded, prefix: str) -> None:
    """Make this interpreter one of the environment `prefix`, which matches `preloaded`."""
    sys.prefix = sys.exec_prefix = prefix
    site.PREFIXES[:] = [prefix]
    site.ENABLE_USER_SITE = False
    _forget_configuration()
    sys.meta_path[:] = preloaded.finders
    if prefix != preloaded.prefix:
        _lead(preloaded.prefix, prefix)
    sys.path.clear()
    for entry in preloaded.path:
        if entry == preloaded.packages:
            site.addsitepackages(site.removeduppaths(), [prefix])
        else:
            sys.path.append(_moved(entry, preloaded.prefix, prefix) or entry)
    site.execsitecustomize()


def _lead(there: str, here: str) -> None:
    """From now on whatever is searched for below `there`, where preloaded packages look for their submodules, is found below `here`."""

    def hook(entry: str) -> Any:  # a PathEntryFinder
        moved = _moved(entry, there, here)
        finder = pkgutil.get_importer(moved) if moved else None
        if finder is None:
            raise ImportError(entry)
        return finder

    sys.path_hooks.insert(0, hook)
    _kept_venv.append(sys.path_importer_cache)  # to empty it would write into the memory of all that it holds
    sys.path_importer_cache = {}


def _moved(entry: str, there: str, here: str) -> str | None:
    return here + entry[len(there) :] if entry.startswith(f"{there}/") else None


def _forget_configuration() -> None:
    """`sysconfig` remembers the prefix of the interpreter that imported it."""
    sysconfig: Any = sys.modules.get("sysconfig")
    if sysconfig is not None:
        sysconfig._PREFIX, sysconfig._EXEC_PREFIX, sysconfig._CONFIG_VARS = sys.prefix, sys.exec_prefix, None


def _shares(config: str) -> bool:
    keys = dict(line.lower().replace(" ", "").partition("=")[::2] for line in config.splitlines())
    return keys.get("include-system-site-packages") != "false"


def _names(packages: str) -> frozenset[str]:
    return frozenset(os.listdir(packages)) - {"__pycache__"}


def _folders(packages: str, files: Iterable[str]) -> dict[str, Folder]:
    inside: dict[str, list[str]] = {}
    for file in files:
        folder, _, name = os.path.relpath(file, packages).rpartition("/")
        inside.setdefault(folder, []).append(name)
    return {
        folder: Folder(_identity(f"{packages}/{folder}"), tuple((name, *_stamp(f"{packages}/{folder}/{name}")) for name in names))
        for folder, names in inside.items()
    }


def _is_same(place: str, folder: Folder) -> bool:
    return _identity(place) == folder.identity or all(_stamp(f"{place}/{name}") == (size, time) for name, size, time in folder.files)


def _identity(folder: str) -> tuple[int, int, int]:
    """A directory that an overlay had to copy, to change something in it, has kept its number and its time of change, but not its ctime."""
    seen = os.stat(folder)
    return seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns


def _stamp(file: str) -> tuple[int, int]:
    seen = os.stat(file)
    return seen.st_size, seen.st_mtime_ns


def _text(file: str) -> str:
    with open(file, encoding="utf-8", errors="surrogateescape") as opened:
        return opened.read()


def _above(path: str, levels: int) -> str:
    for _ in range(levels):
        path = os.path.dirname(path)
    return path


# Python program
# --------------
# Which commands are Python programs that a warm process can run by itself, just as a new interpreter would.
#
# Only in a fork of the zygote, where imports cost nothing. The rule is: whatever could come out differently is left to exec. So the
# interpreter must be this one, in our own environment or in one with the very files that were preloaded (`venv`), and an option, a
# variable or a locale that works on the interpreter's start rules it out.


_HONOURED = frozenset("IEsPuBq")
"""Options that `agents.runner.warm` gives their meaning, or that have none for a program that is not interactive."""
_MAX_LINE = 256  # bytes of a first line that Linux looks at (BINPRM_BUF_SIZE)


@dataclass(frozen=True, slots=True)
class Program:
    """One Python program and how its interpreter was to be started."""

    words: tuple[str, ...]
    """The whole command as the kernel would run it: the interpreter with its path first, its options, the program, its arguments."""
    options: frozenset[str]
    """Of `I E s P u B q`."""
    module: str
    """What `-m` names; empty for a script."""
    script: str
    """Its path as it was given; empty for a module."""
    source: bytes
    """The script's; empty for a module."""
    arguments: tuple[str, ...]
    """What follows the module or the script."""
    prefix: str
    """The interpreter's virtual environment; empty when it is in none."""
    preloaded: Preloaded | None
    """What this process has of that environment; None when it is our own."""


def recognise(argv: Sequence[bytes], environment: Mapping[bytes, bytes]) -> Program | None:
    """The Python program that `argv` is for a process with this environment and working directory; None where only exec does it justice."""
    words = _with_interpreter(argv, environment.get(b"PATH", b"")) if _is_utf8(environment) else None
    if words is None or os.path.realpath(words[0]) != os.path.realpath(sys.executable):
        return None
    target = _target(words)
    if target is None or not _starts_alike(words[0], target[0], environment):
        return None
    options, module, at = target
    name, prefix = words[at], _prefix(words[0])
    source = b"" if module else _read_script(name)
    preloaded = None if _is_ours(prefix) else matching(prefix)
    if source is None or not (preloaded or _is_ours(prefix)):
        return None
    return Program(
        words=tuple(words),
        options=options,
        module=name if module else "",
        script="" if module else name,
        source=source,
        arguments=tuple(words[at + 1 :]),
        prefix=prefix if _in_venv(words[0]) else "",
        preloaded=preloaded,
    )


def _target(words: Sequence[str]) -> tuple[frozenset[str], bool, int] | None:
    """The interpreter's options, whether a module follows, and the place of its name or of the script's; None when one of them is not ours
    to honour, or nothing follows."""
    at = next((at for at, word in enumerate(words) if at and (word == "-m" or not word.startswith("-"))), len(words))
    options = frozenset("".join(word[1:] for word in words[1:at]))
    module = words[at : at + 1] == ["-m"]
    if "-" in words[1:at] or not options <= _HONOURED or at + module >= len(words):
        return None
    return options, module, at + module


def _is_utf8(environment: Mapping[bytes, bytes]) -> bool:
    """Whether Python would use UTF-8 there without its UTF-8 mode, which LC_ALL=C sets and a running process cannot."""
    of_all = environment.get(b"LC_ALL", b"")
    locale = of_all or environment.get(b"LC_CTYPE", b"") or environment.get(b"LANG", b"")
    return locale.lower().endswith((b".utf-8", b".utf8")) or (not of_all and locale in (b"", b"C", b"POSIX"))


def _starts_alike(python: str, options: frozenset[str], environment: Mapping[bytes, bytes]) -> bool:
    """Whether neither a variable nor the user's own site-packages, both of which this process has not looked at, would change its start."""
    if not options & {"I", "E"} and any(name.startswith(b"PYTHON") for name in environment):
        return False
    return bool(options & {"I", "s"}) or _in_venv(python)


def _with_interpreter(argv: Sequence[bytes], path: bytes) -> list[str] | None:
    """The command as the kernel would run it: found on the PATH, and with the interpreter that its first line names."""
    command = _find(os.fsdecode(argv[0]), os.fsdecode(path))
    rest = [os.fsdecode(word) for word in argv[1:]]
    if command is None:
        return None
    first = _first_line(command)
    if not first.startswith("#!"):
        return [command, *rest]
    interpreter, _, option = first[2:].strip(" \t").partition(" ")
    option = option.strip(" \t")
    if os.path.basename(interpreter) != "env":
        return [interpreter, *([option] if option else []), command, *rest]
    found = _find(option, os.fsdecode(path))
    return [found, command, *rest] if found is not None else None


def _find(command: str, path: str) -> str | None:
    places = [command] if "/" in command else [f"{directory}/{command}" for directory in path.split(":") if directory]
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def _first_line(command: str) -> str:
    try:
        with open(command, "rb") as file:
            start = file.read(_MAX_LINE)
    except OSError:
        return ""
    return os.fsdecode(start.partition(b"\n")[0]) if start.startswith(b"#!") and b"\n" in start else ""


def _is_ours(prefix: str) -> bool:
    return os.path.realpath(prefix) == os.path.realpath(sys.prefix)


def _prefix(python: str) -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(python)))


def _in_venv(python: str) -> bool:
    return os.path.isfile(os.path.join(_prefix(python), "pyvenv.cfg"))


def _read_script(path: str) -> bytes | None:
    """Its source; None for what is no plain source file: a directory, an archive, compiled code, another encoding, or nothing."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            source = file.read()
        importlib.util.decode_source(source)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return None if b"\0" in source else source


# Warm
# ----
# A Python program run in this very process, a fork of the zygote, instead of in a new interpreter.
#
# What a new interpreter does before and after a program is done here by hand: streams, path, `__main__`, signals, and at the end
# threads, `atexit` and every buffer. What stays the zygote's: the seed of string hashes (PYTHONHASHSEED; sets of strings have one
# order in all forks of a zygote), `sys.flags`, and whatever a preloaded module did when it was imported. `random` has a new seed
# (`os.fork` sees to it), and numpy's is set here. Objects from before the fork stay frozen: the garbage collector leaves them alone
# and their memory shared.


__all__ = ["OURS", "TITLE", "prepare", "recognise", "run"]

TITLE = Title()
OURS = ("agents", "supervisor", "worktrees")
"""Packages of nightcrew."""
_TAG = b"NIGHTCREW_TAG"  # supervisor.kernel.records.TAG_VARIABLE
_ours: list[str] = []
_kept: list[types.ModuleType] = []
_ballast: list[object] = []
_STEP, _SMALL, _POOL = 16, 512, 2**14  # of CPython's Objects/obmalloc.c: objects up to 512 bytes share pools with others of their size
_HEAD, _GAPS_MAX = sys.getsizeof(b""), 10_000
_UNFLUSHED = 120  # what Python exits with when stdout cannot be flushed at the end


def prepare() -> None:
    """To be called before the first fork, when everything is imported and collected, so that forks share more of its memory and cost less:
    a fork that went through all names would copy them, and one that fills the gaps which dead objects left would copy a page for each."""
    _ours[:] = [name for name in sys.modules if name.partition(".")[0] in OURS]
    _fill_gaps()
    collapse()


def _fill_gaps() -> None:
    _ballast.clear()
    for size in range(_STEP, _SMALL + 1, _STEP):
        filling = _filling(size)
        if len(filling) >= _GAPS_MAX:  # an allocator that lays nothing in rows, as a debugging one
            _ballast.clear()
            return
        _ballast.extend(filling)


def _filling(size: int) -> list[object]:
    """Objects of `size` bytes for every gap of that size: the last of them lie in a row, where there was nothing before."""
    held: list[object] = []
    row = 0
    while row < _POOL // size // 2 and len(held) < _GAPS_MAX:
        held.append(bytes(size - _HEAD) if size > _HEAD else complex(0, len(held)) if size > _STEP else object())
        row = row + 1 if len(held) > 1 and id(held[-1]) - id(held[-2]) == size else 0
    return held


def run(program: Program, argv: list[bytes], environment: Mapping[bytes, bytes]) -> NoReturn:
    """Become `program` and end as it ends. Only in a forked process with its handles, directory and limits in place."""
    TITLE.show(argv)
    os.environb.clear()
    TITLE.show_environment([name + b"=" + value for name, value in environment.items() if name == _TAG])
    os.environb.update(environment)
    time.tzset()
    _signals()
    _streams(program)
    _interpreter(program)
    code = _outcome(program)
    _end_threads_and_files()
    if code is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code or 0)


def _signals() -> None:
    """As Python starts: it ignores two, and Ctrl-C raises KeyboardInterrupt."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _streams(program: Program) -> None:
    errors = "surrogateescape" if _locale() in ("C", "C.UTF-8", "C.utf8", "UTF-8") else "strict"
    unbuffered = "u" in program.options
    sys.stdin = sys.__stdin__ = _stream(0, "r", errors, unbuffered=False)  # type: ignore[misc]  # they are Final for programs
    sys.stdout = sys.__stdout__ = _stream(1, "w", errors, unbuffered)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace", unbuffered)  # type: ignore[misc]


def _locale() -> str:
    """Set what decides how characters are classified, as Python does at its start (PEP 538); its name. `recognise` lets only UTF-8 pass."""
    try:
        name = locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:  # it is not installed here
        name = "C"
    if name == "C":
        with contextlib.suppress(locale.Error):  # nor is this one
            name = os.environ["LC_CTYPE"] = locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    return name


def _stream(handle: int, mode: str, errors: str, unbuffered: bool) -> io.TextIOWrapper[Any]:
    """What `create_stdio` in CPython's Python/pylifecycle.c makes."""
    raw = io.FileIO(handle, mode, closefd=False)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[handle]
    binary: Any = raw
    if not unbuffered:
        binary = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    by_line = not unbuffered and (raw.isatty() or handle == 2)
    text = io.TextIOWrapper(binary, "utf-8", errors, "\n", line_buffering=by_line, write_through=unbuffered)
    text.mode = mode  # type: ignore[misc]  # it is what CPython sets
    return text


def _interpreter(program: Program) -> None:
    sys.executable = os.path.abspath(program.words[0])
    if program.prefix:
        sys.prefix = sys.exec_prefix = program.prefix
    sys.orig_argv = list(program.words)
    sys.argv = [program.script or "-m", *program.arguments]  # runpy puts a module's file in the place of "-m"
    sys.dont_write_bytecode = "B" in program.options
    if program.preloaded is not None:
        _forget(program.preloaded.apart)
        enter(program.preloaded, program.prefix)
    if not program.options & {"I", "P"}:
        sys.path.insert(0, os.path.dirname(os.path.realpath(program.script)) if program.script else os.getcwd())
    if program.preloaded is not None or program.module.partition(".")[0] not in OURS:
        _forget(_ours)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if (temporary := sys.modules.get("tempfile")) is not None:
        # A preloaded module may have asked for it, under another TMPDIR.
        temporary.tempdir = None  # type: ignore[attr-defined]  # it is known as a module, not as which
    gc.enable()


def _forget(names: Iterable[str]) -> None:
    """A program may have packages of its own by these names. Ours stay alive, because taking them down would write to their memory."""
    _kept.extend(sys.modules.pop(name) for name in names if name in sys.modules)


def _outcome(program: Program) -> int | None:
    """Run it; the status to exit with, or None when an interrupt ended it."""
    try:
        _execute(program)
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:  # noqa: BLE001 - this is the outermost frame of a program, as the interpreter is for others
        failure = error
    else:
        return 0
    _say(failure, ours=2)
    return None if isinstance(failure, KeyboardInterrupt) else 1


def _execute(program: Program) -> None:
    main = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=builtins)
    sys.modules["__main__"] = main
    if program.module:
        runpy._run_module_as_main(program.module)  # type: ignore[attr-defined]  # what `python -m` itself calls
        return
    file = program.script if program.script.startswith("/") else f"{os.getcwd()}/{program.script.removeprefix('./')}"  # as _Py_abspath
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    main.__dict__.update(__file__=file, __cached__=None)
    code = compile(program.source, file, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - it is the program


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _say(error: BaseException, ours: int = 0) -> None:
    """As the interpreter says what ended a program, without our own first frames."""
    trace = error.__traceback__
    while trace is not None and ours:
        trace, ours = trace.tb_next, ours - 1
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException as broken:  # noqa: BLE001 - the program's own hook; Python then shows both by its own
        failure = broken
    else:
        return
    print("Error in sys.excepthook:", file=sys.stderr)
    below = failure.__traceback__ and failure.__traceback__.tb_next  # without this very frame
    sys.__excepthook__(type(failure), failure.with_traceback(below), below)
    print("\nOriginal exception was:", file=sys.stderr)
    sys.__excepthook__(type(error), error, trace)


def _end_threads_and_files() -> None:
    """What Py_FinalizeEx does, but for taking the modules down, which would copy all memory that is shared with the zygote."""
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]  # what the interpreter itself calls
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - an interrupt while it waits for threads must not keep the rest from being done
            _say(error)
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(_UNFLUSHED)
    files = [item for item in gc.get_objects() if issubclass(type(item), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom))]
    for file in sorted(files, key=lambda file: not isinstance(file, io.TextIOWrapper)):  # text first: it flushes into the others
        try:
            file.flush()
        except (OSError, ValueError):  # closed, or its reader is gone: Python ignores that of files nobody closed, too
            continue
    ctypes.pythonapi.fflush(None)  # the C library's buffers, which `os._exit` leaves alone
