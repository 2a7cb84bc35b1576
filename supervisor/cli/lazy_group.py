"""A group of verbs that are imported when they are used, so that no verb and no completion pays for the others."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Its verb `some-verb` is the `command` of the module `<package>.some_verb`."""

    def __init__(self, package: str, verbs: Mapping[str, str], **more: Any) -> None:
        """`verbs`: each with its line in `--help`, in the order in which that shows them."""
        super().__init__(**more)
        self._package, self._verbs = package, verbs

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in self._verbs:
            return None
        command: click.Command = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(name, help=text) for name, text in self._verbs.items() if name.startswith(incomplete)]
        return [*verbs, *super(click.Group, self).shell_complete(ctx, incomplete)]  # click.Group's own would import every verb

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            close = difflib.get_close_matches(args[0], self._verbs, n=1)
            known = f"; did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"no verb is called {args[0]!r}{known}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(self._verbs.items()))
