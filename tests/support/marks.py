"""Marks for tests that need something which is not everywhere."""

from __future__ import annotations

import pytest

from loader.optional import import_dgl


def _reason_without_dgl() -> str:
    try:
        import_dgl("this test")
    except ImportError as error:
        return str(error)
    return ""


needs_dgl = pytest.mark.skipif(bool(_reason_without_dgl()), reason=_reason_without_dgl() or "DGL is here")
