"""Writing a file so that its name never stands for half of it."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the name ``path`` once it is complete and on the disk.

        write .NAME.RANDOM.tmp  ->  fsync  ->  rename to NAME  ->  fsync the folder

    On any exception the temporary file is removed and ``path`` is as it was.

    Raises:
        OSError: the folder is missing, the disk is full, ...: the message names ``path``.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"cannot save {path}: there is no folder "
                                              f"{path.parent}, make it first")
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot save {path}: {reason}") from error
    finally:
        with suppress(OSError):  # mostly it has been renamed
            temporary.unlink()


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
        leftover.unlink(missing_ok=True)
