# SPDX-License-Identifier: Apache-2.0
"""Writes ladder.json: table entries, packets, and what must come of them. See README.md for its form.

The expectation is worked out here from the ladder's description, byte by byte, and from no P4; BMv2 1.15.5 gave the same
answers. Standard library only; same file every time. With --check it writes nothing and exits 1 if the file differs.
"""

import json
import struct
import sys
import zlib
from pathlib import Path

NEVER = 0xFFFFFFFF
GATEWAY, SENDER = bytes.fromhex("02aa00000000"), bytes.fromhex("020000000001")
NEXT_HOPS = {1: bytes.fromhex("020000000002"), 2: bytes.fromhex("020000000003")}
TRIMMABLE = {3: 5, 7: 4, 11: 3, 15: 2}
DROPPABLE = {19: 5, 23: 4, 27: 3, 31: 2}
TRIMMED, TRIMMED_LAST_HOP, CONTROL = 35, 43, 39
# DSCPs whose packets choose their path otherwise than by the low half of a hash over the 5-tuple: (action, half).
PATHS = {7: ("Ingress.hash_five_tuple", 1), 11: ("Ingress.hash_flow", 0), 15: ("Ingress.hash_flow", 1)}
HASH_SEED = 0x5EED0C0A  # the switch's own
# What the port of a host may claim: (DSCP, or any; priority; re-marked to, or believed). The highest priority decides.
HOST_PORT = 2
TRUST = [(3, 2, None), (7, 2, None), (19, 2, None), (None, 1, 0)]
MARKED_WHOLE = [7]  # trimmable DSCPs whose packets are marked CE where they are not trimmed
SERVICE, EXEMPT = 9217, 9999  # UDP destination ports: gradients, and a service that is never to be trimmed
HEAD = 20  # bytes of a DATA header
VXLAN = 4789  # UDP destination port
HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS = 0, 43, 44, 60
PORT, CAPPED_PORT = 1, 2
# PORT is one to a switch, too. Both have the address GATEWAY.
UPLINK, OTHERS = 0, bytes.fromhex("02aa00000099")


