"""A tree with former names of modules is measured by the new names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILES = {
    "specdec_core/__init__.py": "",
    "specdec_core/config.py": "",
    "specdec_core/sampling.py": "def choose(): return 'chosen'\n",
    "specdec_core/models/__init__.py": "",
    "specdec_core/models/numerics.py": "class Numerics: pass\n",
    "specdec_core/pool/__init__.py": "from specdec_core.pool.pool import SequencePool\n",
    "specdec_core/pool/pool.py": "class SequencePool: pass\n",
}
SCRIPT = """
from unittest import mock
from benchmarks.host_time.former_names import use_former_names
use_former_names()
from specdec_core.config import Numerics
from specdec_core.models.numerics import Numerics as former_numerics
from specdec_core.pool.pool import SequencePool
from specdec_core.sampling import choose, sampler
import specdec_core.scheduler.scheduler as scheduler
from specdec_core.scheduler.scheduler import Scheduler
assert Scheduler is SequencePool and Numerics is former_numerics
assert sampler.choose is choose
with mock.patch.object(scheduler, "SequencePool", None):
    import specdec_core.pool.pool as former
    assert former.SequencePool is None, "both names are one module"
"""


def test_modules_and_classes_are_found_by_their_new_names(tmp_path: Path) -> None:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({str(ROOT)!r})\n"
    ended = subprocess.run(
        [sys.executable, "-c", path + SCRIPT], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_a_tree_with_the_new_names_is_left_alone() -> None:
    script = "from benchmarks.host_time.former_names import use_former_names as use\nimport sys\n"
    script += "before = list(sys.meta_path); use(); assert sys.meta_path == before"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
