"""The layers of DESIGN hold: a module imports only from layers below its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "minitorch_gpu"

# Top-level name inside the package -> layer; a fraction orders the files of one layer. Names of
# equal layer do not import one another.
LAYERS = {
    "device": 0, "partition": 0, "random": 0.5, "cuda": 0.5,
    "registry": 1,
    "engine": 2, "modes": 2,
    "views": 2.5, "tensor": 3, "index": 3.1, "backward": 3.1, "dispatch": 3.2, "inplace": 3.2,
    "autograd": 3.3,
    "ops": 4, "kernels": 4, "methods": 4.5, "stubs": 4.6,
    "transforms": 5,
    "nn": 6, "optim": 6, "data": 6, "comm": 6,
    "parallel": 7,
    "io": 8,
}
COMM_MAY_IMPORT = {"device", "partition"}
OPTIONAL = {
    "cupy": {"device.py"}, "cupyx": {"device.py"}, "mpi4py": {"comm/mpi.py"}, "numba": set(),
    "torch": set(), "matplotlib": set(),
}


def files():
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def imports(path, module_level_only=False):
    """(module, line) of every absolute import in a file, type-checking blocks left out."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node) for block in ast.walk(tree) if isinstance(block, ast.If)
        and "TYPE_CHECKING" in ast.unparse(block.test) for node in ast.walk(block)
    }
    nodes = tree.body if module_level_only else ast.walk(tree)
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((a.name, node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "minitorch_gpu":
                yield from ((f"minitorch_gpu.{a.name}", node.lineno) for a in node.names)
            else:
                assert node.level == 0, f"{path}: relative import"
                yield node.module, node.lineno


def top(name):
    return name.split(".")[1] if name.startswith("minitorch_gpu.") else None


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path):
    here = path.relative_to(PACKAGE).with_suffix("").parts[0]
    assert here in LAYERS, f"{here} has no layer: add it to LAYERS"
    for name, line in imports(path):
        other = top(name)
        if other is None or other == here:
            continue
        assert LAYERS[other] < LAYERS[here], f"{path}:{line} imports {name} from above"
        if here == "comm":
            assert other in COMM_MAY_IMPORT, f"{path}:{line}: comm imports {name}"


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_optional_dependencies_are_imported_in_one_place(path):
    relative = str(path.relative_to(PACKAGE))
    for name, line in imports(path):
        allowed = OPTIONAL.get(name.split(".")[0])
        assert allowed is None or relative in allowed, f"{path}:{line} imports {name}"


def test_importing_the_package_loads_numpy_alone():
    code = (
        "import sys, minitorch_gpu\n"
        "heavy = {'scipy', 'ml_dtypes', 'safetensors', 'tqdm', 'numba', 'mpi4py', 'cupy',"
        " 'sklearn', 'matplotlib', 'torch'}\n"
        "print(sorted(heavy & {m.split('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          cwd=ROOT, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_takes_at_most_a_tenth_of_a_second_more_than_numpy(tmp_path):
    """Measured as an installed package is imported: from byte code, which pip compiles."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = ("import time, numpy; t = time.perf_counter(); import minitorch_gpu; "
            "print(time.perf_counter() - t)")
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                             cwd=ROOT, timeout=60, check=True, env=environment).stdout)
        for _ in range(6)
    ]
    assert min(times) < 0.1, times