def internet_checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def crc16(data):
    """CRC-16/ARC, which v1model calls crc16."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def ipv4(address):
    return bytes(int(part) for part in address.split("."))


def ipv6(prefix, suffix):
    return bytes.fromhex(prefix).ljust(8, b"\0") + suffix.to_bytes(8, "big")


DESTINATION = {4: ipv4("10.0.1.9"), 6: ipv6("fd000001", 9)}
SPREAD = {4: ipv4("10.0.2.9"), 6: ipv6("fd000002", 9)}
CAPPED = {4: ipv4("10.0.3.9"), 6: ipv6("fd000003", 9)}
SOURCE = {4: ipv4("10.0.0.1"), 6: ipv6("fd00", 1)}


class Frame:
    """A frame as fields, so that the same description gives the bytes sent and the bytes expected."""

    def __init__(self, version=4, vlan=False, dscp=3, ecn=2, payload=300, protocol=17, options=b"", fragment=0, ttl=64,
                 checksum=0, padding=0, destination=None, source_port=4000, gateway=GATEWAY, udp_shorter=0, extension=b"",
                 destination_port=SERVICE, first_extension=FRAGMENT):
        self.version, self.vlan, self.dscp, self.ecn, self.ttl = version, vlan, dscp, ecn, ttl
        self.options, self.fragment, self.protocol, self.extension = options, fragment, protocol, extension
        self.destination = destination or DESTINATION[version]
        self.source_port, self.checksum, self.udp_shorter = source_port, checksum, udp_shorter
        self.destination_port, self.first_extension = destination_port, first_extension
        self.macs = (gateway, SENDER)
        self.payload = bytes(i % 251 for i in range(payload))
        self.padding = bytes(padding)
        # Offset of layer 4 and of what must survive a trim.
        self.l2 = 18 if vlan else 14
        self.l4 = self.l2 + (20 + len(options) if version == 4 else 40 + len(extension))
        self.head = self.l4 + 8 + HEAD

    def datagram(self):
        if self.protocol == 17 and not self.fragment & 0x1FFF:
            length = 8 + len(self.payload) - self.udp_shorter
            return struct.pack(">4H", self.source_port, self.destination_port, length, self.checksum) + self.payload
        return struct.pack(">2H", self.source_port, self.destination_port) + self.payload

    def to_bytes(self):
        l4 = self.datagram()
        traffic_class = self.dscp << 2 | self.ecn
        if self.version == 4:
            words = 5 + len(self.options) // 4
            header = bytearray(struct.pack(
                ">BBHHHBBH4s4s", 0x40 | words, traffic_class, words * 4 + len(l4), 77, self.fragment, self.ttl, self.protocol, 0,
                SOURCE[4], self.destination) + self.options)
            header[10:12] = struct.pack(">H", internet_checksum(bytes(header)))
        else:
            next_header = self.first_extension if self.extension else self.protocol
            header = struct.pack(">IHBB16s16s", 6 << 28 | traffic_class << 20 | 0x12345, len(self.extension) + len(l4), next_header,
                                 self.ttl, SOURCE[6], self.destination) + self.extension
        ether_type = b"\x08\x00" if self.version == 4 else b"\x86\xdd"
        tag = b"\x81\x00\x60\x05" if self.vlan else b""
        return self.macs[0] + self.macs[1] + tag + ether_type + bytes(header) + l4 + self.padding

    def forwarded(self, trim_to=None, congestion=False, port=PORT, trimmed=TRIMMED, remarked=None):
        """The bytes with which it leaves: trimmed to `trim_to` bytes of frame, or marked, or neither; perhaps with another DSCP."""
        data = bytearray(self.to_bytes()[:trim_to])
        data[0:12] = NEXT_HOPS[port] + data[0:6]
        ip = self.l2
        dscp = self.dscp if remarked is None else remarked
        traffic_class = (trimmed if trim_to else dscp) << 2 | (3 if congestion else self.ecn)
        if self.version == 4:
            data[ip + 1] = traffic_class
            data[ip + 8] -= 1
            if trim_to:
                data[ip + 2:ip + 4] = struct.pack(">H", trim_to - ip)
            data[ip + 10:ip + 12] = b"\0\0"
            data[ip + 10:ip + 12] = struct.pack(">H", internet_checksum(bytes(data[ip:self.l4])))
        else:
            data[ip:ip + 4] = struct.pack(">I", 6 << 28 | traffic_class << 20 | 0x12345)
            data[ip + 7] -= 1
            if trim_to:
                data[ip + 4:ip + 6] = struct.pack(">H", trim_to - ip - 40)
        if trim_to:
            said = struct.unpack_from(">H", data, self.l4 + 4)[0]
            data[self.l4 + 4:self.l4 + 8] = struct.pack(">HH", min(said, trim_to - self.l4), 0)
        return bytes(data)


class Tunnel(Frame):
    """A frame in VXLAN. `trim_to` counts bytes of the outer frame; `at` is where the inner one starts."""

    def __init__(self, inner, **outer):
        super().__init__(payload=0, destination_port=VXLAN, **outer)
        self.inner, self.at = inner, self.l4 + 16
        self.payload = bytes.fromhex("0800000000002a00") + inner.to_bytes()
        self.head = self.at + inner.head

    def forwarded(self, trim_to=None, congestion=False, port=PORT, trimmed=TRIMMED, remarked=None):
        data = bytearray(super().forwarded(trim_to, congestion, port, trimmed, remarked))
        if trim_to:
            inner = mended(data[self.at:], self.inner, trimmed)
            data[self.at:] = inner
        return bytes(data)


def mended(data, frame, trimmed):
    """A trimmed frame in a tunnel: lengths and DSCP of what is left of it, and nothing else. A wrong checksum stays as wrong as it was."""
    ip = frame.l2

    def total():
        words = struct.unpack(">10H", data[ip:ip + 20])
        return sum(words) % 0xFFFF

    def shorten(at, length):
        data[at:at + 2] = struct.pack(">H", min(length, struct.unpack_from(">H", data, at)[0]))

    before = total()
    if frame.version == 4:
        shorten(ip + 2, len(data) - ip)
        data[ip + 1] = trimmed << 2 | data[ip + 1] & 3
        said = struct.unpack_from(">H", data, ip + 10)[0]
        data[ip + 10:ip + 12] = struct.pack(">H", (said + before - total()) % 0xFFFF)
    else:
        shorten(ip + 4, len(data) - ip - 40)
        first = struct.unpack_from(">I", data, ip)[0]
        data[ip:ip + 4] = struct.pack(">I", first & ~(0x3F << 22) | trimmed << 22)
    shorten(frame.l4 + 4, len(data) - frame.l4)
    data[frame.l4 + 6:frame.l4 + 8] = b"\0\0"
    return data


def extension(*headers):
    """IPv6 extension headers in front of UDP: pairs of what each is and how many times 8 bytes it has."""
    following = [kind for kind, _ in headers[1:]] + [17]
    return {"first_extension": headers[0][0],
            "extension": b"".join(bytes([after, units - 1]) + bytes(i + 1 & 0xFF for i in range(8 * units - 2))
                                  for (_, units), after in zip(headers, following))}


def policy(queue, mark=NEVER, shallow=NEVER, deep=NEVER, drop=NEVER, shallow_size=256, deep_size=104, trim_drop=NEVER,
           port=PORT, trimmed=TRIMMED, trim_queue=6):
    """The queue's entries for both importances. A threshold of 0 is always reached, NEVER never: queues are empty here."""
    return [{"egress_port": port, "queue": queue, "importance": importance, "mark_at": mark, "shallow_at": shallow,
             "deep_at": deep, "drop_at": drop, "shallow_size": shallow_size, "deep_size": deep_size,
             "trimmed_dscp": trimmed, "trim_queue": trim_queue, "trim_drop_at": trim_drop} for importance in (0, 1)]


CASES = []


def case(name, policies, frame, expect, counted, port=PORT, ingress_port=0):
    data = frame.to_bytes() if isinstance(frame, Frame) else frame
    CASES.append({
        "name": name,
        "policies": policies,
        "ingress_port": ingress_port,
        "frame": data.hex(),
        "expect": None if expect is None else {"port": port, "frame": expect.hex()},
        "counters": {f"{array}[{index}]": [1, len(data)] for array, index in counted},
    })


def admitted(queue, port=PORT):
    return [("Ingress.admitted", port * 8 + queue), ("Egress.transmitted", port * 8 + queue)]


def marked(queue):
    return [*admitted(queue), ("Ingress.marked", PORT * 8 + queue)]


def trimmed_from(queue, port=PORT, trim_queue=6):
    return [("Ingress.trimmed", port * 8 + queue), ("Egress.trim_transmitted", port * 8 + queue),
            ("Egress.transmitted", port * 8 + trim_queue)]


def dropped(array, queue, port=PORT):
    return [(f"Ingress.{array}", port * 8 + queue)]


UNROUTABLE = [("Ingress.unroutable", 0)]


