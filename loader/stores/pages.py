"""The advice of `loader.machine.pages`, under the name that the stores know."""

from loader.machine.pages import advise_random, use_huge_pages

__all__ = ["advise_random", "use_huge_pages"]
