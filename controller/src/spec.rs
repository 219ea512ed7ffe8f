//! The fabric file: what it may say, and reading it.
//!
//! [`Fabric::from_yaml`] either gives a fabric in which everything fits together, or every mistake found, each with file, line
//! and key. Nothing behind this module has to check the user's input again.

mod addresses;
mod balance;
mod fields;
mod generator;
pub(crate) mod keys;
mod network;
mod opt_out;
mod plan;
mod policy;
mod problem;
mod switch;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::Serialize;
use trimwire_p4runtime::client::Tls;

pub use self::balance::{LoadBalance, Spread};
pub(crate) use self::fields::{Fields, Located, integer, word};
pub use self::opt_out::OptOut;
pub(crate) use self::policy::{Layer, PolicySpec, THRESHOLDS};
pub use self::problem::{Problem, SpecError};
pub(crate) use self::problem::{Problems, hint};
pub use self::switch::PipelineFiles;
use crate::policy::PortPolicy;
pub use crate::target::Target;
use crate::{units, yaml};

/// A fabric as its file describes it, checked, with all thresholds converted to bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fabric {
    /// Name of the file, for messages.
    pub file: String,
    /// How this controller talks to the switches.
    pub controller: ControllerSettings,
    /// IP MTU, bytes.
    pub mtu: u64,
    /// Round-trip time of an idle fabric, ns: what `bdp` multiplies a line rate with.
    pub rtt_ns: u64,
    /// By name.
    pub switches: BTreeMap<String, Switch>,
    /// By name.
    pub hosts: BTreeMap<String, Host>,
    /// In the file's order.
    pub links: Vec<Link>,
    /// What DSCP code points mean.
    pub dscp: DscpPlan,
    /// Which queue serves what.
    pub queues: QueuePlan,
    /// What is done to packets in a congested queue.
    pub overload: Overload,
    /// Jobs seal their packets (docs/wire-format.md §12): sizes in planes leave room for tags.
    pub sealed: bool,
    /// ECN-capable trimmable packets are marked CE from `mark_at`, too.
    pub mark_trimmable: bool,
    /// How packets are spread over equal paths.
    pub load_balance: LoadBalance,
    /// Flows that are never cut, in the file's order.
    pub disable_trim: Vec<OptOut>,
    /// How to encrypt, by switch; a switch that is not in it is talked to in the clear.
    pub tls: BTreeMap<String, Tls>,
    /// Thresholds in bytes, by switch and egress port.
    pub policies: BTreeMap<String, BTreeMap<u16, PortPolicy>>,
    /// What is allowed but probably not meant, in the file's order, each with file and line.
    pub warnings: Vec<String>,
}

/// How a controller talks to the switches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSettings {
    /// The highest one among a switch's controllers is primary.
    pub election_id: u128,
    /// Switches worked on at a time.
    pub concurrency: usize,
    /// For the connection and for each call, ns.
    pub timeout_ns: u64,
    /// Most updates in one Write.
    pub batch: usize,
    /// Between two looks at a switch by `run`, ns.
    pub interval_ns: u64,
    /// Where `run` serves metrics.
    pub metrics: MetricsAt,
}

/// Where metrics are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAt {
    /// [`DEFAULT_METRICS`](crate::run::DEFAULT_METRICS), if it is free.
    Default,
    /// There or not at all.
    Address(SocketAddr),
    /// Nowhere.
    Off,
}

impl MetricsAt {
    /// `ADDRESS:PORT` or `off`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::Address).map_err(|_| {
            format!("'{text}' is no address for metrics; write ADDRESS:PORT, as in 127.0.0.1:9550, or off")
        })
    }
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            election_id: 1,
            concurrency: 32,
            timeout_ns: 10_000_000_000,
            batch: 100,
            interval_ns: 5_000_000_000,
            metrics: MetricsAt::Default,
        }
    }
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// `HOST:PORT` of its P4Runtime server.
    pub address: String,
    /// P4Runtime device id.
    pub device_id: u64,
    /// What kind of switch it is.
    pub target: Target,
    /// Its own build of the program; none for the one that comes with this crate.
    pub pipeline: Option<PipelineFiles>,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// IPv4 address.
    pub ip: Ipv4Addr,
    /// IPv6 address.
    pub ip6: Option<Ipv6Addr>,
    /// Ethernet address.
    pub mac: Mac,
    /// What of its packets' DSCPs its switch believes.
    pub trust: Trust,
}

