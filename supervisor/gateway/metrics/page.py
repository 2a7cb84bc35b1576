"""Counters, histograms and gauges as text, in Prometheus' format: labels are escaped by its own library.

What had another name in the release before is served under that too, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from supervisor.core.metrics import catalog
from supervisor.core.metrics.catalog import Metric, MetricType
from supervisor.core.metrics.counts import Counts, Labels, Spread

CONTENT_TYPE = CONTENT_TYPE_LATEST
Values = Mapping[str, Mapping[Labels, float]]


def render(counts: Counts, gauges: Values) -> bytes:
    """The page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(counts, gauges))
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, counts: Counts, gauges: Values) -> None:
        self._counts, self._gauges = counts, gauges

    def collect(self) -> Iterator[Family]:
        """Every metric that has a value, then those with an old name under that."""
        metrics = list(catalog.every())
        yield from (family for metric in metrics if (family := self._family(metric, metric.name, metric.help)).samples)
        for metric in metrics:
            if metric.old:
                words = f"Deprecated: the name is {metric.name} now, and this one goes with the next release."
                if (family := self._family(metric, metric.old, words)).samples:
                    yield family

    def _family(self, metric: Metric, name: str, words: str) -> Family:
        match metric.type:
            case MetricType.COUNTER:
                values = {**dict.fromkeys(metric.fixed, 0.0), **self._counts.values.get(metric.name, {})}
                return _filled(CounterMetricFamily(name, words, labels=metric.labels), values)
            case MetricType.GAUGE:
                return _filled(GaugeMetricFamily(name, words, labels=metric.labels), self._gauges.get(metric.name, {}))
            case MetricType.HISTOGRAM:
                return self._histogram(metric, name, words)

    def _histogram(self, metric: Metric, name: str, words: str) -> Family:
        family = HistogramMetricFamily(name, words, labels=metric.labels)
        spreads = self._counts.spreads.get(metric.name, {})
        for labels in dict.fromkeys([*metric.fixed, *spreads]):
            spread = spreads.get(labels) or Spread([0] * (len(metric.buckets) + 1))
            family.add_metric(labels, _cumulated(metric.buckets, spread), spread.total)
        return family


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[Labels, float]) -> Family:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _cumulated(bounds: tuple[float, ...], spread: Spread) -> list[tuple[str, float]]:
    total, found = 0, []
    for bound, number in zip([*map(str, bounds), "+Inf"], spread.buckets, strict=True):
        total += number
        found.append((bound, float(total)))
    return found
