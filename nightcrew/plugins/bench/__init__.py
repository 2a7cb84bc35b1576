"""The benchmarks behind `nightcrew bench`: they measure, print and never judge. What each figure is: docs/bench.md."""
