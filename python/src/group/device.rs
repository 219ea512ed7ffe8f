// SPDX-License-Identifier: Apache-2.0
//! Tensors of a device: what is to be done to their rows is said to a thread of Python's, which
//! launches kernels, and says when they are done.

use super::locks::lock;
use crate::dlpack::Tensor;
use crate::pinned::{Part, Pinned};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trimwire_agent::collective::{self, ElementType, Memory, Offloaded};
use trimwire_agent::driver::delegate::Return;
use trimwire_encoder::{DEFAULT_ROW_LOG2, RowMemory};

/// The packets of one operation at a time, in memory that a device copies from and to.
#[derive(Debug)]
struct Packets {
    memory: Arc<Pinned>,
    /// Where the packets of a shard begin that come from a rank.
    places: BTreeMap<(u16, u16), usize>,
    /// Why its operation failed, if the device knows.
    cause: Mutex<Option<String>>,
}

impl collective::Device for Packets {
    fn place(&self, shard: u16, from: u16, offset: usize, length: usize) -> Box<dyn RowMemory> {
        let start = self.places.get(&(shard, from)).map(|base| base + offset);
        let part = start.and_then(|start| self.memory.lend(start..start + length));
        match part {
            Some(part) => Box::new(part),
            // Of which the device cannot read anything: it says so, when it is to.
            None => Box::new(vec![0; length]),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What a device's thread said of an operation's tensors, if they are a device's.
pub(super) fn take_cause(memory: &Memory) -> Option<String> {
    let packets = memory.device()?.as_any().downcast_ref::<Packets>()?;
    lock(&packets.cause).take()
}

/// Memory for the packets of one operation at a time.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Desk(Arc<Packets>);

#[pymethods]
impl Desk {
    /// `memory`: bytes of the host, into which packets of (shard, rank) are received from byte
    /// `offset` on, for every `(shard, rank, offset)` of `places`.
    #[new]
    fn new(memory: &Bound<'_, PyAny>, places: Vec<(u16, u16, usize)>) -> PyResult<Self> {
        let memory = Pinned::new(Tensor::import(memory, "memory")?)?;
        let places = places.into_iter().map(|(shard, rank, offset)| ((shard, rank), offset)).collect();
        Ok(Self(Arc::new(Packets { memory, places, cause: Mutex::default() })))
    }

    /// Whether nothing is received into its memory any more, and nothing sent from it.
    fn idle(&self) -> bool {
        self.0.memory.is_idle()
    }

    /// Which one it is: `Row.desk` of its rows.
    #[getter]
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

/// A tensor of a device, which is not touched here.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Elsewhere {
    packets: Arc<Packets>,
    length: usize,
    element: ElementType,
}

#[pymethods]
impl Elsewhere {
    /// `length` elements of type `element`: 'float32', 'float16' or 'bfloat16'.
    #[new]
    fn new(desk: &Desk, length: usize, element: &str) -> PyResult<Self> {
        let element = match element {
            "float32" => ElementType::F32,
            "float16" => ElementType::F16,
            "bfloat16" => ElementType::Bf16,
            other => {
                let text = format!("element is '{other}'; valid are 'float32', 'float16', 'bfloat16'");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(Self { packets: Arc::clone(&desk.0), length, element })
    }
}

impl Elsewhere {
    pub(super) fn memory(&self) -> Memory {
        let desk: Arc<dyn collective::Device> = Arc::clone(&self.packets) as Arc<_>;
        Memory::elsewhere(self.length, self.element, desk)
    }
}

/// Two tensors of one operation share their desk, which is told by its address.
pub(super) fn memories(input: &Elsewhere, output: &Elsewhere) -> (Memory, Memory) {
    let desk: Arc<dyn collective::Device> = Arc::clone(&input.packets) as Arc<_>;
    let own = if Arc::ptr_eq(&input.packets, &output.packets) {
        Arc::clone(&desk)
    } else {
        Arc::clone(&output.packets) as Arc<_>
    };
    let input = Memory::elsewhere(input.length, input.element, desk);
    (input, Memory::elsewhere(output.length, output.element, own))
}

/// Rows of a group that a device is to work on.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Rows {
    pub(super) queue: Mutex<Receiver<(Offloaded, Return)>>,
}

/// A wait is interrupted so often to see whether it is worth going on.
const LOOK: Duration = Duration::from_millis(200);

#[pymethods]
impl Rows {
    /// Waits for rows, and gives all that are there, perhaps none; `None`: the group has ended.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Vec<Row>>> {
        let taken = py.detach(|| {
            let queue = lock(&self.queue);
            let first = match queue.recv_timeout(LOOK) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            Some(first.into_iter().chain(std::iter::from_fn(|| queue.try_recv().ok())).collect::<Vec<_>>())
        });
        let Some(taken) = taken else { return Ok(None) };
        Ok(Some(taken.into_iter().filter_map(|(work, back)| Row::new(work, back)).collect()))
    }
}

/// What a rank sent of a row: the rank, its message, where its packets begin in the desk's memory,
/// and how many bytes of each count.
type Contribution = (u16, u32, usize, Vec<i32>);

/// A row that a device is to work on. Dropped unfinished it fails.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Row {
    work: Mutex<Option<Offloaded>>,
    back: Return,
    desk: usize,
    contributions: Vec<Contribution>,
}

fn packets(work: &Offloaded) -> Option<&Packets> {
    work.device().as_any().downcast_ref()
}

impl Row {
    /// `None` where it failed at once.
    fn new(work: Offloaded, back: Return) -> Option<Self> {
        let found = || -> Option<(usize, Vec<Contribution>)> {
            let packets = packets(&work)?;
            let contribution = |(rank, row): (u16, &trimwire_encoder::RowReceiver)| {
                let (bytes, lengths) = row.kept()?;
                let offset = packets.memory.offset_of(bytes)?;
                let lengths = lengths.into_iter().map(|length| length as i32).collect();
                Some((rank, row.envelope().message, offset, lengths))
            };
            let contributions = work.contributions().map(contribution).collect::<Option<Vec<_>>>()?;
            Some((std::ptr::from_ref(packets) as usize, contributions))
        };
        let Some((desk, contributions)) = found() else {
            let row = Self { work: Mutex::new(Some(work)), back, desk: 0, contributions: vec![] };
            row.end_badly("packets came for which the desk has no place");
            return None;
        };
        Some(Self { work: Mutex::new(Some(work)), back, desk, contributions })
    }

    fn end_badly(&self, why: &str) {
        let Some(work) = lock(&self.work).take() else { return };
        if let Some(packets) = packets(&work) {
            lock(&packets.cause).get_or_insert_with(|| why.to_owned());
        }
        self.back.bring(work.fail());
    }

    fn told<T>(&self, what: impl FnOnce(&Offloaded) -> T) -> PyResult<T> {
        let work = lock(&self.work);
        work.as_ref().map(what).ok_or_else(|| PyRuntimeError::new_err("the row is finished already"))
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        self.end_badly("nobody worked on a row");
    }
}

#[pymethods]
impl Row {
    /// `Desk.id` of its operation's desk.
    #[getter]
    fn desk(&self) -> usize {
        self.desk
    }

    #[getter]
    fn shard(&self) -> PyResult<u16> {
        self.told(Offloaded::shard)
    }

    /// Its number in the shard.
    #[getter]
    fn row(&self) -> PyResult<usize> {
        self.told(Offloaded::row)
    }

    /// Whether this rank's part is among what is summed.
    #[getter]
    fn own(&self) -> PyResult<bool> {
        self.told(|work| work.own().is_some())
    }

    /// Whether something is written.
    #[getter]
    fn write(&self) -> PyResult<bool> {
        self.told(|work| work.write().is_some())
    }

    /// Of each rank that sent something of it, ascending: the rank, its message, and where its
    /// packets begin in the desk's memory.
    #[getter]
    fn contributions(&self) -> Vec<(u16, u32, usize)> {
        self.contributions.iter().map(|&(rank, message, offset, _)| (rank, message, offset)).collect()
    }

    /// What the sum is multiplied by.
    #[getter]
    fn scale(&self) -> PyResult<Option<f32>> {
        self.told(Offloaded::scale)
    }

    /// How the sum is encoded that is sent: message, planes, the energy per coordinate from which
    /// on it is important, whether what its packets say is written.
    #[getter]
    fn encode(&self) -> PyResult<Option<(u32, u8, f64, bool)>> {
        let encode = self.told(Offloaded::encode)?;
        Ok(encode.map(|encode| (encode.message, encode.planes, encode.important_from, encode.keeps)))
    }

    /// Whether zeros are written as +0.
    #[getter]
    fn positive_zeros(&self) -> PyResult<bool> {
        self.told(Offloaded::positive_zeros)
    }

    /// It is done; of a row that is sent, its packets are `length` bytes of the desk's memory from
    /// `offset` on, and its energy per coordinate is `figure`.
    #[pyo3(signature = (offset = None, length = 0, figure = 0.0))]
    fn finish(&self, py: Python<'_>, offset: Option<usize>, length: usize, figure: f64) -> PyResult<()> {
        let part = match offset {
            None => None,
            Some(offset) => {
                let part = self.told(|work| packets(work)?.memory.lend(offset..offset + length))?;
                Some(part.ok_or_else(|| {
                    let end = offset + length;
                    PyValueError::new_err(format!(
                        "bytes {offset} to {end} of the desk are lent, or not there"
                    ))
                })?)
            }
        };
        // Sealing takes a pass over its bytes, and masking one over its headers.
        py.detach(|| {
            let sent = part.map(|part: Part| (Box::new(part) as Box<dyn RowMemory>, figure));
            if let Some(work) = lock(&self.work).take() {
                self.back.bring(work.finish(sent));
            }
        });
        Ok(())
    }

    /// It was not done, and its operation fails. `why` is part of its error.
    fn fail(&self, why: &str) {
        self.end_badly(why);
    }

    /// How many bytes of each packet of `contributions[nth]` count, 0 where it is lost: 32-bit
    /// integers of this machine.
    fn lengths<'py>(&self, py: Python<'py>, nth: usize) -> Option<Bound<'py, PyBytes>> {
        let (_, _, _, lengths) = self.contributions.get(nth)?;
        Some(PyBytes::new(py, &lengths.iter().flat_map(|length| length.to_ne_bytes()).collect::<Vec<_>>()))
    }
}

/// Begins and ends of the shards of an all-reduce that goes directly, by owner: rank k has the
/// k-th.
#[pyfunction]
pub(crate) fn direct_shards(length: usize, world: u16) -> Vec<(usize, usize)> {
    let shards = collective::direct_shards(length, world);
    shards.into_iter().map(|range| (range.start, range.end)).collect()
}

/// Begins and ends of what is each channel's of a shard, which messages call
/// `shard * channels + channel`.
#[pyfunction]
pub(crate) fn channel_parts(shard: u16, length: usize, channels: u16) -> Vec<(usize, usize)> {
    let parts = collective::channel_parts(shard, length, channels.max(1), 1 << DEFAULT_ROW_LOG2);
    parts.into_iter().map(|range| (range.start, range.end)).collect()
}
