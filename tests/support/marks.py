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


_REASON = _reason_without_dgl()
needs_dgl = pytest.mark.skipif(bool(_REASON), reason=_REASON or "DGL is here")
