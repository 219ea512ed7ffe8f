# SPDX-License-Identifier: Apache-2.0
"""The comparison of P4Infos (../p4info.py) must be able to fail."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import p4info

TEXT = """
# proto-message: p4.config.v1.P4Info
pkg_info { arch: "v1model" }
tables {
  preamble { id: 7 name: "Ingress.classify" alias: "classify" }
  match_fields { id: 1 name: "dscp" bitwidth: 6 match_type: EXACT }
  action_refs { id: 8 }
  size: 64
}
tables {
  preamble { id: 9 name: "Ingress.trim_cap.cap" }
}
actions {
  preamble { id: 8 name: "Ingress.set_plain" }
  params { id: 1 name: "queue" bitwidth: 3 }
}
"""


def differences(changed):
    only = {"Ingress.trim_cap.cap"}
    return list(p4info.differences(p4info.describe(p4info.parse(TEXT)), p4info.describe(p4info.parse(changed)), only))


class P4InfoTest(unittest.TestCase):
    def without_cap(self):
        start = TEXT.index("tables {\n  preamble { id: 9")
        return TEXT[:start] + TEXT[TEXT.index("actions {"):]

    def test_a_target_without_the_cap_agrees_whatever_its_sizes(self):
        self.assertEqual(differences(self.without_cap().replace("size: 64", "size: 1024")), [])

    def test_a_key_of_another_width_is_told(self):
        lines = differences(self.without_cap().replace("bitwidth: 6", "bitwidth: 8"))
        self.assertEqual(lines, ["table Ingress.classify: key 1: dscp, 8 bits, EXACT; bmv2 has dscp, 6 bits, EXACT"])

    def test_another_match_kind_is_told(self):
        lines = differences(self.without_cap().replace("EXACT", "TERNARY"))
        self.assertEqual(lines, ["table Ingress.classify: key 1: dscp, 6 bits, TERNARY; bmv2 has dscp, 6 bits, EXACT"])

    def test_a_missing_parameter_is_told(self):
        lines = differences(self.without_cap().replace('params { id: 1 name: "queue" bitwidth: 3 }', ""))
        self.assertEqual(lines, ["table Ingress.classify: action Ingress.set_plain: 8 (); bmv2 has 8 (queue: 3)"])

    def test_a_missing_table_is_told(self):
        lines = differences(self.without_cap().replace("Ingress.classify", "Ingress.sort"))
        self.assertEqual(lines, ["table Ingress.sort is not in bmv2's", "table Ingress.classify is missing"])

    def test_a_cap_on_hardware_is_told(self):
        self.assertEqual(differences(TEXT), ["table Ingress.trim_cap.cap is not meant for this target"])


if __name__ == "__main__":
    unittest.main()
