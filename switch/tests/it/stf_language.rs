// SPDX-License-Identifier: Apache-2.0
//! STF's language: what p4c's tests write, and what is said about mistakes.

use trimwire_switch::stf::{self, Outcome, Script};
use trimwire_switch::{Switch, SwitchConfig};

const TABLES: &[u8] = include_bytes!("../../testdata/engine/tables.json");
/// Keys a, b, c, d, and e with f.
const PACKET: &str = "packet 0 1234 0a010001 00000000000000000000000000000000 0005 0000\n";

fn run(text: &str) -> Result<Outcome, String> {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.load_pipeline(TABLES).unwrap();
    let script = Script::parse(text).map_err(|error| error.to_string())?;
    stf::run(&script, &mut switch).map_err(|error| error.to_string())
}

/// Runs `add`s, then the packet, then expects these results; `true` where they hold.
fn gives(adds: &str, expected: &str) -> bool {
    run(&format!("{adds}\n{PACKET}expect 1 {expected}\n")).unwrap().passed()
}

#[test]
fn keys_are_exact_lpm_ternary_and_ranges() {
    // Each table reports two bytes: exact1, exact2, lpm32, lpm128, ternary, range.
    for (add, expected) in [
        ("add t_exact1 a:0x1234 exact1(n:7)", "0007"),
        ("add I.t_exact1 hdr.k.a:4660 I.exact1(n:0x7)", "0007"),
        ("add t_exact1 a:0b0001001000110100 exact1(n:7)", "0007"),
        ("add t_exact1 a:0o011064 exact1(n:7)", "0007"),
        ("add t_exact1\n  a:0x1234  # over lines\n  exact1(n:7)", "0007"),
        ("ADD t_exact1 a:0x1235 exact1(n:7)", "ffff"),
        ("add t_lpm32 b:0x0a000000/8 lpm32(n:7)", "**** **** 0007"),
        ("add t_lpm32 b:0x0a01**** lpm32(n:7)", "**** **** 0007"),
        ("add t_lpm32 b:0x0b000000/8 lpm32(n:7)", "**** **** 03e7"),
        ("add t_ternary 1 a:0x12** ternary_(n:7)", "**** **** **** **** 0007"),
        ("add t_ternary 1 a:0b*********0110100 ternary_(n:7)", "**** **** **** **** 0007"),
        // The digits say how much of the key matters: p4c's runner.
        ("add t_ternary 1 a:0x34 ternary_(n:7)", "**** **** **** **** 0007"),
        ("add t_ternary 1 a:0x1030&&&0xF0F0 ternary_(n:7)", "**** **** **** **** 0007"),
        ("add t_ternary 1 a:0x13** ternary_(n:7)", "**** **** **** **** 0000"),
        ("add t_range 1 d:3..5 range_(n:7)", "**** **** **** **** **** 0007"),
        ("add t_range 1 d:0x5->0x6 range_(n:7)", "**** **** **** **** **** 0007"),
        ("add t_range 1 d:6..9 range_(n:7)", "**** **** **** **** **** 0000"),
        // The entry makes the member that the table's profile wants.
        ("add t_member a:0x1234 member(n:7)", "**** **** **** **** **** **** **** **** 0007"),
    ] {
        assert!(gives(add, expected), "{add}");
        let other = expected.replace("0007", "0008");
        assert!(other == expected || !gives(add, &other), "{add}: the check must be able to fail");
    }
}

#[test]
fn the_larger_priority_wins() {
    let add = |first, second| {
        format!("add t_ternary {first} a:0x12** ternary_(n:1)\nadd t_ternary {second} a:0x**34 ternary_(n:2)")
    };
    assert!(gives(&add(0, 5), "**** **** **** **** 0002"));
    assert!(gives(&add(9, 5), "**** **** **** **** 0001"));
    assert!(gives(&add(5, 5), "**** **** **** **** 0001"), "of equals the first");
}

#[test]
fn an_expected_packet_has_wildcards_and_may_have_an_end() {
    let passes = |expect: &str| run(&format!("{PACKET}{expect}\n")).unwrap().passed();
    for (expect, pass) in [
        ("expect 1".to_owned(), true),
        ("expect 1 FFff ***0".to_owned(), true),
        ("expect 1 ffff 1*".to_owned(), false),
        ("expect 1 *".to_owned(), true),
        (format!("expect 1 {}$", "*".repeat(50)), true),
        (format!("expect 1 {}$", "*".repeat(48)), false),
        (format!("expect 1 {}", "*".repeat(52)), false),
        (format!("expect 1 {}$ # nothing behind it", "*".repeat(50)), true),
        ("expect 2 00".to_owned(), false),
        ("no_packet".to_owned(), false),
        (String::new(), true),
        ("expect 1\nexpect 1".to_owned(), false),
    ] {
        assert_eq!(passes(&expect), pass, "{expect}");
    }
}

