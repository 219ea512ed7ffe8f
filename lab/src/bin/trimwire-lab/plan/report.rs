// SPDX-License-Identifier: Apache-2.0
//! A plan for people.

use crate::output::table as rows_table;
use std::fmt::Write as _;
use trimwire_lab::espresso::{Cluster, Plan};

/// Everything in a line.
pub(super) fn summary(plan: &Plan) -> String {
    format!(
        "iteration {} (without compression {}, if compression cost nothing {})",
        ms(plan.iteration_seconds),
        ms(plan.uncompressed_seconds),
        ms(plan.upper_bound_seconds)
    )
}

/// The plan: a line a tensor, then what it comes to.
pub(super) fn table(plan: &Plan, cluster: &Cluster, all: bool) -> String {
    let mut text = format!("{} on {}\n\n", plan.model, plan.cluster);
    let compressed = |option: &str| option.contains("compress") || option.contains("encode");
    let rows: Vec<Vec<String>> = plan
        .strategy
        .iter()
        .enumerate()
        .filter(|(_, choice)| all || compressed(&choice.option))
        .map(|(i, choice)| {
            vec![
                format!("T{i}"),
                choice.tensor.clone(),
                choice.option.clone(),
                choice.why.clone(),
                choice.elements.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        text.push_str("No tensor is compressed: nothing makes the iteration shorter.\n");
    } else {
        text.push_str(&rows_table(&["", "tensor", "option", "why", "elements"], &rows, 4));
    }
    let number = plan.strategy.iter().filter(|choice| compressed(&choice.option)).count();
    let _ = writeln!(
        text,
        "\n{number} of {} tensors compressed; {} options each; selected in {}, offloaded in {}{}\n{}",
        plan.tensors,
        plan.options,
        ms(plan.selection_seconds),
        ms(plan.offload_seconds),
        if plan.offload_is_exhaustive { "" } else { " (not all combinations tried)" },
        summary(plan)
    );
    text.push_str(&by_congestion(cluster, &plan.iteration_seconds_by_congestion));
    text
}

/// What an earlier plan comes to.
pub(super) fn checked(plan: &Plan, cluster: &Cluster, seconds: &[f64]) -> String {
    let states = cluster.states();
    let mean: f64 = states.iter().zip(seconds).map(|(state, seconds)| state.share * seconds).sum();
    format!(
        "{} on {}, planned for {}: iteration {}\n{}",
        plan.model,
        cluster.cluster,
        plan.cluster,
        ms(mean),
        by_congestion(cluster, seconds)
    )
}

fn by_congestion(cluster: &Cluster, seconds: &[f64]) -> String {
    let mut text = String::new();
    if seconds.len() > 1 {
        for (state, seconds) in cluster.states().iter().zip(seconds) {
            let (left, often) = (100.0 * state.bandwidth, 100.0 * state.share);
            let _ = writeln!(
                text,
                "with {left:.0} % of the bandwidth, {often:.0} % of the time: {}",
                ms(*seconds)
            );
        }
    }
    text
}

fn ms(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}
