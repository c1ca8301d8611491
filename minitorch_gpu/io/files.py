"""Whole files: a name never stands for half of one, and one that is damaged is refused."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


class MalformedFileError(ValueError):
    """A file that cannot be loaded: the message names the file and what is wrong with it."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file that takes the name ``path`` once it is complete and on the disk.

        write .NAME.RANDOM.tmp/NAME  ->  fsync  ->  rename to NAME  ->  fsync the folder

    A folder of its own, because the writer may have temporary files too. On any exception it
    is removed and ``path`` is as it was.

    Raises:
        OSError: the folder is missing, the disk is full, ...: the message names ``path``.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"cannot save {path}: there is no folder "
                                              f"{path.parent}, make it first")
    try:
        with TemporaryDirectory(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent,
                                ignore_cleanup_errors=True) as folder:
            temporary = Path(folder, path.name)
            temporary.touch()
            usual = temporary.stat().st_mode  # a writer may make a file for its user alone
            yield temporary
            temporary.chmod(usual)
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot save {path}: {reason}") from error


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where folders can be opened."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_temporaries(folder: Path, prefix: str) -> None:
    """Remove what killed writers of ``prefix...`` files left; no writer may be at work."""
    for leftover in folder.glob(f".{prefix}*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
