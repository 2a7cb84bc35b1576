"""The last steps before the agent's own code runs: fork, put every limit in place, exec or (in a zygote's fork) run it as it is.

Everything here happens in the child, so the agent can never run without its limits, and nothing of the runner's (signal
dispositions, handles, environment) reaches it.
"""

# ruff: noqa: SIM105
# (contextlib costs several ms, see agents/runner/main.py)

import _ctypes
import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import NoReturn

    from agents.runner.loop import Spec
else:
    import _signal as signal

_RLIMIT_LOCKS = 10  # Linux keeps and inherits it but enforces nothing by it, so it can carry the attempt's mark
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SESSION_TRIES = 10
_SESSION_PAUSE_S = 0.11
_BEGUN = b"0"  # told when exec is not there to close the pipe


class StartError(Exception):
    """The agent never ran. `status` is what a shell would exit with: 127 for a command that is not there, else 126."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def adopt_orphans() -> None:
    """Make every orphan below this process its child. Linux only: elsewhere orphans that left the tree are lost."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start(spec: "Spec", streams: dict[int, int]) -> int:
    """Start the agent and return its pid once its own code runs. `streams` maps its handles (1, 2) to ours.

    Raises StartError with the kernel's words when any step fails; there is then no child left.
    """
    parent = os.getpid()
    report, told = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # until the child has dropped our handlers
    pid = os.fork()
    if pid == 0:
        _become_agent(spec, streams, parent, told)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(told)
    try:
        error = os.read(report, 4096)  # empty when exec closed the other end
    finally:
        os.close(report)
    if error not in (b"", _BEGUN):
        os.waitpid(pid, 0)
        status, _, detail = error.decode("utf-8", "replace").partition(" ")
        raise StartError(int(status), detail)
    return pid


def _become_agent(spec: "Spec", streams: dict[int, int], parent: int, told: int) -> "NoReturn":
    argv = [*spec.wrap, *spec.argv]
    command = os.fsdecode(argv[0])
    step = "process group"
    begun = False
    try:
        _take_terminal(spec)
        step = "signals"
        _reset_signals()
        _die_with(parent)
        step = "stdin"
        _connect(spec, streams, told)
        step = "control group"
        _join(spec.join)
        _take_share(spec, parent)
        step = f"working directory {os.fsdecode(spec.cwd)}"
        os.chdir(spec.cwd)
        step = "sandbox"
        _confine(spec)
        environment = _environment(spec)
        commands = _candidates(argv[0], environment.get(b"PATH", b""))
        program = _program(spec, environment)
        step = "limits"
        _limit(spec)
        step = command
        if program is not None or spec.policy:  # a sandbox may leave processes outside that hold `told`, so exec would not end it
            os.write(told, _BEGUN)
            begun = True
            os.close(told)
        if program is not None:
            program(argv, environment)
        _exec(commands, argv, environment)
    except BaseException as error:  # noqa: BLE001 - a forked child: nothing may unwind into the runner's own frames
        status = 127 if isinstance(error, FileNotFoundError) and step == command else 126
        words = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        text = f"nightcrew: {step}: {words}\n" if begun else f"{status} {step}: {words}"
        os.write(2 if begun else told, text.encode("utf-8", "replace")[:1000])
    os._exit(status)


def _take_terminal(spec: "Spec") -> None:
    """Leave the pane's terminal if the agent may not ask there: `/dev/tty` cannot be opened then, and the runner passes Ctrl-C on. Else
    lead a process group that is the terminal's foreground group, so that Ctrl-C reaches the agent."""
    if spec.detached:
        os.setsid()
        return
    os.setpgid(0, 0)
    try:
        os.tcsetpgrp(0, os.getpgrp())  # every signal is blocked here, SIGTTOU too
    except OSError:
        pass  # no terminal, or not ours


def _reset_signals() -> None:
    """Ignored signals survive exec, and Python ignores two by itself."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _die_with(parent: int) -> None:
    """Have the kernel kill the agent when the runner is killed: nobody would record it or hold it to its deadline any more."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)


def _connect(spec: "Spec", streams: dict[int, int], told: int) -> None:
    if spec.headless:
        os.dup2(os.open(spec.stdin or b"/dev/null", os.O_RDONLY), 0)
    for handle, ours in streams.items():
        os.dup2(ours, handle)
    os.closerange(3, told)
    os.closerange(told + 1, os.sysconf("SC_OPEN_MAX"))


