// SPDX-License-Identifier: Apache-2.0
//! How the ranks of `perf` find each other: as torchrun says, or by addresses written out.

use crate::args::{Address, LinkArgs};
use crate::settings::RateAlgorithm;
use crate::way::hosts;
use crate::{Failure, bad_input, failed};
use anyhow::anyhow;
use clap::Args;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use trimwire_agent::cores::{Cores, channels_of};
use trimwire_agent::driver::{Link, UdpLink};
use trimwire_agent::endpoint::{EndpointConfig, MTU_LEAST, MTU_MOST};
use trimwire_agent::rendezvous::{
    Config, Launch, LaunchError, Member, Offer, RendezvousError, Settings, own_address,
};

/// Who this rank is, and where the others are.
#[derive(Args)]
pub(crate) struct RendezvousArgs {
    /// Rank of this process.
    #[arg(long, env = "RANK", value_parser = clap::value_parser!(u16).range(..=1023))]
    rank: Option<u16>,
    /// Number of ranks.
    #[arg(long, env = "WORLD_SIZE", value_parser = clap::value_parser!(u16).range(1..=1024))]
    world: Option<u16>,
    /// Addresses of all ranks in order, this one included. Skips the rendezvous.
    #[arg(long, env = "TRIMWIRE_PEERS", value_delimiter = ',', value_name = "IP[:PORT],…")]
    peers: Vec<Address>,
    /// Host of rank 0.
    #[arg(long, env = "MASTER_ADDR", value_name = "HOST")]
    master_addr: Option<String>,
    /// TCP port on which rank 0 meets the others. Under torchrun, whose store listens there, the
    /// next one.
    #[arg(long, env = "MASTER_PORT", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    master_port: Option<u16>,
}

/// A rank that knows the others.
pub(crate) struct Met {
    pub(crate) rank: u16,
    pub(crate) world: u16,
    pub(crate) job: u8,
    pub(crate) seed: u64,
    /// A number for each rank, the same for those on one host.
    pub(crate) hosts: Vec<u32>,
    /// Whether they have agreed on what each was told to do; not where addresses are written out.
    pub(crate) agreed: bool,
    /// Of the smallest interface of all ranks, where they have told theirs.
    pub(crate) mtu: Option<u16>,
    pub(crate) endpoint: EndpointConfig,
    /// One a channel.
    pub(crate) links: Vec<UdpLink>,
}

/// Who meets others.
pub(crate) struct Caller<'a> {
    pub(crate) rendezvous: &'a RendezvousArgs,
    pub(crate) link: &'a LinkArgs,
    /// Channels of each rank, which all have to have alike; `None`: as their processors allow,
    /// where `by_cores`, or one.
    pub(crate) channels: Option<u16>,
    /// Whether as many channels as processors allow would do.
    pub(crate) by_cores: bool,
    /// Rate algorithm, unless another was set.
    pub(crate) usual_rate: RateAlgorithm,
    /// A rank that there has to be.
    pub(crate) root: u16,
    /// Job and seed that the rank must have, where it repeats a run.
    pub(crate) repeats: &'a dyn Fn(u16) -> Result<Option<(u8, u64)>, Failure>,
}

impl Caller<'_> {
    /// Meets the other ranks, unless their addresses are given.
    pub(crate) fn meet(&self) -> Result<Met, Failure> {
        if self.rendezvous.peers.is_empty() {
            at_rank_0(self, &self.rendezvous.launch()?)
        } else {
            at_peers(self)
        }
    }
}

fn at_peers(args: &Caller<'_>) -> Result<Met, Failure> {
    let given = args.rendezvous;
    let rank = given.rank.ok_or_else(|| bad_input(LaunchError::Missing("RANK")))?;
    let world = given.world.unwrap_or(u16::try_from(given.peers.len()).unwrap_or(u16::MAX));
    if rank >= world {
        return Err(bad_input(LaunchError::Rank { rank, world }));
    }
    if given.peers.len() != usize::from(world) {
        let got = given.peers.len();
        return Err(bad_input(anyhow!(
            "--peers names {got} addresses for {world} ranks (all ranks, this one included)"
        )));
    }
    check_root(args.root, world)?;
    let port = args.link.port();
    let hosts = hosts(given.peers.iter().map(|peer| peer.or_port(port).ip()));
    let mut peers: BTreeMap<u16, SocketAddr> =
        (0..).zip(given.peers.iter().map(|peer| peer.or_port(port))).collect();
    let own = peers.remove(&rank).ok_or_else(|| bad_input(anyhow!("--peers lacks rank {rank}")))?;
    let (endpoint, links) =
        args.link.parts(rank, world, peers, own, args.usual_rate, args.channels.unwrap_or(1))?;
    let (job, seed) = (endpoint.job, args.link.seed());
    Ok(Met { rank, world, job, seed, hosts, agreed: false, mtu: None, endpoint, links })
}

