// SPDX-License-Identifier: Apache-2.0
//! Collectives over the network: a thread that moves datagrams and codes, and handles to wait
//! for.

mod device;
mod epochs;
mod locks;
mod network;
mod notifiers;
mod options;
mod socket;
mod totals;
mod work;

pub(crate) use device::{Desk, Elsewhere, Row, Rows, channel_parts, direct_shards};
pub(crate) use socket::{Socket, default_channels, own_address, own_cores};
pub(crate) use work::Work;

use crate::dlpack::Tensor;
use crate::transcript::of_rank;
use device::memories;
use epochs::{Place, Request, Waiting, told, wait};
use locks::lock;
use network::{App, Command, run};
use notifiers::Notifiers;
use options::{GroupOptions, OperationOptions, seconds};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use socket::failed;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use totals::Totals;
use trimwire_agent::collective::{Collective, CommunicatorConfig, Memory};
use trimwire_agent::driver::channels::split;
use trimwire_agent::driver::delegate::Delegate;
use trimwire_agent::driver::interfaces::line_rate_of;
use trimwire_agent::driver::{Channels, DEFAULT_LINE_RATE_BPS, Driver, Wake, on_sockets};
use trimwire_agent::endpoint::{EndpointConfig, MTU_LEAST, MTU_MOST, Reliability};
use trimwire_agent::rate::RateConfig;
use trimwire_agent::transcript::{Filter, Header, Writer, Written};
use trimwire_encoder::{Codec, SealKey};
use work::State;

struct Threads {
    commands: Sender<Command>,
    network: JoinHandle<()>,
    notifiers: Arc<Notifiers>,
}

/// One rank of a group.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Group {
    threads: Mutex<Option<Threads>>,
    wake: Arc<Wake>,
    totals: Arc<Totals>,
    /// What became of the transcript, once the group has ended.
    recorded: Arc<Mutex<Option<Written>>>,
    /// For who codes rows elsewhere, once.
    rows: Mutex<Option<Rows>>,
    /// Bytes of its packets, and whether they carry tags.
    mtu: usize,
    sealed: bool,
    place: Arc<Place>,
}