#[test]
fn entries_are_named_counted_and_removed() {
    let entry = "add t_exact1 a:0x1234 exact1(n:7) = first\n";
    let outcome =
        |checks: &str| run(&format!("{entry}{PACKET}{PACKET}expect 1\nexpect 1\n{checks}\n")).unwrap();
    assert!(outcome("check_counter t_exact1(first) packets == 2").passed());
    assert!(outcome("check_counter t_exact1($first) bytes == 52").passed());
    assert!(outcome("check_counter t_exact1(first) >= 2").passed());
    let failed = outcome("check_counter t_exact1(first) packets < 2");
    assert_eq!(
        failed.mismatches[0].to_string(),
        "counter t_exact1 of entry 'first' of table I.t_exact1: packets < 2 is expected: it is 2"
    );
    for remove in ["remove all", "remove first"] {
        let text = format!("{entry}{remove}\n{PACKET}expect 1 ffff\n");
        assert!(run(&text).unwrap().passed(), "{remove}");
    }
}

#[test]
fn a_difference_shows_both_packets_and_marks_the_digits() {
    let text = format!("add t_exact1 a:0x1234 exact1(n:0x12)\n{PACKET}expect 1 0034 00\n");
    let outcome = run(&text).unwrap();
    assert_eq!(
        outcome.mismatches[0].to_string(),
        "port 1: the packet differs from byte 1 on; at least 3 bytes expected, 25 bytes got\n      \
         0  expected  00 34 00\n         \
         got       00 12 00 00 03 e7 00 00 00 00 00 00 00 00 00 00\n                      \
         ^^"
    );
}

#[test]
fn a_mistake_is_told_with_its_line_and_what_is_valid() {
    for (text, words) in [
        ("\n# c\npackte 0 00", &["3:", "'packte'", "'packet'"][..]),
        ("packet 0 123", &["1:", "3 hexadecimal digits"]),
        ("packet 0 12*4", &["'*'"]),
        ("packet x 00", &["number", "'x'"]),
        ("packet 70000 00", &["70000", "port"]),
        ("packet 0", &["hexadecimal"]),
        ("expect 1 00$00", &["'$'"]),
        ("expect 1 zz", &["'zz'"]),
        ("add t_exact a:1 exact1(n:1)", &["1:", "'t_exact'", "I.t_exact1"]),
        ("add t_exact1 z:1 exact1(n:1)", &["'z'", "hdr.k.a"]),
        ("add t_exact1 a:1 exact9(n:1)", &["'exact9'", "I.exact1"]),
        ("add t_exact1 a:1 exact1(m:1)", &["'n'", "missing"]),
        ("add t_exact1 a:1 exact1(n:1, m:2)", &["'m'", "'n'"]),
        ("add t_exact1 a:0x12345 exact1(n:1)", &["0x12345", "16 bits"]),
        ("add t_exact1 a:0x12** exact1(n:1)", &["'*'", "hdr.k.a"]),
        ("add t_exact1 a:1 exact1(n:70000)", &["70000", "16 bits"]),
        ("add t_exact1 a:1 exact1(n:1)\nadd t_exact1 a:1 exact1(n:1)", &["2:", "already"]),
        ("add t_lpm32 b:1/33 lpm32(n:1)", &["32 bits", "33"]),
        ("add t_range 1 d:9..3 range_(n:1)", &["LOW..HIGH"]),
        ("add t_exact1 a:1", &["expected"]),
        ("setdefault t_constant left()", &["1:", "I.constant"]),
        ("remove nobody", &["'nobody'"]),
        ("check_counter t_exact1(nobody)", &["'nobody'"]),
        ("check_counter nothing(1) packets == 1", &["'nothing'"]),
        ("mc_node_associate 1 0", &["multicast group 1"]),
        ("mirroring_get 3", &["session 3"]),
        ("mirroring_add 0 1", &["0"]),
        ("meter_set_rates nothing 0 1:2 3:4", &["'nothing'"]),
        ("wait 5", &["'5'"]),
    ] {
        let message = run(text).unwrap_err();
        for word in words {
            assert!(message.contains(word), "{text:?} should be answered with {word:?}: {message}");
        }
    }
}
