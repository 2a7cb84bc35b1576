"""A kind of agent that a person adds: `kinds/NAME.toml` beside `config.toml`. docs/kinds.md describes each key.

Only there: what a repository brings is text of a stranger, and a kind says which program is run and what it may do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from supervisor.config.reading import Duration, Strict, parse, read_text
from supervisor.core.kind import BLOCKS, CONVERSATION, PLACEHOLDERS, STREAMED, Kind, Trust

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_WORDS = ("headless", "interactive", "allow", "sandboxed", "unsandboxed", "gateway", "resume", "fork", "transcript", "login", "mcp")
_BRACES = re.compile(r"\{([a-z_]+)\}")

Word = Annotated[str, Field(max_length=4096)]
Words = Annotated[list[Word], Field(max_length=200)]


class TrustModel(Strict):
    """`[trust]`: see `supervisor.core.kind.Trust`."""

    file: Annotated[str, Field(min_length=1, max_length=200)]
    key: Annotated[list[Word], Field(min_length=1, max_length=20)]
    value: bool | Word
    directory: Annotated[str, Field(max_length=1000)] = ""
    variable: Annotated[str, Field(max_length=128)] = ""
    lock: bool = False

    @field_validator("file")
    @classmethod
    def _file(cls, value: str) -> str:
        if not value.isprintable() or "/" in value or not value.endswith((".json", ".toml")):
            raise ValueError("the name of a file that ends in .json or .toml")
        return value


class KindModel(Strict):
    """The whole file."""

    description: Annotated[str, Field(min_length=1, max_length=200)]
    binary: Annotated[str, Field(min_length=1, max_length=1000)]
    headless: Words = Field(default_factory=list)
    interactive: Words = Field(default_factory=list)
    prompt: Literal["argument", "stdin", "file", "stream"] = "argument"
    protocol: Literal["", "claude", "codex", "gemini", "qwen", "opencode", "builtin", "acp"] = ""
    version: Annotated[str, Field(max_length=40)] = ""
    allow: Words = Field(default_factory=list)
    sandboxed: Words = Field(default_factory=list)
    unsandboxed: Words = Field(default_factory=list)
    gateway: Words = Field(default_factory=list)
    resume: Words = Field(default_factory=list)
    fork: Words = Field(default_factory=list)
    transcript: Annotated[list[Word], Field(max_length=10)] = Field(default_factory=list)
    mcp: Words = Field(default_factory=list)
    settings: Annotated[str, Field(max_length=2**16)] = ""
    settings_file: Annotated[str, Field(max_length=200)] = ""
    env: Annotated[dict[str, Word], Field(max_length=100)] = Field(default_factory=dict)
    timeout: Annotated[Duration, Field(gt=0, le=30 * 86400)] | None = None
    steps_max: Annotated[int, Field(ge=1, le=100_000)] | None = None
    cost_max: Annotated[float, Field(gt=0, le=1e9)] | None = None
    login: Words = Field(default_factory=list)
    trust: TrustModel | None = None

    @field_validator("binary", "description", "version")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("no line breaks and no control characters")
        return value

    @field_validator(*_WORDS)
    @classmethod
    def _words(cls, value: list[str]) -> list[str]:
        for word in value:
            if "\0" in word:
                raise ValueError("a word cannot hold a NUL character")
            for name in _BRACES.findall(word):
                if name not in PLACEHOLDERS and word not in BLOCKS:
                    known = f"{', '.join(PLACEHOLDERS)}, and as words of their own {', '.join(block.strip('{}') for block in BLOCKS)}"
                    raise ValueError(f"{{{name}}} is no placeholder; there are {known}")
        return value

    @field_validator("settings")
    @classmethod
    def _settings(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("it holds a NUL character")
        return value

    @field_validator("settings_file")
    @classmethod
    def _settings_file(cls, value: str) -> str:
        if not value.isprintable() or value.startswith("/") or ".." in value.split("/"):
            raise ValueError("a path of one line below {settings_dir}, without ..")
        return value

    @field_validator("env")
    @classmethod
    def _env(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name) or name.startswith("NIGHTCREW_"):
                raise ValueError(f"{name!r} cannot be a variable of an agent")
            if "\0" in text:
                raise ValueError(f"{name} holds a NUL character")
        return value

    @model_validator(mode="after")
    def _some_prompt(self) -> KindModel:
        if (self.protocol == "acp" and self.prompt != "stream") or (self.prompt == "stream" and self.protocol not in STREAMED):
            raise ValueError(f'prompt = "stream" goes with protocol = {" or ".join(STREAMED)}, and acp with nothing else')
        if not self.headless and not self.interactive and self.prompt != "stream":
            raise ValueError("give headless or interactive, the arguments of the program")
        needed = {"argument": "{prompt}", "file": "{prompt_file}"}.get(self.prompt, "")
        if self.headless and not any(needed in word for word in self.headless):
            raise ValueError(f'headless has no {needed}; prompt = "{self.prompt}" needs it')
        if (self.resume or self.fork) and CONVERSATION not in (*self.headless, *self.interactive):
            raise ValueError(f"neither headless nor interactive has the word {CONVERSATION}; resume and fork need it")
        return self

    @field_validator("transcript")
    @classmethod
    def _transcript(cls, value: list[str]) -> list[str]:
        for pattern in value:
            if not pattern.startswith(("~/", "$", "{out}/")) or ".." in pattern.split("/"):
                raise ValueError(f"{pattern!r} does not begin with ~/, $VARIABLE/ or {{out}}/")
        return value


def load(name: str, file: Path) -> Kind:
    """The person's own kind `name`, read anew each time: a supervisor lives long. Raises ConfigError as every file does."""
    model = parse(read_text(file), KindModel, str(file))
    words: dict[str, Any] = {key: tuple(getattr(model, key)) for key in _WORDS}
    plain = model.model_dump(include={"description", "binary", "prompt", "protocol", "version", "settings", "settings_file", "env"})
    trust = Trust(**{**model.trust.model_dump(), "key": tuple(model.trust.key)}) if model.trust is not None else None
    output = "json lines" if model.protocol == "acp" else ""  # a person reads what our client makes of it
    most: dict[str, Any] = {
        "timeout_s": model.timeout or 0.0,
        "steps_max": model.steps_max or 0,
        "cost_max": model.cost_max or 0.0,
    }
    return Kind(name=name, program=(model.binary,), source=str(file), output=output, trust=trust, **most, **plain, **words)
