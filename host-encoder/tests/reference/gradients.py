"""The gradients of the test vectors. Nothing here depends on a C library's mathematics, so they are the same everywhere."""

import math
from dataclasses import dataclass

from encode import Key, hadamard
from float32 import f32, f32s, from_bits
from philox import negated, philox

JOB_SEED = 0x0123456789ABCDEF
MESSAGE = 0x01020304
KEY = Key(JOB_SEED, MESSAGE, 5)


@dataclass(frozen=True)
class Gradient:
    """Values, and how they are laid out."""

    name: str
    values: list[float]
    per_packet: int = 448
    row_log2: int = 15
    # Codecs that it is encoded with; all of them if empty.
    codecs: tuple[str, ...] = ()
    # Planes that are sent; all of them if 0.
    planes: int = 0


def words(seed: int, count: int) -> list[int]:
    """Random numbers of 32 bits."""
    out = []
    for block in range((count + 3) // 4):
        out += philox([seed, 0], [block, 0, 0, 0])
    return out[:count]


def bell(seed: int, count: int) -> list[float]:
    """Nearly Gaussian values of variance 1: sums of twelve uniform ones."""
    uniform = [word / 2**32 for word in words(seed, 12 * count)]
    return f32s(sum(uniform[12 * i : 12 * i + 12]) - 6 for i in range(count))


def scaled(values: list[float], exponents) -> list[float]:
    """Each value times two to its exponent, as f32."""
    return f32s(math.ldexp(x, e) for x, e in zip(values, exponents))


def unrotated(rotated: list[float], row: int = 0) -> list[float]:
    """What the rotation of that row under `KEY` takes to these values, times their number. Exact where all sums are."""
    return [-x if minus else x for x, minus in zip(hadamard(rotated), negated(KEY, row, len(rotated)))]


def with_outliers() -> list[float]:
    """A row that the rotation takes to small values and a few large ones: beyond the usual last zone."""
    rotated = scaled(bell(20, 256), [-2] * 256)
    for at, value in ((3, -9.0), (70, 12.5), (71, 4.0), (72, 5.5), (200, 7.0), (201, -6.0), (202, 5.0)):
        rotated[at] = value
    return unrotated(rotated)


def at_the_edges_of_zones() -> list[float]:
    """Two rows that the rotation takes to magnitudes at the edges of zones and an eighth to either side of them. In the first one
    the root mean square is 32, so that zones are 17 wide; in the other one a hair more, so that those at edges fall just below."""
    out = []
    for row, (others, excess) in enumerate((((153, 155, 191, 191), 0), ((150, 159, 186, 195), 6))):
        eighths = [8 * 17 * zone + beside for zone in range(1, 9) for beside in (-1, 0, 1)] + [153] * 228 + list(others)
        assert len(eighths) == 256 and sum(x * x for x in eighths) == 256 * (8 * 32) ** 2 + excess
        out += unrotated([(-x if j % 3 else x) / 8 for j, x in enumerate(eighths)], row)
    return out


def around_the_working_scale() -> list[float]:
    """Rows of 32 whose largest value is just inside and just outside of where rows are scaled."""
    out = []
    for largest in (2.0**30, from_bits(0x4E7FFFFF), 2.0**-30, from_bits(0x307FFFFF)):
        out += f32s(x / 8 * largest for x in bell(21, 31)) + [-largest]
    return out


def gradients() -> list[Gradient]:
    """All of them."""
    spike = [0.0] * 64
    spike[37] = -3.5
    few = [0.0] * 200
    for at, value in ((0, 1.0), (7, -2.0), (100, 0.5), (101, 4.0), (199, -0.125)):
        few[at] = value
    signs = [1 if word & 1 else -1 for word in words(13, 96)]
    denormals = [sign * from_bits(word >> 9 >> word % 20) for sign, word in zip(signs, words(12, 50))]
    infinite = bell(15, 96)
    infinite[40] = math.nan
    infinite[70] = -math.inf
    rotated = ("rht", "rht-paper")
    return [
        Gradient("one coordinate", [-1.25]),
        Gradient("33 coordinates", bell(1, 33), per_packet=32),
        Gradient("352 coordinates", bell(2, 352), per_packet=352),
        Gradient("700 coordinates", bell(3, 700), per_packet=352),
        Gradient("1030 coordinates", bell(24, 1030), per_packet=352, codecs=("rht-paper", "sign-magnitude")),
        Gradient("2100 coordinates", bell(25, 2100), per_packet=480, codecs=("rht",)),
        Gradient("rows of 32, the last one short", bell(4, 75), row_log2=5),
        Gradient("rows of 64, the last one short", bell(5, 150), per_packet=32, row_log2=6),
        Gradient("rows of 128, the last one short", bell(6, 300), per_packet=96, row_log2=7),
        Gradient("rows of 256, the last one of one coordinate", bell(7, 257), per_packet=96, row_log2=8, codecs=rotated),
        Gradient("rows of 512, the last one short", bell(8, 521), row_log2=9, codecs=rotated),
        Gradient("rows of 1024, the last one short", bell(9, 1050), row_log2=10, codecs=rotated),
        Gradient("42 packets, one plane sent", scaled(bell(10, 1344), (i // 32 % 5 for i in range(1344))), row_log2=5, planes=1),
        Gradient("four planes sent", bell(11, 64), per_packet=32, codecs=("rht", "rht-paper", "sign-magnitude", "sq", "sd"), planes=4),
        Gradient("a lone spike", spike),
        Gradient("constants", [f32(0.1)] * 64, row_log2=5),
        Gradient("zeros", [0.0] * 40),
        Gradient("zeros, the last row short", [0.0] * 261, row_log2=5, codecs=rotated),
        Gradient("negative zeros", [-0.0, -0.0, 0.0, -0.0] * 10, row_log2=5),
        Gradient("subnormal values", denormals),
        Gradient("one subnormal value", [0.0] * 9 + [from_bits(0x80000001)]),
        Gradient("a huge range", scaled(bell(14, 80), (i * 3 - 120 for i in range(80)))),
        Gradient("few non-zeros", few),
        Gradient("nearly the largest", scaled(bell(18, 32), [125] * 32)),
        Gradient("one packet too small for its sigma", scaled(bell(19, 64), [0] * 32 + [-90] * 32), per_packet=32),
        Gradient("large values", scaled(bell(16, 64), [40] * 32 + [100] * 32), row_log2=5),
        Gradient("small values", scaled(bell(17, 64), [-40] * 32 + [-120] * 32), row_log2=5),
        Gradient("around the working scale", around_the_working_scale(), row_log2=5),
        Gradient("outliers after the rotation", with_outliers(), per_packet=128, codecs=rotated),
        Gradient("one coordinate after the rotation", unrotated([0.0] * 77 + [-1.0] + [0.0] * 178), codecs=rotated),
        Gradient("magnitudes at the edges of zones", at_the_edges_of_zones(), row_log2=8, codecs=("rht",)),
        Gradient("not finite", infinite, row_log2=5),
        Gradient("a packet that is not finite, beside one that is", infinite[:64], per_packet=32),
        Gradient("the first packet infinite", [math.inf] * 2 + [1.0] * 30 + infinite[:32], row_log2=5),
        Gradient("large values beside a NaN", scaled(bell(23, 32), [90] * 32) + [math.nan] * 3, per_packet=32, codecs=("raw",)),
        Gradient("nothing finite", [math.inf, 1.0, 2.0]),
    ]