def wires():
    """Frames for another port's address, and packets that would leave where they came in."""
    for version in (4, 6):
        for vlan in (False, True):
            where = f"IPv{version}{' tagged' if vlan else ''}: "
            stray, own = Frame(version=version, vlan=vlan, gateway=OTHERS), Frame(version=version, vlan=vlan)
            case(where + "for another port: dropped", [], stray, None, [("Ingress.wrong_neighbour", UPLINK)])
            case(where + "from a host: its address does not matter", [], stray, stray.forwarded(), admitted(5), ingress_port=HOST_PORT)
            case(where + "turned back: dropped", [], own, None, [("Ingress.turned_back", PORT)], ingress_port=PORT)


def rungs(version, vlan, ecn):
    """Every rung of the ladder for one protocol and one importance."""
    def frame(**fields):
        return Frame(version=version, vlan=vlan, ecn=ecn, **fields)

    where = f"IPv{version}{' tagged' if vlan else ''}, ECN {ecn}: "

    def check(name, policies, sent, expect, counted, port=PORT, ingress_port=0):
        case(where + name, policies, sent, expect, counted, port, ingress_port)

    sent = frame()
    head = sent.head
    check("without a policy everything is admitted", [], sent, sent.forwarded(), admitted(5))
    check("trimmable below shallow_at is admitted and not marked", policy(5, mark=0), sent, sent.forwarded(), admitted(5))
    check("at shallow_at it is trimmed to shallow_size", policy(5, 0, 0), sent, sent.forwarded(256), trimmed_from(5))
    check("at deep_at it is trimmed to deep_size", policy(5, 0, 0, 0), sent, sent.forwarded(104), trimmed_from(5))
    check("drop_at does not stop a trim", policy(5, 0, 0, 0, 0), sent, sent.forwarded(104), trimmed_from(5))
    sent = frame(dscp=15, checksum=0x1234)
    check("a trim clears the UDP checksum", policy(2, 0, 0), sent, sent.forwarded(256), trimmed_from(2))
    check("no trim leaves the UDP checksum alone", policy(2, 0), sent, sent.forwarded(), admitted(2))
    sent = frame()
    check("never trimmed inside the head", policy(5, 0, 0, 0, deep_size=20), sent, sent.forwarded(head), trimmed_from(5))
    sent = frame(payload=256 - head + HEAD)
    check("exactly the size: not trimmed", policy(5, 0, 0), sent, sent.forwarded(), admitted(5))
    sent = frame(payload=257 - head + HEAD)
    check("one byte more: trimmed", policy(5, 0, 0), sent, sent.forwarded(256), trimmed_from(5))
    sent = frame(payload=40)
    check("shorter than the size: not trimmed", policy(5, 0, 0), sent, sent.forwarded(), admitted(5))
    check("shorter than the size at drop_at: dropped", policy(5, 0, 0, NEVER, 0), sent, None, dropped("tail_dropped", 5))
    sent = frame(payload=HEAD)
    check("nothing but a head is not trimmed", policy(5, 0, 0, 0, deep_size=0), sent, sent.forwarded(), admitted(5))
    sent = frame(payload=HEAD - 1)
    check("less than a head is not trimmed", policy(5, 0, 0, 0, deep_size=0), sent, sent.forwarded(), admitted(5))
    sent = frame(payload=40, padding=300)
    check("Ethernet padding is not worth a trim", policy(5, 0, 0), sent, sent.forwarded(), admitted(5))
    sent = frame(udp_shorter=250)
    check("a UDP length does not grow", policy(5, 0, 0), sent, sent.forwarded(256), trimmed_from(5))
    sent = frame()
    # A head that finds no room is no reason to drop a packet that does.
    check("trim queue full, drop_at not reached: admitted whole", policy(5, 0, 0, trim_drop=0), sent, sent.forwarded(), admitted(5))
    check("trim queue full, deep_at but not drop_at reached: admitted whole", policy(5, 0, 0, 0, trim_drop=0), sent,
          sent.forwarded(), admitted(5))
    check("trim queue full, drop_at reached: dropped", policy(5, 0, 0, 0, 0, trim_drop=0), sent, None, dropped("trim_dropped", 5))
    sent = frame(dscp=MARKED_WHOLE[0])
    check("trimmable and marked on request below shallow_at", policy(4, 0), sent, sent.forwarded(congestion=ecn != 0),
          marked(4) if ecn else admitted(4))
    check("trimmable and marked on request, but below mark_at", policy(4), sent, sent.forwarded(), admitted(4))
    check("a request for marks does not stop a trim", policy(4, 0, 0), sent, sent.forwarded(256), trimmed_from(4))
    sent = frame(dscp=TRIMMED)
    check("TRIMMED is never trimmed, dropped or marked below trim_drop_at", policy(6, 0, 0, 0, 0), sent, sent.forwarded(), admitted(6))
    check("TRIMMED at trim_drop_at: dropped", policy(6, trim_drop=0), sent, None, dropped("tail_dropped", 6))
    sent = frame(dscp=19)
    check("not trimmable at mark_at: ECT is marked", policy(5, 0), sent, sent.forwarded(congestion=ecn != 0),
          marked(5) if ecn else admitted(5))
    for what, sent in (("not trimmable", sent), ("trimmable but TCP", frame(protocol=6)), ("trimmable but SCTP", frame(protocol=132))):
        check(f"{what} at shallow_at: not-ECT is dropped", policy(5, 0, 0, 0), sent,
              sent.forwarded(congestion=True) if ecn else None, marked(5) if ecn else dropped("selective_dropped", 5))
        check(f"{what} at drop_at: dropped", policy(5, 0, 0, 0, 0), sent, None,
              dropped("tail_dropped" if ecn else "selective_dropped", 5))
    sent = frame(dscp=CONTROL)
    check("CONTROL goes to queue 7", [], sent, sent.forwarded(), admitted(7))
    sent = frame(dscp=0)
    check("an unknown DSCP is best effort", [], sent, sent.forwarded(), admitted(0))
    for dscp, queue in (TRIMMABLE | DROPPABLE).items():
        sent = frame(dscp=dscp, payload=18)
        check(f"DSCP {dscp} goes to queue {queue}", [], sent, sent.forwarded(), admitted(queue))
    for hops in (0, 1):
        check(f"{hops} hops left: dropped", [], frame(ttl=hops), None, UNROUTABLE)
    sent = frame(ttl=2)
    check("2 hops left: forwarded", [], sent, sent.forwarded(), admitted(5))
    for source_port in range(4000, 4006):
        sent = frame(destination=SPREAD[version], source_port=source_port)
        port = ecmp_port(sent)
        check(f"ECMP sends source port {source_port} to port {port}", [], sent, sent.forwarded(port=port), admitted(5, port), port)
        for dscp, (action, half) in PATHS.items():
            sent = frame(destination=SPREAD[version], source_port=source_port, dscp=dscp)
            port = ecmp_port(sent, action, half)
            check(f"{action}({half}) sends source port {source_port} to port {port}", [], sent, sent.forwarded(port=port),
                  admitted(TRIMMABLE[dscp], port), port)
    # Of TCP there is no spraying: the source port is the flow's.
    sent = frame(destination=SPREAD[version], dscp=11, protocol=6)
    port = ecmp_port(sent)
    check("hash_flow keeps the source port of TCP", [], sent, sent.forwarded(port=port), admitted(3, port), port)

    sent = frame()
    check("a port may have a trimmed DSCP of its own", policy(5, 0, 0, trimmed=TRIMMED_LAST_HOP), sent,
          sent.forwarded(256, trimmed=TRIMMED_LAST_HOP), trimmed_from(5))
    sent = frame(dscp=TRIMMED_LAST_HOP)
    check("what another port's DSCP says was trimmed is not trimmed again", policy(6, 0, 0, 0, 0), sent, sent.forwarded(), admitted(6))
    for destination_port, exempt in ((EXEMPT, True), (EXEMPT + 1, False)):
        sent = frame(destination_port=destination_port)
        if not exempt:
            check("a flow beside the exempt one is trimmed", policy(5, 0, 0), sent, sent.forwarded(256), trimmed_from(5))
        elif ecn:
            check("an exempt flow is marked, not trimmed", policy(5, 0, 0), sent, sent.forwarded(congestion=True), marked(5))
        else:
            check("an exempt flow is dropped, not trimmed", policy(5, 0, 0), sent, None, dropped("selective_dropped", 5))
    check("an exempt DSCP stays in its queue", [], frame(destination_port=EXEMPT, dscp=15),
          frame(destination_port=EXEMPT, dscp=15).forwarded(), admitted(2))
    sent = frame(destination_port=EXEMPT, dscp=TRIMMED)
    check("no exemption undoes a trim", policy(6, 0, 0, 0, 0), sent, sent.forwarded(), admitted(6))

    # The bucket of the capped port holds one byte less than the shallow size and fills within a microsecond.
    capped = {"destination": CAPPED[version]}
    sent = frame(**capped)
    over, under = (policy(5, 0, 0, deep, port=CAPPED_PORT) for deep in (NEVER, 0))
    check("beyond the port's cap nothing is trimmed: admitted whole", over, sent, sent.forwarded(port=CAPPED_PORT),
          admitted(5, CAPPED_PORT), CAPPED_PORT)
    check("beyond the port's cap and at drop_at: dropped", policy(5, 0, 0, NEVER, 0, port=CAPPED_PORT), sent, None,
          dropped("trim_dropped", 5, CAPPED_PORT))
    check("trimmed packets within the port's cap leave", under, sent, sent.forwarded(104, port=CAPPED_PORT),
          trimmed_from(5, CAPPED_PORT), CAPPED_PORT)
    sent = frame(dscp=TRIMMED, **capped)
    check("TRIMMED beyond the port's cap is dropped", policy(6, port=CAPPED_PORT), sent, None,
          dropped("tail_dropped", 6, CAPPED_PORT))
    sent = frame(dscp=TRIMMED, payload=150 - head + HEAD, **capped)
    check("TRIMMED within the port's cap leaves", policy(6, port=CAPPED_PORT), sent, sent.forwarded(port=CAPPED_PORT),
          admitted(6, CAPPED_PORT), CAPPED_PORT)
    sent = frame(dscp=19, **capped)
    check("whole packets have no cap", policy(5, port=CAPPED_PORT), sent, sent.forwarded(port=CAPPED_PORT),
          admitted(5, CAPPED_PORT), CAPPED_PORT)


