// SPDX-License-Identifier: Apache-2.0
//! `p4c.py`, which runs p4c's packet tests on the command: what it makes of each kind of program,
//! in a checkout of ours.
//!
//! The compiler there takes a program's second line for its output, or fails where there is none.

use crate::ladder_support::stf_folder;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/p4c.py");
const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
const INCLUDE: &str = "#include <v1model.p4>";
const COMPILER: &str = "
import pathlib, shutil, sys
program = pathlib.Path(sys.argv[-1]).read_text().splitlines()
if len(program) < 2:
    sys.exit('made.p4(1): [--Werror=unsupported] error: Loop: not supported')
shutil.copy(program[1], sys.argv[sys.argv.index('-o') + 1])
";

fn checkout(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("p4c-{}-{name}", std::process::id()));
    let samples = folder.join("testdata/p4_16_samples");
    std::fs::create_dir_all(&samples).unwrap();
    std::fs::create_dir_all(folder.join("testdata/p4_14_samples")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("compiler.py", COMPILER);
    write("nothing.json", "{}");
    let stf =
        std::fs::read_to_string(stf_folder().join("at-deep-at-it-is-trimmed-to-deep-size.stf")).unwrap();
    let wrong = stf.replace("expect 1 02", "expect 1 03");
    let ours = format!("{INCLUDE}\n{OURS}\n");
    let nothing = format!("{INCLUDE}\n{}\n", folder.join("nothing.json").display());
    for (name, program, stf) in [
        ("p4_16_samples/as-it-says-bmv2", &*ours, &*stf),
        ("p4_16_samples/other-byte-bmv2", &ours, &wrong),
        ("p4_16_samples/unknown-word-bmv2", &ours, "except 1\n"),
        ("p4_16_samples/loop-bmv2", INCLUDE, &stf),
        ("p4_16_samples/refused-bmv2", &nothing, &stf),
        ("p4_16_samples/of-psa", "#include <psa.p4>\n", &stf),
        ("p4_14_samples/older", &format!("// P4-14\n{OURS}\n"), &stf),
    ] {
        write(&format!("testdata/{name}.p4"), program);
        write(&format!("testdata/{name}.stf"), stf);
    }
    folder
}

fn run(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    let compiler = format!("python3 '{}'", folder.join("compiler.py").display());
    let mut command = Command::new("python3");
    command.arg(SCRIPT).arg(folder).args(["--compiler", &compiler]);
    command.args(["--switch", env!("CARGO_BIN_EXE_trimwire-switch")]).args(words);
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text)
}

#[test]
fn each_program_of_a_checkout_passes_fails_or_is_skipped_with_a_reason() {
    let folder = checkout("all");
    let (code, text) = run(&folder, &[]);
    assert_eq!(code, Some(1), "{text}");
    let expected = [
        ("pass  p4_16_samples/as-it-says-bmv2", ""),
        ("skip  p4_16_samples/loop-bmv2", "not compiled: made.p4(1)"),
        ("skip  p4_16_samples/of-psa", "not for v1model"),
        ("FAIL  p4_16_samples/other-byte-bmv2", "differs from byte 0"),
        ("skip  p4_16_samples/refused-bmv2", "the switch refuses it"),
        ("FAIL  p4_16_samples/unknown-word-bmv2", "'except'"),
        ("pass  p4_14_samples/older", ""),
        ("2 passed, 2 failed, 3 skipped", ""),
    ];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, (begins, has)) in lines.iter().zip(expected) {
        assert!(line.starts_with(begins) && line.contains(has), "{line}: expected {begins} … {has}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn programs_that_have_to_pass_are_held_to_it() {
    let folder = checkout("expected");
    let expect = folder.join("expect.txt");
    let expect_words = ["--expect", expect.to_str().unwrap()];
    std::fs::write(&expect, "p4_16_samples/as-it-says-bmv2\n").unwrap();
    let (code, text) = run(&folder, &[&expect_words[..], &["p4_16_samples/as-it-says-bmv2"]].concat());
    assert_eq!((code, text.lines().last()), (Some(0), Some("1 passed, 0 failed, 0 skipped")), "{text}");
    std::fs::write(&expect, "p4_16_samples/loop-bmv2\np4_16_samples/gone-bmv2\n").unwrap();
    let (code, text) = run(&folder, &[&expect_words[..], &["--list"]].concat());
    assert_eq!(code, Some(0));
    assert!(text.contains("p4_16_samples/loop-bmv2\n") && !text.contains("of-psa"), "{text}");
    let (code, text) = run(&folder, &expect_words);
    assert_eq!(code, Some(1), "{text}");
    for program in ["loop-bmv2 (skip)", "gone-bmv2 (not in this checkout)"] {
        assert!(text.contains(&format!("expected to pass: p4_16_samples/{program}")), "{text}");
    }
    let (code, text) = run(&folder, &["p4_16_samples/nosuch"]);
    assert!(code == Some(2) && text.contains("p4_16_samples/nosuch"), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}
