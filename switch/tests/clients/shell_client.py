# SPDX-License-Identifier: Apache-2.0
"""p4runtime-shell (PyPI) as a controller of a switch that is running.

Usage: shell_client.py ADDRESS PROGRAMS [CA CERT KEY]

PROGRAMS is the repository's root. With certificates, only a connection over mutual TLS is tried.
"""

import sys
from pathlib import Path

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException, SSLOptions

DEVICE = 1


def setup(address, program=None, election_id=1, role=None, ssl=None):
    """Connects, and pushes a program where one is given."""
    config = program and sh.FwdPipeConfig(f"{program}.p4info.txtpb", f"{program}.json")
    sh.setup(
        device_id=DEVICE,
        grpc_addr=address,
        election_id=(0, election_id),
        role_name=role,
        config=config,
        ssl_options=ssl,
        verbose=False,
    )


def refused(change, *words):
    """The update is refused, in words that name the culprit."""
    try:
        change()
    except P4RuntimeWriteException as error:
        for word in words:
            assert word in str(error), f"'{word}' is missing in: {error}"
    else:
        raise AssertionError("the update was not refused")


def entries(table):
    return list(sh.TableEntry(table).read())


def check_trimwire(address, root):
    """The project's own program."""
    setup(address, root / "p4/build/bmv2/trimwire")
    assert sh.APIVersion().startswith("1."), sh.APIVersion()

    entry = sh.TableEntry("Ingress.classify")(action="Ingress.set_plain")
    entry.match["dscp"] = "39"
    entry.action["queue"] = "5"
    entry.insert()
    refused(entry.insert, "ALREADY_EXISTS", "Ingress.classify")
    entry.action["queue"] = "3"
    entry.modify()
    (read,) = entries("Ingress.classify")
    assert read.match["dscp"].exact.value == b"\x27" and read.action._param_values["queue"].value == b"\x03"
    entry.delete()
    refused(entry.delete, "NOT_FOUND", "Ingress.classify")
    assert not entries("Ingress.classify")

    # A route over a group of two members.
    for port in (1, 2):
        member = sh.ActionProfileMember("Ingress.ecmp")(member_id=port, action="Ingress.forward")
        member.action["port"] = str(port)
        member.action["dst_mac"] = f"02:00:00:00:00:{port:02x}"
        member.insert()
    group = sh.ActionProfileGroup("Ingress.ecmp")(group_id=1)
    group.add(1, weight=2)
    group.add(2)
    group.insert()
    route = sh.TableEntry("Ingress.ipv4_route")(group_id=1)
    route.match["dst_addr"] = "10.0.1.0/24"
    route.insert()
    (read,) = entries("Ingress.ipv4_route")
    assert read.group_id == 1
    refused(sh.ActionProfileMember("Ingress.ecmp")(member_id=1).delete, "FAILED_PRECONDITION")

    counter = sh.CounterEntry("Ingress.admitted")
    counter.index = 13
    counter.packet_count = 7
    counter.byte_count = 700
    counter.modify()
    counter = sh.CounterEntry("Ingress.admitted")
    counter.index = 13
    (read,) = counter.read()
    assert (read.packet_count, read.byte_count) == (7, 700)

    multicast = sh.MulticastGroupEntry(5)
    multicast.add(1, 1).add(2, 1)
    multicast.insert()
    (read,) = sh.MulticastGroupEntry(5).read()
    assert [(replica.egress_port, replica.instance) for replica in read.replicas] == [(1, 1), (2, 1)]
    session = sh.CloneSessionEntry(6)
    session.add(510, 0)
    session.insert()
    (read,) = sh.CloneSessionEntry(6).read()
    assert [replica.egress_port for replica in read.replicas] == [510]

    # A packet that is sent to the controller's port comes back to the controller.
    packet_in = sh.PacketIn()
    payload = bytes(range(64))
    packet_out = sh.PacketOut(payload, egress_port="510", pad="0")
    packet_out.send()
    message = packet_in.packet_in_queue.get(timeout=10)
    assert message.packet.payload == payload, message
    sh.teardown()


