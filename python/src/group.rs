//! Collectives over the network: a thread that moves datagrams, codec threads, and handles to wait for.

use crate::TransportError;
use crate::dlpack::Tensor;
use crate::transcript::{of_rank, operation};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trimwire_agent::collective::{
    Algorithm, Collective, Communicator, CommunicatorConfig, Done, Memory, Options, Outcome, OutcomeStats,
    Replicas, Task,
};
use trimwire_agent::driver::interfaces::{describe, interfaces, line_rate_of, select};
use trimwire_agent::driver::{
    Application, DEFAULT_LINE_RATE_BPS, Driver, UdpConfig, UdpLink, Wake, default_threads, on_sockets,
};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Event, Reliability};
use trimwire_agent::pacing::Pace;
use trimwire_agent::rate::RateConfig;
use trimwire_agent::transcript::{Header, OperationRecord, Tap, Writer, Written};
use trimwire_encoder::SealKey;

/// Without news from anybody for so long, and nothing under way, a group that is closed is gone: whoever's STOP was lost has asked again by then.
const QUIET_NS: u64 = 250_000_000;
const LINGER_NS: u64 = 2_000_000_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn network(error: impl std::fmt::Display) -> PyErr {
    TransportError::new_err(error.to_string())
}

/// The addresses of the interfaces that match `pattern` (as NCCL_SOCKET_IFNAME's), with commas between, or else the one that the system would reach `towards` from.
#[pyfunction]
pub(crate) fn own_address(pattern: Option<String>, towards: Option<String>) -> PyResult<String> {
    if let Some(pattern) = pattern {
        let all = interfaces().map_err(network)?;
        let found = select(&all, &pattern);
        if found.is_empty() {
            let all = describe(&all);
            return Err(PyValueError::new_err(format!(
                "interface: '{pattern}' selects none; there are: {all}"
            )));
        }
        return Ok(found.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(","));
    }
    let towards = towards.unwrap_or_else(|| "127.0.0.1".to_owned());
    // No datagram is sent: the system only says which way it would go.
    let route = || -> std::io::Result<IpAddr> {
        use std::net::ToSocketAddrs;
        let to = (towards.as_str(), 9).to_socket_addrs()?.next();
        let to = to.ok_or_else(|| std::io::Error::other("no address"))?;
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let socket = std::net::UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    let address = route().map_err(|error| network(format!("no way to '{towards}': {error}")))?;
    Ok(address.to_string())
}

/// Sockets that wait for a group to begin.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Socket {
    link: Mutex<Option<UdpLink>>,
    address: SocketAddr,
    addresses: Vec<IpAddr>,
}

#[pymethods]
impl Socket {
    /// Listens on an address, or on several of one family with commas between; port 0 is a free one.
    #[new]
    fn new(ip: &str, port: u16, paths: u16) -> PyResult<Self> {
        let parse = |ip: &str| {
            ip.trim().parse().map_err(|_| PyValueError::new_err(format!("address: '{ip}' is no IP address")))
        };
        let addresses: Vec<IpAddr> = ip.split(',').map(parse).collect::<PyResult<_>>()?;
        let config = UdpConfig::on(&addresses, port)
            .map_err(|error| PyValueError::new_err(format!("address: {error}")))?;
        let config = UdpConfig { data_sockets: paths, ..config };
        let link = UdpLink::open(config).map_err(network)?;
        let address = trimwire_agent::driver::Link::local_address(&link);
        Ok(Self { link: Mutex::new(Some(link)), address, addresses })
    }

    /// Where it listens: `IP:PORT`.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }
}

/// How a group works; attributes of a Python object.
#[derive(Debug, Clone, FromPyObject)]
pub(crate) struct GroupOptions {
    seed: u64,
    rate_bps: Option<u64>,
    threads: Option<usize>,
    give_up_s: f64,
    patience_s: f64,
    loss: f32,
    key: Option<Vec<u8>>,
    job: u8,
    record: Option<String>,
    rate_law: String,
    trim_delay_s: Option<f64>,
}

/// How an operation is done; attributes of a Python object.
#[derive(Debug, Clone, FromPyObject)]
pub(crate) struct OperationOptions {
    exact: bool,
    average: bool,
    planes: u8,
    layer_class: u8,
    tag: u32,
    consistent: bool,
    full: bool,
    algorithm: String,
    deadline_s: Option<f64>,
    pace: f64,
}