def claims(version, vlan, ecn):
    """What a host says of its packets, at a port that does not believe everything."""
    where = f"IPv{version}{' tagged' if vlan else ''}, ECN {ecn}: "

    def check(name, policies, dscp, counted, **forwarded):
        sent = Frame(version=version, vlan=vlan, ecn=ecn, dscp=dscp)
        case(where + name, policies, sent, sent.forwarded(**forwarded), counted, ingress_port=HOST_PORT)

    # Were they believed, the full trim queue would drop the first, and the second would be served first.
    check("a host port that claims TRIMMED is best effort", policy(6, trim_drop=0), TRIMMED, admitted(0), remarked=0)
    check("a host port that claims CONTROL is best effort", [], CONTROL, admitted(0), remarked=0)
    check("what a host port may claim is believed", policy(5, 0, 0), 3, trimmed_from(5), trim_to=256)
    check("a re-marked packet is not trimmed", policy(3, 0, 0), 11, admitted(0), remarked=0)


def sonic():
    """What SONiC's test plan for packet trimming says in packets, by the number of its test case (docs/how-to/sonic.md has all of them)."""
    for version in (4, 6):
        def check(number, name, policies, sent, expect, counted, port=PORT, version=version):
            case(f"IPv{version}: SONiC {number}, {name}", policies, sent, expect, counted, port)

        sent = Frame(version=version, payload=1300)
        check(2, "trimmed to 256 bytes, one hop less", policy(5, 0, 0), sent, sent.forwarded(256), trimmed_from(5))
        check(2, "trimmed to 1,000 bytes", policy(5, 0, 0, shallow_size=1000), sent, sent.forwarded(1000), trimmed_from(5))
        check(3, "the trimmed DSCP is 48", policy(5, 0, 0, trimmed=48), sent, sent.forwarded(256, trimmed=48), trimmed_from(5))
        two_ports = policy(5, 0, 0, 0, trimmed=10) + policy(5, 0, 0, 0, port=CAPPED_PORT, trimmed=20)
        check(3, "the trimmed DSCP of one port is 10, of another 20", two_ports, sent, sent.forwarded(104, trimmed=10), trimmed_from(5))
        other = Frame(version=version, payload=1300, destination=CAPPED[version])
        check(3, "the trimmed DSCP of one port is 10, of another 20", two_ports, other,
              other.forwarded(104, port=CAPPED_PORT, trimmed=20), trimmed_from(5, CAPPED_PORT), CAPPED_PORT)
        other = Frame(version=version, payload=1300, dscp=7)
        check(3, "what other queues send keeps its DSCP", policy(5, 0, 0), other, other.forwarded(), admitted(4))
        check(6, "the trim queue may be any queue", policy(5, 0, 0, trim_queue=4), sent, sent.forwarded(256),
              trimmed_from(5, trim_queue=4))
        for queue, dscp in ((5, 3), (2, 15)):
            counted = Frame(version=version, payload=1300, dscp=dscp)
            check(13, "trims are counted at the queue that was full", policy(5, 0, 0) + policy(2, 0, 0), counted,
                  counted.forwarded(256), trimmed_from(queue))


