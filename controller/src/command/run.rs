// SPDX-License-Identifier: Apache-2.0
//! `run`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::{Fabric, MetricsAt};
use trimwire_p4runtime::client::Tls;

use super::file::FileArgs;
use super::outcome::{Failure, Outcome, failed};
use super::recording::Recording;
use super::rollout::StateArgs;

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    file: FileArgs,
    /// Election id to bid with; a switch makes the highest bidder its primary [default: the file's,
    /// else 1].
    #[arg(long, value_name = "ID", env = "TRIMWIRE_ELECTION_ID")]
    election_id: Option<u128>,
    /// Serve Prometheus metrics on this address; `off` serves none [default: the file's, else
    /// 127.0.0.1:9550].
    #[arg(long, value_name = "ADDRESS:PORT", env = "TRIMWIRE_METRICS", value_parser = MetricsAt::parse)]
    metrics: Option<MetricsAt>,
    #[command(flatten)]
    state: StateArgs,
}

impl Run {
    pub(crate) fn run(&self) -> Outcome {
        let mut text = self.file.text()?;
        let (fabric, artifacts) = self.file.read_text(&text)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(async {
            let [mut hangup, mut terminate, mut interrupt] =
                signals([SignalKind::hangup(), SignalKind::terminate(), SignalKind::interrupt()])?;
            let options = RunOptions { election_id: self.election_id, metrics: self.metrics };
            let mut controller = Controller::start(&fabric, &artifacts, &options).await.map_err(failed)?;
            let records = self.state.records(&self.file);
            let mut recording = Recording::start(records, &text, &fabric, &artifacts);
            let mut unreadable = None;
            self.drain(&controller, &mut unreadable);
            let mut tls = fabric.tls;
            let mut looks = tokio::time::interval(RENEWALS);
            let mut drains = tokio::time::interval(DRAINS);
            loop {
                tokio::select! {
                    _ = hangup.recv() => self.reload(&mut controller, &mut recording, &mut text, &mut tls),
                    _ = drains.tick() => {
                        self.drain(&controller, &mut unreadable);
                        recording.look(&controller.status());
                    }
                    _ = looks.tick() => self.renew(&mut controller, &text, &mut tls),
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                }
            }
            tracing::info!("ending");
            let status = controller.status();
            recording.look(&status);
            recording.end(&status);
            controller.stop().await;
            Ok(0)
        })
    }

    /// Takes what `drain` and `undrain` have noted. A file that cannot be read changes nothing.
    fn drain(&self, controller: &Controller, unreadable: &mut Option<String>) {
        match self.state.records(&self.file).drained() {
            Ok(drained) => {
                *unreadable = None;
                controller.drain(drained);
            }
            Err(error) => {
                let words = Some(error.to_string());
                if *unreadable != words {
                    tracing::warn!("drained switches stay as they are: {error}");
                    *unreadable = words;
                }
            }
        }
    }

    /// Takes the file as it is now.
    fn reload(
        &self,
        controller: &mut Controller,
        recording: &mut Recording,
        text: &mut String,
        tls: &mut BTreeMap<String, Tls>,
    ) {
        let before = controller.status();
        let taken = self.file.text().and_then(|new| {
            let (fabric, artifacts) = self.file.read_text(&new)?;
            controller.reload(&fabric, &artifacts).map_err(failed)?;
            controller.insist();
            recording.reload(&before, &new, &fabric, &artifacts);
            (*text, *tls) = (new, fabric.tls);
            Ok(())
        });
        match taken {
            Ok(()) => tracing::info!("took {} again", self.file.file.display()),
            Err(Failure { error, .. }) => {
                controller.refused_reload();
                tracing::error!("not taken, going on with the fabric as it was:\n{error:#}");
            }
        }
    }

    /// Takes certificates that were renewed; the fabric stays as it was taken last. Half a renewal,
    /// a certificate without its key, is not taken, and looked at again.
    fn renew(&self, controller: &mut Controller, text: &str, tls: &mut BTreeMap<String, Tls>) {
        if tls.is_empty() {
            return;
        }
        let name = self.file.file.display().to_string();
        let found = match Fabric::from_yaml(text, &name) {
            Ok(fabric) if fabric.tls == *tls => return,
            Ok(_) => self.file.read_text(text),
            Err(error) => return tracing::warn!("certificates are not taken: {error}"),
        };
        let taken = found.and_then(|(fabric, artifacts)| {
            controller.reload(&fabric, &artifacts).map_err(failed)?;
            *tls = fabric.tls;
            Ok(())
        });
        match taken {
            Ok(()) => tracing::info!("took renewed certificates"),
            Err(Failure { error, .. }) => tracing::warn!("renewed certificates are not taken: {error:#}"),
        }
    }
}

/// How often drained switches are looked for.
const DRAINS: Duration = Duration::from_secs(1);
/// How often certificates are looked at.
const RENEWALS: Duration = Duration::from_secs(30);

fn signals<const N: usize>(kinds: [SignalKind; N]) -> Result<[tokio::signal::unix::Signal; N], Failure> {
    let mut all = Vec::with_capacity(N);
    for kind in kinds {
        all.push(signal(kind).map_err(failed)?);
    }
    all.try_into().map_err(|_| failed(anyhow::anyhow!("as many signals as kinds")))
}
