"""The options that say what a task is kept from; the same for every verb that starts one."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class _Network(click.ParamType["bool | tuple[str, ...]"]):
    """A plan's `network`: `yes`, `no`, or names of hosts, separated by commas."""

    name = "network"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bool | tuple[str, ...]:
        from supervisor.config.task_keys import network

        text = str(value).strip()
        if text in ("yes", "no"):
            return text == "yes"
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            self.fail("say yes, no, or which hosts", param, ctx)
        try:
            return network(names)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        return [CompletionItem(word) for word in ("yes", "no") if word.startswith(incomplete)]


network_option = click.option(
    "--network",
    type=_Network(),
    metavar="yes|no|HOST,...",
    help="What it can connect to: all, nothing, or the models and these hosts (default: yes).",
)
