"""The list of features: those of this folder, and those of other packages."""

from __future__ import annotations

from supervisor.contract import Feature, others

BUILT_IN = (
    Feature("api", tables=("supervisor.features.api.rows:Access",), requests={"token": "supervisor.features.api.service:OPS"}),
    Feature("audit", service="supervisor.features.audit.service:serve"),
    Feature(
        "best_of",
        tables=("supervisor.results.candidates:Choices",),
        requests={"choose": "supervisor.features.best_of:handle"},
        needs="supervisor.features.best_of:choices",
        acts={"Compare": "supervisor.features.best_of:compare"},
    ),
    Feature("conflicts", service="supervisor.features.conflicts:serve"),
    Feature(
        "engines",
        service="supervisor.features.engines.service:serve",
        requests={"engine_stop": "supervisor.features.engines.service:handle"},
    ),
    Feature(
        "landing",
        tables=("supervisor.features.landing.rows:Trains",),
        service="supervisor.features.landing.service:serve",
        requests={"land": "supervisor.features.landing.service:OPS"},
    ),
    Feature(
        "map",
        service="supervisor.features.map.service:serve",
        requests={"map": "supervisor.features.map.service:OPS"},
        agent_requests={"map": "supervisor.features.map.service:AGENT_OPS"},
    ),
    Feature(
        "night",
        tables=("supervisor.features.night.rows:Nights",),
        service="supervisor.features.night.service:serve",
        step="supervisor.features.night.service:step",
        denied="supervisor.features.night.service:denied",
        requests={"night_refused": "supervisor.features.night.service:handle"},
        begins="supervisor.features.night.service:begins",
        acts={"MoveNight": "supervisor.features.night.service:moved"},
    ),
    Feature(
        "notify",
        service="supervisor.features.notify.service:serve",
        after=("otel",),
        requests={"notify_test": "supervisor.features.notify.service:handle"},
        needs="supervisor.features.notify.service:told",
    ),
    Feature(
        "memory",
        tables=("memory.lease_rows:Leases", "memory.lease_rows:Waits", "memory.mail:Mails"),
        acts={"LookForNote": "memory.service.desk:look_for_note"},
    ),
    Feature("otel", service="nightcrew.plugins.otel.service:serve"),
    Feature(
        "pull_requests",
        tables=("supervisor.features.pull_requests.rows:PullRequests",),
        requests={"pr": "supervisor.features.pull_requests.service:OPS"},
    ),
    Feature(
        "quotas",
        service="supervisor.features.quotas.service:serve",
        requests={"quota": "supervisor.features.quotas.service:handle"},
        interrupted=frozenset({"quota"}),
        agent_requests={"quota": "supervisor.features.quotas.service:ask"},
    ),
    Feature(
        "retention",
        service="supervisor.features.retention.service:serve",
        after=("audit",),
        requests={"clean": "supervisor.server.attempts.cleaning:handle", "keep": "supervisor.features.retention.service:handle"},
    ),
    Feature("review", tables=("supervisor.results.verdicts:Reviews",), requests={"review": "supervisor.features.review.service:OPS"}),
    Feature("snapshots", tables=("supervisor.snapshots.rows:Snapshots",), requests={"snapshot": "supervisor.snapshots.service:OPS"}),
)


def installed() -> tuple[Feature, ...]:
    """Return every feature of this installation. Raises as `others` does."""
    return (*BUILT_IN, *others())
