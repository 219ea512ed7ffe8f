// SPDX-License-Identifier: Apache-2.0
//! `trimwire-lab plan thresholds`: where switches trim, for the least weighted loss of a model's
//! layers.

use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json, table};
use clap::Args;
use std::fmt::Write as _;
use std::path::PathBuf;
use trimwire_controller::units::bytes_text;
use trimwire_lab::thresholds::answer::{Answer, Curve, PolicyAnswer, answer, figure};
use trimwire_lab::thresholds::layers::Layers;

/// Derive thresholds from a model's layers: the least weighted loss for their sizes and
/// sensitivities.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ThresholdsOptions {
    /// Layers file: names, sizes, sensitivities, and the congested port.
    #[arg(value_name = "LAYERS.yaml")]
    pub layers: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(options: &ThresholdsOptions) -> Outcome {
    let name = super::name(&options.layers);
    let layers = Layers::from_yaml(&super::read(&options.layers)?, &name).map_err(Failure::input)?;
    let answer = answer(&layers, &name).map_err(Failure::input)?;
    if options.json {
        return Ok(print_json(&answer)?);
    }
    Ok(print(&format!("{}\n{}", report(&answer), answer.policy()))?)
}

fn report(answer: &Answer) -> String {
    let mut text = format!("{}: thresholds of least weighted loss\n\nAssumed\n", answer.model);
    for line in &answer.assumptions {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(
        text,
        "\nTrimming\n{}  trim queue: trim_limit {} bytes, trimmed packets ask for {} of the line, {} of them lost",
        policy_table(&answer.trimming, true),
        answer.trimming.trim_limit,
        figure(answer.trimming.trimmed),
        figure(answer.trimming.trimmed_lost)
    );
    let dropping = policy_table(&answer.dropping, false);
    let _ = writeln!(text, "\nSelective dropping (MLT §4.2.2), best thresholds\n{dropping}");
    let row = |(class, (first, all)): (usize, &(f64, u32))| {
        vec![format!("class{class}"), format!("{first:.1}"), all.to_string()]
    };
    let rows: Vec<_> = answer.appendix_b.thresholds.iter().enumerate().map(row).collect();
    let _ = writeln!(
        text,
        "MLT appendix B as printed (split queues, offered loads)\n{}",
        indented(&["class", "S, bursts", "L, bursts"], &rows, 1)
    );
    let rows = [
        ("appendix B's thresholds, by its formulas", answer.appendix_b.predicted_loss),
        ("appendix B's thresholds, in shared queues", answer.appendix_b.weighted_loss),
        ("selective dropping", answer.dropping.weighted_loss),
        ("trimming", answer.trimming.weighted_loss),
    ];
    let rows = rows.map(|(policy, loss)| vec![policy.to_owned(), figure(loss)]);
    let losses = indented(&["policy", "loss"], &rows, 1);
    let _ = writeln!(text, "Weighted loss (0: nothing is lost, 1: everything)\n{losses}");
    let row = |Curve { buffer, dropping, trimming }: &Curve| {
        vec![bytes_text(*buffer), figure(*dropping), figure(*trimming)]
    };
    let rows: Vec<_> = answer.curve.iter().map(row).collect();
    let _ = writeln!(
        text,
        "The same by buffer, with the best thresholds for each\n{}\ntrimming loses {} where dropping loses {}: {} times less",
        indented(&["buffer", "dropping", "trimming"], &rows, 1),
        figure(answer.trimming.weighted_loss),
        figure(answer.dropping.weighted_loss),
        figure(answer.saved)
    );
    text
}

fn policy_table(policy: &PolicyAnswer, trims: bool) -> String {
    let mut head = vec!["class", "layers", "bytes", "weight", "shallow_at, less"];
    if trims {
        head.extend(["deep_at, less", "shallow_at", "deep_at"]);
    }
    head.push("drop_at");
    head.extend(if trims { ["trimmed, less", "trimmed"] } else { ["dropped, less", "dropped"] });
    head.push("loss");
    let rows: Vec<Vec<String>> = policy
        .classes
        .iter()
        .map(|class| {
            let layers = &class.members.layers;
            let span = match (layers.first(), layers.last()) {
                (Some(first), Some(last)) if layers.len() > 1 => format!("{first} … {last}"),
                (Some(only), _) => only.clone(),
                _ => String::new(),
            };
            let share = format!("{:.1} %", 100.0 * class.members.share);
            let mut row = vec![class.class.clone(), span, share, figure(class.members.weight)];
            row.push(class.less_important_shallow_at.to_string());
            if trims {
                let more =
                    [class.less_important_deep_at, class.important_shallow_at, class.important_deep_at];
                row.extend(more.map(|bytes| bytes.to_string()));
            }
            row.push(class.drop_at.to_string());
            row.extend([class.less_important_refused, class.important_refused, class.loss].map(figure));
            row
        })
        .collect();
    indented(&head, &rows, 2)
}

fn indented(titles: &[&str], rows: &[Vec<String>], left: usize) -> String {
    table(titles, rows, left).lines().fold(String::new(), |text, line| text + "  " + line + "\n")
}
