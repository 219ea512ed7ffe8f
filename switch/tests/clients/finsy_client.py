# SPDX-License-Identifier: Apache-2.0
"""finsy (PyPI) as a controller of a switch that is running.

Usage: finsy_client.py ADDRESS PROGRAMS [CA CERT KEY]

PROGRAMS is the repository's root. With certificates, only a connection over mutual TLS is tried.
"""

import asyncio
import sys
from pathlib import Path

import finsy as fy
from finsy.p4entity import P4ValueSetMember
from finsy.grpcutil import GRPCCredentialsTLS
from finsy.proto import stratum

DEVICE = 1


def options(program, **more):
    return fy.SwitchOptions(
        p4info=Path(f"{program}.p4info.txtpb"), p4blob=Path(f"{program}.json"), device_id=DEVICE, **more
    )


async def read(switch, entity):
    return [found async for found in switch.read(entity)]


async def same(switch, filter, wanted):
    """What is read is what was written, in the client's own canonical form."""
    found = await read(switch, filter)
    encode = [[entity.encode(switch.p4info) for entity in entities] for entities in (found, wanted)]
    assert encode[0] == encode[1], f"read {found}, written {wanted}"


async def refused(change, *words):
    """The update is refused, in words that name the culprit."""
    try:
        await change
    except fy.P4ClientError as error:
        for word in words:
            assert word in str(error), f"'{word}' is missing in: {error}"
    else:
        raise AssertionError("the update was not refused")


async def first(messages):
    """The next message, within ten seconds."""
    return await asyncio.wait_for(anext(messages), 10)


async def check_trimwire(address, root):
    """The project's own program."""
    async with fy.Switch("trimwire", address, options(root / "p4/build/bmv2/trimwire")) as switch:
        assert switch.is_primary

        def entry(queue):
            return fy.P4TableEntry(
                "classify", match=fy.Match(dscp=39), action=fy.Action("set_plain", queue=queue), metadata=b"mine"
            )

        await switch.write([+entry(5)])
        await refused(switch.write([+entry(5)]), "ALREADY_EXISTS", "Ingress.classify")
        await switch.write([~entry(3)])
        (found,) = await read(switch, fy.P4TableEntry("classify"))
        assert found == entry(3), found
        await switch.write([-entry(3)])
        await refused(switch.write([-entry(3)]), "NOT_FOUND")

        await switch.write(
            [
                +fy.P4ActionProfileMember(
                    "ecmp", member_id=port, action=fy.Action("forward", port=port, dst_mac=f"02:00:00:00:00:0{port}")
                )
                for port in (1, 2)
            ]
        )
        group = fy.P4ActionProfileGroup(
            "ecmp",
            group_id=1,
            members=[fy.P4Member(1, weight=(2, 1)), fy.P4Member(2, weight=1)],
        )
        await switch.write([+group])
        await same(switch, fy.P4ActionProfileGroup("ecmp"), [group])
        route = fy.P4TableEntry(
            "ipv4_route", match=fy.Match(dst_addr="10.0.1.0/24"), action=fy.P4IndirectAction(group_id=1)
        )
        await switch.write([+route])
        await same(switch, fy.P4TableEntry("ipv4_route"), [route])

        counter = fy.P4CounterEntry("admitted", index=13, data=fy.P4CounterData(packet_count=7, byte_count=700))
        await switch.write([~counter])
        await same(switch, fy.P4CounterEntry("admitted", index=13), [counter])
        replication = [fy.P4MulticastGroupEntry(5, replicas=[1, (2, 1)]), fy.P4CloneSessionEntry(6, replicas=[510])]
        await switch.write([+entity for entity in replication])
        await same(switch, fy.P4MulticastGroupEntry(), replication[:1])
        await same(switch, fy.P4CloneSessionEntry(), replication[1:])

        # A packet that is sent to the controller's port comes back to the controller.
        packets = switch.read_packets()
        waiting = asyncio.ensure_future(first(packets))
        await asyncio.sleep(0)
        await switch.write([fy.P4PacketOut(bytes(range(64)), egress_port=510, pad=0)])
        packet = await waiting
        assert packet.payload == bytes(range(64)), packet

        await switch.delete_all()
        assert not await read(switch, fy.P4TableEntry())
        assert not await read(switch, fy.P4ActionProfileMember())


