# SPDX-License-Identifier: Apache-2.0
"""The codec on a GPU: tensors become packets, and what arrived of packets becomes tensors, without the host.

    encoder = trimwire.cuda.Encoder([weight.numel(), bias.numel()])
    packets = encoder.encode([weight.grad, bias.grad], seed=1, message=step, rank=rank)     # uint8, on the GPU
    decoder = trimwire.cuda.Decoder([weight.numel(), bias.numel()])
    decoder.put(arrived)                                                                    # truncated anywhere, None: lost
    decoder.decode([weight_sum, bias_sum], accumulate=True, seed=1, message=step, rank=rank)

Packets are the host's to the byte (docs/reference/wire-format.md, codec rht, rows of up to 2^12). Needs PyTorch and Triton 3.6 or later; kernels are compiled when they
are first launched. Without a GPU Triton's interpreter runs them (TRITON_INTERPRET=1), slowly. What is not there: docs/reference/gpu.md.

    _signs, _rotate, _statistics, _quantise, _header    the page's sections, as functions of kernels
    _pack                                               bits and bytes that change places within a thread
    _encode, _decode                                    the two kernels, a program a row
    _rows, _launch, _codec                              layout, launches, what callers see
    _tensors                                            where tensors have to be, and their addresses
    _desk, _collectives                                 operations of a group: what they need, and the threads that launch them
"""

import triton as _triton

#: Kernels use what older ones lack: tuples of tensors.
LEAST_TRITON = (3, 6)
if tuple(int(part) for part in _triton.__version__.split(".")[:2]) < LEAST_TRITON:
    raise ImportError(f"Triton {_triton.__version__}; kernels need 3.6 or later (PyTorch 2.11)")

from ._codec import Decoder, Encoder
from ._collectives import Collectives

__all__ = ["Collectives", "Decoder", "Encoder"]
