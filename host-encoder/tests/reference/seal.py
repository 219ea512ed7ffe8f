#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tags of sealed packets, in plain Python, and ../seal_vectors.json; with --check, fails where the file is not what it would write.

AES's round is computed from its definition (FIPS 197, section 5.1), AEGISMAC-128L from RFC 10032 (sections 3.3 to 3.5, 3.9 and 8), HKDF from
RFC 5869. The test vectors of these documents are checked at every run.

Python 3.11 or later, standard library only.
"""

import argparse
import hashlib
import hmac
import json
import sys
from pathlib import Path

VECTORS = Path(__file__).resolve().parent.parent / "seal_vectors.json"
TAG = 8
NONCE = 16
INFO = b"trimwire seal 3"


def doubled(x: int) -> int:
    """x times {02} in AES's field (FIPS 197, section 4.2)."""
    return x << 1 ^ (0x11B if x >> 7 else 0)


def product(x: int, y: int) -> int:
    """x times y in AES's field."""
    out = 0
    while y:
        out ^= x if y & 1 else 0
        x, y = doubled(x), y >> 1
    return out


def s_box() -> list[int]:
    """SubBytes: the inverse in the field, then an affine map of its bits."""
    out = []
    for x in range(256):
        inverse = next((y for y in range(1, 256) if product(x, y) == 1), 0)
        turned = [inverse << k | inverse >> 8 - k for k in range(5)]
        out.append((turned[0] ^ turned[1] ^ turned[2] ^ turned[3] ^ turned[4] ^ 0x63) & 0xFF)
    return out


def round_tables() -> list[list[int]]:
    """For each of a block's 16 bytes and each value of it: what it adds to the block that SubBytes, ShiftRows and MixColumns make."""
    box = s_box()
    tables = []
    for place in range(16):
        row, column = place % 4, (place // 4 - place % 4) % 4
        table = []
        for x in range(256):
            # Column `row` of MixColumns' matrix.
            factors = [{0: 2, 1: 1, 2: 1, 3: 3}[(i - row) % 4] for i in range(4)]
            mixed = bytes(product(box[x], factor) for factor in factors)
            table.append(int.from_bytes(mixed, "big") << 32 * (3 - column))
        tables.append(table)
    return tables


T = round_tables()


def aes_round(block: int, key: int) -> int:
    """AESRound of RFC 10032: SubBytes, ShiftRows, MixColumns, and the round key. Blocks are numbers, the first byte highest."""
    a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = block.to_bytes(16, "big")
    key ^= T[0][a] ^ T[1][b] ^ T[2][c] ^ T[3][d] ^ T[4][e] ^ T[5][f] ^ T[6][g] ^ T[7][h]
    return key ^ T[8][i] ^ T[9][j] ^ T[10][k] ^ T[11][l] ^ T[12][m] ^ T[13][n] ^ T[14][o] ^ T[15][p]


C0 = int.from_bytes(bytes.fromhex("000101020305080d1522375990e97962"), "big")
C1 = int.from_bytes(bytes.fromhex("db3d18556dc22ff12011314273b528dd"), "big")


def update(s: list[int], m0: int, m1: int) -> list[int]:
    """Update (RFC 10032, section 3.3)."""
    inputs = [s[0] ^ m0, s[1], s[2], s[3], s[4] ^ m1, s[5], s[6], s[7]]
    return [aes_round(s[i - 1], inputs[i]) for i in range(8)]


def start(key: bytes, nonce: bytes) -> list[int]:
    """Init (RFC 10032, section 3.4)."""
    k, n = int.from_bytes(key, "big"), int.from_bytes(nonce, "big")
    s = [k ^ n, C1, C0, C1, k ^ n, k ^ C0, k ^ C1, k ^ C0]
    for _ in range(10):
        s = update(s, n, k)
    return s


def mac(key: bytes, nonce: bytes, data: bytes, tag_len: int = 16) -> bytes:
    """AEGISMAC-128L (RFC 10032, section 8.1), of 16 or 32 bytes."""
    s = start(key, nonce)
    padded = data + bytes(-len(data) % 32)
    for at in range(0, len(padded), 32):
        s = update(s, int.from_bytes(padded[at : at + 16], "big"), int.from_bytes(padded[at + 16 : at + 32], "big"))
    lengths = (8 * len(data)).to_bytes(8, "little") + (8 * tag_len).to_bytes(8, "little")
    t = s[2] ^ int.from_bytes(lengths, "big")
    for _ in range(7):
        s = update(s, t, t)
    if tag_len == 16:
        return (s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6]).to_bytes(16, "big")
    return (s[0] ^ s[1] ^ s[2] ^ s[3]).to_bytes(16, "big") + (s[4] ^ s[5] ^ s[6] ^ s[7]).to_bytes(16, "big")


