// SPDX-License-Identifier: Apache-2.0
//! Traces of each format: what they come to, and mistakes with their lines.

use trimwire_lab::sim::workload::{Begin, Demand, Format, Incasts, TraceError, distribution, trace};

const HEADER: &str = "id,op,hosts,bytes,time,after\n";

fn read(rows: &str) -> Result<Vec<Demand>, TraceError> {
    trace(Format::Csv, &format!("{HEADER}{rows}"), 8, 1.0)
}

/// Pairs that send, with their bytes.
fn sent(demands: &[Demand]) -> Vec<(u32, u32, u64)> {
    let flows = demands.iter().filter(|demand| !demand.computes());
    flows.map(|demand| (demand.source, demand.destination, demand.bytes)).collect()
}

#[test]
fn every_wait_is_for_something_earlier_that_ends_at_the_host_that_waits() {
    let rows = "f,compute,0-3,,1ms,\nr,all-reduce,0-3,4MB,,f\nq,ring-all-reduce,0-3,4MB,,r\n\
                s,send,0-1 2-3,1MB,2us,q\nb,broadcast,2 0 1,1MB,,s\nx,all-to-all,0-3,4MB,,b f\n";
    let demands = read(rows).unwrap();
    for (number, demand) in demands.iter().enumerate() {
        for &before in &demand.after {
            assert!((before as usize) < number);
            assert_eq!(demands[before as usize].destination, demand.source);
        }
    }
}

#[test]
fn collectives_send_what_their_algorithms_do() {
    let of = |op: &str| sent(&read(&format!("r,{op},0-3,4MB,,\n")).unwrap());
    let each = |bytes| -> Vec<(u32, u32, u64)> {
        (0..4).flat_map(|from| (1..4).map(move |step| (from, (from + step) % 4, bytes))).collect()
    };
    for op in ["all-to-all", "reduce-scatter", "all-gather"] {
        assert_eq!(of(op), each(1_000_000), "{op}");
    }
    assert_eq!(of("all-reduce"), [each(1_000_000), each(1_000_000)].concat());
    let ring: Vec<_> = (0..6).flat_map(|_| (0..4).map(|from| (from, (from + 1) % 4, 1_000_000))).collect();
    assert_eq!(of("ring-all-reduce"), ring);
    assert_eq!(of("broadcast"), [(0, 1, 4_000_000), (0, 2, 4_000_000), (0, 3, 4_000_000)]);
    assert_eq!(of("send"), [(0, 2, 4_000_000), (1, 3, 4_000_000)]);
    let less = trace(Format::Csv, &format!("{HEADER}r,send,0 1,4MB,,\n"), 8, 4.0).unwrap();
    assert_eq!(sent(&less), [(0, 1, 1_000_000)]);
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (rows, line, word) in [
        ("a,compute,0,,1ms,\na,compute,0,,1ms,\n", 3, "no row before"),
        ("a,compute,9,,1ms,\n", 2, "up to 7"),
        ("a,compute,0 0-1,,1ms,\n", 2, "named twice"),
        ("a,compute,,,1ms,\n", 2, "there are none"),
        ("a,compute,0,,,\n", 2, "time"),
        ("a,compute,0,1MB,1ms,\n", 2, "sends nothing"),
        ("a,send,0 1,,,\n", 2, "bytes"),
        ("a,send,0 1 2,1MB,,\n", 2, "as many receivers"),
        ("a,all-reduce,3,1MB,,\n", 2, "two or more"),
        ("a,send,0 1,1MB,,b\n", 2, "no row before"),
        ("a,send,0 1,1MB,,\nb,compute,0,,1ms,a\n", 3, "ends at none of these hosts, but at 1"),
        ("a,sned,0 1,1MB,,\n", 2, "sned"),
        ("a,send,0 1,1 parsec,,\n", 2, "a size"),
        ("a,send,0 1,1MB\n", 2, "fields"),
        ("a,compute,0-7,,8000000s,\n", 2, "100 days"),
        ("a,send,0 1,0B,,\n", 2, "1B and more"),
        ("# a comment\n\na,compute,9,,1ms,\n", 4, "up to 7"),
        ("a,compute,0,,1ms,\n# b\nb,send,0 1,1 parsec,,\n", 4, "a size"),
        ("# c\na,send,0 1,1MB\n", 3, "fields"),
    ] {
        let error = read(rows).unwrap_err();
        assert!(error.line == line && error.reason.contains(word), "{rows}{error}");
    }
    for (header, line, word) in [
        ("id,op,hosts,bites\n", 1, "bites"),
        ("# a job\nid,op,hosts,bites\n", 2, "bites"),
        ("id,op\n", 1, "hosts"),
        ("id,op,hosts,time,op\n", 1, "twice"),
    ] {
        let error = trace(Format::Csv, &format!("{header}a,send,0 1,1MB,\n"), 8, 1.0).unwrap_err();
        assert!(error.line == line && error.reason.contains(word), "{header}{error}");
        assert!(trace(Format::Csv, header, 8, 1.0).is_err(), "without rows: {header}");
    }
    // The square of them would be made before anybody counted.
    let error =
        trace(Format::Csv, &format!("{HEADER}a,all-to-all,0-16383,1MB,,\n"), 16_384, 1.0).unwrap_err();
    assert!(error.reason.contains("4000000"), "{error}");
}

