"""The codec on a GPU."""

from ._codec import Decoder, Encoder

__all__ = ["Decoder", "Encoder"]
