// SPDX-License-Identifier: Apache-2.0
//! Options of every command that opens a link, and what they mean for endpoints.

use crate::settings::{RateAlgorithm, Setting, Settings};
use crate::units::{rate, time_ns};
use crate::{Failure, bad_input, failed};
use anyhow::anyhow;
use clap::Args;
use nix::net::if_::if_nametoindex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use trimwire_agent::driver::interfaces::{describe, interfaces, line_rate_of, select};
use trimwire_agent::driver::{
    DEFAULT_LINE_RATE_BPS, DEFAULT_PORT, Driver, Link, LinkError, Shared, UdpConfig, UdpLink, on_sockets,
};
use trimwire_agent::endpoint::{EndpointConfig, MTU_LEAST, MTU_MOST, Reliability, Traffic};
use trimwire_agent::rate::{DctcpConfig, RateConfig, TimelyConfig};
use trimwire_encoder::SealKey;

/// What both sides agree on, and how sockets are opened.
#[derive(Args, Clone)]
pub(crate) struct LinkArgs {
    /// Listen on these addresses, send from all of them, and tell other ranks the first [default:
    /// those of the interfaces in TRIMWIRE_SOCKET_IFNAME].
    #[arg(long, value_name = "IP,…", value_delimiter = ',')]
    pub(crate) bind: Vec<IpAddr>,
    /// Use these interfaces, in the form of NCCL_SOCKET_IFNAME.
    #[arg(long, env = "TRIMWIRE_SOCKET_IFNAME", value_name = "PREFIX,…|=NAME,…|^PREFIX,…")]
    pub(crate) socket_ifname: Option<String>,
    /// Limit IP packets to this many bytes. Behind switches that trim, give the fabric file's `mtu`
    /// [default: the smallest interface of all ranks].
    #[arg(long, env = "TRIMWIRE_MTU", value_name = "BYTES", value_parser = clap::value_parser!(u16).range(i64::from(MTU_LEAST)..=i64::from(MTU_MOST)))]
    pub(crate) mtu: Option<u16>,
    /// Listen on this UDP port, and use it for peers without one [default: 9217; ranks that meet
    /// take a free one].
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Seed of gradients and rotations, the same on all ranks [default: 0; ranks that meet take one
    /// that rank 0 draws].
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Seal packets with the key in this file, and believe no others. It holds 16 or 32 bytes, the
    /// same on all ranks.
    #[arg(long, env = "TRIMWIRE_SEAL_KEY", value_name = "FILE")]
    pub(crate) seal_key: Option<PathBuf>,
    /// Accept messages of which this share of packets is missing.
    #[arg(long, default_value_t = 0.01, value_name = "SHARE", value_parser = share)]
    pub(crate) loss: f32,
    /// Deliver every plane of every packet; send again what does not arrive.
    #[arg(long, conflicts_with = "loss")]
    pub(crate) reliable: bool,
    /// Give up on a peer that stays silent for this long.
    #[arg(long, default_value = "30s", value_parser = time_ns, value_name = "TIME")]
    pub(crate) timeout: u64,
    /// Serve Prometheus metrics of this rank at /metrics on this address.
    #[arg(long, env = "TRIMWIRE_METRICS", value_name = "IP:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// How long a rank may have nothing for this one, if not six times --timeout.
    #[arg(skip)]
    pub(crate) idle_timeout: Option<u64>,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Send at most this many bits of frames per second [default: the speed of the interface; 10G
    /// where it has none].
    #[arg(long, value_parser = rate, value_name = "RATE")]
    pub(crate) bitrate: Option<u64>,
    /// Say what an unusual network needs, such as receive=raw, checksums=zero or trim-delay=1ms, or
    /// what an experiment changes. A wrong key lists all.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<Setting>,
}

/// `IP` or `IP:PORT`. A zone (`fe80::1%eth0`) may be given, and is not needed: link-local packets
/// leave by the interface that has this rank's own address.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    ip: IpAddr,
    port: Option<u16>,
}

/// An address's text without its zone, and the zone.
fn without_zone(text: &str) -> (Cow<'_, str>, Option<&str>) {
    let Some((address, rest)) = text.split_once('%') else { return (text.into(), None) };
    let (zone, port) = rest.split_at(rest.find(']').unwrap_or(rest.len()));
    (format!("{address}{port}").into(), Some(zone))
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, zone) = without_zone(text.trim());
        if let Some(zone) = zone.filter(|zone| if_nametoindex(*zone).is_err()) {
            return Err(format!("'{zone}' is no interface of this host (`ip link` lists them)"));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Self { ip, port: None });
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!("'{text}' is neither an IP address nor IP:PORT (10.0.0.1, 10.0.0.1:9217, fd00::1, [fd00::1]:9217)")
        })?;
        Ok(Self { ip: address.ip(), port: Some(address.port()) })
    }
}

impl Address {
    pub(crate) fn or_port(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(port))
    }
}

fn share(text: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..1.0).contains(share))
        .ok_or_else(|| format!("'{text}' is not in [0, 1)"))
}

/// An endpoint on a link.
pub(crate) fn start<L: Link>(config: EndpointConfig, link: L) -> Driver<L> {
    let (rank, world) = (config.rank, config.world);
    let driver = Driver::new(config, link);
    tracing::info!("rank {rank} of {world} listens on UDP {}", driver.link().local_address());
    driver
}

impl LinkArgs {
    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(DEFAULT_PORT)
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::of(&self.set)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// The first of the own addresses, where any are given, or interfaces.
    pub(crate) fn own_address(&self) -> Result<Option<IpAddr>, Failure> {
        Ok(self.own_addresses()?.first().copied())
    }