#[pymethods]
impl Group {
    /// Begins with the addresses of all ranks, in order of rank, this one's included.
    #[new]
    fn new(socket: &Socket, rank: u16, peers: Vec<String>, options: GroupOptions) -> PyResult<Self> {
        let world = u16::try_from(peers.len()).ok().filter(|world| (1..=1_024).contains(world));
        let world = world.ok_or_else(|| {
            PyValueError::new_err(format!("peers: {} ranks; 1 to 1024 are possible", peers.len()))
        })?;
        if rank >= world {
            return Err(PyValueError::new_err(format!("rank: {rank} of {world}")));
        }
        // Ranks of one address are on one host.
        let (mut others, mut hosts, mut known) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (peer, text) in (0..).zip(&peers) {
            let address: SocketAddr = text
                .parse()
                .map_err(|_| PyValueError::new_err(format!("peers[{peer}]: '{text}' is no IP:PORT")))?;
            let next = known.len() as u32;
            hosts.push(*known.entry(address.ip()).or_insert(next));
            if peer != rank {
                if address.is_ipv4() != socket.address.is_ipv4() {
                    let own = socket.address;
                    let text =
                        format!("peers[{peer}]: {address} is of another family than this rank's {own}");
                    return Err(PyValueError::new_err(text));
                }
                others.insert(peer, address);
            }
        }
        let rate_bps =
            options.rate_bps.or_else(|| line_rate_of(&socket.addresses)).unwrap_or(DEFAULT_LINE_RATE_BPS);
        let mut config = EndpointConfig::new(rank, world, rate_bps);
        if let Some(mtu) = options.mtu.filter(|mtu| !(MTU_LEAST..=MTU_MOST).contains(mtu)) {
            let text = format!("mtu: {mtu}; valid are {MTU_LEAST} to {MTU_MOST}");
            return Err(PyValueError::new_err(text));
        }
        config.mtu = options.mtu;
        config.job = options.job;
        config.seed = options.seed;
        config.reliability = Reliability::Bounded { loss: options.loss.clamp(0.0, 1.0) };
        config.rate = match options.rate_algorithm.as_str() {
            "dctcp" => config.rate,
            "fixed" => RateConfig::Fixed(None),
            other => {
                let text = format!("rate_algorithm: '{other}'; valid are 'dctcp', 'fixed'");
                return Err(PyValueError::new_err(text));
            }
        };
        if let Some(key) = &options.seal_key {
            let key = SealKey::from_bytes(key)
                .map_err(|error| PyValueError::new_err(format!("seal_key: {error}")))?;
            config.seal = Some(key);
        }
        if let Some(delay) = options.trim_delay_s {
            config.trim_delay_ns = seconds(delay, "trim_delay")?;
        }
        let mut config = on_sockets(config);
        config.pace_at_line = options.rate_bps.is_some();
        config.timeouts.give_up_ns = seconds(options.give_up_s, "give_up")?;
        config.timeouts.patience_ns = seconds(options.operation_timeout_s, "operation_timeout")?;
        let rendezvous_timeout_ns =
            options.rendezvous_timeout_s.map(|timeout| seconds(timeout, "rendezvous_timeout")).transpose()?;
        config.peers = others;
        let header = Header { job: options.job, rank, world, seed: options.seed };
        let writer = options.record.as_ref().map(|record| {
            let path = of_rank(record, rank);
            Writer::create(&path, &header).map_err(|error| {
                PyOSError::new_err(format!("record: cannot record to {}: {error}", path.display()))
            })
        });
        let writer = writer.transpose()?;
        // Last: what is wrong with the rest can be mended, and tried again.
        let channels = socket.channels();
        let configs =
            split(&config, channels).map_err(|error| PyValueError::new_err(format!("channels: {error}")))?;
        let links = lock(&socket.links).take();
        let links =
            links.ok_or_else(|| PyRuntimeError::new_err("socket: another group has begun with it"))?;
        let mut parts = configs.into_iter().zip(links);
        let (config, link) = parts.next().ok_or_else(|| failed("no link"))?;
        let mut driver = Driver::new(config, link);
        let wake = driver.wake().map_err(failed)?;
        let totals = Arc::new(Totals::default());
        let (commands, queue) = channel();
        let (leftovers, left) = channel();
        let (offloaded, to_do) = channel();
        let mut communicator =
            CommunicatorConfig { job_seed: options.seed, hosts, ..CommunicatorConfig::new(rank, world) };
        // Where ranks have not told each other theirs, others' interfaces may be Ethernet's: what
        // this one carries beyond that is not used.
        let apart = || communicator.mtu.min(socket.mtu.map_or(usize::MAX, usize::from));
        let mtu = options.mtu.map_or_else(apart, usize::from);
        communicator.mtu = mtu;
        let place = Arc::new(Place::new(rank, world));
        let filter = Filter::new(writer, None);
        let communicator =
            Channels::begin(&communicator, &mut driver, parts.collect(), &filter, Some(&offloaded));
        let app = App {
            communicator: communicator.map_err(failed)?,
            commands: queue,
            next: 0,
            pending: BTreeMap::new(),
            queued: VecDeque::new(),
            filter,
            leftovers,
            totals: Arc::clone(&totals),
            stopping: false,
            delegate: Delegate::new(&offloaded, Arc::clone(&wake)),
            place: Arc::clone(&place),
            waiting: Waiting::default(),
            rendezvous_timeout_ns,
        };
        let rows = Mutex::new(Some(Rows { queue: Mutex::new(to_do) }));
        let notifiers = Notifiers::start(left).map_err(failed)?;
        let recorded = Arc::new(Mutex::new(None));
        let ended = Arc::clone(&recorded);
        let address = socket.address;
        tracing::info!("rank {rank} of {world} listens on {address}: {channels} channels, {rate_bps} bit/s");
        tracing::debug!("the ranks are at {}", peers.join(", "));
        let network = std::thread::Builder::new().name("trimwire-network".into());
        let network = network.spawn(move || run(driver, app, &ended)).map_err(failed)?;
        let threads = Mutex::new(Some(Threads { commands, network, notifiers }));
        let sealed = options.seal_key.is_some();
        Ok(Self { threads, wake, totals, recorded, rows, mtu, sealed, place })
    }

    #[getter]
    fn rank(&self) -> u16 {
        self.place.rank()
    }

    #[getter]
    fn world(&self) -> u16 {
        self.place.world()
    }

    /// Coordinates of a packet of an operation that sends so many planes.
    fn coordinates_per_packet(&self, planes: u8) -> usize {
        Codec::default().coordinates_per_packet(self.mtu, planes, self.sealed)
    }

    /// The sum over all ranks, for all; in place.
    fn all_reduce(&self, tensor: &Bound<'_, PyAny>, options: OperationOptions) -> PyResult<Work> {
        let tensor = match tensor.cast::<Elsewhere>() {
            Ok(tensor) => tensor.get().memory(),
            Err(_) => Tensor::import(tensor, "tensor")?.into_numbers()?,
        };
        self.start(Collective::AllReduce { tensor }, options)
    }

