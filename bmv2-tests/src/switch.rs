// SPDX-License-Identifier: Apache-2.0
//! A switch under test, in a namespace of its own.
#![forbid(unsafe_code)]

use crate::process::{Running, poll};
use crate::{Namespace, Programs};
use anyhow::bail;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

/// gRPC address inside the switch's namespace, which has a loopback interface of its own.
pub const ADDRESS: &str = "127.0.0.1:9559";
/// P4Runtime device id.
pub const DEVICE_ID: u64 = 1;

/// Which switch.
#[derive(Debug, Clone)]
pub enum Kind {
    /// `trimwire-switch`.
    Trimwire(PathBuf),
    /// `simple_switch_grpc`.
    Bmv2(PathBuf),
}

impl Kind {
    /// Ours.
    pub fn ours(programs: &Programs) -> Self {
        Self::Trimwire(programs.switch.clone())
    }

    /// The fabric file's word for it.
    pub fn target(&self) -> &'static str {
        match self {
            Self::Trimwire(_) => "trimwire",
            Self::Bmv2(_) => "bmv2",
        }
    }
}

/// A switch without a pipeline, whose port N is interface `pN` of its namespace.
#[derive(Debug)]
pub struct RunningSwitch {
    process: Running,
}

impl RunningSwitch {
    /// Starts it and waits until it takes connections. Ports serve `rate_bps`; 0 is as fast as they
    /// can.
    pub fn start(kind: &Kind, namespace: &Namespace, ports: &[u16], rate_bps: u64) -> anyhow::Result<Self> {
        let (program, ours) = match kind {
            Kind::Trimwire(program) => (program, true),
            Kind::Bmv2(program) => (program, false),
        };
        let mut command = namespace.command(program);
        command.args(["--no-p4", "--device-id", &DEVICE_ID.to_string()]);
        for port in ports {
            command.args(["-i", &format!("{port}@p{port}")]);
        }
        if ours {
            if rate_bps > 0 {
                command.args(["--rate", &format!("{rate_bps}bps")]);
            }
        } else {
            // Its other servers listen on the namespace's loopback interface too, and on a path
            // that is not.
            let ipc = format!("ipc:///tmp/{}.ipc", namespace.name());
            command.args(["--thrift-port", "9090", "--notifications-addr", &ipc, "-L", "off"]);
        }
        command.args(["--", "--grpc-server-addr", ADDRESS, "--cpu-port", "510"]);
        if !ours {
            command.args(["--priority-queues", "8"]);
            if rate_bps > 0 {
                // BMv2 has no line rate: a token bucket makes its sender block, and its queues
                // build up.
                for port in ports {
                    let words =
                        format!("qdisc add dev p{port} root tbf rate {rate_bps}bit burst 3000 limit 2000000");
                    namespace.run("tc", &words.split(' ').collect::<Vec<_>>())?;
                }
            }
        }
        let mut process = Running::start(&mut command)?;
        let ready = poll("the switch's gRPC server", Duration::from_secs(15), || {
            if !process.is_running() {
                return Ok(Some(false));
            }
            namespace.enter(|| Ok(TcpStream::connect(ADDRESS).is_ok().then_some(true)))
        })?;
        if !ready {
            let (stdout, stderr) = process.output();
            bail!("{command:?} ended\n{stdout}\n{stderr}");
        }
        Ok(Self { process })
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Ends it and gives what it wrote.
    pub fn output(&mut self) -> (String, String) {
        self.process.output()
    }
}