impl TryFrom<OperationOptions> for Options {
    type Error = PyErr;

    fn try_from(options: OperationOptions) -> PyResult<Self> {
        let algorithm = match options.algorithm.as_str() {
            "auto" => Algorithm::Automatic,
            "direct" => Algorithm::Direct,
            "ring" => Algorithm::Ring,
            "two-level" => Algorithm::TwoLevel,
            other => {
                let valid = "'auto', 'direct', 'ring', 'two-level'";
                return Err(PyValueError::new_err(format!("algorithm is '{other}'; valid are {valid}")));
            }
        };
        let deadline_ns = match options.deadline_s {
            Some(seconds) if !(seconds > 0.0 && seconds.is_finite()) => {
                let text = format!("deadline is {seconds} s; it has to be positive and finite");
                return Err(PyValueError::new_err(text));
            }
            seconds => seconds.map(|seconds| (seconds * 1e9) as u64),
        };
        Ok(Self {
            algorithm,
            deadline_ns,
            exact: options.exact,
            average: options.average,
            planes: options.planes,
            layer_class: options.layer_class.min(7),
            tag: options.tag,
            replicas: if options.consistent { Replicas::Consistent } else { Replicas::Free },
            pace: Pace::of_share(options.pace),
            reliability: options.full.then_some(Reliability::Full),
            ..Self::default()
        })
    }
}

/// Totals over all operations.
#[derive(Debug, Default)]
struct Totals {
    operations: AtomicU64,
    failed: AtomicU64,
    packets: AtomicU64,
    cut: AtomicU64,
    missing: AtomicU64,
    sent: AtomicU64,
    repaired: AtomicU64,
    bytes_sent: AtomicU64,
    busy_ns: AtomicU64,
    /// How long the latest operations took that may be cut.
    lossy_ns: Mutex<VecDeque<u64>>,
}

/// So many durations are kept: enough for a 99th percentile.
const DURATIONS: usize = 1_024;

impl Totals {
    fn took(&self, duration_ns: u64) {
        let mut latest = lock(&self.lossy_ns);
        if latest.len() == DURATIONS {
            latest.pop_front();
        }
        latest.push_back(duration_ns);
    }
}

/// How an operation ended.
#[derive(Debug, Clone)]
struct Ending {
    error: Option<String>,
    stats: OutcomeStats,
    /// On the network's thread's clock.
    ended_ns: u64,
    duration_ns: u64,
}

#[derive(Default)]
struct State {
    /// Whether it may be cut.
    lossy: bool,
    ending: Mutex<Option<Ending>>,
    ended: Condvar,
    callback: Mutex<Option<Py<PyAny>>>,
}

impl State {
    fn end(&self, ending: Ending) {
        *lock(&self.ending) = Some(ending);
        self.ended.notify_all();
    }
}

/// What the network's thread is asked for.
enum Command {
    Start { collective: Box<Collective>, options: Options, state: Arc<State> },
    Stop,
}

/// What is left of an operation for who may wait for the interpreter.
struct Leftover {
    state: Arc<State>,
    _memory: (Option<Memory>, Option<Memory>),
}

/// An operation under way.
struct Pending {
    state: Arc<State>,
    /// What a transcript says of it, where one is written, and when it began.
    record: Option<(OperationRecord, u64)>,
}

/// The application of the network's thread.
struct App {
    communicator: Communicator,
    commands: Receiver<Command>,
    next: u32,
    pending: BTreeMap<u32, Pending>,
    tap: Tap,
    leftovers: Sender<Leftover>,
    totals: Arc<Totals>,
    stopping: bool,
}

impl App {
    fn finish(&self, now_ns: u64, state: Arc<State>, outcome: Outcome) {
        let Outcome { result, input, output, stats, duration_ns, .. } = outcome;
        let totals = &self.totals;
        let add = |total: &AtomicU64, value: u64| total.fetch_add(value, Ordering::Relaxed);
        add(&totals.operations, 1);
        add(&totals.failed, u64::from(result.is_err()));
        add(&totals.packets, stats.packets);
        add(&totals.cut, stats.cut);
        add(&totals.missing, stats.missing);
        add(&totals.sent, stats.sent);
        add(&totals.repaired, stats.repaired);
        add(&totals.bytes_sent, stats.bytes_sent);
        add(&totals.busy_ns, duration_ns);
        if state.lossy && result.is_ok() {
            totals.took(duration_ns);
        }
        state.end(Ending {
            error: result.err().map(|error| error.to_string()),
            stats,
            ended_ns: now_ns,
            duration_ns,
        });
        // Freeing a tensor may have to wait for the interpreter, which this thread never does.
        let _ = self.leftovers.send(Leftover { state, _memory: (input, output) });
    }