/// What a host may say of its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// Everything but that a packet has been cut: that only switches know.
    #[default]
    Agent,
    /// Nothing: all that it sends is best effort.
    None,
    /// Everything.
    All,
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A host's only interface.
    Host(String),
    /// A switch's port.
    Port(String, u16),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Port(switch, port) => write!(f, "{switch}:{port}"),
        }
    }
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// One end.
    pub a: End,
    /// The other.
    pub b: End,
    /// bit/s, each way.
    pub rate_bps: u64,
    /// Propagation, ns.
    pub delay_ns: u64,
    /// Down links carry no routes.
    pub up: bool,
}

/// What DSCP code points mean (docs/fabric-yaml.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DscpPlan {
    /// Packets that may be cut, by layer class, front layers first.
    pub trimmable: Vec<u8>,
    /// Packets that may be dropped but not cut, by layer class.
    pub droppable: Vec<u8>,
    /// Packets that were cut.
    pub trimmed: u8,
    /// Packets that were cut on their way out to the receiver (UEC: TRIMMED_LASTHOP); `None` for no difference.
    pub trimmed_last_hop: Option<u8>,
    /// The agents' control packets.
    pub control: u8,
}

impl Default for DscpPlan {
    fn default() -> Self {
        Self {
            trimmable: vec![3, 7, 11, 15],
            droppable: vec![19, 23, 27, 31],
            trimmed: 35,
            trimmed_last_hop: None,
            control: 39,
        }
    }
}

/// Which queue serves what; 7 is served first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueuePlan {
    /// The agents' control packets.
    pub control: u8,
    /// Packets that were cut: the trim queue.
    pub trimmed: u8,
    /// By layer class, front layers first.
    pub classes: Vec<u8>,
    /// Everything else.
    pub best_effort: u8,
}

impl Default for QueuePlan {
    fn default() -> Self {
        Self { control: 7, trimmed: 6, classes: vec![5, 4, 3, 2], best_effort: 0 }
    }
}

impl QueuePlan {
    /// Every queue with its name in fabric files, most urgent use first.
    pub fn named(&self) -> Vec<(String, u8)> {
        let classes = self.classes.iter().enumerate().map(|(class, queue)| (format!("class{class}"), *queue));
        [("control".to_owned(), self.control), ("trimmed".to_owned(), self.trimmed)]
            .into_iter()
            .chain(classes)
            .chain([("best_effort".to_owned(), self.best_effort)])
            .collect()
    }

    /// A queue's name, or its number where the plan does not use it.
    pub fn name_of(&self, queue: u8) -> String {
        let named = self.named().into_iter().find(|(_, number)| *number == queue);
        named.map_or_else(|| format!("queue {queue}"), |(name, _)| name)
    }
}

/// What is done to packets in a congested queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overload {
    /// Trimmable packets are cut; of others the less important are dropped first.
    Trim,
    /// Nothing is cut; the less important are dropped first (MLT §4.2.2 without trimming).
    SelectiveDrop,
    /// Nothing is cut; everything is dropped once the queue is full.
    DropTail,
}

impl Fabric {
    /// Its full DATA packets.
    pub fn data_packet(&self) -> units::DataPacket {
        units::DataPacket::new(self.mtu, self.sealed)
    }

    /// Every code point that cut packets leave some port with: all of them are taken for cut packets everywhere.
    pub fn trimmed_code_points(&self) -> BTreeSet<u8> {
        let ports = self.policies.values().flatten().map(|(_, port)| port.trimmed_dscp);
        [Some(self.dscp.trimmed), self.dscp.trimmed_last_hop].into_iter().flatten().chain(ports).collect()
    }

