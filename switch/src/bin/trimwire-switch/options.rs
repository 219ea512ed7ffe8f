// SPDX-License-Identifier: Apache-2.0
//! A checked command line: what belongs together, what contradicts itself, what comes from a file.

use crate::arguments::{Arguments, DROP_PORT, TargetArguments};
use clap::Parser as _;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use trimwire_switch::config::FileConfig;
use trimwire_switch::driver::Attachment;
use trimwire_switch::server::Limits;
use trimwire_switch::traffic::QUEUES;
use trimwire_switch::{PortConfig, TrafficConfig};

/// P4Runtime's, as IANA has it.
const DEFAULT_PORT: u16 = 9559;
/// Bytes of a queue under BMv2's name: `simple_switch`'s queues hold 64 packets.
const BMV2_QUEUE_BYTES: u64 = 64 * 1_518;

/// PEM files of a server that speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The server's certificate, with its chain.
    pub(crate) certificate: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// Who signs clients' certificates, where clients need one.
    pub(crate) client_ca: Option<PathBuf>,
}

/// A checked command line.
#[derive(Debug)]
pub(crate) struct Options {
    /// As given.
    pub(crate) arguments: Arguments,
    /// Ports on interfaces; no port and no interface twice.
    pub(crate) attachments: Vec<Attachment>,
    /// Lines of single ports.
    pub(crate) ports: BTreeMap<u16, PortConfig>,
    /// Line of all others.
    pub(crate) default_port: PortConfig,
    /// Queues, buffer, unit of depths.
    pub(crate) traffic: TrafficConfig,
    priority_queues: Option<u8>,
    /// Bytes of a queue, unless something else is said.
    usual_limit_bytes: u64,
    /// Where P4Runtime is served.
    pub(crate) grpc: SocketAddr,
    /// Absent: in the clear.
    pub(crate) tls: Option<TlsFiles>,
    /// What clients may cost.
    pub(crate) limits: Limits,
    /// The controller's port.
    pub(crate) cpu_port: Option<u16>,
    /// What was accepted but does nothing.
    pub(crate) notices: Vec<String>,
    /// The folder for captures.
    pub(crate) pcap: Option<PathBuf>,
}