async def check_server(address, root):
    """The program that has one of everything."""
    program = root / "switch/testdata/server/server"
    async with fy.Switch("server", address, options(program)) as switch:
        acl = fy.P4TableEntry(
            "acl",
            match=fy.Match(key="1/&0xff", kind="5...9"),
            action=fy.Action("hit", port=4),
            priority=10,
            counter_data=fy.P4CounterData(packet_count=3, byte_count=30),
            meter_config=fy.P4MeterConfig(cir=5, cburst=10, pir=9, pburst=20),
        )
        await switch.write([+acl])
        everything = {
            "counter_data": fy.P4CounterData(),
            "meter_config": fy.P4MeterConfig(cir=0, cburst=0, pir=0, pburst=0),
        }
        await same(switch, fy.P4TableEntry("acl", **everything), [acl])
        shot = fy.P4TableEntry(
            "balanced",
            match=fy.Match(key=1),
            action=fy.P4IndirectAction([(2, fy.Action("forward", port=1)), ((1, 2), fy.Action("forward", port=2))]),
        )
        await switch.write([+shot])
        await same(switch, fy.P4TableEntry("balanced"), [shot])
        values = fy.P4ValueSetEntry("pairs", members=[P4ValueSetMember(what=9, kind=7)])
        await switch.write([~values])
        await same(switch, fy.P4ValueSetEntry("pairs", members=[]), [values])
        registers = [fy.P4RegisterEntry("balance", index=index, data=-index) for index in range(8)]
        await switch.write([~register for register in registers])
        await same(switch, fy.P4RegisterEntry("balance"), registers)

        # Wildcards of every kind, as finsy asks for them.
        for wildcard, count in [
            (fy.P4TableEntry(), 4),
            (fy.P4DirectCounterEntry(), 3),
            (fy.P4DirectMeterEntry(), 1),
            (fy.P4CounterEntry(), 16),
            (fy.P4MeterEntry(), 4),
            (fy.P4RegisterEntry(), 12),
            (fy.P4DigestEntry(), 0),
            (fy.P4MulticastGroupEntry(), 0),
            (fy.P4ActionProfileMember(), 0),
            (fy.P4ActionProfileGroup(), 0),
        ]:
            found = await read(switch, wildcard)
            assert len(found) == count, f"{wildcard}: {found}"

        # A packet-out to port 0 goes through the tables: it is counted, and it asks for a digest.
        await switch.write([+fy.P4DigestEntry("seen_t")])
        digests = switch.read_digests("seen_t")
        waiting = asyncio.ensure_future(first(digests))
        await asyncio.sleep(0)
        await switch.write([fy.P4PacketOut(bytes([1, 1, 0, 7, 0, 0, 0, 9]), egress_port=0, pad=0)])
        seen = await waiting
        assert seen.data == [{"key": 1, "value": 9, "port": 510}], seen
        await switch.write([seen.ack()])
        (found,) = await read(switch, fy.P4TableEntry("acl", **everything))
        assert found.counter_data == fy.P4CounterData(packet_count=4, byte_count=40), found
        await refused(switch.write([+fy.P4DigestEntry("seen_t")]), "ALREADY_EXISTS")
        default_only = fy.P4TableEntry("aging", match=fy.Match(key=1), action=fy.Action("NoAction"))
        await refused(switch.write([+default_only]), "PERMISSION_DENIED", "I.aging", "NoAction")

        # An idle entry is told by itself.
        idle = switch.read_idle_timeouts()
        waiting = asyncio.ensure_future(first(idle))
        await asyncio.sleep(0)
        aging = fy.P4TableEntry(
            "aging", match=fy.Match(key=9), action=fy.Action("forward", port=3), idle_timeout_ns=50_000_000
        )
        await switch.write([+aging])
        told = await waiting
        assert [entry.match["key"] for entry in told.table_entry] == [9], told

        # A role of its own: tables of its own, and no pipeline to push.
        config = stratum.P4RoleConfig(shared_p4_ids=[switch.p4info.tables["aging"].id])
        role = fy.SwitchOptions(device_id=DEVICE, role_name="aging", role_config=config)
        async with fy.Switch("role", address, role) as other:
            assert other.is_primary
            assert [entry.table_id for entry in await read(other, fy.P4TableEntry())] == ["aging"]
            await refused(other.delete([acl]), "PERMISSION_DENIED", "I.acl")

        # A second controller with a lower id is a backup, which reads.
        async with fy.Switch("backup", address, fy.SwitchOptions(device_id=DEVICE, initial_election_id=5)) as backup:
            assert not backup.is_primary and backup.primary_id == switch.election_id
            assert len(await read(backup, fy.P4TableEntry("acl"))) == 1
            await refused(backup.delete([acl]), "PERMISSION_DENIED")
        await switch.delete_all()


async def check_tls(address, root, pems):
    ca, cert, key = map(Path, pems)
    secure = options(root / "switch/testdata/server/server", channel_credentials=GRPCCredentialsTLS(cacert=ca, cert=cert, private_key=key))
    async with fy.Switch("tls", address, secure) as switch:
        assert len(await read(switch, fy.P4TableEntry("fixed"))) == 2


async def main():
    address, root, *pems = sys.argv[1:]
    if pems:
        await check_tls(address, Path(root), pems)
    else:
        await check_trimwire(address, Path(root))
        await check_server(address, Path(root))
    print("finsy: done")


if __name__ == "__main__":
    asyncio.run(main())
