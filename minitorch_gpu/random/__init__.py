"""Random numbers whose value depends only on where they stand in the global tensor.

One counter-based generator. A number is a pure function of (seed, stream, global index):

    u[i0..ik] = philox(key=seed, counter=(ik // 4, row, stream_lo, stream_hi))[ik % 4]
    row       = row-major index of (i0..ik-1) in the global tensor; its bits 32 and up are
                XORed into stream_hi
    stream    = hash64(tick, call path, n-th draw at that path in this frame)

A 64-bit number takes its low word from the stream with bit 63 flipped. So a rank that holds a
slice draws just its slice, and gets what one process would have drawn there.
"""

from minitorch_gpu.random.claim import Draw, Span, claim, random_words
from minitorch_gpu.random.draws import (
    bernoulli,
    integers,
    keep_mask,
    normal,
    permutation,
    uniform,
)
from minitorch_gpu.random.frames import (
    BatchSlice,
    Frame,
    batch_slice,
    current_batch,
    current_frame,
    enter_module,
    global_slice,
    leave_module,
    name_scope,
    restored,
    snapshot,
    step,
    use_generator,
)
from minitorch_gpu.random.generator import Generator, default_generator, manual_seed
from minitorch_gpu.random.philox import philox

__all__ = [
    "BatchSlice",
    "Draw",
    "Frame",
    "Generator",
    "Span",
    "batch_slice",
    "bernoulli",
    "claim",
    "current_batch",
    "current_frame",
    "default_generator",
    "enter_module",
    "global_slice",
    "integers",
    "keep_mask",
    "leave_module",
    "manual_seed",
    "name_scope",
    "normal",
    "permutation",
    "philox",
    "random_words",
    "restored",
    "snapshot",
    "step",
    "uniform",
    "use_generator",
]