def stir(value, seed):
    """The last step of MurmurHash3 over 32 bits, which makes of one hash as many as there are seeds."""
    if seed == 0:
        return value
    value ^= seed
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> shift) * factor & 0xFFFFFFFF
    return value ^ value >> 16


def ecmp_port(frame, action="Ingress.hash_five_tuple", half=0):
    source_port = 0 if action == "Ingress.hash_flow" and frame.protocol == 17 else frame.source_port

    def fold(address):
        folded = bytes(4)
        for start in range(0, len(address), 4):
            folded = bytes(a ^ b for a, b in zip(folded, address[start:start + 4]))
        return folded

    flow = fold(SOURCE[frame.version]) + fold(frame.destination) + struct.pack(">BHH", frame.protocol, source_port, frame.destination_port)
    members = sorted(NEXT_HOPS)
    path = stir(zlib.crc32(flow), HASH_SEED) >> 16 * half & 0xFFFF
    return members[crc16(path.to_bytes(2, "big")) % len(members)]


def with_bytes(data, offset, patch, checksum_at=None):
    changed = bytearray(data)
    changed[offset:offset + len(patch)] = patch
    if checksum_at is not None:
        changed[checksum_at:checksum_at + 2] = b"\0\0"
        changed[checksum_at:checksum_at + 2] = struct.pack(">H", internet_checksum(bytes(changed[14:34])))
    return bytes(changed)


def oddities():
    trimming = policy(5, 0, 0)
    sent = Frame(options=b"\x94\x04\0\0\x01\x01\x01\x01")
    case("IPv4 options survive a trim", trimming, sent, sent.forwarded(256), trimmed_from(5))
    case("IPv4 options are part of the head", policy(5, 0, 0, 0, deep_size=20), sent, sent.forwarded(sent.head), trimmed_from(5))
    sent = Frame(options=b"\x01" * 40)
    case("the longest IPv4 header", policy(5, 0, 0, 0, deep_size=20), sent, sent.forwarded(sent.head), trimmed_from(5))
    sent = Frame(fragment=0x2000)
    case("a first fragment is not trimmed", trimming, sent, sent.forwarded(congestion=True), marked(5))
    sent = Frame(fragment=0x2010)
    case("a later fragment is not trimmed", trimming, sent, sent.forwarded(congestion=True), marked(5))
    sent = Frame(fragment=0x0010, ecn=0)
    case("a last fragment is not trimmable: not-ECT is dropped", trimming, sent, None, dropped("selective_dropped", 5))
    sent = Frame(fragment=0x4000)
    case("don't-fragment is no fragment", trimming, sent, sent.forwarded(256), trimmed_from(5))
    sent = Frame(version=6, extension=struct.pack(">BBHI", 17, 0, 1, 7))
    case("an IPv6 fragment is not trimmed", trimming, sent, sent.forwarded(congestion=True), marked(5))
    sent = Frame(ecn=3)
    case("a packet marked upstream is important", trimming, sent, sent.forwarded(256), trimmed_from(5))

    whole = Frame().to_bytes()
    long_length = with_bytes(whole, 16, struct.pack(">H", 1454), checksum_at=24)
    expected = with_bytes(Frame().forwarded(256), 0, b"")
    case("a total length beyond the frame (trimmed upstream, not rewritten) does not mislead", trimming, long_length, expected, trimmed_from(5))

    case("no route", [], Frame(destination=ipv4("10.9.9.9")), None, UNROUTABLE)
    case("no IPv6 route", [], Frame(version=6, destination=ipv6("fd000099", 1)), None, UNROUTABLE)
    case("a broadcast frame", [], Frame(gateway=b"\xff" * 6), None, UNROUTABLE)
    case("a multicast frame", [], Frame(version=6, gateway=bytes.fromhex("333300000001")), None, UNROUTABLE)
    case("not IP", [], with_bytes(whole, 12, b"\x12\x34"), None, UNROUTABLE)
    case("ARP", [], with_bytes(whole, 12, b"\x08\x06"), None, UNROUTABLE)
    case("two VLAN tags", [], with_bytes(Frame(vlan=True).to_bytes(), 16, b"\x81\x00"), None, UNROUTABLE)
    case("a damaged IPv4 header", [], with_bytes(whole, 24, bytes([whole[24] ^ 1])), None, UNROUTABLE)
    case("IPv4 with version 5", [], with_bytes(whole, 14, b"\x55", checksum_at=24), None, UNROUTABLE)
    case("IPv6 with version 5", [], with_bytes(Frame(version=6).to_bytes(), 14, b"\x50"), None, UNROUTABLE)
    for words in range(5):
        case(f"IPv4 with a header of {words} words", [], with_bytes(whole, 14, bytes([0x40 | words]), checksum_at=24), None, UNROUTABLE)
    case("IPv4 with a total length shorter than its header", [], with_bytes(whole, 16, b"\0\x13", checksum_at=24), None, UNROUTABLE)
    # The end of the frame inside each header in turn.
    for length, where in ((14, "after Ethernet"), (33, "in the IPv4 header")):
        case(f"a frame that ends {where}", [], whole[:length], None, UNROUTABLE)
    case("a frame that ends in the IPv4 options", [], with_bytes(whole, 14, b"\x4f")[:50], None, UNROUTABLE)
    case("a frame that ends in the IPv6 header", [], Frame(version=6).to_bytes()[:53], None, UNROUTABLE)
    sent = Frame(payload=0)
    case("a frame that ends in the UDP header is not trimmed", trimming, sent.to_bytes()[:40],
         sent.forwarded(congestion=True)[:40], marked(5))