    /// Reads a fabric file. `file` is its name, for messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, SpecError> {
        let mut problems = Problems::default();
        let root = match yaml::parse(text) {
            Ok(root) => root,
            Err(error) => {
                problems.add(error.line, "", format!("not YAML: {}", error.reason));
                return Err(problems.into_error(file));
            }
        };
        let top = Fields::of(&root, "", keys::TOP, &mut problems);
        top.required("version", "1", &mut problems, version);
        let controller = controller(&top, &mut problems);
        let mtu = top.parsed("mtu", &mut problems, integer(128_u64..=65_535)).map_or(1500, |mtu| mtu.value);
        let rtt = top.parsed("rtt", &mut problems, units::time);
        let network = network::read(&top, &mut problems);
        let tls = tls::read(&top, network.switches.keys(), file, &mut problems);
        let (dscp, queues) = plan::read(&top, &mut problems);
        let spec = policy::read(&top, &network, (&dscp, &queues), &mut problems);
        let load_balance = balance::read(&top, &mut problems);
        let disable_trim = opt_out::read(&top, &network, &mut problems);

        let mut fabric = Self {
            file: file.to_owned(),
            controller,
            mtu,
            rtt_ns: rtt.as_ref().map_or(0, |rtt| rtt.value),
            switches: network.switches,
            hosts: network.hosts,
            links: network.links,
            dscp,
            queues,
            overload: spec.overload,
            sealed: spec.sealed,
            mark_trimmable: spec.mark_trimmable,
            load_balance,
            disable_trim,
            tls,
            policies: BTreeMap::new(),
            warnings: Vec::new(),
        };
        let mut warnings = Problems::default();
        fabric.policies = crate::policy::resolve(&fabric, &spec, rtt.is_some(), &mut problems, &mut warnings);
        if !problems.is_empty() {
            return Err(problems.into_error(file));
        }
        crate::target::doubts(&fabric, &network.switch_lines, &mut warnings);
        fabric.warnings = if warnings.is_empty() {
            Vec::new()
        } else {
            warnings.into_error(file).to_string().lines().map(str::to_owned).collect()
        };
        fabric.warnings.extend(crate::topology::Routes::of(&fabric).unreachable());
        Ok(fabric)
    }
}

fn version(text: &str) -> Result<(), String> {
    if text == "1" {
        Ok(())
    } else {
        Err(format!("'{text}' is not a version that this controller reads; valid: 1"))
    }
}

fn controller(top: &Fields<'_>, problems: &mut Problems) -> ControllerSettings {
    let mut settings = ControllerSettings::default();
    let Some(node) = top.node("controller") else { return settings };
    let fields = Fields::of(node, "controller", keys::CONTROLLER, problems);
    if let Some(id) = fields.parsed("election_id", problems, integer(1..=u128::MAX)) {
        settings.election_id = id.value;
    }
    if let Some(count) = fields.parsed("concurrency", problems, integer(1_usize..=4096)) {
        settings.concurrency = count.value;
    }
    if let Some(count) = fields.parsed("batch", problems, integer(1_usize..=100_000)) {
        settings.batch = count.value;
    }
    if let Some(timeout) = fields.parsed("timeout", problems, units::time) {
        if timeout.value == 0 {
            problems.add(timeout.line, timeout.path, "no switch answers within no time; write timeout: 10s");
        } else {
            settings.timeout_ns = timeout.value;
        }
    }
    if let Some(interval) = fields.parsed("interval", problems, units::time) {
        if interval.value == 0 {
            problems.add(
                interval.line,
                interval.path,
                "switches are not looked at all the time; write interval: 5s",
            );
        } else {
            settings.interval_ns = interval.value;
        }
    }
    if let Some(metrics) = fields.parsed("metrics", problems, MetricsAt::parse) {
        settings.metrics = metrics.value;
    }
    settings
}

#[cfg(test)]
mod tests;