    /// A shard of the sum for each rank.
    fn reduce_scatter(
        &self,
        input: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        options: OperationOptions,
    ) -> PyResult<Work> {
        let (input, output) = both(input, output, false)?;
        self.start(Collective::ReduceScatter { input, output }, options)
    }

    /// Every rank's shard, for all.
    fn all_gather(
        &self,
        input: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        options: OperationOptions,
    ) -> PyResult<Work> {
        let (input, output) = both(input, output, options.exact)?;
        self.start(Collective::AllGather { input, output }, options)
    }

    /// From every rank to every rank its part, bit by bit; `to` and `from` are words of four bytes,
    /// by rank.
    fn all_to_all(
        &self,
        input: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        to: Vec<usize>,
        from: Vec<usize>,
        options: OperationOptions,
    ) -> PyResult<Work> {
        let (input, output) = both(input, output, true)?;
        self.start(Collective::AllToAll { input, output, to, from }, options)
    }

    /// One rank's tensor, for all; in place.
    fn broadcast(&self, tensor: &Bound<'_, PyAny>, root: u16, options: OperationOptions) -> PyResult<Work> {
        let tensor = Tensor::import(tensor, "tensor")?.into_memory(options.exact)?;
        self.start(Collective::Broadcast { tensor, root }, options)
    }

    /// The sum, for one rank; in place there.
    fn reduce(&self, tensor: &Bound<'_, PyAny>, root: u16, options: OperationOptions) -> PyResult<Work> {
        let tensor = Tensor::import(tensor, "tensor")?.into_numbers()?;
        self.start(Collective::Reduce { tensor, root }, options)
    }

    /// The rows of this group that are coded elsewhere, for one who does.
    fn rows(&self) -> PyResult<Rows> {
        lock(&self.rows)
            .take()
            .ok_or_else(|| PyRuntimeError::new_err("somebody has the group's rows already"))
    }

    /// Totals since the beginning.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        let Totals {
            operations, failed, packets, trimmed, missing, sent, repaired, bytes_sent, busy_ns, ..
        } = &*self.totals;
        for (name, total) in [
            ("operations", operations),
            ("failed", failed),
            ("packets_received", packets),
            ("packets_trimmed", trimmed),
            ("packets_missing", missing),
            ("packets_sent", sent),
            ("packets_repaired", repaired),
            ("bytes_sent", bytes_sent),
        ] {
            stats.set_item(name, total.load(Ordering::Relaxed))?;
        }
        stats.set_item("seconds", busy_ns.load(Ordering::Relaxed) as f64 / 1e9)?;
        Ok(stats)
    }

    /// Seconds that each of the latest operations took that may be trimmed, oldest first.
    fn durations(&self) -> Vec<f64> {
        lock(&self.totals.lossy_ns).iter().map(|&took| took as f64 / 1e9).collect()
    }

    /// Of a transcript that has ended: records in it, its bytes, records that are not in it, and
    /// why it ends early.
    fn recorded(&self) -> Option<(u64, u64, u64, Option<String>)> {
        let Written { records, bytes, lost, error, .. } = lock(&self.recorded).clone()?;
        Some((records, bytes, lost, error))
    }

    /// The next epoch, without these ranks; with those that have started anew where they are to be
    /// let in. Its number, ranks, and those that were let in.
    fn next_epoch(
        &self,
        py: Python<'_>,
        exclude: Vec<u16>,
        admit: bool,
    ) -> PyResult<(u32, Vec<u16>, Vec<u16>)> {
        let (reply, answer) = channel();
        self.ask(Request::Next { exclude, admit, reply })?;
        told(wait(py, answer)?)
    }

    /// Waits to be let in, having started anew.
    fn join(&self, py: Python<'_>) -> PyResult<(u32, Vec<u16>, Vec<u16>)> {
        let (reply, answer) = channel();
        self.ask(Request::Join { reply })?;
        told(wait(py, answer)?)
    }

    /// A rank that starts anew listens there.
    fn admit(&self, rank: u16, address: &str) -> PyResult<()> {
        let address = address
            .parse()
            .map_err(|_| PyValueError::new_err(format!("address: '{address}' is no IP:PORT")))?;
        self.ask(Request::Admit { rank, address })
    }

    /// Ranks that have started anew and ask to be let in.
    fn knocking(&self, py: Python<'_>) -> PyResult<Vec<u16>> {
        let (reply, answer) = channel();
        self.ask(Request::Knocking { reply })?;
        wait(py, answer)
    }

    /// Counters of each peer, by its rank, under the names that `trimwire-agent top` reads.
    fn peers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (reply, answer) = channel();
        self.ask(Request::Snapshot { reply })?;
        let peers = PyDict::new(py);
        for peer in wait(py, answer)?.peers {
            let counters = PyDict::new(py);
            let stats = peer.stats;
            for (name, count) in [
                ("sent_packets", stats.data_sent),
                ("sent_payload_bytes", stats.data_bytes_sent),
                ("repair_packets", stats.repairs_sent),
                ("arrived_packets", stats.arrived),
                ("trimmed_packets", stats.trimmed),
                ("lost_packets", stats.lost),
                ("received_packets", stats.data_received),
                ("received_payload_bytes", stats.data_bytes_received),
                ("received_trimmed_packets", stats.trimmed_received),
                ("delivered_packets", stats.packets_delivered),
                ("missing_packets", stats.missing),
            ] {
                counters.set_item(name, count)?;
            }
            counters.set_item("rate_bits_per_second", peer.rate_bps)?;
            if let Some(rtt_ns) = peer.rtt_ns {
                counters.set_item("rtt_seconds", rtt_ns as f64 / 1e9)?;
            }
            peers.set_item(peer.rank, counters)?;
        }
        Ok(peers)
    }

    /// A rank that does not take part is waited for so long.
    fn set_patience(&self, seconds: f64) -> PyResult<()> {
        let patience_ns = options::seconds(seconds, "operation_timeout")?;
        let threads = lock(&self.threads);
        let threads = threads.as_ref().ok_or_else(|| PyRuntimeError::new_err("the group is closed"))?;
        let sent = threads.commands.send(Command::Patience(patience_ns));
        sent.map_err(|_| PyRuntimeError::new_err("the network's thread has ended"))?;
        self.wake.wake();
        Ok(())
    }

    /// For tests: the network's thread panics.
    fn _panic(&self) {
        if let Some(threads) = &*lock(&self.threads) {
            let _ = threads.commands.send(Command::Panic);
            self.wake.wake();
        }
    }

    /// Gives up what is under way, and ends.
    fn close(&self, py: Python<'_>) {
        let threads = lock(&self.threads).take();
        let Some(Threads { commands, network, notifiers }) = threads else { return };
        let _ = commands.send(Command::Stop);
        self.wake.wake();
        py.detach(|| {
            let _ = network.join();
            notifiers.join();
        });
    }
}

