// SPDX-License-Identifier: Apache-2.0
//! Scenario files: what is refused, where, and what would have been valid.

use trimwire_lab::espresso::Model;
use trimwire_lab::sim::program::Programs;
use trimwire_lab::sim::scenario::{File, Files, Programmed};
use trimwire_lab::sim::setup::Setup;
use trimwire_lab::sim::topology::Topology;

/// No scenario here names another file.
struct NoFiles;

impl Files for NoFiles {
    fn model(&mut self, name: &str) -> Result<Model, String> {
        Err(name.to_owned())
    }

    fn trace(&mut self, name: &str) -> Result<String, String> {
        Err(name.to_owned())
    }

    fn fabric(&mut self, name: &str) -> Result<Topology, String> {
        Err(name.to_owned())
    }

    fn parameters(&mut self, _: u32) -> Result<usize, String> {
        Err("none".to_owned())
    }

    fn programs(&mut self, _: &Programmed<'_>) -> Result<Programs, String> {
        Err("none".to_owned())
    }
}

/// The first run of a scenario that is called `small.yaml` and names no other file.
pub(crate) fn prepare(text: &str) -> Result<Setup, String> {
    let file = File::from_yaml(text, "small.yaml", &[]).map_err(|error| error.to_string())?;
    let prepared = file.prepare(text, "small.yaml", &mut NoFiles).map_err(|error| error.to_string())?;
    prepared.into_iter().next().map(|run| run.setup).ok_or_else(|| "no run".to_owned())
}

const SCENARIO: &str = "\
scenario: small
limit: 1s
topology: { star: { hosts: 4, rate: 100Gbps, delay: 1us } }
workload: { incast: { senders: 3, bytes: 100KB } }
runs:
  - name: a
    transport:
      dctcp: {}
    switch: {}
";

fn scenario(transport: &str, switch: &str) -> String {
    SCENARIO.replace("dctcp: {}", transport).replace("switch: {}", &format!("switch: {{ {switch} }}"))
}

const TRANSPORTS: [&str; 7] = ["dctcp", "pias", "pfabric", "ndp", "mlt", "dcqcn", "trimwire"];

#[test]
fn a_switchs_key_is_taken_with_transports_whose_switches_read_it_and_refused_with_all_others() {
    for (key, value, valid) in [
        ("buffer", "1MB", "dctcp, pias, pfabric, mlt, dcqcn, trimwire"),
        ("mark_at", "100KB", "dctcp, pias"),
        ("drop_at", "100KB", "mlt"),
        ("packets", "16", "ndp"),
        ("shallow_at", "10us", "trimwire"),
        ("deep_at", "30us", "trimwire"),
        ("one_level", "true", "trimwire"),
        ("blind", "true", "mlt, trimwire"),
        ("k_min", "10KB", "dcqcn"),
        ("k_max", "300KB", "dcqcn"),
        ("p_max", "0.5", "dcqcn"),
        ("pfc", "{}", "dcqcn"),
        ("lossy", "true", "dcqcn"),
    ] {
        for transport in TRANSPORTS {
            let with = |switch: &str| prepare(&scenario(&format!("{transport}: {{}}"), switch));
            let made = with(&format!("{key}: {value}"));
            if valid.split(", ").any(|name| name == transport) {
                // A key that is read changes what switches do, but for one that asks for what there
                // is anyhow.
                let changed = made.unwrap().rule != with("").unwrap().rule;
                assert!(changed || key == "pfc", "{key} with {transport}");
            } else {
                let error = made.map(|_| ()).unwrap_err();
                let says = format!(
                    "small.yaml:9: {key}: switches of {transport} do not read it; valid with {valid} (run 'a')"
                );
                assert_eq!(error, says);
            }
        }
    }
}

