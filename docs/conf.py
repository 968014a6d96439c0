"""Sphinx: `sphinx-build -W docs docs/_build`, without any network."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import loader

project = "gnn-loader"
author = "the authors of gnn-loader"
version = release = loader.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "gnn-loader"
pygments_dark_style = "github-dark"  # the theme's own underlines names of modules, as if they were links

default_role = "code"  # docstrings have names in single backquotes
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False  # those of torch and Lightning are written for their own pages
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_ivar = True  # attributes as fields: a dataclass would have each of them twice
myst_heading_anchors = 3
suppress_warnings = ["ref.python"]  # attributes of one name in several classes are no references

# The rooms whose public names are in the reference. Some names are fetched on first use: autodoc looks for all of them.
ROOMS = (
    "graph",
    "samplers",
    "samples",
    "stores",
    "items",
    "stages",
    "pipeline",
    "timing",
    "ops",
    "datasets",
    "kernels",
)
for room in (*ROOMS, "pyg", "dgl"):
    module = importlib.import_module(f"loader.{room}")
    for name in module.__all__:
        setattr(module, name, getattr(module, name))