def arp(asked, asker=SOURCE[4], vlan=False, operation=1, form=(1, 0x0800, 6, 4), gateway=b"\xff" * 6, mac=SENDER, target=bytes(6), padding=18):
    """Ethernet and RFC 826; `asker` at `mac` asks for `asked`."""
    ether_type = b"\x81\x00\x60\x05\x08\x06" if vlan else b"\x08\x06"
    return gateway + mac + ether_type + struct.pack(">HHBBH", *form, operation) + mac + asker + target + asked + bytes(padding)


def neighbour(kind, source, destination, target, flags=0, options=b"", vlan=False, macs=(GATEWAY, SENDER), hops=255, code=0):
    """Ethernet, IPv6 and RFC 4861, sections 4.3 and 4.4."""
    body = struct.pack(">BBHI", kind, code, 0, flags) + target + options
    total = internet_checksum(source + destination + struct.pack(">II", len(body), 58) + body)
    ether_type = b"\x81\x00\x60\x05\x86\xdd" if vlan else b"\x86\xdd"
    header = struct.pack(">IHBB", 6 << 28, len(body), 58, hops) + source + destination
    return b"".join(macs) + ether_type + header + with_bytes(body, 2, struct.pack(">H", total))


def neighbours():
    """Questions for neighbours are answered where a route leads elsewhere, and nothing else of ARP and ICMPv6 is."""
    hop, own = NEXT_HOPS[1], NEXT_HOPS[2]
    solicited, override = 1 << 30, 1 << 29

    def check(name, sent, expect, port=2):
        case(name, [], sent, expect, UNROUTABLE if expect is None else admitted(0, port), port, ingress_port=port)

    known = DESTINATION[4]
    for vlan in (False, True):
        where = "ARP, tagged: " if vlan else "ARP: "
        for what, fields in (("a request is answered with the next hop's MAC address", {}), ("a request of one host is answered", {"gateway": GATEWAY}),
                             ("a request without padding is answered", {"padding": 0}),
                             ("a probe for another port's address is answered", {"asker": bytes(4)})):
            sent = arp(known, vlan=vlan, **fields)
            asker = fields.get("asker", SOURCE[4])
            answer = arp(asker, known, vlan, 2, gateway=SENDER, mac=hop, target=SENDER, padding=fields.get("padding", 18))
            check(where + what, sent, answer)
        check(where + "a request for an address behind the port that asks is not answered", arp(known, vlan=vlan), None, PORT)
        check(where + "a request for an unknown address is not answered", arp(ipv4("10.9.9.9"), vlan=vlan), None)
    check("ARP: a request from another port is answered with another hop", arp(CAPPED[4]), arp(SOURCE[4], CAPPED[4], operation=2, gateway=SENDER, mac=own, target=SENDER), PORT)
    for what, fields in (("a reply", {"operation": 2}), ("a request of RARP", {"operation": 3}), ("a request of another medium", {"form": (6, 0x0800, 6, 4)}),
                         ("a request of another protocol", {"form": (1, 0x0806, 6, 4)}), ("a request with long addresses", {"form": (1, 0x0800, 8, 4)}),
                         ("a request with short addresses", {"form": (1, 0x0800, 6, 2)})):
        check(f"ARP: {what} is not answered", arp(known, **fields), None)
    for length in (20, 30, 41):
        check(f"ARP: a frame that ends after {length} bytes", arp(known)[:length], None)

    known = DESTINATION[6]
    group, everybody = bytes.fromhex("ff0200000000000000000001ff") + known[13:], bytes.fromhex("ff02" + "00" * 13 + "01")
    group_mac, nobody = bytes.fromhex("3333ff") + known[13:], bytes(16)
    source_mac = b"\1\1" + SENDER
    answer_option = b"\2\1" + hop
    for vlan in (False, True):
        where = "ND, tagged: " if vlan else "ND: "

        def ask(destination=group, target=known, source=SOURCE[6], options=source_mac, vlan=vlan, **fields):
            return neighbour(fields.pop("kind", 135), source, destination, target, options=options, vlan=vlan,
                             **{"macs": (group_mac, SENDER)} | fields)

        answer = neighbour(136, known, SOURCE[6], known, solicited | override, answer_option, vlan, (SENDER, hop))
        check(where + "a solicitation is answered with the next hop's MAC address", ask(), answer)
        check(where + "a solicitation to the address itself is answered", ask(known, macs=(GATEWAY, SENDER)), answer)
        check(where + "a solicitation without an option is answered", ask(options=b""), answer)
        check(where + "a solicitation with a nonce is answered without it", ask(options=source_mac + b"\x0e\1abcdef"), answer)
        check(where + "who has no address yet hears of another's with everybody", ask(source=nobody, options=b""),
              neighbour(136, known, everybody, known, override, answer_option, vlan, (bytes.fromhex("333300000001"), hop)))
        check(where + "a solicitation for an address behind the port that asks is not answered", ask(), None, PORT)
        check(where + "nor is one of who has no address yet", ask(source=nobody, options=b""), None, PORT)
        check(where + "a solicitation for an unknown address is not answered", ask(target=ipv6("fd000099", 1)), None)
        check(where + "a solicitation that crossed a router is not answered", ask(hops=254), None)
        check(where + "a solicitation with a code is not answered", ask(code=1), None)
        for kind in (133, 134, 136, 137):
            check(f"{where}ICMPv6 of type {kind} to a group is not answered", ask(kind=kind), None)
        # To a host's address it is a packet like any other.
        ping = ask(known, kind=128, macs=(GATEWAY, SENDER))
        forwarded = with_bytes(ping, 0, hop + GATEWAY)
        hops = (18 if vlan else 14) + 7
        case(where + "an echo request is forwarded", [], ping, with_bytes(forwarded, hops, b"\xfe"), admitted(0), ingress_port=2)
        check(where + "a solicitation that ends in its target", ask()[:70], None)


