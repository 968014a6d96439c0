"""What only comparisons need, and no user installs: `--config-dir benchmarks/study/conf`, `benchmarks` on PYTHONPATH."""
