"""The programs that serve models: their start lines, and the process that becomes llama.cpp's server.

An engine listens on 127.0.0.1 alone, without a key, and downloads nothing. Options are passed on under the program's own names; those that
would change this are refused with the settings (`kernel/engines.py`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from supervisor.gateway.lifecycle import PASSED
from supervisor.kernel import codec
from supervisor.kernel.engines import Engine, EngineKind, Option
from supervisor.kernel.names import TAG_VARIABLE

_HOST = "127.0.0.1"
_PREFIXES = ("CUDA_", "NVIDIA_", "HIP_", "OMP_", "GGML_")
_MORE = PASSED | {"LD_LIBRARY_PATH", "HF_HOME", "XDG_CACHE_HOME"}
_OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"), "1")
_NICE = 5
"""Agents and their tests go first on the same processors."""


def environment(environ: Mapping[str, str], tag: str) -> dict[str, str]:
    """What an engine is started with: no key of the person's, and nothing that sets an option of its own (LLAMA_ARG_HOST)."""
    kept = {name: text for name, text in environ.items() if name in _MORE or name.startswith(_PREFIXES)}
    return {**kept, **_OFFLINE, TAG_VARIABLE: tag}


def command(engine: Engine, folder: Path, port: int) -> list[str]:
    """The start line of an engine; `folder` is for the states of its slots. The process says itself what it lacks."""
    return [sys.executable, "-I", "-m", "supervisor.features.engines.programs", codec.dumps(engine), str(folder), str(port)]


def _become(engine: Engine, folder: Path, port: int) -> None:
    if engine.kind is EngineKind.LLAMACPP:
        _serve(engine, folder, port)
    names = [name for name in engine.models if not set(name) & set("*?[")] or [engine.name]
    ours: dict[str, Option] = {"host": _HOST, "port": port}
    if engine.kind is EngineKind.VLLM:
        begin = ["vllm", "serve", engine.model]
        ours |= {"served-model-name": names, "max-num-seqs": engine.slots, "max-model-len": engine.context, "scheduling-policy": "priority"}
    else:
        begin = [sys.executable, "-m", "sglang.launch_server"]
        ours |= {"model-path": engine.model, "served-model-name": names[0], "max-running-requests": engine.slots}
        ours |= {"context-length": engine.context, "enable-priority-scheduling": True}
    os.environ["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"
    try:
        os.execvp(begin[0], [*begin, *flags(ours, engine.options)])  # noqa: S606 - a start line of ours
    except FileNotFoundError:
        sys.exit(f"{begin[0]} is not installed: it is not on the PATH")


def flags(ours: Mapping[str, Option], options: Mapping[str, Option]) -> Iterator[str]:
    """Options as a command line. `false` takes away one of `ours`, and gives `--no-NAME` for another."""
    for name, value in {**ours, **{name.replace("_", "-"): value for name, value in options.items()}}.items():
        if value is False:
            yield from () if name in ours else (f"--no-{name}",)
        else:
            yield f"--{name}"
            yield from () if value is True else map(str, value if isinstance(value, list) else [value])


# llama.cpp
# ---------
# The process of an engine of the kind `llamacpp`: `llama-server` of PATH in its place, else the package xllamacpp.


def _serve(engine: Engine, folder: Path, port: int) -> None:
    os.nice(_NICE)
    for left in folder.iterdir():
        left.unlink()  # states of slots of a process that is gone
    file = weights(engine.model, folder)
    ours: dict[str, Option] = {"port": port, "slot-save-path": f"{folder}/", "swa-full": True, "offline": True}
    ours["threads"] = max(1, len(os.sched_getaffinity(0)) // 2)
    if server := shutil.which("llama-server"):
        ours |= {"model": str(file), "host": _HOST, "alias": engine.name, "parallel": engine.slots}
        ours |= {"ctx-size": engine.slots * engine.context, "metrics": True, "jinja": True, "no-webui": True}
        os.execv(server, [server, *flags(ours, engine.options)])  # noqa: S606 - a start line of ours
    given = {"hostnames": [_HOST], "model-alias": {engine.name}, "n-parallel": engine.slots, "n-ctx": engine.slots * engine.context}
    given |= {"endpoint-metrics": True, "ui": False, "cors-origins": f"http://{_HOST}", "cors-origins-explicit": True}
    kept = _package({**given, **ours, **engine.options}, file)
    while kept:
        signal.pause()


def _package(options: Mapping[str, Any], file: Path) -> Any:
    try:
        import xllamacpp
    except ImportError:
        sys.exit("llama.cpp is not installed: no llama-server is on the PATH; pip install 'nightcrew[local]'")
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    for name, value in options.items():
        _set(params, name.replace("-", "_"), value)
    return xllamacpp.Server(params)


def _set(params: Any, name: str, value: Any) -> None:
    """Set one option. `threads` is spelled as the server does; a word stands for the number that ends with it, such as "q8_0"."""
    if name in ("threads", "threads_batch"):
        params, name = params.cpuparams if name == "threads" else params.cpuparams_batch, "n_threads"
    known = getattr(params, name, None)
    try:
        if isinstance(value, str) and isinstance(known, int):
            value = next(one for one in type(known) if one.name.lower().endswith(f"_{value.lower()}"))  # type: ignore[attr-defined]
        setattr(params, name, value)
    except (AttributeError, TypeError, StopIteration):
        sys.exit(f"xllamacpp has no option {name!r} that takes {value!r}")


def weights(model: str, folder: Path) -> Path:
    """The file of weights. A package that carries it in parts is put together once, beside the engine's log."""
    package = model.removeprefix("package:")
    if package == model:
        file = Path(model).expanduser()
        return file if file.is_file() else sys.exit(f"no file at {file}: nightcrew downloads no weights")
    spec = importlib.util.find_spec(package)
    roots = [Path(place) for place in (spec.submodule_search_locations or () if spec else ())]
    if whole := _below(roots, "*.gguf"):
        return whole[0]
    parts = _below([*roots, *(near for root in roots for near in root.parent.glob(f"{package}_part*"))], "*.gguf.part*")
    return (
        _joined(parts, folder.parent / f"{package}.gguf") if parts else sys.exit(f"no weights in the package {package!r}: is it installed?")
    )


def _below(roots: Iterable[Path], pattern: str) -> list[Path]:
    return sorted((file for root in roots for file in root.rglob(pattern)), key=lambda file: file.name)


def _joined(parts: list[Path], file: Path) -> Path:
    if not file.exists() or file.stat().st_size != sum(part.stat().st_size for part in parts):
        draft = file.with_suffix(".draft")
        with draft.open("wb") as out:
            for part in parts:
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, out)
        draft.rename(file)
    return file


if __name__ == "__main__":
    _become(codec.check(Engine, json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3]))
