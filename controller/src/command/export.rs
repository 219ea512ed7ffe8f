// SPDX-License-Identifier: Apache-2.0
//! `export`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use trimwire_controller::Fabric;
use trimwire_controller::export::sonic::{self, Asic, ExportError, Platform, Present, Thresholds};
use trimwire_controller::units::Threshold;

use super::input;
use super::outcome::{Failure, Outcome, USAGE, bad_input, failed, print, say};

#[derive(Args)]
pub(crate) struct Export {
    #[command(subcommand)]
    system: System,
}

#[derive(Subcommand)]
enum System {
    /// Write CONFIG_DB tables for SONiC, and what they cannot express.
    Sonic(Sonic),
}

const HELP: &str = "\
Examples:
  trimwire-controller export sonic fabric.yaml --switch leaf1 --platform-ports Ethernet0=1,Ethernet8=2 \
      --config-db config_db.json > leaf1.patch          a patch of what the switch has, for `config apply-patch`
  trimwire-controller export sonic fabric.yaml --switch leaf1 --pool egress_lossy_pool --pool-size 32MiB
  trimwire-controller export sonic fabric.yaml --switch leaf1 --json      the configuration and the notes in one object

The configuration, or with --config-db the patch, goes to stdout. What SONiC cannot express goes to stderr.";

#[derive(Args)]
#[command(after_help = HELP)]
struct Sonic {
    /// Fabric file.
    #[arg(value_name = "FABRIC.yaml")]
    file: PathBuf,
    /// Switch, as the fabric file names it.
    #[arg(long, value_name = "NAME")]
    switch: String,
    /// SONiC's names of the switch's ports [default: Ethernet and the number].
    #[arg(long, value_name = "NAME=PORT,…", value_delimiter = ',', value_parser = port)]
    platform_ports: Vec<(u16, String)>,
    /// The switch's chip: spectrum4 or th5 [default: by the model (hwsku) in --config-db].
    #[arg(long, value_name = "NAME")]
    asic: Option<Asic>,
    /// Fit the result to this switch's pools and queues (/etc/sonic/config_db.json), and write it
    /// as a JSON patch.
    #[arg(long, value_name = "FILE")]
    config_db: Option<PathBuf>,
    /// Turn PFC off in the fabric file's queues. Without this, PFC there is an error.
    #[arg(long, requires = "config_db")]
    disable_pfc: bool,
    /// Egress buffer pool of the queues [default: the one they use, or egress_lossy_pool].
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Size of that pool. Writes dynamic thresholds instead of static ones.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pool_size: Option<u64>,
    /// Mark ECT packets of trimmable queues, although SONiC then drops other packets there instead
    /// of trimming them.
    #[arg(long)]
    mark_trimmable: bool,
    /// Print the configuration and the notes as one JSON object.
    #[arg(long)]
    json: bool,
}

fn port(text: &str) -> Result<(u16, String), String> {
    let wrong = || format!("'{text}': expected NAME=PORT, as in Ethernet0=1");
    let (name, port) = text.split_once('=').ok_or_else(wrong)?;
    let named = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if !named {
        return Err(wrong());
    }
    Ok((port.parse().map_err(|_| wrong())?, name.to_owned()))
}

fn size(text: &str) -> Result<u64, String> {
    match text.parse::<Threshold>() {
        Ok(Threshold::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        _ => Err(format!("'{text}' is no size; write bytes, as in 32MiB")),
    }
}

/// The command line names what the file does not have.
fn usage(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: USAGE, error: error.into() }
}

impl Export {
    pub(crate) fn run(&self) -> Outcome {
        let System::Sonic(sonic) = &self.system;
        sonic.run()
    }
}

impl Sonic {
    fn run(&self) -> Outcome {
        let name = self.file.display().to_string();
        let text = input::text(&self.file)?;
        let fabric = Fabric::from_yaml(&text, &name).map_err(bad_input)?;
        let mut ports: BTreeMap<u16, String> = BTreeMap::new();
        for (port, name) in &self.platform_ports {
            if let Some(other) = ports.insert(*port, name.clone()) {
                let error = anyhow::anyhow!("--platform-ports: port {port} is both {other} and {name}");
                return Err(usage(error));
            }
        }
        let mut platform = Platform {
            ports,
            asic: Asic::of(self.asic, None),
            thresholds: match self.pool_size {
                Some(pool_size) => Thresholds::Dynamic { pool_size },
                None => Thresholds::Static,
            },
            mark_trimmable: self.mark_trimmable,
            disable_pfc: self.disable_pfc,
            ..Platform::default()
        };
        if let Some(pool) = &self.pool {
            platform.pool.clone_from(pool);
        }
        if let Some(path) = &self.config_db {
            let fitted = Present::parse(&input::text(path)?).and_then(|present| {
                let platform = present.fit(platform, self.pool.as_deref(), self.pool_size)?;
                let asic = Asic::of(self.asic, Some(&present));
                Ok(Platform { asic, present: Some(present), ..platform })
            });
            platform = fitted.with_context(|| path.display().to_string()).map_err(bad_input)?;
        }
        let export = sonic::export(&fabric, &self.switch, &platform).map_err(|error| match error {
            ExportError::Present(_) => bad_input(error),
            _ => usage(error),
        })?;
        let configuration = match &export.patch {
            Some(patch) => serde_json::to_string_pretty(patch),
            None => serde_json::to_string_pretty(&export.config_db),
        };
        let configuration = configuration.map_err(failed)?;
        if self.json {
            print(&serde_json::to_string_pretty(&export).map_err(failed)?)?;
            return Ok(0);
        }
        for note in &export.notes {
            say(note);
        }
        print(&configuration)?;
        Ok(0)
    }
}