#[test]
fn values_that_cannot_be_are_refused_with_their_line_and_what_is_valid() {
    for (transport, says) in [
        ("trimwire: { important: 7 }", "important: 7; valid are shares, 0 to 1"),
        ("trimwire: { important: -1 }", "important: -1; valid are shares, 0 to 1"),
        ("trimwire: { important: .nan }", "important: NaN; valid are shares, 0 to 1"),
        ("trimwire: { paths: 0 }", "paths: 0; valid are 1 to 256"),
        ("trimwire: { paths: 257 }", "paths: 257; valid are 1 to 256"),
        ("trimwire: { window: 1B }", "window: 1 bytes; valid are 24000 bytes and more"),
        (
            "trimwire: { start: 900Gbps }",
            "start: 900000000000 bit/s; valid are up to the rate of the hosts' links, 100000000000 bit/s",
        ),
        ("mlt: { t_low: 1ms, t_high: 1us }", "t_low: 1000000 ns; valid are up to t_high, 1000 ns"),
        ("mlt: { t_low: 1ms }", "t_low: 1000000 ns; valid are up to t_high, 125000 ns"),
        ("mlt: { control_rto: 0s }", "control_rto: 0; valid are times above 0"),
        ("dctcp: { initial_window: 0 }", "initial_window: 0; valid are 1 and more"),
        ("dctcp: { rto_min: 0s }", "rto_min: 0; valid are times above 0"),
        ("dctcp: { duplicates: 0 }", "duplicates: 0; valid are 1 and more"),
        ("pias: { initial_window: 0 }", "initial_window: 0; valid are 1 and more"),
        ("pias: { rto_min: 0s }", "rto_min: 0; valid are times above 0"),
        ("pfabric: { rto_round_trips: -1 }", "rto_round_trips: -1; valid are above 0 to 1000000"),
        ("ndp: { initial_window: 0 }", "initial_window: 0; valid are 1 and more"),
        ("ndp: { rto: 0ms }", "rto: 0; valid are times above 0"),
    ] {
        let error = prepare(&scenario(transport, "")).map(|_| ()).unwrap_err();
        assert!(error.starts_with(&format!("small.yaml:8: {says}")), "{transport}: {error}");
    }
    for (transport, switch, says) in [
        ("ndp", "packets: 0", "packets: 0; valid are 1 and more"),
        ("dctcp", "buffer: 1000B", "buffer: 1000 bytes; valid are a full packet, 1406 bytes, and more"),
        ("mlt", "blind: true, drop_at: 1KB", "drop_at: blind switches drop nothing by importance"),
    ] {
        let error = prepare(&scenario(&format!("{transport}: {{}}"), switch)).map(|_| ()).unwrap_err();
        assert!(error.starts_with(&format!("small.yaml:9: {says}")), "{transport}, {switch}: {error}");
    }
    // At their ends ranges are valid.
    for transport in [
        "trimwire: { important: 0, paths: 1, window: 24KB, start: 100Gbps }",
        "trimwire: { important: 1, paths: 256 }",
        "mlt: { t_low: 125us }",
        "pfabric: { rto_min: 0s }",
    ] {
        assert_eq!(prepare(&scenario(transport, "")).map(|_| ()), Ok(()), "{transport}");
    }
}

#[test]
fn what_a_file_says_once_is_checked_once() {
    let twice = format!("{SCENARIO}  - name: a\n    transport: {{ ndp: {{}} }}\n");
    for (text, says) in [
        (SCENARIO.replace("limit: 1s", "limit: 0s"), "small.yaml:2: limit: 0; valid are times above 0"),
        (twice, "small.yaml:10: name: another run is 'a', too; valid are names that differ"),
        (
            SCENARIO.replace("bytes: 100KB", "bytes: 0B"),
            "small.yaml:4: bytes: 0; valid are 1B to 100GB a flow (run 'a')",
        ),
        (
            SCENARIO.replace("bytes: 100KB", "bytes: 101GB"),
            "small.yaml:4: bytes: 101000000000; valid are 1B to 100GB a flow (run 'a')",
        ),
    ] {
        let error = prepare(&text).map(|_| ()).unwrap_err();
        assert!(error.starts_with(says), "{error}");
    }
}

#[test]
fn values_of_another_kind_are_refused_in_the_files_words() {
    for (from, to, says) in [
        (
            "    transport:\n      dctcp: {}\n",
            "    transport: dctcp\n",
            "expected a transport with its keys, such as { dctcp: {} }",
        ),
        ("switch: {}", "switch: blind", "expected a switch's keys, such as { buffer: 512KiB }"),
        ("hosts: 4", "hosts: -3", "expected a whole number from 0 to 4294967295"),
        ("bytes: 100KB", "bytes: 900TB", "expected a size up to 9000000GB with its unit (B, KB, MB, GB,"),
        ("bytes: 100KB", "bytes: 0", "expected a size up to 9000000GB with its unit (B, KB, MB, GB,"),
        ("delay: 1us", "delay: 1", "expected a time with its unit (ns, us, ms, s), such as 10us"),
    ] {
        let text = SCENARIO.replace(from, to);
        assert_ne!(text, SCENARIO, "{from}");
        let error = prepare(&text).map(|_| ()).unwrap_err();
        assert!(error.starts_with("small.yaml: ") && error.contains(says), "{to}: {error}");
        assert!(!error.contains("Words") && !error.contains("u32"), "{to}: {error}");
    }
}
