"""The programs of the command `gnn-loader`, without a checkout. In a wheel, `models` and `conf` are in this package.

Modules import each other as `models.…`, and so do options and checkpoints, in a checkout and here. A program of your
own can do the same after `import gnn_loader_app`.
"""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
# A wheel has train.py, conf/ and models/ in this folder, a checkout beside it.
HOME = _HERE if (_HERE / "train.py").is_file() else _HERE.parent

if str(HOME) not in sys.path:
    sys.path.append(str(HOME))  # last, so that it hides no other package
