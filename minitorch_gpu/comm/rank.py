"""Run a script as one rank of ``minitorch-run``: the communicator first, then the script."""

from __future__ import annotations

import os
import runpy
import sys
from io import TextIOWrapper

from minitorch_gpu.comm.start import init


def main() -> None:
    """Run ``sys.argv[1:]``, a script or ``-m module`` with its arguments, as ``__main__``."""
    init()
    if isinstance(sys.stdout, TextIOWrapper):
        # Lines are shown at once, and whole: those of two ranks never mix.
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    del sys.argv[0]
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as exit_:
        sys.exit(exit_.code)  # the hook sees the status of a raised SystemExit too


if __name__ == "__main__":
    main()