impl Options {
    /// Checks the words of a switch on interfaces; `name` is what the program was called by.
    ///
    /// # Errors
    /// Those of clap about target options, and options that contradict each other.
    pub(crate) fn new(mut arguments: Arguments, name: &OsStr) -> Result<Self, clap::Error> {
        // Scripts that were written for BMv2 find its defaults under its name, such as that of a
        // link.
        let name = Path::new(name).file_name().unwrap_or_default();
        let as_bmv2 = name.to_string_lossy().starts_with("simple_switch");
        let target = TargetArguments::try_parse_from(std::mem::take(&mut arguments.target))?;
        if let Some(why) = refused(&arguments, &target) {
            return Err(usage(why));
        }
        let attachments = std::mem::take(&mut arguments.interfaces);
        let mut pcap = arguments.pcap.take();
        if let (Some(word), None, false) = (&pcap, &arguments.program, arguments.no_p4) {
            // `--pcap program.json`: BMv2's option takes a value only behind '='.
            if !word.is_dir() && word.as_os_str() != "." {
                arguments.program = pcap.replace(".".into());
            }
        }
        if arguments.program.is_none() && !arguments.no_p4 {
            return Err(usage("a JSON file is needed, or --no-p4 to wait for one over P4Runtime"));
        }
        if target.drop_port != DROP_PORT {
            return Err(usage(format!(
                "--drop-port {}: only {DROP_PORT} is possible, the port that p4c compiles mark_to_drop to",
                target.drop_port
            )));
        }
        check_attachments(&attachments, target.cpu_port)?;
        let tls = tls_files(&target)?;
        let everywhere = if as_bmv2 { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        let grpc = target.grpc_server_addr.unwrap_or(SocketAddr::from((everywhere, DEFAULT_PORT)));
        if !grpc.ip().is_loopback() && tls.is_none() && !arguments.insecure && !as_bmv2 {
            return Err(usage(format!(
                "--grpc-server-addr {grpc}: whoever reaches it could program the switch; add --grpc-server-ssl with a certificate and key, or \
                 --insecure (nothing is asked where the program goes by the name of simple_switch_grpc)"
            )));
        }
        let mut limits = Limits::default();
        for setting in &arguments.limits {
            limits.set(setting).map_err(|error| usage(format!("--limit: {error}")))?;
        }
        let mut once = BTreeSet::new();
        for (port, _) in &arguments.rates {
            if !once.insert(port) {
                let whose = port.map_or("that of every port".to_owned(), |port| format!("port {port}"));
                return Err(usage(format!("--rate: {whose} is given twice")));
            }
        }
        let mut notices = Vec::new();
        if target.grpc_server_cacert.is_some() && !target.grpc_server_with_client_auth {
            notices.push(
                "--grpc-server-cacert does nothing without --grpc-server-with-client-auth: clients are not asked for a certificate"
                    .to_owned(),
            );
        }
        if arguments.thrift_port.is_some() {
            notices.push("--thrift-port is ignored: tables are written over P4Runtime only".to_owned());
        }
        if arguments.debugger.is_some() {
            notices.push("--debugger is ignored: --trace tells what happens to every packet".to_owned());
        }
        if arguments.notifications_addr.is_some() {
            notices.push(
                "--notifications-addr is ignored: P4Runtime's streams have digests and idle time-outs"
                    .to_owned(),
            );
        }
        if arguments.log_file_max_size.is_some() || arguments.log_file_max_files.is_some() {
            notices.push(
                "--log-file-max-size and --log-file-max-files are ignored: the log is one file, which logrotate's copytruncate keeps short"
                    .to_owned(),
            );
        }
        if arguments.nanolog.is_some() {
            notices.push("--nanolog is ignored: the log goes to stderr or --log-file".to_owned());
        }
        let mut options = Self {
            attachments,
            ports: BTreeMap::new(),
            default_port: PortConfig::default(),
            traffic: TrafficConfig::default(),
            priority_queues: target.priority_queues,
            usual_limit_bytes: if as_bmv2 {
                BMV2_QUEUE_BYTES
            } else {
                PortConfig::default().queue_limit_bytes
            },
            grpc,
            tls,
            limits,
            cpu_port: target.cpu_port,
            notices,
            pcap,
            arguments,
        };
        options.settle(&FileConfig::default());
        Ok(options)
    }

    /// Works out lines and queues: the command line, then the file, then the defaults.
    pub(crate) fn settle(&mut self, file: &FileConfig) {
        let Arguments { rates, queue_limit, .. } = &self.arguments;
        let flag_rate = rates.iter().find(|(port, _)| port.is_none()).map(|(_, rate)| *rate);
        let flag_limit = *queue_limit;
        self.default_port = PortConfig {
            rate_bps: flag_rate.or(file.all.rate_bps).unwrap_or(0),
            queue_limit_bytes: flag_limit.or(file.all.queue_limit_bytes).unwrap_or(self.usual_limit_bytes),
        };
        self.ports.clear();
        if let Some(port) = self.cpu_port {
            // The controller is not behind a line unless one is asked for by name.
            self.ports.insert(port, PortConfig { rate_bps: 0, ..self.default_port });
        }
        for (&number, entry) in &file.ports {
            let line = self.ports.entry(number).or_insert(self.default_port);
            line.rate_bps = flag_rate.or(entry.rate_bps).unwrap_or(line.rate_bps);
            line.queue_limit_bytes = flag_limit.or(entry.queue_limit_bytes).unwrap_or(line.queue_limit_bytes);
        }
        for (number, rate_bps) in rates.iter().filter_map(|&(port, rate)| Some((port?, rate))) {
            self.ports.entry(number).or_insert(self.default_port).rate_bps = rate_bps;
        }
        let mut traffic = TrafficConfig {
            priority_queues: self.priority_queues.or(file.priority_queues).unwrap_or(QUEUES as u8),
            depth_unit: file.depth_unit.unwrap_or_default(),
            buffer_bytes: file.buffer_bytes,
            ..TrafficConfig::default()
        };
        for (&queue, &config) in &file.all.queues {
            traffic.default_queues[usize::from(queue)] = config;
        }
        for (&number, entry) in &file.ports {
            traffic.queues.extend(entry.queues.iter().map(|(&queue, &config)| ((number, queue), config)));
        }
        self.traffic = traffic;
    }
}

/// What BMv2 has and this switch has not, where ignoring it would make another switch of it than
/// was asked for.
fn refused(arguments: &Arguments, target: &TargetArguments) -> Option<&'static str> {
    let refused = [
        (
            arguments.packet_in.is_some(),
            "--packet-in: there is no nanomsg; frames come from interfaces (-i PORT@IFACE)",
        ),
        (
            arguments.use_files.is_some(),
            "--use-files: frames come from interfaces (-i PORT@IFACE); a library user hands them to `Switch`",
        ),
        (
            arguments.restore_state.is_some(),
            "--restore-state: there is no state file; a controller writes tables over P4Runtime once more",
        ),
        (target.load_modules.is_some(), "--load-modules: externs are those of v1model, none can be loaded"),
        (
            target.dp_grpc_server_addr.is_some(),
            "--dp-grpc-server-addr: frames do not come over gRPC; they come from interfaces (-i PORT@IFACE)",
        ),
    ];
    refused.into_iter().find(|(given, _)| *given).map(|(_, why)| why)
}

