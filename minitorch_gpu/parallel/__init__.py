"""Training over several ranks: data parallelism, and batches cut over ranks and in time."""

from minitorch_gpu.parallel.batches import current_weight, global_mean, microbatches
from minitorch_gpu.parallel.bucket import Bucket, make_buckets
from minitorch_gpu.parallel.data_parallel import DistributedDataParallel

__all__ = ["Bucket", "DistributedDataParallel", "current_weight", "global_mean", "make_buckets",
           "microbatches"]
