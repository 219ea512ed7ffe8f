//! `run`.

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::{MetricsAt, Options, apply_blocking};

use super::file::FileArgs;
use super::outcome::{FAILED, Failure, Outcome, failed};
use super::progress::with_progress;

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    file: FileArgs,
    /// Bid with this election id; the highest of a switch's controllers is primary [default: the file's, else 1].
    #[arg(long, value_name = "ID", env = "TRIMWIRE_ELECTION_ID")]
    election_id: Option<u128>,
    /// Serve Prometheus metrics there, or `off` [default: the file's, else 127.0.0.1:9550].
    #[arg(long, value_name = "ADDRESS:PORT", env = "TRIMWIRE_METRICS", value_parser = MetricsAt::parse)]
    metrics: Option<MetricsAt>,
    /// Bring the switches in place once and end, as apply does.
    #[arg(long)]
    once: bool,
}

impl Run {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        if self.once {
            let options = Options { election_id: self.election_id, ..Options::default() };
            let report = with_progress(&options.progress, || apply_blocking(&fabric, &artifacts, &options))
                .map_err(failed)?;
            self.file.print(&report)?;
            return Ok(if report.is_ok() { 0 } else { FAILED });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(async {
            let [mut hangup, mut terminate, mut interrupt] =
                signals([SignalKind::hangup(), SignalKind::terminate(), SignalKind::interrupt()])?;
            let options = RunOptions { election_id: self.election_id, metrics: self.metrics };
            let mut controller = Controller::start(&fabric, &artifacts, &options).await.map_err(failed)?;
            loop {
                tokio::select! {
                    _ = hangup.recv() => self.reload(&mut controller),
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                }
            }
            tracing::info!("ending");
            controller.stop().await;
            Ok(0)
        })
    }

    fn reload(&self, controller: &mut Controller) {
        let taken = self
            .file
            .read()
            .and_then(|(fabric, artifacts)| controller.reload(&fabric, &artifacts).map_err(failed));
        match taken {
            Ok(()) => tracing::info!("took {} again", self.file.file.display()),
            Err(Failure { error, .. }) => {
                controller.refused_reload();
                tracing::error!("not taken, going on with the fabric as it was:\n{error:#}");
            }
        }
    }
}

fn signals<const N: usize>(kinds: [SignalKind; N]) -> Result<[tokio::signal::unix::Signal; N], Failure> {
    let mut all = Vec::with_capacity(N);
    for kind in kinds {
        all.push(signal(kind).map_err(failed)?);
    }
    all.try_into().map_err(|_| failed(anyhow::anyhow!("as many signals as kinds")))
}
