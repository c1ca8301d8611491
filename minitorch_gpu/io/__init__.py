"""Files: tensors in the safetensors format, and checkpoints that a training resumes from."""

from minitorch_gpu.io.checkpoint import (
    CheckpointInfo,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from minitorch_gpu.io.files import MalformedFileError
from minitorch_gpu.io.tensors import load, read_metadata, save

__all__ = [
    "CheckpointInfo",
    "MalformedFileError",
    "latest_checkpoint",
    "load",
    "load_checkpoint",
    "read_metadata",
    "save",
    "save_checkpoint",
]