/// What a file of another format comes to on eight hosts.
fn of(format: Format, text: &str) -> Result<Vec<Demand>, TraceError> {
    trace(format, text, 8, 1.0)
}

/// Numbers of the flows that a flow waits for, meeting points and computations left out.
fn waits(demands: &[Demand], number: usize) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for &before in &demands[number].after {
        let before = before as usize;
        if demands[before].computes() {
            found.extend(waits(demands, before));
        } else {
            found.push(before);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn every_wait_is_valid(demands: &[Demand]) {
    for (number, demand) in demands.iter().enumerate() {
        for &before in &demand.after {
            assert!((before as usize) < number);
            assert_eq!(demands[before as usize].destination, demand.source);
        }
    }
}

fn refused(format: Format, text: &str, line: u64, word: &str) {
    let error = of(format, text).unwrap_err();
    assert!(error.line == line && error.reason.contains(word), "{text}{error}");
}

const GOAL: &str = "\
num_ranks 3

// 2 sends on what came from 0, which rank 1 only hears of at last
rank 2 {
a: recv 8b from 0 tag 1 cpu 0
c: calc 500 cpu 1
s: send 16b to 1 tag 7
s requires a
s requires c
}
rank 0 {
l1: send 8b to 2 tag 1 nic 0
l2: send 24b to 1 tag 7
l2 requires l1
}
rank 1 {
l1: recv 16b from 2 tag 7
l2: recv 24b from 0 tag 7
l3: calc 100
l3 requires l1
l4: calc 100
l4 irequires l1
}
";

#[test]
fn a_goal_schedules_sends_wait_for_what_was_received_and_a_send_holds_nobody() {
    let demands = of(Format::Goal, GOAL).unwrap();
    every_wait_is_valid(&demands);
    let flows = [(0, 2, 8), (0, 1, 24), (2, 1, 16)];
    assert_eq!(sent(&demands).len(), 3);
    let place = |flow: (u32, u32, u64)| {
        demands.iter().position(|d| (d.source, d.destination, d.bytes) == flow).unwrap()
    };
    let [first, second, on] = flows.map(place);
    // A send is over where it begins, so what requires it waits for nothing.
    assert!(waits(&demands, first).is_empty() && waits(&demands, second).is_empty());
    assert_eq!(waits(&demands, on), [first]);
    let computed = |host, ns| {
        let found = demands
            .iter()
            .enumerate()
            .filter(move |(_, d)| d.computes() && d.source == host && d.begin == Begin::Later(ns));
        found.map(|(number, _)| number).collect::<Vec<usize>>()
    };
    let [c] = computed(2, 500)[..] else { panic!("rank 2 computes once") };
    let [requires, begins_with] = computed(1, 100)[..] else { panic!("rank 1 computes twice") };
    let reaches = |from: usize, to: usize| {
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            open.extend(demands[at].after.iter().map(|&before| before as usize));
        }
        false
    };
    assert!(reaches(on, c) && !reaches(on, second));
    let (requires, begins_with) =
        if reaches(requires, on) { (requires, begins_with) } else { (begins_with, requires) };
    assert!(reaches(requires, on) && !reaches(begins_with, on));
}

#[test]
fn mistakes_in_goal_are_named_with_their_line() {
    for (text, line, word) in [
        ("num_ranks 9\n", 1, "8 hosts"),
        ("rank 8 {\n", 1, "0 to 7"),
        ("num_ranks 2\nrank 2 {\n", 2, "0 to 1"),
        ("calc 5\n", 1, "rank N {"),
        ("rank 0 {\na: calc x\n", 2, "'x'"),
        ("rank 0 {\na: calc 5\na: calc 5\n", 3, "has this label"),
        ("rank 0 {\na: calc 5\na requires b\n", 3, "b: no line before"),
        ("rank 0 {\nsend 8b to 0 tag 1\n", 2, "itself"),
        ("rank 0 {\nsend 8b too 1\n", 2, "valid are calc"),
        ("rank 0 {\nrecv 8b from 1 tag 3\n}\n", 2, "no more with tag 3"),
        ("rank 0 {\na: calc 9000000000000001\n", 2, "100 days"),
        // Each waits for the other's message.
        (
            "rank 0 {\na: recv 8b from 1\nb: send 8b to 1\nb requires a\n}\n\
             rank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}\n",
            2,
            "waits, in the end, for itself",
        ),
    ] {
        refused(Format::Goal, text, line, word);
    }
}

const MATRIX: &str = "\
Nodes 8
Connections 4
Triggers 2
# the last begins when both to 3 are there, the third when the first is
3->4 id 4 trigger 2 size 40
0->3 id 1 start 5000 size 10 send_done_trigger 2
1->3 id 2 start 0 size 20 recv_done_trigger 2 recv_done_trigger 1
3->5 id 3 trigger 1 size 30 prio 5
trigger id 1 oneshot
trigger id 2 barrier count 2
";

#[test]
fn a_connection_matrixs_triggers_are_waits_and_its_times_are_picoseconds() {
    let demands = of(Format::Htsim, MATRIX).unwrap();
    every_wait_is_valid(&demands);
    assert_eq!(sent(&demands), [(0, 3, 10), (1, 3, 20), (3, 4, 40), (3, 5, 30)]);
    assert_eq!([demands[0].begin, demands[1].begin], [Begin::At(5), Begin::At(0)]);
    assert_eq!((waits(&demands, 2), waits(&demands, 3)), (vec![0, 1], vec![1]));
    let half = trace(Format::Htsim, MATRIX, 8, 2.0).unwrap();
    assert_eq!(half[1].bytes, 10);
}

#[test]
fn mistakes_in_a_connection_matrix_are_named_with_their_line() {
    for (text, line, word) in [
        ("Nodes 16\n", 1, "8 hosts"),
        ("Nodes 8\n0->8 start 0 size 1\n", 2, "0 to 7"),
        ("0->0 start 0 size 1\n", 1, "two hosts"),
        ("0->1 start 0 size 0\n", 1, "1 and more"),
        ("0->1 start 0\n", 1, "size"),
        ("0->1 size 5\n", 1, "either start or trigger"),
        ("0->1 start 0 size\n", 1, "size: ''"),
        ("0->1 start 0 syze 5\n", 1, "syze"),
        ("0->1 start soon size 5\n", 1, "'soon'"),
        ("failure switch_type TOR switch_id 1 link_id 2\n", 1, "failure"),
        ("0->1 size 5 trigger 1\n", 1, "no line says"),
        ("0->1 size 5 trigger 1\ntrigger id 1 oneshot\n", 2, "0 flows fire it"),
        (
            "0->1 start 0 size 5 send_done_trigger 1\n0->2 size 5 trigger 1\ntrigger id 1 oneshot\n",
            2,
            "ends at host 1, in line 1",
        ),
        (
            "0->1 size 5 trigger 1 recv_done_trigger 2\n1->0 size 5 trigger 2 recv_done_trigger 1\n\
             trigger id 1 oneshot\ntrigger id 2 oneshot\n",
            1,
            "for itself",
        ),
    ] {
        refused(Format::Htsim, text, line, word);
    }
}

#[test]
fn hpccs_flows_begin_at_their_seconds() {
    let demands = of(Format::Hpcc, "2\n2 1 3 100 200000000 2\n\n0 7 1500 0.000001500\nmore\n").unwrap();
    assert_eq!(sent(&demands), [(2, 1, 200_000_000), (0, 7, 1_500)]);
    assert_eq!([demands[0].begin, demands[1].begin], [Begin::At(2_000_000_000), Begin::At(1_500)]);
    for (text, line, word) in [
        ("", 1, "no number of flows"),
        ("3\n2 1 3 100 5 2\n", 1, "3 flows; the file has 1"),
        ("1\n8 1 3 100 5 2\n", 2, "0 to 7"),
        ("1\n1 1 3 100 5 2\n", 2, "two hosts"),
        ("1\n1 2 3 100 0 2\n", 2, "1 and more"),
        ("1\n1 2 3 100 5 -1\n", 2, "'-1'"),
        ("1\n1 2 3\n", 2, "SOURCE"),
    ] {
        refused(Format::Hpcc, text, line, word);
    }
}

#[test]
fn hpccs_distributions_are_read_in_per_cent() {
    // Uniform from 0 to 100 bytes, and from there to 300.
    assert!((distribution("0 0\n100 50\n300 100\n").unwrap().mean() - 125.0).abs() < 1e-9);
    for (text, line, word) in [
        ("", 1, "valid is 100"),
        ("5 5\n", 1, "valid is 0"),
        ("0 0\n10 40\n10 100\n", 3, "larger"),
        ("0 0\n10 40\n20 40\n", 3, "larger"),
        ("0 0\n10 0.5\n20 1\n", 3, "valid is 100"),
        ("0 0\n10 nan\n", 2, "per cent"),
        ("0 0\n10 half\n", 2, "BYTES"),
        ("0 0\n1e12 100\n", 2, "100000000000"),
    ] {
        let error = distribution(text).unwrap_err();
        assert!(error.line == line && error.reason.contains(word), "{text}{error}");
    }
}

/// Two layers, in the fields of `Resnet50_DataParallel.txt`.
const LAYERS: &str = "2\nfirst\t-1\t100 NONE 0 200 NONE 0 300 ALLREDUCE 8000 9\n\
                      last -1 110 NONE 0 210 NONE 0 310 ALLREDUCE 1600 9\n";

#[test]
fn data_parallel_layers_reduce_their_weights_behind_the_backward_pass() {
    let demands = of(Format::AstraSim, &format!("DATA\n{LAYERS}")).unwrap();
    every_wait_is_valid(&demands);
    // Forward 100, 110; backward 310, 210, 300; nobody wants the first layer's inputs.
    let host_0: Vec<Begin> = demands
        .iter()
        .filter(|d| d.computes() && d.source == 0 && d.begin != Begin::Later(0))
        .map(|d| d.begin)
        .collect();
    assert_eq!(host_0, [100, 110, 310, 210, 300].map(Begin::Later));
    // Two rings of 14 steps of an eighth.
    let bytes: Vec<u64> = sent(&demands).into_iter().map(|flow| flow.2).collect();
    assert_eq!(bytes, [vec![200; 14 * 8], vec![1_000; 14 * 8]].concat());
}

#[test]
fn a_transformers_groups_reduce_inputs_within_and_weights_between_them() {
    let text = "HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n1\n\
                q -1 10 ALLGATHER 400 10 NONE 0 10 ALLREDUCE 20 1\n";
    let flows = sent(&of(Format::AstraSim, text).unwrap());
    let (forward, weights) = flows.split_at(2 * 4 * 3);
    assert!(forward.iter().all(|(from, to, bytes)| from / 4 == to / 4 && *bytes == 100));
    assert!(weights.iter().all(|(from, to, bytes)| from % 4 == to % 4 && from != to && *bytes == 10));
    assert_eq!(weights.len(), 4 * 2 * 2);
    // A micro benchmark is its collective alone.
    let micro = of(Format::AstraSim, "MICRO\n1\nc -1 5 NONE 0 5 NONE 0 5 ALLTOALL 800 5\n").unwrap();
    assert!(micro.iter().all(|d| !d.computes() || d.begin == Begin::Later(0)));
    assert_eq!(sent(&micro).len(), 8 * 7);
}

#[test]
fn mistakes_in_astra_sims_text_are_named_with_their_line() {
    for (text, line, word) in [
        ("", 1, "DATA"),
        ("HYBRID_CUSTOMIZED\n1\n", 1, "HYBRID_TRANSFORMER"),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 3\n1\n", 1, "8 hosts"),
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 pp: 2\n1\n", 1, "pp: 2"),
        ("DATA\nmany\n", 2, "'many'"),
        ("DATA\n2\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", 2, "2 layers; the file has 1"),
        ("DATA\n1\na -1 1 NONE 0 1 NONE 0 1 NONE\n", 3, "12"),
        ("DATA\n1\na -1 1 NONE 0 1 NONE 0 1 GATHER 5 1\n", 3, "GATHER"),
        ("DATA\n1\na -1 x NONE 0 1 NONE 0 1 NONE 0 1\n", 3, "'x'"),
        ("DATA\n1\na -1 1 ALLGATHER 0 1 NONE 0 1 NONE 0 1\n", 3, "1B and more"),
    ] {
        refused(Format::AstraSim, text, line, word);
    }
}

#[test]
fn poisson_incasts_have_their_rate_and_draw_who_sends_to_whom() {
    let incasts = Incasts { senders: 3, bytes: 500, jitter_ns: 0, every_ns: 1_000, until_ns: 1_000_000 };
    let demands = incasts.demands(8, usize::MAX, 1);
    assert!((900 * 3..1_100 * 3).contains(&demands.len()), "{}", demands.len());
    let mut receivers = std::collections::BTreeSet::new();
    for incast in demands.chunks(3) {
        receivers.insert(incast[0].destination);
        let senders: std::collections::BTreeSet<u32> = incast.iter().map(|d| d.source).collect();
        assert!(incast.iter().all(|d| d.destination == incast[0].destination && d.begin == incast[0].begin));
        assert!(senders.len() == 3 && !senders.contains(&incast[0].destination));
    }
    assert_eq!(receivers.len(), 8);
    assert_eq!(incasts.demands(8, 10, 1).len(), 12);
}

proptest::proptest! {
    /// Damaged files of every format are refused or read; nothing panics.
    #[test]
    fn damaged_traces_are_refused_or_read(at in 0usize..600, with in "[ -~\n]{0,6}", less in 0usize..40) {
        let astra = format!("DATA\n{LAYERS}");
        let hpcc = "2\n2 1 3 100 200000000 2\n0 7 1500 0.000001500\n";
        let csv = format!("{HEADER}f,compute,0-3,,1ms,\nr,all-reduce,0-3,4MB,,f\n");
        for (format, text) in [
            (Format::Goal, GOAL), (Format::Htsim, MATRIX), (Format::Hpcc, hpcc),
            (Format::AstraSim, astra.as_str()), (Format::Csv, csv.as_str()),
        ] {
            let at = at % text.len();
            let end = (at + less).min(text.len());
            if let Ok(demands) = of(format, &format!("{}{with}{}", &text[..at], &text[end..])) {
                every_wait_is_valid(&demands);
            }
            let _ = distribution(&format!("{}{with}", &text[..at]));
        }
    }
}