    /// All of them.
    pub(crate) fn own_addresses(&self) -> Result<Vec<IpAddr>, Failure> {
        if !self.bind.is_empty() {
            return Ok(self.bind.clone());
        }
        let Some(pattern) = &self.socket_ifname else { return Ok(Vec::new()) };
        let all = interfaces().map_err(failed)?;
        let found = select(&all, pattern);
        if found.is_empty() {
            let all = describe(&all);
            return Err(bad_input(anyhow!(
                "TRIMWIRE_SOCKET_IFNAME '{pattern}' selects none of the interfaces; there are: {all}"
            )));
        }
        Ok(found)
    }

    pub(crate) fn seal_key(&self) -> Result<Option<SealKey>, Failure> {
        let Some(path) = &self.seal_key else { return Ok(None) };
        let named = |error: &dyn std::fmt::Display| bad_input(anyhow!("{}: {error}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| named(&error))?;
        SealKey::from_bytes(&bytes).map(Some).map_err(|error| named(&error))
    }

    pub(crate) fn reliability(&self) -> Reliability {
        if self.reliable { Reliability::Full } else { Reliability::Bounded { loss: self.loss } }
    }

    /// An endpoint and its sockets, before it begins. `fallback` is bound where neither an address
    /// nor an interface is given.
    pub(crate) fn parts(
        &self,
        rank: u16,
        world: u16,
        peers: BTreeMap<u16, SocketAddr>,
        fallback: SocketAddr,
        usual_rate: RateAlgorithm,
        channels: u16,
    ) -> Result<(EndpointConfig, Vec<UdpLink>), Failure> {
        let given = self.own_addresses()?;
        let (own, port) =
            if given.is_empty() { (vec![fallback.ip()], fallback.port()) } else { (given, self.port()) };
        let ip = own.first().copied().unwrap_or(fallback.ip());
        let mut config = self.endpoint(rank, world, &own, usual_rate);
        config.seal = self.seal_key()?;
        if let Some((&rank, &peer)) = peers.iter().find(|(_, peer)| peer.is_ipv4() != ip.is_ipv4()) {
            return Err(failed(LinkError::Family { rank, peer, own: ip }));
        }
        config.peers = peers;
        Ok((config, self.links(&own, port, channels)?))
    }

    /// An endpoint's configuration, without key and peers. The rate algorithm is the usual one
    /// unless another was set.
    pub(crate) fn endpoint(
        &self,
        rank: u16,
        world: u16,
        own: &[IpAddr],
        usual_rate: RateAlgorithm,
    ) -> EndpointConfig {
        let settings = self.settings();
        let mut config = EndpointConfig::new(
            rank,
            world,
            self.bitrate.or_else(|| line_rate_of(own)).unwrap_or(DEFAULT_LINE_RATE_BPS),
        );
        config.mtu = self.mtu;
        config.job = settings.job.unwrap_or(0);
        config.seed = self.seed();
        config.reliability = self.reliability();
        config.rate = match settings.rate_algorithm.unwrap_or(usual_rate) {
            RateAlgorithm::Fixed => RateConfig::Fixed(None),
            RateAlgorithm::Timely => RateConfig::Timely(TimelyConfig {
                t_low_ns: settings.t_low_ns,
                t_high_ns: settings.t_high_ns,
                ..TimelyConfig::default()
            }),
            RateAlgorithm::Dctcp => RateConfig::Dctcp(DctcpConfig::default()),
        };
        config.trim_delay_ns = settings.trim_delay_ns.unwrap_or(config.trim_delay_ns);
        config.traffic = if settings.droppable { Traffic::Droppable } else { Traffic::Trimmable };
        let mut config = on_sockets(config);
        // What was asked for is kept to; what the card does is the card's business.
        config.pace_at_line = self.bitrate.is_some();
        config.timeouts.give_up_ns = self.timeout;
        // Who waits for somebody who waits for a dead rank is told of that rank by then.
        config.timeouts.patience_ns = self.idle_timeout.unwrap_or(self.timeout.saturating_mul(6));
        config.timeouts.keep_alive_ns = config.timeouts.keep_alive_ns.min(self.timeout / 4);
        config
    }

    /// The sockets of each channel, on a port of all of these addresses and those behind it.
    pub(crate) fn links(&self, own: &[IpAddr], port: u16, channels: u16) -> Result<Vec<UdpLink>, Failure> {
        let settings = self.settings();
        let config = UdpConfig {
            data_sockets: settings.source_ports,
            receive: settings.receive,
            checksums: settings.checksums,
            ..UdpConfig::on(own, port).map_err(|error| bad_input(anyhow!("--bind: {error}")))?
        };
        UdpLink::open_channels(&config, channels, &Shared::default()).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_take_an_optional_port_and_errors_show_the_forms() {
        let port = |text: &str| text.parse::<Address>().map(|address| address.or_port(9217).to_string());
        assert_eq!(port("10.0.0.1").as_deref(), Ok("10.0.0.1:9217"));
        assert_eq!(port("10.0.0.1:5").as_deref(), Ok("10.0.0.1:5"));
        assert_eq!(port("fd00::1").as_deref(), Ok("[fd00::1]:9217"));
        assert_eq!(port("fe80::1%lo").as_deref(), Ok("[fe80::1]:9217"));
        assert_eq!(port("[fe80::1%lo]:5").as_deref(), Ok("[fe80::1]:5"));
        assert!(port("fe80::1%nosuch").is_err_and(|error| error.contains("'nosuch' is no interface")));
        assert!(port("h1").is_err_and(|error| error.contains("'h1'") && error.contains("IP:PORT")));
    }
}