/// Two tensors, of the host or of a device.
fn both(input: &Bound<'_, PyAny>, output: &Bound<'_, PyAny>, exact: bool) -> PyResult<(Memory, Memory)> {
    if let (Ok(input), Ok(output)) = (input.cast::<Elsewhere>(), output.cast::<Elsewhere>()) {
        return Ok(memories(input.get(), output.get()));
    }
    let (input, output) = (Tensor::import(input, "input")?, Tensor::import(output, "output")?);
    Ok((input.into_memory(exact)?, output.into_memory(exact)?))
}

impl Group {
    fn ask(&self, request: Request) -> PyResult<()> {
        let threads = lock(&self.threads);
        let threads = threads.as_ref().ok_or_else(|| PyRuntimeError::new_err("the group is closed"))?;
        let sent = threads.commands.send(Command::Epoch(request));
        sent.map_err(|_| PyRuntimeError::new_err("the network's thread has ended"))?;
        self.wake.wake();
        Ok(())
    }

    fn start(&self, collective: Collective, options: OperationOptions) -> PyResult<Work> {
        let most = trimwire_encoder::PLANES;
        if !(1..=most).contains(&options.planes) {
            let text = format!("planes: {}; valid are 1 to {most}", options.planes);
            return Err(PyValueError::new_err(text));
        }
        let threads = lock(&self.threads);
        let threads = threads.as_ref().ok_or_else(|| PyRuntimeError::new_err("the group is closed"))?;
        let state = Arc::new(State { lossy: !options.exact, ..State::default() });
        let commands = threads.commands.clone();
        let collective = Box::new(collective);
        let command = Command::Start { collective, options: options.try_into()?, state: Arc::clone(&state) };
        threads
            .commands
            .send(command)
            .map_err(|_| PyRuntimeError::new_err("the network's thread has ended"))?;
        self.wake.wake();
        Ok(Work { state, commands, wake: Arc::clone(&self.wake) })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Nobody can ask for anything any more; waiting for the threads here could be for ever.
        if let Some(threads) = lock(&self.threads).take() {
            let _ = threads.commands.send(Command::Stop);
            self.wake.wake();
        }
    }
}