def _join(files: list[bytes]) -> None:
    """Be in these control groups, and with us all that we fork. The sandbox hides the files."""
    for file in files:
        handle = os.open(file, os.O_WRONLY)
        os.write(handle, b"0")
        os.close(handle)


def _take_share(spec: "Spec", runner: int) -> None:
    """Take our class's share of the processor, also beside other sessions. A refusal of the host is no error: the share is no limit."""
    try:
        _join(spec.share)
    except OSError:
        pass  # somebody took the group away
    if not spec.nice or os.getsid(0) not in (runner, os.getpid()):  # the session belongs to neither of us: do not slow it down
        return
    for _ in range(_SESSION_TRIES):
        try:
            with open("/proc/self/autogroup", "wb") as file:
                file.write(b"%d" % spec.nice)
        except BlockingIOError:  # the kernel lets an ordinary user do it ten times a second
            time.sleep(_SESSION_PAUSE_S)
        except OSError:  # it shares no time between sessions
            return
        else:
            return


def _environment(spec: "Spec") -> dict[bytes, bytes]:
    """Exactly the spec's, plus the name of the terminal that the pane is."""
    environment = dict(spec.env)
    if b"TERM" in os.environb:
        environment[b"TERM"] = os.environb[b"TERM"]
    return environment


def _limit(spec: "Spec") -> None:
    """Last of all, because a small address space could keep this very code from running."""
    if spec.mark and sys.platform == "linux":
        try:
            resource.setrlimit(_RLIMIT_LOCKS, (spec.mark, spec.mark))
        except (OSError, ValueError):
            pass  # inside an attempt with a lower mark: the environment tag and the outer mark still find the tree
    if spec.nice:
        os.nice(spec.nice)
    if spec.idle and sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if spec.cores and sys.platform == "linux":
        os.sched_setaffinity(0, spec.cores)
    for name, value in [*spec.rlimits, ("CORE", 0)]:
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        most = value + (name == "CPU")  # XCPU says why it ends; KILL, for whoever goes on, would not
        if hard != resource.RLIM_INFINITY:  # a limit that is already tighter stays
            value, most = min(value, hard), min(most, hard)
        resource.setrlimit(number, (value, most))


def _confine(spec: "Spec") -> None:
    """Returns inside the sandbox, in the same directory, in a child of this process that the kernel ends with it."""
    if not spec.policy:
        return
    from supervisor.sandbox import namespaces  # only who needs it pays for it
    from supervisor.sandbox.namespaces import parse

    with open(spec.policy, "rb") as file:
        words = file.read().split(b"\0")[:-1]
    namespaces.enter(parse(list(map(os.fsdecode, words)))[0])


def _program(spec: "Spec", environment: dict[bytes, bytes]) -> "Callable[[list[bytes], dict[bytes, bytes]], NoReturn] | None":
    """What runs the agent in this process; None when it has to be exec'd."""
    if not spec.warm or spec.wrap:
        return None
    from agents.runner import warm  # in a zygote's fork it is there already

    program = warm.recognise(spec.argv, environment)
    return None if program is None else lambda argv, environment: warm.run(program, argv, environment)


def _candidates(command: bytes, path: bytes) -> list[bytes]:
    if b"/" in command:
        return [command]
    return [directory + b"/" + command for directory in path.split(b":") if directory]


def _exec(commands: list[bytes], argv: list[bytes], environment: dict[bytes, bytes]) -> "NoReturn":
    """Try each place of the PATH in turn. A file that is there but cannot run is the better story than one that is not there."""
    failure: OSError = FileNotFoundError(2, "no such command on the PATH that the agent gets")
    for command in commands:
        try:
            os.execve(command, argv, environment)  # noqa: S606 - no shell is the point
        except (FileNotFoundError, NotADirectoryError) as error:
            if len(commands) == 1:
                failure = error
        except OSError as error:
            failure = error
    raise failure


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    # By the C module: `ctypes` costs 2.5 ms more. A failing prctl (before Linux 3.4) leaves the tag and the mark to find orphans.
    _ctypes.call_function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"), (option, value, 0, 0, 0))  # type: ignore[arg-type] # None: this very program