fn check_root(root: u16, world: u16) -> Result<(), Failure> {
    if root < world {
        return Ok(());
    }
    Err(bad_input(anyhow!("--root {root} of {world} ranks; valid are 0 to {}", world - 1)))
}

fn at_rank_0(args: &Caller<'_>, launch: &Launch) -> Result<Met, Failure> {
    let &Launch { rank, world, ref master } = launch;
    check_root(args.root, world)?;
    let config = Config {
        master: master.clone(),
        key: args.link.seal_key()?,
        timeout: Duration::from_nanos(args.link.settings().rendezvous_timeout_ns),
    };
    let mut own = args.link.own_addresses()?;
    if own.is_empty() {
        own.push(own_address(&config).map_err(failure)?);
    }
    // A port that was given is one: others behind it may be anybody's.
    let by_cores = args.channels.is_none() && args.by_cores && args.link.port.is_none();
    let cores = by_cores.then(Cores::own);
    let alone = cores.iter().map(|cores| channels_of(std::iter::once((IpAddr::from([0, 0, 0, 0]), cores))));
    let most = args.channels.into_iter().chain(alone).max().unwrap_or(1);
    let mut links = args.link.links(&own, args.link.port.unwrap_or(0), most)?;
    let link = links.first().ok_or_else(|| failed(anyhow!("no link")))?;
    let mut endpoint = args.link.endpoint(rank, world, &own, args.usual_rate);
    // A run that is repeated has the job and seed that it had.
    let (job, seed) = (args.repeats)(rank)?.unzip();
    let offer = Offer {
        job: args.link.settings().job.or(job),
        seed: args.link.seed.or(seed),
        cores,
        mtu: endpoint.mtu.into_iter().chain(link.mtu()).min().map(u32::from),
        ..Offer::new(rank, world, link.local_address(), endpoint.incarnation)
    };
    tracing::info!("rank {rank} of {world} at {} meets the others at {master}", link.local_address());
    let agreed = trimwire_agent::rendezvous::meet(offer, &config).map_err(failure)?;
    links.truncate(args.channels.unwrap_or(agreed.channels).into());
    let hosts = hosts(agreed.members.iter().map(|member| member.address.ip()));
    tracing::info!("job {}: seed {}", agreed.job, agreed.seed);
    for (other, Member { address, incarnation }) in
        (0..).zip(agreed.members).filter(|&(other, _)| other != rank)
    {
        endpoint.peers.insert(other, address);
        endpoint.incarnations.insert(other, incarnation);
    }
    (endpoint.job, endpoint.seed, endpoint.seal) = (agreed.job, agreed.seed, agreed.seal);
    // Nothing is longer than what the smallest interface of all carries.
    let mtu = agreed.mtu.map(|mtu| mtu.clamp(MTU_LEAST.into(), MTU_MOST.into()) as u16);
    endpoint.mtu = endpoint.mtu.into_iter().chain(mtu).min();
    let (job, seed) = (agreed.job, agreed.seed);
    Ok(Met { rank, world, job, seed, hosts, agreed: true, mtu, endpoint, links })
}

fn failure(error: RendezvousError) -> Failure {
    match error {
        RendezvousError::Offer(_) => bad_input(error),
        error => failed(error),
    }
}

impl RendezvousArgs {
    fn launch(&self) -> Result<Launch, Failure> {
        let settings = Settings {
            rank: self.rank,
            world: self.world,
            master_addr: self.master_addr.clone(),
            master_port: self.master_port,
            launcher_listens: std::env::var("TORCHELASTIC_USE_AGENT_STORE")
                .is_ok_and(|value| value == "True"),
        };
        Launch::new(settings).map_err(bad_input)
    }
}
