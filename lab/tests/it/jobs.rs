// SPDX-License-Identifier: Apache-2.0
//! Jobs that compute and send: traces, and parameter servers by layer, against closed forms.

use crate::scenario::prepare;
use trimwire_lab::espresso::{Model, Tensor};
use trimwire_lab::sim::discipline::Rule;
use trimwire_lab::sim::run::{Outcome, run};
use trimwire_lab::sim::setup::Setup;
use trimwire_lab::sim::workload::{Demand, Format, ParameterServer, parameter_server, trace};

/// Eight hosts at one switch, 100 Gbit/s and 1 µs a link.
fn simulate(demands: Vec<Demand>) -> Outcome {
    let text = "scenario: job\ntopology: { star: { hosts: 8, rate: 100Gbps, delay: 1us } }\n\
                workload: { permutation: { bytes: 1B } }\n\
                runs: [{ name: a, transport: { dctcp: { initial_window: 10000 } }, switch: { buffer: 64MB } }]\n";
    let setup = Setup { demands, ..prepare(text).unwrap() };
    assert!(matches!(setup.rule, Rule::DropTail { .. }));
    let outcome = run(&setup, 1, |_| {});
    assert_eq!(outcome.unfinished, 0);
    outcome
}

fn of_trace(rows: &str) -> Outcome {
    simulate(trace(Format::Csv, &format!("id,op,hosts,bytes,time,after\n{rows}"), 8, 1.0).unwrap())
}

/// When demand `number` was over.
fn end_ns(outcome: &Outcome, number: usize) -> u64 {
    let flow = outcome.flows.iter().find(|flow| flow.demand == number).unwrap();
    flow.began_ns + flow.duration_ns
}

/// One packet of 1,344 bytes and 62 of headers through one switch, and twice 1 µs.
const PACKET_NS: u64 = 2 * (1_406 * 8 / 100 + 1) + 2_000;

#[test]
fn a_host_computes_one_thing_at_a_time_and_hosts_compute_side_by_side() {
    let outcome = of_trace("a,compute,0 1,,1ms,\nb,compute,0,,2ms,\nc,compute,0,,1ms,a b\n");
    // Demands: a at 0, a at 1, b, then where both meet, and c.
    let ends: Vec<u64> = [0, 1, 2, 4].map(|number| end_ns(&outcome, number)).to_vec();
    assert_eq!(ends, [1_000_000, 1_000_000, 3_000_000, 4_000_000]);
    let began = outcome.flows.iter().find(|flow| flow.demand == 2).unwrap().began_ns;
    assert_eq!(began, 1_000_000);
}

#[test]
fn a_computation_begins_when_the_later_of_a_message_and_the_computation_before_it_is_over() {
    // Host 1 computes 1 ms; what comes from host 0 after 2 ms is later, and what comes after 0.1 ms
    // is not.
    for (slow_us, begins_ns) in [(2_000, 2_000_000 + PACKET_NS), (100, 1_000_000)] {
        let outcome = of_trace(&format!(
            "x,compute,0,,{slow_us}us,\ns,send,0 1,1344B,,x\nc,compute,1,,1ms,\nd,compute,1,,1ms,s c\n"
        ));
        let last = outcome.flows.iter().find(|flow| flow.demand == 4).unwrap();
        let late = last.began_ns.abs_diff(begins_ns);
        assert!(late < 10, "{slow_us}: began at {}, not {begins_ns}", last.began_ns);
        assert_eq!(last.duration_ns, 1_000_000);
    }
}

#[test]
fn a_pipeline_of_stages_takes_as_many_turns_as_stages_and_batches_less_one() {
    // GPipe (§2.3): S stages and M batches take S + M − 1 turns.
    let (stages, batches) = (4, 6);
    let mut rows = Vec::new();
    for batch in 0..batches {
        for stage in 0..stages {
            let waits = if stage == 0 { String::new() } else { format!("s{batch}.{}", stage - 1) };
            rows.push(format!("c{batch}.{stage},compute,{stage},,1ms,{waits}\n"));
            if stage + 1 < stages {
                rows.push(format!("s{batch}.{stage},send,{stage} {},1344B,,c{batch}.{stage}\n", stage + 1));
            }
        }
    }
    let outcome = of_trace(&rows.concat());
    let end_ns = outcome.flows.iter().map(|flow| flow.began_ns + flow.duration_ns).max().unwrap();
    let turns_ns = (stages + batches - 1) * 1_000_000 + (stages - 1) * PACKET_NS;
    assert!(end_ns.abs_diff(turns_ns) < 50, "{end_ns} for {turns_ns}");
}

#[test]
fn an_all_reduce_ends_where_the_last_host_has_computed() {
    let outcome = of_trace("f,compute,0-3,,1ms,\nl,compute,2,,1ms,f\nr,all-reduce,0-3,4KB,,f l\n");
    let end_ns = outcome.flows.iter().map(|flow| flow.began_ns + flow.duration_ns).max().unwrap();
    // Two rounds of three packets of 1,000 bytes each, behind each other at their receiver.
    let (least, most) = (2_000_000 + 2 * 2_000, 2_000_000 + 2 * (2_000 + 8 * 170));
    assert!((least..most).contains(&end_ns), "{end_ns}");
}

#[test]
fn a_forward_pass_by_layer_is_not_later_and_hides_parameters_that_come_late() {
    let tensor =
        |name: &str, elements| Tensor { name: name.into(), elements, compute_us: 100.0, after: Vec::new() };
    // In the order of the backward pass: the back layer's tensor is large, and of no use before the
    // front layer's pass.
    let tensors = vec![tensor("back", 2_000_000), tensor("front", 10_000)];
    let model = Model { model: "two".into(), forward_ms: 1.0, tensors };
    let how = ParameterServer {
        group: 4,
        colocated: false,
        jobs: 1,
        shards: 1,
        iterations: 2,
        compression: 1.0,
        by_layer: false,
        jitter: 0.0,
    };
    let took_ns = |by_layer| {
        let demands = parameter_server(&model, 8, &ParameterServer { by_layer, ..how }, 1);
        let outcome = simulate(demands);
        outcome.flows.iter().map(|flow| flow.began_ns + flow.duration_ns).max().unwrap()
    };
    let (whole_ns, by_layer_ns) = (took_ns(false), took_ns(true));
    // Half of the second forward pass is hidden behind the large tensor.
    let gain_ns = whole_ns.saturating_sub(by_layer_ns);
    assert!((400_000..=510_000).contains(&gain_ns), "{whole_ns} and {by_layer_ns}");
}