/// `simple_switch_grpc`'s rules for what goes together.
fn tls_files(target: &TargetArguments) -> Result<Option<TlsFiles>, clap::Error> {
    let TargetArguments { grpc_server_cacert: ca, grpc_server_cert: cert, grpc_server_key: key, .. } = target;
    let client_auth = target.grpc_server_with_client_auth;
    if !target.grpc_server_ssl {
        let given = [
            ("--grpc-server-cacert", ca.is_some()),
            ("--grpc-server-cert", cert.is_some()),
            ("--grpc-server-key", key.is_some()),
            ("--grpc-server-with-client-auth", client_auth),
        ];
        return match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(usage(format!("{option} needs --grpc-server-ssl"))),
            None => Ok(None),
        };
    }
    let (Some(certificate), Some(key)) = (cert, key) else {
        let missing = if cert.is_none() { "--grpc-server-cert" } else { "--grpc-server-key" };
        return Err(usage(format!("--grpc-server-ssl needs {missing} FILE")));
    };
    if client_auth && ca.is_none() {
        return Err(usage("--grpc-server-with-client-auth needs --grpc-server-cacert FILE"));
    }
    let client_ca = ca.clone().filter(|_| client_auth);
    Ok(Some(TlsFiles { certificate: certificate.clone(), key: key.clone(), client_ca }))
}

fn check_attachments(attachments: &[Attachment], cpu_port: Option<u16>) -> Result<(), clap::Error> {
    let (mut ports, mut interfaces) = (BTreeMap::new(), BTreeSet::new());
    for Attachment { port, interface } in attachments {
        if let Some(other) = ports.insert(port, interface) {
            return Err(usage(format!("port {port} is given twice, on '{other}' and on '{interface}'")));
        }
        // Linux: IFNAMSIZ with its NUL.
        if interface.len() > 15 {
            return Err(usage(format!("'{interface}' is too long for an interface name (15 bytes)")));
        }
        if !interfaces.insert(interface) {
            return Err(usage(format!("interface '{interface}' is given twice")));
        }
        if cpu_port == Some(*port) {
            return Err(usage(format!(
                "port {port} is the CPU port (--cpu-port) and cannot be on interface '{interface}'"
            )));
        }
    }
    Ok(())
}

