"""The GPU sampler."""
