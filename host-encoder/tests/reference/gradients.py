# SPDX-License-Identifier: Apache-2.0
"""The gradients of the test vectors. Nothing here depends on a C library's mathematics, so they are the same everywhere."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from encode import concentration, hadamard, is_rotated_twice, key_of
from float32 import bits, f32, f32s, from_bits
from philox import negated, philox
from wire import Envelope, Tensor

JOB_SEED = 0x0123456789ABCDEF
ENVELOPE = Envelope(job=42, rank=341, message=0x01020304)
KEY = key_of(JOB_SEED, ENVELOPE)


@dataclass(frozen=True)
class Gradient:
    """Values, and how they are laid out."""

    name: str
    values: list[float]
    per_packet: int = 448
    row_log2: int = 12
    # Codecs that it is encoded with; all of them if empty.
    codecs: tuple[str, ...] = ()
    # Planes that are sent, row by row and then from the front again; all of them if empty.
    planes: tuple[int, ...] = ()
    # Coordinates and layer class; a single tensor of class 5 if empty.
    of_tensors: tuple[tuple[int, int], ...] = ()
    # The threshold of importance, from the rows' figures in ascending order; none if there is no
    # such function.
    important_from: Callable[[list[float]], float] | None = None

    def tensors(self) -> list[Tensor]:
        """What the message is made of."""
        return [Tensor(*one) for one in self.of_tensors or [(len(self.values), 5)]]


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


def unrotated(rotated: list[float], twice: bool, row: int = 0) -> list[float]:
    """What the rotation (or both) of that row under `KEY` takes to these values, times a power of their number. Exact where all
    sums are."""
    d = len(rotated)
    if twice:
        rotated = unsigned(hadamard(rotated), negated(KEY, row, d, second=True))
    out = unsigned(hadamard(rotated), negated(KEY, row, d))
    assert is_rotated_twice(concentration(out)) == twice
    return out


def unsigned(values: list[float], signs: list[bool]) -> list[float]:
    """The values, some of them negated."""
    return [-x if minus else x for x, minus in zip(values, signs)]


def signs_of_one_coordinate() -> list[float]:
    """A row of 256 equal magnitudes that its rotation takes to one coordinate."""
    return unrotated([0.0] * 77 + [-1.0] + [0.0] * 178, False)


def with_outliers(d: int, twice: bool) -> list[float]:
    """A row that its rotation takes to small values and a few large ones: beyond the usual last zone."""
    rotated = scaled(bell(20, d), [-2] * d)
    for at, value in ((3, -9.0), (70, 12.5), (71, 4.0), (72, 5.5), (200, 7.0), (201, -6.0), (202, 5.0)):
        rotated[at] = value
    return unrotated(rotated, twice)


def at_the_edges_of_zones(d: int, twice: bool) -> list[float]:
    """Rows of d that their rotation takes to magnitudes at the edges of zones and an eighth to either side of them. In the first one
    the root mean square is 32, so that zones are 17 wide; in the other one a hair more, so that those at edges fall just below."""
    out = []
    # Four times as many squares have four times the excess.
    more = [[256] * (d - 256), [256] * (d - 258) + [253, 259]] if d > 256 else [[], []]
    for row, (others, excess) in enumerate((((153, 155, 191, 191), 0), ((150, 159, 186, 195), 6 * d // 256))):
        eighths = [8 * 17 * zone + beside for zone in range(1, 9) for beside in (-1, 0, 1)] + [153] * 228 + list(others) + more[row]
        assert len(eighths) == d and sum(x * x for x in eighths) == d * (8 * 32) ** 2 + excess
        signs = words(34, d)
        out += unrotated([(-x if sign & 1 else x) / 8 for sign, x in zip(signs, eighths)], twice, row)
    return out


def silent_packet() -> list[float]:
    """A row of 64 of which both rotations leave nothing in the first 32 coordinates."""
    rotated = [0.0] * 32 + [float(word % 31) - 15 for word in words(26, 32)]
    return unrotated(rotated, True)


def non_zeros(d: int, count: int, seed: int) -> list[float]:
    """A row of d with so many equal non-zeros, some of them negative, at random places."""
    random = words(seed, 2 * d)
    places = sorted(range(d), key=lambda at: random[at])[:count]
    out = [0.0] * d
    for at in places:
        out[at] = -0.75 if random[d + at] & 1 else 0.75
    return out


def beside(row: list[float], coarse: int, fine: int) -> tuple[list[float], list[float]]:
    """The row with small values at two places, which make q smaller, so that one of both results is rotated twice and the other is
    not. They differ by the last bit of one value: nothing but sums in the very order of the page tells them apart."""

    def with_bits(at: int, pattern: int) -> list[float]:
        return row[:at] + [from_bits(pattern)] + row[at + 1 :]

    def flag(values: list[float]) -> bool:
        return is_rotated_twice(concentration(values))

    before = flag(row)
    for at, largest in ((coarse, 0.75), (fine, 2.0**-11)):
        low, high = 0, bits(largest)
        assert flag(with_bits(at, low)) == before != flag(with_bits(at, high))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if flag(with_bits(at, middle)) == before else (low, middle)
        after = with_bits(at, high)
        row = with_bits(at, low)
    return row, after


def with_zero_blocks(seed: int, count: int) -> list[float]:
    """Two blocks of three are zero: one holds zeros of both signs, the other one values that the working scale makes zeros."""
    out = scaled(bell(seed, count), [90] * count)
    for block in range(-(-count // 32)):
        here = slice(32 * block, min(count, 32 * block + 32))
        if block % 3 == 1:
            out[here] = [-0.0 if at % 2 else 0.0 for at in range(len(out[here]))]
        if block % 3 == 2:
            out[here] = [from_bits(at << 31 | 0x00012345) for at in (0, 1)] * (len(out[here]) // 2)
    return out


def between_two_sigmas() -> list[float]:
    """Rows of 64 with one value, eight times what their sigma is before it is rounded to 19 bits: halves between two of them, and
    beside those; of which the last ones take the next exponent."""
    out = []
    for pattern in (0x3F800800, 0x3F801800, 0x3F8007FF, 0x3F800801, 0x3F801000, 0x3FFFF7FF, 0x3FFFF800, 0x3FFFFFFF):
        out += [0.0] * 37 + [8 * from_bits(pattern)] + [0.0] * 26
    return out


def around_the_working_scale() -> list[float]:
    """Rows of 32 whose largest value is just inside and just outside of where rows are scaled."""
    out = []
    for largest in (2.0**30, from_bits(0x4E7FFFFF), 2.0**-30, from_bits(0x307FFFFF)):
        out += f32s(x / 8 * largest for x in bell(21, 31)) + [-largest]
    return out


def upper_median(figures: list[float]) -> float:
    """The upper median."""
    return figures[len(figures) // 2]


def above_the_median(figures: list[float]) -> float:
    """The least number above the upper median."""
    return math.nextafter(upper_median(figures), math.inf)


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
    rotated = ("rht",)
    # Alone, these have a q of 1.8/512, and one large coordinate beside them makes for a larger one.
    near_256th = f32s(word / 2**31 - 1 for word in words(27, 512))
    near_256th[300] = near_256th[77] = 0.0
    near_256th[0] = next(k / 256 for k in range(256, 1024) if concentration([k / 256] + near_256th[1:]) >= 1 / 256)
    near_spike = [0.0] * 32
    near_spike[5], near_spike[18] = 1.0, -0.046875
    return [
        Gradient("one coordinate", [-1.25]),
        Gradient("33 coordinates", bell(1, 33), per_packet=32),
        Gradient("352 coordinates", bell(2, 352), per_packet=352),
        Gradient("700 coordinates", bell(3, 700), per_packet=352),
        Gradient("2100 coordinates", bell(25, 2100), per_packet=480, codecs=rotated),
        Gradient("600 coordinates", bell(36, 600), per_packet=512),
        Gradient("2048 coordinates, nine planes sent", bell(28, 2048), per_packet=704, codecs=rotated, planes=(9,)),
        Gradient("rows of 32, the last one short", bell(4, 75), row_log2=5, important_from=upper_median),
        Gradient("rows of 64, the last one short", bell(5, 150), per_packet=32, row_log2=6, important_from=above_the_median),
        Gradient("rows of 128, the last one short", bell(6, 300), per_packet=96, row_log2=7, important_from=max),
        Gradient("rows of 256, the last one of one coordinate", bell(7, 257), per_packet=96, row_log2=8, codecs=rotated),
        Gradient("rows of 512, the last one short", bell(8, 521), row_log2=9, codecs=rotated),
        Gradient("rows of 1024, the last one short", bell(9, 1050), row_log2=10, codecs=rotated),
        Gradient(
            "tails at the edge of what is padded",
            bell(29, 496 + 495 + 992 + 991),
            per_packet=480,
            codecs=rotated,
            planes=(2,),
            of_tensors=((496, 0), (495, 1), (992, 2), (991, 3)),
            important_from=upper_median,
        ),
        Gradient(
            "tensors in rows of 512",
            bell(30, 5 + 512 + 1 + 31 + 32 + 900 + 17),
            per_packet=224,
            row_log2=9,
            codecs=rotated,
            planes=(12, 3, 8),
            of_tensors=((5, 0), (512, 1), (1, 3), (31, 7), (32, 7), (900, 2), (17, 5)),
            important_from=upper_median,
        ),
        Gradient(
            "tensors in rows of 256",
            bell(31, 3 + 40 + 256 + 1),
            row_log2=8,
            of_tensors=((3, 0), (40, 7), (256, 3), (1, 4)),
        ),
        Gradient(
            "42 packets, one plane sent",
            scaled(bell(10, 1344), (i // 32 % 5 for i in range(1344))),
            row_log2=5,
            codecs=rotated,
            planes=(1,),
            important_from=upper_median,
        ),
        Gradient("four planes sent", bell(11, 64), per_packet=32, codecs=rotated, planes=(4,)),
        Gradient("planes that differ by row", bell(33, 190), row_log2=5, planes=(12, 1, 9, 4, 10, 8)),
        Gradient("a lone spike", spike),
        Gradient("constants", [f32(0.1)] * 64, row_log2=5),
        Gradient("constants in rows of 256 and 512", [f32(-0.1)] * 768, row_log2=9, codecs=rotated, planes=(12, 9)),
        Gradient("zeros", [0.0] * 40),
        Gradient("zeros, the last row short", [0.0] * 261, row_log2=5, codecs=rotated),
        Gradient("negative zeros", [-0.0, -0.0, 0.0, -0.0] * 10, row_log2=5),
        Gradient("blocks of zeros", with_zero_blocks(37, 600), per_packet=448, codecs=rotated),
        Gradient("blocks of zeros, masks in bodies", with_zero_blocks(38, 1600), per_packet=704, codecs=rotated, planes=(9, 2, 10)),
        Gradient("blocks of zeros, in rows of two packets", with_zero_blocks(39, 1024), per_packet=512, codecs=rotated),
        Gradient("one packet of zeros", bell(41, 64) + [0.0] * 64 + bell(42, 10), per_packet=64),
        Gradient("between two sigmas", between_two_sigmas(), row_log2=6),
        Gradient("subnormal values", denormals),
        Gradient("one subnormal value", [0.0] * 9 + [from_bits(0x80000001)]),
        Gradient("a huge range", scaled(bell(14, 80), (i * 3 - 120 for i in range(80)))),
        Gradient("few non-zeros", few),
        Gradient(
            "1, 2, 3, 7 and 64 equal non-zeros",
            [x for seed, count in enumerate((1, 2, 3, 7, 64), 40) for x in non_zeros(1024, count, seed)],
            row_log2=10,
            codecs=rotated,
            planes=(3, 12, 2, 4, 1),
        ),
        Gradient("two equal non-zeros", non_zeros(256, 2, 50), codecs=rotated),
        Gradient(
            "q just above and below 1/256",
            [x for row in beside(near_256th, 300, 77) for x in row],
            row_log2=9,
            codecs=rotated,
            planes=(2,),
        ),
        Gradient("q of exactly 1/256", non_zeros(512, 256, 51), codecs=rotated, planes=(2,)),
        Gradient("q just above and below 0.995", [x for row in beside(near_spike, 11, 30) for x in row], row_log2=5),
        Gradient("nearly the largest", scaled(bell(18, 32), [125] * 32)),
        Gradient("one packet too small for its sigma", scaled(bell(19, 64), [0] * 32 + [-90] * 32), per_packet=32),
        Gradient("a packet of zeros after both rotations", silent_packet(), per_packet=32),
        Gradient("large values", scaled(bell(16, 64), [40] * 32 + [100] * 32), row_log2=5),
        Gradient("small values", scaled(bell(17, 64), [-40] * 32 + [-120] * 32), row_log2=5),
        Gradient("around the working scale", around_the_working_scale(), row_log2=5),
        Gradient("outliers after one rotation", with_outliers(1024, False), per_packet=128, codecs=rotated),
        Gradient("outliers after both rotations", with_outliers(256, True), per_packet=128, codecs=rotated),
        Gradient("one coordinate after one rotation", signs_of_one_coordinate(), codecs=rotated),
        Gradient("one coordinate after both rotations", unrotated([0.0] * 77 + [-1.0] + [0.0] * 178, True), codecs=rotated),
        Gradient(
            "magnitudes at the edges of zones, one rotation",
            at_the_edges_of_zones(1024, False)[:1024],
            per_packet=1024,
            codecs=rotated,
        ),
        Gradient("magnitudes at the edges of zones, both rotations", at_the_edges_of_zones(256, True), row_log2=8, codecs=rotated),
        Gradient("not finite", infinite, row_log2=5, important_from=max),
        Gradient("a packet that is not finite, beside one that is", infinite[:64], per_packet=32),
        Gradient("the first packet infinite", [math.inf] * 2 + [1.0] * 30 + infinite[:32], row_log2=5, important_from=max),
        Gradient("large values beside a NaN", scaled(bell(23, 32), [90] * 32) + [math.nan] * 3, per_packet=32, codecs=("raw",)),
        Gradient("nothing finite", [math.inf, 1.0, 2.0]),
        Gradient("not finite, masks in bodies", [0.0] * 480 + [math.nan] * 32, per_packet=512, codecs=rotated, planes=(2,)),
        Gradient("sigma just inside and just outside of f32", [from_bits(0x7F7FF400)] * 32 + [from_bits(0x7F7FFFFF)] * 32, row_log2=5),
        Gradient(
            "sigma of one packet beyond f32",
            [1.5 * 2.0**127 * x for x in signs_of_one_coordinate()],
            per_packet=128,
            planes=(4,),
        ),
    ]