def extensions():
    """IPv6 extension headers belong to the head; what is not looked through is not trimmed."""
    for vlan in (False, True):
        where = f"IPv6{' tagged' if vlan else ''}: "
        three = [(HOP_BY_HOP, 1), (ROUTING, 5), (DESTINATION_OPTIONS, 2)]
        for name, headers in (("hop-by-hop options", three[:1]), ("a routing header", three[1:2]), ("destination options", three[2:]),
                              ("three extension headers", three), ("an extension header of 128 bytes", [(ROUTING, 16)])):
            sent = Frame(version=6, vlan=vlan, payload=600, **extension(*headers))
            case(f"{where}{name}, trimmed to shallow_size", policy(5, 0, 0), sent, sent.forwarded(256), trimmed_from(5))
            case(f"{where}{name}, part of the head", policy(5, 0, 0, 0, deep_size=20), sent, sent.forwarded(sent.head), trimmed_from(5))
            case(f"{where}{name}, forwarded whole", policy(5), sent, sent.forwarded(), admitted(5))
        for name, headers in (("an extension header of 136 bytes", [(ROUTING, 17)]), ("four extension headers", [*three, (ROUTING, 3)]),
                              ("hop-by-hop options behind others", [(ROUTING, 1), (HOP_BY_HOP, 1)]),
                              ("a fragment behind hop-by-hop options", [(HOP_BY_HOP, 1), (FRAGMENT, 1)]),
                              ("an authentication header", [(51, 3)])):
            sent = Frame(version=6, vlan=vlan, payload=600, **extension(*headers))
            case(f"{where}{name} is not trimmed", policy(5, 0, 0), sent, sent.forwarded(congestion=True), marked(5))
        sent = Frame(version=6, vlan=vlan, destination_port=EXEMPT, **extension(*three))
        case(f"{where}an exempt flow behind extension headers is marked, not trimmed", policy(5, 0, 0), sent,
             sent.forwarded(congestion=True), marked(5))
    for source_port in range(4000, 4004):
        sent = Frame(version=6, destination=SPREAD[6], source_port=source_port, **extension(*three))
        port = ecmp_port(sent)
        case(f"IPv6: ECMP looks behind extension headers, port {port}", [], sent, sent.forwarded(port=port), admitted(5, port), port)
    sent = Frame(version=6, **extension(*three))
    case("a frame that ends in an extension header is not trimmed", policy(5, 0, 0), sent.to_bytes()[:70],
         sent.forwarded(congestion=True)[:70], marked(5))


