"""`nightcrew bench faces`: every figure is measured."""

from __future__ import annotations

from pathlib import Path

from nightcrew.plugins.bench import crews, views


def test_its_figures(tmp_path: Path) -> None:
    few = views.Options(3, steady_s=0.5, keys=2, starts=1, lines=1, browsers=2, events=1, paints=1, alone=3, together=20, clients=2)
    report = crews.report(views, few, tmp_path, lambda _: None)
    assert report["top"].keys() == {"agents", "cpu_percent", "rss_mb", "key_ms_p50", "start_ms"} and report["top"]["agents"] == 3
    assert all(value > 0 for name, value in report["top"].items() if name != "cpu_percent")
    assert report["web"].keys() == {"clients", "cpu_percent", "event_ms_p50", "page_kb", "first_paint_ms"}
    assert report["web"]["event_ms_p50"] > 0 and 10 < report["web"]["page_kb"] < 300
    assert report["statusline_ms"] > 0
    assert report["api"].keys() == {"requests_per_s", "submit_ms_p50", "p99"}
    assert min(report["api"][name] for name in ("requests_per_s", "submit_ms_p50", "p99")) > 0
