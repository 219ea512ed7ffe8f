# SPDX-License-Identifier: Apache-2.0
"""Reads a transcript as docs/reference/transcript.md says, apart from the Rust code, and prints what it holds as JSON."""

import json
import sys
import zlib


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        taken = self.data[self.at : self.at + count]
        assert len(taken) == count, "it ends early"
        self.at += count
        return taken

    def byte(self):
        return self.take(1)[0]

    def n(self):
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def maybe(self):
        value = self.n()
        return None if value == 0 else value - 1


class Chance:
    def __init__(self):
        self.one, self.seen = 1 << 15, 0

    def learn(self, bit):
        step = (65_535 - self.one if bit else self.one) // (self.seen + 2)
        self.one = min(max(self.one + (step if bit else -step), 32), 65_503)
        self.seen = min(self.seen + 1, 62)


class Decisions:
    def __init__(self, data):
        self.data, self.at, self.low, self.high = data, 4, 0, (1 << 32) - 1
        self.code = int.from_bytes(data[:4].ljust(4, b"\0"), "big")

    def next(self, chance):
        split = self.low + ((self.high - self.low) * chance.one >> 16)
        bit = self.code <= split
        if bit:
            self.high = split
        else:
            self.low = split + 1
        chance.learn(bit)
        while self.low >> 24 == self.high >> 24:
            byte = self.data[self.at] if self.at < len(self.data) else 0
            self.at += 1
            self.low = (self.low << 8) & 0xFFFFFFFF
            self.high = (self.high << 8) & 0xFFFFFFFF | 255
            self.code = (self.code << 8) & 0xFFFFFFFF | byte
        return bit


def series(body):
    count, places = body.n(), body.n()
    table = [body.n() for _ in range(places)]
    if places < 2:
        return table * count
    decisions, named, bits = Decisions(body.take(body.n())), {}, {}
    before, values = (0, 0), []
    for _ in range(count):
        for place in range(min(3, places - 1)):
            if decisions.next(named.setdefault((before, place), Chance())):
                break
        else:
            place = places - 1 if places <= 4 else 3
            if places > 4:
                above = 0
                for bit in reversed(range((places - 4).bit_length())):
                    above = above << 1 | decisions.next(bits.setdefault(bit, Chance()))
                place += above
        before = (min(place, 3), before[0])
        values.append(table[place])
    return values


def message(body):
    record = {"from": body.n(), "message": body.n(), "codec": body.byte(), "planes": body.byte(), "row_log2": body.byte()}
    record.update(delivered=body.byte() == 1, coordinates_per_packet=body.n())
    record["tensors"] = [[body.n(), body.byte()] for _ in range(body.n())]
    record.update(started_ns=body.n(), duration_ns=body.n(), first_ns=body.maybe(), last_ns=body.maybe())
    record.update(duplicates=body.n(), probes=body.n(), asked=body.n(), held=series(body))
    return record


def main(path):
    with open(path, "rb") as file:
        data = Bytes(file.read())
    header = data.take(24)
    assert header[:10] == b"trimwireT\x01" and zlib.crc32(header) == int.from_bytes(data.take(4), "big")
    out = {"rank": int.from_bytes(header[12:14], "big"), "world": int.from_bytes(header[14:16], "big")}
    out.update(seed=int.from_bytes(header[16:24], "big"), messages=[], maps=[], other=0)
    while data.at < len(data.data):
        length, check = (int.from_bytes(data.take(4), "big") for _ in range(2))
        body = data.take(length)
        assert zlib.crc32(body) == check
        body = Bytes(body)
        kind = body.byte()
        if kind == 1:
            out["messages"].append(message(body))
        elif kind == 2:
            out["maps"].append([body.n(), body.n(), series(body)])
        else:
            out["other"] += 1
            body.at = length
        assert body.at == length
    print(json.dumps(out))


main(sys.argv[1])