    fn fail(&self, state: Arc<State>, error: String) {
        self.totals.failed.fetch_add(1, Ordering::Relaxed);
        state.end(Ending { error: Some(error), stats: OutcomeStats::default(), ended_ns: 0, duration_ns: 0 });
        let _ = self.leftovers.send(Leftover { state, _memory: (None, None) });
    }
}

impl Application<()> for App {
    fn on_event(&mut self, now_ns: u64, mut event: Event, endpoint: &mut Endpoint) -> ControlFlow<()> {
        // Only replays have errors.
        let _ = self.tap.on_event(now_ns, &mut event);
        self.communicator.handle_event(now_ns, event, endpoint);
        ControlFlow::Continue(())
    }

    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        self.communicator.poll_task(endpoint)
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        self.communicator.complete(now_ns, done, endpoint);
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<()> {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Start { collective, options, state } => {
                    let number = self.next;
                    self.next = self.next.wrapping_add(1);
                    let record =
                        self.tap.is_used().then(|| (operation(number, &collective, &options), now_ns));
                    match self.communicator.start(now_ns, number, *collective, options, endpoint) {
                        Ok(()) => drop(self.pending.insert(number, Pending { state, record })),
                        Err(error) => self.fail(state, error.to_string()),
                    }
                }
                Command::Stop => {
                    self.stopping = true;
                    let numbers: Vec<u32> = self.pending.keys().copied().collect();
                    for number in numbers {
                        self.communicator.cancel(now_ns, number, endpoint);
                    }
                }
            }
        }
        while let Some(outcome) = self.communicator.poll_outcome(now_ns, endpoint) {
            if let Some(Pending { state, record }) = self.pending.remove(&outcome.number) {
                if let Some((record, begun)) = record {
                    let _ = self.tap.on_operation(now_ns, record.ended(begun, &outcome));
                }
                self.finish(now_ns, state, outcome);
            }
        }
        if self.stopping && self.pending.is_empty() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

fn run(mut driver: Driver<UdpLink>, mut app: App, recorded: &Mutex<Option<Written>>) {
    if let Err(error) = driver.run(u64::MAX, &mut app) {
        for Pending { state, .. } in std::mem::take(&mut app.pending).into_values() {
            app.fail(state, error.to_string());
        }
        // Whoever comes later hears the same.
        while let Ok(command) = app.commands.recv() {
            match command {
                Command::Start { state, .. } => app.fail(state, error.to_string()),
                Command::Stop => break,
            }
        }
        *lock(recorded) = app.tap.finish();
        return;
    }
    // Others may not have heard that they are done.
    let _ = driver.linger(QUIET_NS, LINGER_NS);
    *lock(recorded) = app.tap.finish();
}