def check_server(address, root):
    """The program that has one of everything."""
    setup(address, root / "switch/testdata/server/server", election_id=2)
    entry = sh.TableEntry("I.acl")(action="I.hit")
    entry.match["key"] = "1&&&0xff"
    entry.match["kind"] = "5..9"
    entry.priority = 10
    entry.action["port"] = "4"
    entry.counter_data.packet_count = 3
    entry.meter_config.cir = 5
    entry.meter_config.cburst = 10
    entry.meter_config.pir = 9
    entry.meter_config.pburst = 20
    entry.metadata = b"mine"
    entry.insert()
    asked = sh.TableEntry("I.acl")
    asked.counter_data  # asked for by touching it
    asked.meter_config
    (read,) = asked.read()
    assert read.counter_data.packet_count == 3 and read.meter_config.pir == 9 and read.metadata == b"mine"
    direct = sh.DirectCounterEntry("I.acl_hits")
    direct.table_entry.match["key"] = "1&&&0xff"
    direct.table_entry.match["kind"] = "5..9"
    direct.table_entry.priority = 10
    (read,) = direct.read()
    assert read.packet_count == 3
    meter = sh.MeterEntry("I.rates")
    meter.index = 2
    meter.cir, meter.cburst, meter.pir, meter.pburst = 1, 2, 3, 4
    meter.modify()
    meter = sh.MeterEntry("I.rates")
    meter.index = 2
    (read,) = meter.read()
    assert (read.cir, read.pburst) == (1, 4)

    # One shot, read back as it was written.
    shot = sh.Oneshot("I.balanced")
    for port, weight in ((1, 2), (2, 1)):
        action = sh.Action("I.forward")
        action["port"] = str(port)
        shot.add(action, weight=weight, watch_port=bytes([port]))
    balanced = sh.TableEntry("I.balanced")
    balanced.match["key"] = "1"
    balanced.oneshot = shot
    balanced.insert()
    (read,) = entries("I.balanced")
    assert [(action.weight, action.watch_port) for action in read.oneshot.actions] == [(2, b"\1"), (1, b"\2")]
    refused(sh.ActionProfileMember("I.spread")(member_id=1, action="I.drop").insert, "one-shot", "I.spread")

    # A packet-out to port 0 goes through the tables: it is counted, and it asks for a digest.
    digest = sh.DigestEntry("seen_t")
    digest.max_list_size = 1
    digest.ack_timeout_ns = 10**12
    digest.insert()
    digests = sh.DigestList()
    for value in (9, 9, 10):
        sh.PacketOut(bytes([1, 1, 0, 7, 0, 0, 0, value])).send()
    values = [digests.digest_list_queue.get(timeout=10).digest.data[0].struct.members[1].bitstring]
    while values[-1] != b"\x0a":  # the second 9 may have come after the acknowledgement of the first
        values.append(digests.digest_list_queue.get(timeout=10).digest.data[0].struct.members[1].bitstring)
    assert values in ([b"\x09", b"\x0a"], [b"\x09", b"\x09", b"\x0a"]), values
    (read,) = direct.read()
    assert (read.packet_count, read.byte_count) == (6, 3 * 10), (read.packet_count, read.byte_count)

    # So does one that asks to be sent to the controller: it is a packet-in with the program's metadata.
    packet_in = sh.PacketIn()
    sh.PacketOut(bytes([200, 3, 0, 0, 0, 0, 0, 1])).send()
    message = packet_in.packet_in_queue.get(timeout=10)
    assert [field.value for field in message.packet.metadata] == [b"\x01\xfe", b"\x05"], message

    # An idle entry is told by itself.
    aging = sh.TableEntry("I.aging")(action="I.forward")
    aging.match["key"] = "9"
    aging.action["port"] = "3"
    aging.idle_timeout_ns = 50_000_000
    aging.insert()
    idle = sh.IdleTimeoutNotification()
    told = idle.notification_queue.get(timeout=10).idle_timeout_notification
    assert told.timestamp > 0 and told.table_entry[0].idle_timeout_ns == 50_000_000, told
    aging.delete()
    sh.teardown()


def check_backup(address):
    """A second shell reads, and may not write."""
    setup(address, election_id=3)
    primary = sh.client
    backup_id = 1
    setup(address, election_id=backup_id)
    assert len(entries("I.acl")) == 1
    entry = sh.TableEntry("I.aging")(action="I.drop")
    entry.match["key"] = "1"
    try:
        entry.insert()
    except Exception as error:  # the shell gives gRPC's own error here
        assert "PERMISSION_DENIED" in str(error), error
    else:
        raise AssertionError("a backup has written")
    sh.teardown()
    primary.tear_down()


def main():
    address, root, *pems = sys.argv[1:]
    root = Path(root)
    if pems:
        ca, cert, key = pems
        setup(address, root / "switch/testdata/server/server", ssl=SSLOptions(False, ca, cert, key))
        assert len(entries("I.fixed")) == 2
        sh.teardown()
    else:
        check_trimwire(address, root)
        check_server(address, root)
        check_backup(address)
    print("p4runtime-shell: done")


if __name__ == "__main__":
    main()