def hkdf(key: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF-SHA256 (RFC 5869, section 2)."""
    extracted = hmac.digest(salt or bytes(32), key, "sha256")
    out = last = b""
    while len(out) < length:
        last = hmac.digest(extracted, last + info + bytes([len(out) // 32 + 1]), "sha256")
        out += last
    return out[:length]


def mac_key(key: bytes, incarnation: int) -> bytes:
    """The key of an incarnation."""
    return hkdf(key, b"", INFO + incarnation.to_bytes(4, "big"), 16)


def seal(key: bytes, incarnation: int, packet: bytes, boundaries: list[int]) -> bytes:
    """The packet with its tags at the boundaries, whatever stood there."""
    derived = mac_key(key, incarnation)
    out = bytearray(packet)
    for at in boundaries:
        out[at : at + TAG] = mac(derived, bytes(out[:NONCE]), bytes(out[:at]))[:TAG]
    return bytes(out)


def believed(key: bytes, incarnation: int, packet: bytes, boundaries: list[int]) -> int:
    """How many bytes of what arrived may be believed."""
    whole = [at for at in boundaries if at + TAG <= len(packet)]
    if not whole:
        return 0
    at = whole[-1]
    tag = mac(mac_key(key, incarnation), packet[:NONCE], packet[:at])[:TAG]
    return at if hmac.compare_digest(tag, packet[at : at + TAG]) else 0


def boundaries(n: int, first: int, end: int) -> list[int]:
    """Where the tags of a packet of n coordinates and planes [first, end) begin."""
    out, at = [], 20
    for plane in range(first, end):
        at += n // 8 if plane < 8 else n
        # The mask of zero blocks, where it stands in front of plane 0.
        at += -(-n // 256) if plane == 0 and n > 448 else 0
        if plane in (0, 7, end - 1):
            out.append(at)
            at += TAG
    return out


def check_documents() -> None:
    """The test vectors of the RFCs."""
    block = bytes.fromhex
    number = lambda text: int.from_bytes(block(text), "big")
    # RFC 10032, appendix A.1.
    assert aes_round(number("000102030405060708090a0b0c0d0e0f"), number("101112131415161718191a1b1c1d1e1f")) == number(
        "7a7b4e5638782546a8c0477a3b813f43"
    )
    # Appendix A.2.1.
    state = """9b7e60b24cc873ea894ecc07911049a3 330be08f35300faa2ebf9a7b0d274658 7bbd5bd2b049f7b9b515cf26fbe7756c
        c35a00f55ea86c3886ec5e928f87db18 9ebccafce87cab446396c4334592c91f 58d83e31f256371e60fc6bb257114601
        1639b56ea322c88568a176585bc915de 640818ffb57dc0fbc2e72ae93457e39a"""
    after = """596ab773e4433ca0127c73f60536769d 790394041a3d26ab697bde865014652d 38cf49e4b65248acd533041b64dd0611
        16d8e58748f437bfff1797f780337cee 9689ecdf08228c74d7e3360cca53d0a5 a21746bb193a569e331e1aa985d0d729
        09d714e6fcf9177a8ed1cde7e3d259a6 61279ba73167f0ab76f0a11bf203bdff"""
    m0, m1 = number("033e6975b94816879e42917650955aa0"), number("fcc1968a46b7e97861bd6e89af6aa55f")
    assert update([number(x) for x in state.split()], m0, m1) == [number(x) for x in after.split()]
    # Appendix A.8.1.
    key, nonce, data = block("1001" + "00" * 14), block("100002" + "00" * 13), bytes(range(35))
    assert mac(key, nonce, data).hex() == "d3f09b2842ad301687d6902c921d7818"
    assert mac(key, nonce, data, 32).hex() == "9490e7c89d420c9f37417fa625eb38e8cad53c5cbec55285e8499ea48377f2a3"
    # RFC 5869, appendix A.1 and A.3.
    assert hkdf(bytes([11] * 22), bytes(range(13)), bytes(range(0xF0, 0xFA)), 42).hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    assert hkdf(bytes([11] * 22), b"", b"", 42).hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )


def case(number: int, key_len: int, incarnation: int, n: int, first: int, end: int) -> dict:
    """A sealed packet with made-up content, and what trims of it are worth."""
    random = hashlib.shake_256(b"sealed packet %d" % number)
    places = boundaries(n, first, end)
    content = random.digest(32 + places[-1] + TAG)
    key, packet = content[:key_len], bytearray(content[32:])
    packet[0], packet[11] = 0x51, first << 4 | packet[11] & 15
    for at in places:
        packet[at : at + TAG] = bytes(TAG)
    sealed = seal(key, incarnation, bytes(packet), places)
    lengths = sorted({0, 15, 20, *(at + more for at in places for more in (0, 1, 7, 8)), len(sealed)})
    return {
        "key": key.hex(),
        "incarnation": incarnation,
        "mac_key": mac_key(key, incarnation).hex(),
        "coordinates": n,
        "planes": [first, end],
        "boundaries": places,
        "sealed": sealed.hex(),
        "trims": [[length, believed(key, incarnation, sealed[:length], places)] for length in lengths],
    }


def vectors() -> dict:
    """The whole file."""
    cases = [
        (16, 1, 32, 0, 1),
        (32, 1, 32, 0, 10),
        (16, 0, 64, 0, 2),
        (32, 0xFFFFFFFF, 96, 0, 8),
        (16, 7, 448, 0, 9),
        (32, 7, 448, 0, 10),
        (16, 0x01020304, 448, 1, 10),
        (16, 2, 160, 3, 8),
        (16, 2, 160, 4, 7),
        (32, 3, 128, 8, 10),
        (32, 3, 128, 9, 10),
        (16, 4, 480, 0, 1),
        (16, 4, 704, 0, 9),
        (32, 4, 704, 1, 9),
    ]
    return {
        "format": "sealed packets of wire version 5: a key of the job, an incarnation, a packet whose tags begin at the boundaries, and how many "
        "bytes of it may be believed when it is trimmed to a length",
        "cases": [case(number, *rest) for number, rest in enumerate(cases)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the file is stale")
    arguments = parser.parse_args()
    check_documents()
    text = json.dumps(vectors(), indent=1) + "\n"
    if arguments.check:
        if not VECTORS.exists() or VECTORS.read_text() != text:
            print(f"{VECTORS.name} is stale: run host-encoder/tests/reference/seal.py", file=sys.stderr)
            return 1
        return 0
    VECTORS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