def tunnels():
    """VXLAN: sizes are those of the inner frame, and the inner head is mended as the outer one is."""
    for version in (4, 6):
        for inner in (4, 6):
            for vlan in (False, True):
                def tunnel(fields=None, version=version, vlan=vlan, inner=inner, **outer):
                    return Tunnel(Frame(**{"version": inner, "payload": 600, "gateway": bytes(5) + b"\2"} | (fields or {})),
                                  version=version, vlan=vlan, **outer)

                where = f"IPv{inner} in VXLAN over IPv{version}{' tagged' if vlan else ''}: "

                def check(name, policies, sent, expect, counted, where=where):
                    case(where + name, policies, sent, expect, counted)

                sent = tunnel()
                check("forwarded whole", policy(5), sent, sent.forwarded(), admitted(5))
                check("trimmed to shallow_size of the inner frame", policy(5, 0, 0), sent, sent.forwarded(sent.at + 256), trimmed_from(5))
                check("trimmed to deep_size of the inner frame", policy(5, 0, 0, 0), sent, sent.forwarded(sent.at + 104), trimmed_from(5))
                check("never trimmed inside the inner head", policy(5, 0, 0, 0, deep_size=20), sent, sent.forwarded(sent.head), trimmed_from(5))
                sent = tunnel({"payload": 256 - sent.inner.head + HEAD})
                check("exactly the inner size is not trimmed", policy(5, 0, 0), sent, sent.forwarded(), admitted(5))
                sent = tunnel({"payload": 257 - sent.inner.head + HEAD})
                check("one byte more than the inner size is trimmed", policy(5, 0, 0), sent, sent.forwarded(sent.at + 256), trimmed_from(5))
                sent = tunnel({"udp_shorter": 500, "checksum": 0x1234}, checksum=0x4321)
                check("no inner length grows", policy(5, 0, 0), sent, sent.forwarded(sent.at + 256), trimmed_from(5))
                sent = tunnel(dscp=TRIMMED)
                check("TRIMMED is not trimmed again", policy(6, 0, 0, 0, 0), sent, sent.forwarded(), admitted(6))
                for name, fields in (("TCP in a tunnel", {"protocol": 6}), ("a tag in a tunnel", {"vlan": True})):
                    sent = tunnel(fields)
                    check(f"{name} is not trimmed", policy(5, 0, 0), sent, sent.forwarded(congestion=True), marked(5))
    sent = Tunnel(Frame(payload=600))
    for name, inner in (("options", Frame(options=b"\x01" * 4)), ("a fragment", Frame(fragment=0x2000)),
                        ("an extension header", Frame(version=6, **extension((HOP_BY_HOP, 1))))):
        other = Tunnel(inner)
        case(f"{name} in a tunnel is not trimmed", policy(5, 0, 0), other, other.forwarded(congestion=True), marked(5))
        unimportant = Tunnel(inner, ecn=0)
        case(f"{name} in a tunnel, not ECT, is dropped", policy(5, 0, 0), unimportant, None, dropped("selective_dropped", 5))
    for length, where in ((46, "VXLAN"), (58, "the inner Ethernet"), (80, "the inner IPv4 header"), (90, "the inner UDP header")):
        case(f"a frame that ends in {where} is not trimmed", policy(5, 0, 0), sent.to_bytes()[:length],
             sent.forwarded(congestion=True)[:length], marked(5))
    damaged = with_bytes(sent.to_bytes(), sent.at + 24, bytes([sent.to_bytes()[sent.at + 24] ^ 1]))
    expected = bytearray(sent.forwarded(sent.at + 256))
    expected[sent.at:] = mended(bytearray(damaged[sent.at:sent.at + 256]), sent.inner, TRIMMED)
    assert bytes(expected) != sent.forwarded(sent.at + 256)
    case("a damaged header in a tunnel stays damaged", policy(5, 0, 0), damaged, bytes(expected), trimmed_from(5))


def main():
    for version in (4, 6):
        for vlan in (False, True):
            for ecn in (0, 2):
                rungs(version, vlan, ecn)
                claims(version, vlan, ecn)
    wires()
    oddities()
    neighbours()
    extensions()
    tunnels()
    sonic()
    document = {
        "members": [{"id": port, "port": port, "dst_mac": mac.hex()} for port, mac in NEXT_HOPS.items()],
        "groups": [{"id": 1, "members": sorted(NEXT_HOPS)}],
        "ipv4_route": [{"prefix": DESTINATION[4][:3].hex() + "00", "length": 24, "member": 1},
                       {"prefix": SPREAD[4][:3].hex() + "00", "length": 24, "group": 1},
                       {"prefix": CAPPED[4][:3].hex() + "00", "length": 24, "member": 2}],
        "ipv6_route": [{"prefix": DESTINATION[6][:8].ljust(16, b"\0").hex(), "length": 64, "member": 1},
                       {"prefix": SPREAD[6][:8].ljust(16, b"\0").hex(), "length": 64, "group": 1},
                       {"prefix": CAPPED[6][:8].ljust(16, b"\0").hex(), "length": 64, "member": 2}],
        "classify": [{"dscp": dscp, "action": "Ingress.set_trimmable", "queue": queue} for dscp, queue in TRIMMABLE.items()]
        + [{"dscp": dscp, "action": "Ingress.set_plain", "queue": queue} for dscp, queue in DROPPABLE.items()]
        + [{"dscp": dscp, "action": "Ingress.set_trimmed", "queue": 6} for dscp in (TRIMMED, TRIMMED_LAST_HOP)]
        + [{"dscp": CONTROL, "action": "Ingress.set_plain", "queue": 7}],
        "load_balance": [{"dscp": dscp, "action": action, "half": half} for dscp, (action, half) in PATHS.items()],
        "hash_seed": HASH_SEED,
        "trust": [{"ingress_port": HOST_PORT, "dscp": dscp, "priority": priority, "remark": remark}
                  for dscp, priority, remark in TRUST],
        "mark_trimmable": MARKED_WHOLE,
        "own_mac": [{"ingress_port": port, "mac": GATEWAY.hex()} for port in (UPLINK, PORT)],
        "trim_acl": [{"table": table, "priority": 1, "protocol": 17, "dst_port": EXEMPT}
                     for table in ("Ingress.trim_acl_ipv4", "Ingress.trim_acl_ipv6")],
        "trim_cap": [{"egress_port": CAPPED_PORT, "rate": NEVER, "burst": 255}],
        "cases": CASES,
    }
    head = {key: value for key, value in document.items() if key != "cases"}
    lines = ",\n".join("    " + json.dumps(entry) for entry in CASES)
    text = json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + lines + "\n ]\n}\n"
    path = Path(__file__).with_name("ladder.json")
    if "--check" not in sys.argv[1:]:
        path.write_text(text, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != text:
        print(f"p4: {path} is not what vectors.py writes; run it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
