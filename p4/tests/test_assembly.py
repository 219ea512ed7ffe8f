# SPDX-License-Identifier: Apache-2.0
"""The check of assembly (../assembly.py) must see what a compiler lost. The fixture is in the form that bf-p4c writes."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import assembly

SOURCE = """
parser TrimwireIngressParser(packet_in packet, out headers_t hdr) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;   // 0x9999: not_a_branch;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition accept;
    }
}
"""

BFA = """version:
  target: Tofino
phv ingress:
  hdr.ethernet.$valid: B1(0)
parser ingress:
  start: $entry_point
  states:
    $entry_point:
      *:
        load: { half : 28..29 }
        next: start.$split_0
    start.$split_0:
      match: [ half ]
      0x0800:
        0..1: H1  # ingress::hdr.ethernet.ether_type
        B1: 1  # value 1 -> B1 bit[0]: ingress::hdr.ethernet.$valid
        next: parse_ipv4
      0x86dd:
        B1: 1  # value 1 -> B1 bit[0]: ingress::hdr.ethernet.$valid
        next: parse_ipv6
      0x****:
        B1: 1  # value 1 -> B1 bit[0]: ingress::hdr.ethernet.$valid
        next: end
    parse_ipv4:
      *:
        B1: 2  # value 1 -> B1 bit[1]: ingress::hdr.ipv4.$valid
        next: end
    parse_ipv6:
      *:
        B1: 4  # value 1 -> B1 bit[2]: ingress::hdr.ipv6.$valid
        next: end
deparser ingress:
  dictionary: {}
stage 0 ingress:
  exact_match classify_0 0:
    p4: { name: Ingress.classify, size: 64 }
    instruction: classify_0(action, $DEFAULT)
    actions:
      Ingress.set_trimmable(1, 1):
      - p4_param_order: { queue: 3 }
      - handle: 0x20000001
      Ingress.set_plain(-1, 2):
      - handle: 0x20000002
  counter admitted.1 counter:
    p4: { name: Ingress.admitted, size: 4096 }
stage 1 ingress:
  ternary_match ipv4_route_0 1:
    p4: { name: Ingress.ipv4_route, size: 1024, action_profile: Ingress.ecmp }
  action ipv4_route_0$action_data.Ingress.ecmp:
    p4: { name: Ingress.ecmp, size: 1024 }
  ternary_indirect ipv4_route_0$tind:
    actions:
      Ingress.forward(0, 4):
      - handle: 0x20000003
"""

TABLES = {
    "Ingress.classify": {"id": "1", "action Ingress.set_trimmable": "2 (queue: 3)", "action Ingress.set_plain": "3 ()"},
    "Ingress.ipv4_route": {"id": "4", "action Ingress.forward": "5 ()", "implementation": "selector Ingress.ecmp"},
}


class AssemblyTest(unittest.TestCase):
    def test_an_assembly_with_everything_lacks_nothing(self):
        self.assertEqual(list(assembly.lost_branches(BFA, SOURCE)), [])
        self.assertEqual(list(assembly.lost_tables(BFA, TABLES, ["Ingress.admitted"])), [])

    def test_an_unpatched_compilers_parser_is_refused(self):
        # p4lang/p4c#5752: no `match:`, and only the first transition, unconditional.
        start = BFA.index("      match: [ half ]")
        bare = BFA[:start] + "      *:\n        B1: 1  # ingress::hdr.ethernet.$valid\n        next: parse_ipv4\n"
        lost = bare + BFA[BFA.index("    parse_ipv4:\n"):BFA.index("    parse_ipv6:\n")] + BFA[BFA.index("deparser"):]
        self.assertEqual(list(assembly.lost_branches(lost, SOURCE)), [
            "ingress parser, state start: the source has 2 branches besides the default, the assembly 0 rows that match",
            "ingress parser, state parse_ipv6: hdr.ipv6 is not extracted",
        ])

    def test_a_branch_less_is_seen(self):
        start = BFA.index("      0x0800:")
        end = BFA.index("      0x****:")
        self.assertEqual(list(assembly.lost_branches(BFA[:start] + BFA[end:], SOURCE)), [
            "ingress parser, state start: the source has 2 branches besides the default, the assembly 1 rows that match"])

    def test_a_missing_parser_is_seen(self):
        missing = BFA[:BFA.index("parser ingress:")] + BFA[BFA.index("deparser"):]
        self.assertEqual(list(assembly.lost_branches(missing, SOURCE)), ["the ingress parser is not in the assembly"])

    def test_a_missing_table_is_seen(self):
        lost = BFA.replace("name: Ingress.classify", "name: Ingress.sort")
        self.assertEqual(list(assembly.lost_tables(lost, TABLES, [])), ["table Ingress.classify is not in the assembly"])

    def test_a_missing_action_is_seen(self):
        lost = BFA.replace("Ingress.set_plain(", "Ingress.set_fancy(")
        self.assertEqual(list(assembly.lost_tables(lost, TABLES, [])),
                         ["action Ingress.set_plain of table Ingress.classify is not in the assembly"])

    def test_a_missing_action_beside_its_table_is_seen(self):
        lost = BFA.replace("Ingress.forward(", "Ingress.hold(")
        self.assertEqual(list(assembly.lost_tables(lost, TABLES, [])),
                         ["action Ingress.forward of table Ingress.ipv4_route is not in the assembly"])

    def test_a_missing_counter_is_seen(self):
        lost = BFA.replace("name: Ingress.admitted", "name: Ingress.omitted")
        self.assertEqual(list(assembly.lost_tables(lost, TABLES, ["Ingress.admitted"])),
                         ["Ingress.admitted is not in the assembly"])

    def test_a_program_that_is_too_long_for_the_chip_is_refused(self):
        self.assertEqual(list(assembly.stages_too_many(BFA)), [])
        self.assertEqual(list(assembly.stages_too_many(BFA.replace("stage 1 ", "stage 11 "))), [])
        self.assertEqual(list(assembly.stages_too_many(BFA.replace("stage 1 ", "stage 12 "))),
                         ["ingress takes 13 stages, Tofino has 12"])
        on_the_larger = BFA.replace("stage 1 ", "stage 12 ").replace("target: Tofino", "target: Tofino2")
        self.assertEqual(list(assembly.stages_too_many(on_the_larger)), [])

    def test_an_assembly_for_an_unknown_chip_is_refused(self):
        self.assertEqual(list(assembly.stages_too_many(BFA.replace("target: Tofino", "target: JBay"))),
                         ["the assembly is for JBay, not for one of Tofino, Tofino2"])


if __name__ == "__main__":
    unittest.main()