/// Frees tensors, and calls back.
fn notify(leftovers: &Receiver<Leftover>) {
    while let Ok(Leftover { state, _memory: memory }) = leftovers.recv() {
        drop(memory);
        let callback = lock(&state.callback).take();
        if let Some(callback) = callback {
            Python::attach(|py| {
                if let Err(error) = callback.call0(py) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }
}

struct Threads {
    commands: Sender<Command>,
    network: JoinHandle<()>,
    notifier: JoinHandle<()>,
}

/// One rank of a group.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Group {
    threads: Mutex<Option<Threads>>,
    wake: Arc<Wake>,
    totals: Arc<Totals>,
    /// What became of the transcript, once the group has ended.
    recorded: Arc<Mutex<Option<Written>>>,
    rank: u16,
    world: u16,
}

fn seconds(value: f64, name: &str) -> PyResult<u64> {
    let duration = Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    let duration =
        duration.ok_or_else(|| PyValueError::new_err(format!("{name}: {value}; a time in seconds")))?;
    Ok(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
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
        config.job = options.job;
        config.seed = options.seed;
        config.reliability = Reliability::Bounded { loss: options.loss.clamp(0.0, 1.0) };
        config.rate = match options.rate_law.as_str() {
            "dctcp" => config.rate,
            "fixed" => RateConfig::Fixed(None),
            other => {
                let text = format!("rate_law: '{other}'; valid are 'dctcp', 'fixed'");
                return Err(PyValueError::new_err(text));
            }
        };
        if let Some(key) = &options.key {
            let key =
                SealKey::from_bytes(key).map_err(|error| PyValueError::new_err(format!("key: {error}")))?;
            config.seal = Some(key);
        }
        if let Some(delay) = options.trim_delay_s {
            config.trim_delay_ns = seconds(delay, "trim_delay")?;
        }
        let mut config = on_sockets(config);
        config.pace_at_line = options.rate_bps.is_some();
        config.timeouts.give_up_ns = seconds(options.give_up_s, "give_up")?;
        config.timeouts.patience_ns = seconds(options.patience_s, "patience")?;
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
        let link = lock(&socket.link).take();
        let link = link.ok_or_else(|| PyRuntimeError::new_err("socket: another group has begun with it"))?;
        let mut driver = Driver::new(config, link);
        driver.set_threads(options.threads.unwrap_or_else(default_threads)).map_err(network)?;
        let wake = driver.wake().map_err(network)?;
        let totals = Arc::new(Totals::default());
        let (commands, queue) = channel();
        let (leftovers, left) = channel();
        let communicator =
            CommunicatorConfig { job_seed: options.seed, hosts, ..CommunicatorConfig::new(rank, world) };
        let app = App {
            communicator: Communicator::new(communicator),
            commands: queue,
            next: 0,
            pending: BTreeMap::new(),
            tap: Tap::new(writer, None),
            leftovers,
            totals: Arc::clone(&totals),
            stopping: false,
        };
        let thread = |name: &str| std::thread::Builder::new().name(format!("trimwire-{name}"));
        let notifier = thread("notify").spawn(move || notify(&left)).map_err(network)?;
        let recorded = Arc::new(Mutex::new(None));
        let ended = Arc::clone(&recorded);
        let network = thread("network").spawn(move || run(driver, app, &ended)).map_err(network)?;
        let threads = Mutex::new(Some(Threads { commands, network, notifier }));
        Ok(Self { threads, wake, totals, recorded, rank, world })
    }

    #[getter]
    fn rank(&self) -> u16 {
        self.rank
    }

    #[getter]
    fn world(&self) -> u16 {
        self.world
    }

    /// The sum over all ranks, for all; in place.
    fn all_reduce(&self, tensor: &Bound<'_, PyAny>, options: OperationOptions) -> PyResult<Work> {
        let tensor = Tensor::import(tensor, "tensor")?.into_numbers()?;
        self.start(Collective::AllReduce { tensor }, options)
    }

    /// A shard of the sum for each rank.
    fn reduce_scatter(
        &self,
        input: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        options: OperationOptions,
    ) -> PyResult<Work> {
        let (input, output) = (Tensor::import(input, "input")?, Tensor::import(output, "output")?);
        let (input, output) = (input.into_numbers()?, output.into_numbers()?);
        self.start(Collective::ReduceScatter { input, output }, options)
    }

    /// Every rank's shard, for all.
    fn all_gather(
        &self,
        input: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        options: OperationOptions,
    ) -> PyResult<Work> {
        let (input, output) = (Tensor::import(input, "input")?, Tensor::import(output, "output")?);
        let (input, output) = (input.into_memory(options.exact)?, output.into_memory(options.exact)?);
        self.start(Collective::AllGather { input, output }, options)
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

    /// Totals since the beginning.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        let Totals { operations, failed, packets, cut, missing, sent, repaired, bytes_sent, busy_ns, .. } =
            &*self.totals;
        for (name, total) in [
            ("operations", operations),
            ("failed", failed),
            ("packets_received", packets),
            ("packets_cut", cut),
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

    /// Seconds that each of the latest operations took that may be cut, oldest first.
    fn durations(&self) -> Vec<f64> {
        lock(&self.totals.lossy_ns).iter().map(|&took| took as f64 / 1e9).collect()
    }

    /// Of a transcript that has ended: records in it, its bytes, records that are not in it, and why it ends early.
    fn recorded(&self) -> Option<(u64, u64, u64, Option<String>)> {
        let Written { records, bytes, lost, error, .. } = lock(&self.recorded).clone()?;
        Some((records, bytes, lost, error))
    }

    /// Gives up what is under way, and ends.
    fn close(&self, py: Python<'_>) {
        let threads = lock(&self.threads).take();
        let Some(Threads { commands, network, notifier }) = threads else { return };
        let _ = commands.send(Command::Stop);
        self.wake.wake();
        py.detach(|| {
            let _ = network.join();
            let _ = notifier.join();
        });
    }
}

impl Group {
    fn start(&self, collective: Collective, options: OperationOptions) -> PyResult<Work> {
        let most = trimwire_encoder::PLANES;
        if !(1..=most).contains(&options.planes) {
            let text = format!("planes: {}; valid are 1 to {most}", options.planes);
            return Err(PyValueError::new_err(text));
        }
        let threads = lock(&self.threads);
        let threads = threads.as_ref().ok_or_else(|| PyRuntimeError::new_err("the group is closed"))?;
        let state = Arc::new(State { lossy: !options.exact, ..State::default() });
        let collective = Box::new(collective);
        let command = Command::Start { collective, options: options.try_into()?, state: Arc::clone(&state) };
        threads
            .commands
            .send(command)
            .map_err(|_| PyRuntimeError::new_err("the network's thread has ended"))?;
        self.wake.wake();
        Ok(Work { state })
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

/// An operation under way.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Work {
    state: Arc<State>,
}

/// A wait is interrupted so often to see whether the user has pressed Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(200);

#[pymethods]
impl Work {
    /// Whether it is over, well or not.
    fn done(&self) -> bool {
        lock(&self.state.ending).is_some()
    }

    /// Waits until it is over, at most `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    #[expect(clippy::disallowed_methods, reason = "Python waits in real time")]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let end = match timeout {
            Some(timeout) => Some(Instant::now() + Duration::from_nanos(seconds(timeout, "timeout")?)),
            None => None,
        };
        loop {
            let ending = py.detach(|| {
                let left =
                    end.map_or(SIGNALS, |end| end.saturating_duration_since(Instant::now()).min(SIGNALS));
                let ending = lock(&self.state.ending);
                let waited = self.state.ended.wait_timeout_while(ending, left, |ending| ending.is_none());
                waited.unwrap_or_else(PoisonError::into_inner).0.clone()
            });
            if let Some(Ending { error, .. }) = ending {
                return error.map_or(Ok(()), |error| Err(TransportError::new_err(error)));
            }
            py.check_signals()?;
            if end.is_some_and(|end| end <= Instant::now()) {
                let text = format!("not over after {} s; it goes on", timeout.unwrap_or_default());
                return Err(PyTimeoutError::new_err(text));
            }
        }
    }

    /// Why it failed; `None` where it did not, or is not over.
    fn error(&self) -> Option<String> {
        lock(&self.state.ending).as_ref()?.error.clone()
    }

    /// How its packets fared, once it is over.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(Ending { stats, ended_ns, duration_ns, .. }) = lock(&self.state.ending).clone() else {
            return Ok(None);
        };
        let dict = PyDict::new(py);
        for (name, value) in [
            ("packets_received", stats.packets),
            ("packets_cut", stats.cut),
            ("packets_missing", stats.missing),
            ("packets_sent", stats.sent),
            ("packets_repaired", stats.repaired),
            ("bytes_sent", stats.bytes_sent),
            ("bytes_expected", stats.bytes_expected),
            ("bytes_received", stats.bytes_received),
        ] {
            dict.set_item(name, value)?;
        }
        dict.set_item("began", ended_ns.saturating_sub(duration_ns) as f64 / 1e9)?;
        dict.set_item("ended", ended_ns as f64 / 1e9)?;
        dict.set_item("seconds", duration_ns as f64 / 1e9)?;
        Ok(Some(dict))
    }

    /// Calls `callback` when it is over, on a thread of its own; at once where it is.
    fn then(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let ending = lock(&self.state.ending);
        if ending.is_none() {
            *lock(&self.state.callback) = Some(callback);
            return Ok(());
        }
        drop(ending);
        callback.call0(py).map(drop)
    }
}
