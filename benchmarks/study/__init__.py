"""What only comparisons need. Give `--config-dir benchmarks/study/conf`, and have `benchmarks` on PYTHONPATH."""