fn usage(message: impl std::fmt::Display) -> clap::Error {
    use clap::CommandFactory as _;
    Arguments::command().error(clap::error::ErrorKind::ValueValidation, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;
    use trimwire_switch::trace::TraceFormat;
    use trimwire_switch::traffic::{DepthUnit, Share};

    fn parse_as(name: &str, line: &str) -> Result<Options, String> {
        Arguments::try_parse_from(std::iter::once(name).chain(line.split_whitespace()))
            .and_then(|arguments| Options::new(arguments, name.as_ref()))
            .map_err(|error| error.to_string())
    }

    fn parse(line: &str) -> Result<Options, String> {
        parse_as("trimwire-switch", line)
    }

    #[test]
    fn a_command_line_for_bmv2_is_understood() {
        let options = parse(
            "--device-id 7 -i 0@veth0 --interface 1@veth1 --log-console -L warn --thrift-port 9090 --no-p4 \
             -- --grpc-server-addr 127.0.0.1:50051 --cpu-port 255 --drop-port 511 --priority-queues 8",
        )
        .unwrap();
        assert_eq!(options.arguments.device_id, 7);
        let ports: Vec<_> = options.attachments.iter().map(|a| (a.port, a.interface.as_str())).collect();
        assert_eq!(ports, [(0, "veth0"), (1, "veth1")]);
        assert_eq!((options.grpc, options.cpu_port), ("127.0.0.1:50051".parse().unwrap(), Some(255)));
        assert_eq!(options.notices.len(), 1);
        assert_eq!(options.default_port, PortConfig::default());
    }

    #[test]
    fn the_switch_is_programmed_from_elsewhere_with_tls_or_where_that_is_asked_for() {
        let open = "--no-p4 -- --grpc-server-addr 0.0.0.0:50051";
        let refused = parse(open).unwrap_err();
        assert!(
            ["0.0.0.0:50051", "--grpc-server-ssl", "--insecure"].iter().all(|word| refused.contains(word)),
            "{refused}"
        );
        let tls = "--grpc-server-ssl --grpc-server-cert c.pem --grpc-server-key k.pem";
        for line in
            [format!("--insecure {open}"), format!("{open} {tls}"), open.replace("0.0.0.0", "127.1.2.3")]
        {
            assert_eq!(parse(&line).unwrap().grpc.port(), 50_051, "{line}");
        }
        let as_bmv2 = |line: &str| parse_as("/opt/simple_switch_grpc", line).unwrap().grpc;
        assert_eq!(as_bmv2(open), "0.0.0.0:50051".parse().unwrap());
        assert_eq!(as_bmv2("--no-p4"), "0.0.0.0:9559".parse().unwrap());
    }

    #[test]
    fn under_bmv2s_name_a_queue_holds_what_bmv2s_holds() {
        let limit = |name: &str, line: &str| parse_as(name, line).unwrap().default_port.queue_limit_bytes;
        assert_eq!(limit("simple_switch_grpc", "--no-p4"), 64 * 1_518);
        assert_eq!(limit("simple_switch_grpc", "--no-p4 --queue-limit 1MiB"), 1 << 20);
        assert_eq!(limit("trimwire-switch", "--no-p4"), PortConfig::default().queue_limit_bytes);
    }

    #[test]
    fn the_tutorials_own_command_lines_are_understood() {
        for line in [
            "--log-file ss-log --log-flush --dump-packet-data 10000 -i 0@veth0 -i 1@veth2 --no-p4",
            "-i 1@s1-eth1 -i 2@s1-eth2 --pcap /tmp --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 build/basic.json --log-console \
             --thrift-port 9090 -- --grpc-server-addr 0.0.0.0:50051 --cpu-port 510 --priority-queues 8",
        ] {
            assert!(parse_as("simple_switch_grpc", line).is_ok(), "{line}");
        }
    }

    #[test]
    fn captures_are_asked_for_as_bmv2_and_its_scripts_do() {
        for (line, program, folder) in [
            ("--pcap /tmp program.json", Some("program.json"), Some("/tmp")),
            ("--pcap=/tmp program.json", Some("program.json"), Some("/tmp")),
            ("--pcap program.json", Some("program.json"), Some(".")),
            ("program.json --pcap", Some("program.json"), Some(".")),
            ("--no-p4 --pcap", None, Some(".")),
            ("program.json", Some("program.json"), None),
        ] {
            let options = parse(line).unwrap();
            assert_eq!(options.arguments.program, program.map(PathBuf::from), "{line}");
            assert_eq!(options.pcap, folder.map(PathBuf::from), "{line}");
        }
    }

    #[test]
    fn a_trace_is_text_unless_json_is_asked_for() {
        let trace = |line| parse(line).unwrap().arguments.trace;
        assert_eq!(trace("--no-p4"), None);
        assert_eq!(trace("--trace --no-p4"), Some(TraceFormat::Text));
        assert_eq!(trace("--trace=json --no-p4"), Some(TraceFormat::Json));
    }

    #[test]
    fn the_default_address_is_bmv2s() {
        assert_eq!(parse("--no-p4").unwrap().grpc, "127.0.0.1:9559".parse().unwrap());
        assert_eq!(parse("program.json").unwrap().arguments.program, Some("program.json".into()));
    }

    #[test]
    fn tls_is_named_as_simple_switch_grpc_names_it() {
        let line = "--no-p4 -- --grpc-server-ssl --grpc-server-cacert ca --grpc-server-cert cert --grpc-server-key key";
        let files = |client_ca: Option<&str>| TlsFiles {
            certificate: "cert".into(),
            key: "key".into(),
            client_ca: client_ca.map(Into::into),
        };
        let options = parse(line).unwrap();
        assert_eq!(options.tls, Some(files(None)));
        assert!(options.notices.iter().any(|notice| notice.contains("--grpc-server-with-client-auth")));
        let options = parse(&format!("{line} --grpc-server-with-client-auth")).unwrap();
        assert_eq!((options.tls, options.notices), (Some(files(Some("ca"))), vec![]));
    }

    #[test]
    fn rates_and_limits_reach_the_ports() {
        let options =
            parse("--no-p4 --rate 2.5Gbps --rate 3=40Mbps --queue-limit 512KiB -- --cpu-port 9").unwrap();
        let limit = 512 << 10;
        let line = |rate_bps| PortConfig { rate_bps, queue_limit_bytes: limit };
        assert_eq!(options.default_port, line(2_500_000_000));
        assert_eq!(options.ports, BTreeMap::from([(3, line(40_000_000)), (9, line(0))]));
    }

    #[test]
    fn options_go_before_the_file_and_the_file_before_defaults() {
        let file = FileConfig::parse(
            "rate: 1Gbps\nbuffer: 1MiB\nqdepth_unit: cells\nqueues: {6: {cap: 10%}, 5: {weight: 2}}\n\
             ports: {3: {rate: 2Gbps, queue_limit: 1KiB, queues: {6: {limit: 2KiB}}}}\n",
            "x",
        )
        .unwrap();
        let mut options = parse("--no-p4 --rate 4=5Mbps").unwrap();
        options.settle(&file);
        assert_eq!(options.default_port.rate_bps, 1_000_000_000);
        assert_eq!(options.ports[&3], PortConfig { rate_bps: 2_000_000_000, queue_limit_bytes: 1024 });
        assert_eq!(options.ports[&4].rate_bps, 5_000_000);
        let traffic = &options.traffic;
        assert_eq!((traffic.buffer_bytes, traffic.depth_unit), (Some(1 << 20), DepthUnit::Cells));
        assert_eq!(traffic.queues[&(3, 6)].limit_bytes, Some(2 << 10));
        assert_eq!(traffic.default_queues[6].cap.map(Share::permille), Some(100));
        let mut options = parse("--no-p4 --rate 3Gbps").unwrap();
        options.settle(&file);
        assert_eq!(options.ports[&3].rate_bps, 3_000_000_000);
    }

    #[test]
    fn an_option_on_the_wrong_side_of_the_dashes_is_told_where_it_stands() {
        let misplaced = |line: &str| {
            let error = Arguments::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))
                .and_then(|arguments| Options::new(arguments, "x".as_ref()))
                .unwrap_err();
            arguments::misplaced(&error)
        };
        let target = misplaced("--no-p4 --cpu-port 5").unwrap();
        assert!(target.contains("behind '--'") && target.contains("-- --cpu-port"), "{target}");
        assert!(misplaced("--no-p4 --grpc-server-addr=1.2.3.4:5").is_some());
        let general = misplaced("--no-p4 -- --thrift-port 9090").unwrap();
        assert!(general.contains("--thrift-port") && general.contains("before '--'"), "{general}");
        assert_eq!(misplaced("--no-p4 --no-such-option"), None);
    }

    #[test]
    fn what_bmv2_limits_and_this_switch_does_not_is_taken() {
        let options = parse(
            "--no-p4 --log-file x --log-file-max-size 100 --log-file-max-files 3 -- --max-mc-groups 1 --max-l1-entries 2 --max-l2-entries 3",
        )
        .unwrap();
        assert_eq!(options.notices.len(), 1);
        assert!(options.notices[0].contains("--log-file-max-size"));
    }

    #[test]
    fn a_refused_command_line_names_the_culprit_and_what_is_possible() {
        for (line, words) in [
            ("", &["JSON", "--no-p4"][..]),
            ("--no-p4 program.json", &["--no-p4"]),
            ("--no-p4 -i 1@a -i 1@b", &["port 1", "'a'", "'b'"]),
            ("--no-p4 -i 1@a -i 2@a", &["interface 'a'", "twice"]),
            ("--no-p4 -i veth1", &["veth1", "PORT@IFACE"]),
            ("--no-p4 -i 1@", &["PORT@IFACE"]),
            ("--no-p4 -i x@veth1", &["'x'", "0 to 510"]),
            ("--no-p4 -i 511@veth1", &["511", "drop"]),
            ("--no-p4 -i 1@sixteencharacter", &["sixteencharacter", "15"]),
            ("--no-p4 --use-files 1", &["--use-files", "-i PORT@IFACE"]),
            ("--no-p4 -i 9@a -- --cpu-port 9", &["port 9", "--cpu-port", "'a'"]),
            ("--no-p4 -- --cpu-port 0", &["--cpu-port", "0"]),
            ("--no-p4 -- --drop-port 64", &["64", "511"]),
            ("--no-p4 -- --priority-queues 9", &["--priority-queues", "9"]),
            ("--no-p4 -- --grpc-server-addr 1.2.3.4", &["1.2.3.4", "HOST:PORT"]),
            ("--no-p4 -- --unknown", &["--unknown"]),
            ("--no-p4 -- --grpc-server-cert c", &["--grpc-server-cert needs --grpc-server-ssl"]),
            ("--no-p4 -- --grpc-server-ssl", &["--grpc-server-cert"]),
            ("--no-p4 -- --grpc-server-ssl --grpc-server-cert c", &["--grpc-server-key"]),
            (
                "--no-p4 -- --grpc-server-ssl --grpc-server-cert c --grpc-server-key k --grpc-server-with-client-auth",
                &["--grpc-server-cacert"],
            ),
            ("--no-p4 --grpc-server-addr 1.2.3.4:5", &["--grpc-server-addr"]),
            ("--pcap", &["JSON", "--no-p4"]),
            ("--no-p4 --packet-in ipc:///tmp/x", &["--packet-in", "-i PORT@IFACE"]),
            ("--no-p4 --restore-state x", &["--restore-state", "P4Runtime"]),
            ("--no-p4 -- --load-modules x.so", &["--load-modules", "v1model"]),
            ("--no-p4 -- --dp-grpc-server-addr 1.2.3.4:5", &["--dp-grpc-server-addr", "-i"]),
            ("--no-p4 --trace=xml", &["--trace", "xml", "json"]),
            ("--no-p4 --rate 10Gib", &["10Gib", "10Gbps"]),
            ("--no-p4 --rate 0bps", &["above 0"]),
            ("--no-p4 --rate 3=", &["--rate", "3="]),
            ("--no-p4 --rate 3=1Mbps --rate 3=2Mbps", &["port 3", "twice"]),
            ("--no-p4 --rate 1Mbps --rate 2Mbps", &["every port", "twice"]),
            ("--no-p4 --queue-limit 1.5", &["1.5", "512KiB"]),
            ("--no-p4 --queue 6", &["--queue", "--queue-limit"]),
            ("--no-p4 -L loud", &["loud", "warn"]),
        ] {
            let message = parse(line).unwrap_err();
            for word in words {
                assert!(message.contains(word), "'{line}' should name '{word}':\n{message}");
            }
        }
    }
}
