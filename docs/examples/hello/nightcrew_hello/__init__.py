"""An example of a package that extends nightcrew: a verb, a request, a kind of agent and a table of the page."""

from supervisor.contract import Feature

FEATURE = Feature(
    "hello",
    requests={"hello": "nightcrew_hello.server:hello"},
    commands={"hello": "nightcrew_hello.commands:command"},
    kinds={"greeter": "nightcrew_hello:greeter.toml"},
    sections="nightcrew_hello.view:sections",
)
