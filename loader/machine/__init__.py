"""This machine: its GPUs, processors and memory, and the packages that it has."""
