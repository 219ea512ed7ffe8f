# SPDX-License-Identifier: Apache-2.0
"""Writes STF files from the packets with known answers in ladder.json: stf.py FOLDER. Standard library only.

One file for each rung of the ladder and kind of packet. STF tables do not change between packets of a file, and the
files use what p4c's runner knows: no groups (the routes are plain entries of single next hops), counters
with check_counter. The switch's tests write them into a folder of their own.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
THRESHOLDS = ["mark_at", "shallow_at", "deep_at", "drop_at", "shallow_size", "deep_size", "trimmed_dscp", "trim_queue",
              "trim_drop_at"]
HEAD = """# {title}
# Written by p4/tests/stf.py from ladder.json. Thresholds of 0 are always reached, of 4294967295 never: the queues are empty here.

"""


def tables(ladder):
    hops = {member["id"]: member for member in ladder["members"]}
    for name in ("ipv4_route", "ipv6_route"):
        for route in ladder[name]:
            if "member" in route:
                hop = hops[route["member"]]
                yield (f"add Ingress.{name} dst_addr:0x{route['prefix']}/{route['length']} "
                       f"Ingress.forward(port:{hop['port']}, dst_mac:0x{hop['dst_mac']})")
    for entry in ladder["classify"]:
        yield f"add Ingress.classify dscp:{entry['dscp']} {entry['action']}(queue:{entry['queue']})"
    for entry in ladder["load_balance"]:
        yield f"add Ingress.load_balance dscp:{entry['dscp']} {entry['action']}(half:{entry['half']})"
    yield f"setdefault Ingress.hash_seed Ingress.set_hash_seed(seed:{ladder['hash_seed']})"
    for entry in ladder["trust"]:
        dscp = "" if entry["dscp"] is None else f" dscp:{entry['dscp']}"
        action = "trust_dscp()" if entry["remark"] is None else f"remark_dscp(dscp:{entry['remark']})"
        yield f"add Ingress.trust {entry['priority']} ingress_port:{entry['ingress_port']}{dscp} Ingress.{action}"
    for dscp in ladder["mark_trimmable"]:
        yield f"add Ingress.mark_trimmable dscp:{dscp} Ingress.mark_ce()"
    for entry in ladder["own_mac"]:
        yield f"add Ingress.own_mac ingress_port:{entry['ingress_port']} Ingress.expect_mac(mac:0x{entry['mac']})"
    for entry in ladder["trim_acl"]:
        yield (f"add {entry['table']} {entry['priority']} protocol:{entry['protocol']} dst_port:{entry['dst_port']} "
               "Ingress.disable_trim()")
    for entry in ladder["trim_cap"]:
        yield (f"add Ingress.trim_cap.cap egress_port:{entry['egress_port']} "
               f"Ingress.trim_cap.set_cap(rate:{entry['rate']}, burst:{entry['burst']})")


def policy(entry):
    arguments = ", ".join(f"{name}:{entry[name]}" for name in THRESHOLDS)
    return (f"add Ingress.queue_policy.policy egress_port:{entry['egress_port']} queue:{entry['queue']} "
            f"importance:{entry['importance']} Ingress.queue_policy.set_thresholds({arguments})")


def spread(case, ladder):
    """Whether the packet's route is a group, which STF cannot write."""
    groups = [route["prefix"] for name in ("ipv4_route", "ipv6_route") for route in ladder[name] if "group" in route]
    prefixes = [prefix.rstrip("0") for prefix in groups]
    return any(prefix in case["frame"] for prefix in prefixes)


def file_name(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] + ".stf"


def files(ladder):
    """Cases of the same policies and the same rung go into one file: what stands behind ': ' in the name is the rung."""
    groups = {}
    for case in ladder["cases"]:
        if spread(case, ladder):
            continue
        rung = case["name"].split(": ", 1)[-1]
        groups.setdefault(rung, {}).setdefault(json.dumps(case["policies"]), []).append(case)
    for rung, by_policy in groups.items():
        for number, (policies, cases) in enumerate(by_policy.items()):
            title = rung if len(by_policy) == 1 else f"{rung} {number + 1}"
            yield file_name(title), render(title, json.loads(policies), cases, ladder)


def render(title, policies, cases, ladder):
    lines = [*tables(ladder), *map(policy, policies), ""]
    counters = {}
    for case in cases:
        lines.append(f"# {case['name']}")
        lines.append(f"packet {case['ingress_port']} {case['frame']}")
        if case["expect"] is None:
            lines.append("no_packet")
        else:
            lines.append(f"expect {case['expect']['port']} {case['expect']['frame']}$")
        for cell, (packets, size) in case["counters"].items():
            before = counters.get(cell, (0, 0))
            counters[cell] = (before[0] + packets, before[1] + size)
    lines.append("")
    for cell, (packets, size) in sorted(counters.items()):
        name, index = cell.rstrip("]").split("[")
        lines.append(f"check_counter {name}({index}) packets == {packets}")
        lines.append(f"check_counter {name}({index}) bytes == {size}")
    return HEAD.format(title=title) + "\n".join(lines) + "\n"


def main():
    ladder = json.loads((HERE / "ladder.json").read_text())
    pairs = list(files(ladder))
    wanted = dict(pairs)
    assert len(wanted) == len(pairs), "two rungs with one file name"
    if len(sys.argv) != 2:
        sys.exit("usage: stf.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
