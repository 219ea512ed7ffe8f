// SPDX-License-Identifier: Apache-2.0
//! The memory that a collective works on, in place, row by row and on several threads: each piece
//! of work leases its row.
//!
//! Rows of one tensor are read, summed and overwritten by different threads at once, which the
//! borrow checker cannot follow; a [`Lease`] can: memory counts what is leased and refuses a lease
//! that another one forbids, so a mistake in the plan of an operation is a row that waits, never a
//! race. The only unsafe code of the collectives is here.

use super::device::Device;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trimwire_encoder::Element;

/// A number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of an f32.
    Bf16,
}

impl ElementType {
    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl std::fmt::Display for ElementType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

/// What [`Memory`] is made of.
pub trait Number: Element + 'static {
    /// Its format.
    const TYPE: ElementType;

    /// The bits of elements of 16 bits; none of others.
    #[doc(hidden)]
    fn halves(_: &[Self]) -> &[u16] {
        &[]
    }

    /// The same, to be written.
    #[doc(hidden)]
    fn halves_mut(_: &mut [Self]) -> &mut [u16] {
        &mut []
    }
}

impl Number for f32 {
    const TYPE: ElementType = ElementType::F32;
}

impl Number for f16 {
    const TYPE: ElementType = ElementType::F16;

    fn halves(values: &[Self]) -> &[u16] {
        values.reinterpret_cast()
    }

    fn halves_mut(values: &mut [Self]) -> &mut [u16] {
        values.reinterpret_cast_mut()
    }
}

impl Number for bf16 {
    const TYPE: ElementType = ElementType::Bf16;

    fn halves(values: &[Self]) -> &[u16] {
        values.reinterpret_cast()
    }

    fn halves_mut(values: &mut [Self]) -> &mut [u16] {
        values.reinterpret_cast_mut()
    }
}

/// Who frees it.
enum Owner {
    /// A vector's buffer; `free` makes it a vector again and drops that.
    Vector { capacity: usize, free: unsafe fn(NonNull<u8>, usize, usize) },
    /// Somebody else, who keeps it alive as long as this is.
    Foreign { _keeper: Box<dyn Any + Send + Sync> },
    /// It is not in this process' memory: nothing is read or written here.
    Elsewhere(Arc<dyn Device>),
}

/// A lease that is out.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    range: Range<usize>,
    write: bool,
}

struct Shared {
    address: NonNull<u8>,
    length: usize,
    element: ElementType,
    held: Mutex<Vec<Held>>,
    owner: Owner,
}

// SAFETY: what `address` points to is only touched through leases, of which no two that overlap are
// out at once unless both only read.
unsafe impl Send for Shared {}
// SAFETY: as above; everything else is immutable or behind the lock.
unsafe impl Sync for Shared {}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> Option<&Arc<dyn Device>> {
        if let Owner::Elsewhere(device) = &self.owner { Some(device) } else { None }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Owner::Vector { capacity, free } = self.owner {
            // SAFETY: address, length and capacity are those of the vector that `from_vec` took
            // apart, and nobody else has them: leases keep `Shared` alive.
            unsafe { free(self.address, self.length, capacity) }
        }
    }
}

/// A tensor's elements, or a part of them: shape [`Self::len`].
pub struct Memory(Arc<Shared>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} × {})", self.0.length, self.0.element)
    }
}

unsafe fn free_vector<E>(address: NonNull<u8>, length: usize, capacity: usize) {
    // SAFETY: the caller's.
    drop(unsafe { Vec::from_raw_parts(address.cast::<E>().as_ptr(), length, capacity) });
}

impl Memory {
    /// A vector's elements, which [`Self::into_vec`] gives back.
    pub fn from_vec<E: Number>(vector: Vec<E>) -> Self {
        let mut vector = ManuallyDrop::new(vector);
        let address = NonNull::new(vector.as_mut_ptr().cast::<u8>()).unwrap_or(NonNull::dangling());
        let owner = Owner::Vector { capacity: vector.capacity(), free: free_vector::<E> };
        Self(Arc::new(Shared {
            address,
            length: vector.len(),
            element: E::TYPE,
            held: Mutex::default(),
            owner,
        }))
    }

    /// Memory of somebody else: a tensor of a training framework.
    ///
    /// # Safety
    /// `address` points to `length` initialised elements of that type, aligned for it, which stay
    /// where they are while `keeper` exists, and which nobody else writes, or reads while they may
    /// be written, before the operation that gets this memory has ended.
    pub unsafe fn from_raw(
        address: NonNull<u8>,
        length: usize,
        element: ElementType,
        keeper: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self(Arc::new(Shared {
            address,
            length,
            element,
            held: Mutex::default(),
            owner: Owner::Foreign { _keeper: keeper },
        }))
    }

    /// Memory of a device, whose rows others code ([`super::Task::offload`]).
    pub fn elsewhere(length: usize, element: ElementType, device: Arc<dyn Device>) -> Self {
        // Aligned for any element.
        let address = NonNull::<u64>::dangling().cast();
        let (held, owner) = (Mutex::default(), Owner::Elsewhere(device));
        Self(Arc::new(Shared { address, length, element, held, owner }))
    }

    /// The same memory, for another channel of an operation. Whoever has the first gets its vector
    /// back once the others are gone.
    pub(crate) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Who has it, where it is elsewhere.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.0.device()
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// Their format.
    pub fn element(&self) -> ElementType {
        self.0.element
    }

    /// The vector that it was made from.
    ///
    /// # Errors
    /// The memory itself, where it is of another type, was never a vector, or is leased.
    pub fn into_vec<E: Number>(self) -> Result<Vec<E>, Self> {
        if E::TYPE != self.0.element || !matches!(self.0.owner, Owner::Vector { .. }) {
            return Err(self);
        }
        let shared = ManuallyDrop::new(Arc::try_unwrap(self.0).map_err(Self)?);
        drop(std::mem::take(&mut *shared.held()));
        let Owner::Vector { capacity, .. } = shared.owner else { return Ok(Vec::new()) };
        // SAFETY: these are the parts of a vector of this type, which `Shared`, never dropped, does
        // not free. What else it owned has just been taken.
        Ok(unsafe { Vec::from_raw_parts(shared.address.cast::<E>().as_ptr(), shared.length, capacity) })
    }

    /// The values as f32, copied; none of memory that is elsewhere.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = Vec::new();
        if let Some(lease) = self.lease(0..self.len(), false) {
            let widened = match lease.view() {
                View::F32(all) => all.to_vec(),
                View::F16(all) => f16::widen(all, &mut values).to_vec(),
                View::Bf16(all) => bf16::widen(all, &mut values).to_vec(),
            };
            return widened;
        }
        values
    }

    /// A part of it, to read or to write. `None` where it is out of bounds, or another lease
    /// forbids it.
    pub(super) fn lease(&self, range: Range<usize>, write: bool) -> Option<Lease> {
        if range.start > range.end || range.end > self.0.length {
            return None;
        }
        let mut held = self.0.held();
        let overlaps = |other: &Held| other.range.start < range.end && range.start < other.range.end;
        if held.iter().any(|other| overlaps(other) && (write || other.write)) {
            return None;
        }
        held.push(Held { range: range.clone(), write });
        drop(held);
        Some(Lease { shared: Arc::clone(&self.0), range, write })
    }
}

/// A part of some memory that is leased, until this is dropped.
pub(super) struct Lease {
    shared: Arc<Shared>,
    range: Range<usize>,
    write: bool,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", if self.write { "write" } else { "read" }, self.range)
    }
}

/// Leased elements.
pub(super) enum View<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

/// Leased elements that may be written.
pub(super) enum ViewMut<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [f16]),
    Bf16(&'a mut [bf16]),
}

impl Lease {
    fn start<E>(&self) -> *mut E {
        let start = if self.device().is_none() { self.range.start } else { 0 };
        // SAFETY: `range` lies within the memory, whose elements are of this type (the caller looks
        // at `element`); of what is elsewhere the address points to nothing, and stays.
        unsafe { self.shared.address.cast::<E>().as_ptr().add(start) }
    }

    /// Elements of the memory.
    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Who has the memory, where it is elsewhere.
    pub(super) fn device(&self) -> Option<&Arc<dyn Device>> {
        self.shared.device()
    }

    /// To read; nothing of memory that is elsewhere.
    pub(super) fn view(&self) -> View<'_> {
        let length = if self.device().is_none() { self.range.len() } else { 0 };
        // SAFETY: initialised elements of that type, within bounds, and no lease to write them is
        // out but, perhaps, this one, which is borrowed.
        unsafe {
            match self.shared.element {
                ElementType::F32 => View::F32(std::slice::from_raw_parts(self.start(), length)),
                ElementType::F16 => View::F16(std::slice::from_raw_parts(self.start(), length)),
                ElementType::Bf16 => View::Bf16(std::slice::from_raw_parts(self.start(), length)),
            }
        }
    }

    /// To write; nothing of a lease to read, or of memory that is elsewhere.
    pub(super) fn view_mut(&mut self) -> ViewMut<'_> {
        let length = if self.write && self.device().is_none() { self.range.len() } else { 0 };
        // SAFETY: initialised elements of that type, within bounds, and no other lease of them is
        // out.
        unsafe {
            match self.shared.element {
                ElementType::F32 => ViewMut::F32(std::slice::from_raw_parts_mut(self.start(), length)),
                ElementType::F16 => ViewMut::F16(std::slice::from_raw_parts_mut(self.start(), length)),
                ElementType::Bf16 => ViewMut::Bf16(std::slice::from_raw_parts_mut(self.start(), length)),
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut held = self.shared.held();
        if let Some(at) = held.iter().position(|other| other.write == self.write && other.range == self.range)
        {
            held.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_as_it_was_given_but_not_while_a_part_is_leased() {
        let mut vector = Vec::with_capacity(40);
        vector.extend([1.0_f32, 2.0, 3.0]);
        let (address, capacity) = (vector.as_ptr(), vector.capacity());
        let memory = Memory::from_vec(vector);
        let memory = memory.into_vec::<f16>().expect_err("another type");
        let lease = memory.lease(0..2, true).expect("free");
        let memory = memory.into_vec::<f32>().expect_err("leased");
        drop(lease);
        let vector = memory.into_vec::<f32>().expect("free again");
        assert_eq!(
            (vector.as_ptr(), vector.capacity(), &vector[..]),
            (address, capacity, &[1.0, 2.0, 3.0][..])
        );
    }

    #[test]
    fn leases_that_overlap_only_read() {
        let memory = Memory::from_vec(vec![bf16::from_f32(1.0); 100]);
        let reading = memory.lease(10..20, false).expect("free");
        assert!(memory.lease(15..30, false).is_some());
        assert!(memory.lease(19..30, true).is_none());
        let mut writing = memory.lease(20..30, true).expect("a neighbour");
        assert!(memory.lease(29..40, false).is_none() && memory.lease(5..11, true).is_none());
        let ViewMut::Bf16(values) = writing.view_mut() else { panic!("another type") };
        values.fill(bf16::from_f32(2.0));
        drop((reading, writing));
        assert_eq!(memory.to_f32().iter().sum::<f32>(), 110.0);
        assert!(memory.lease(0..100, true).is_some());
    }

    #[test]
    fn nothing_beyond_the_end_is_leased_and_nothing_is_written_through_a_lease_to_read() {
        let memory = Memory::from_vec(vec![0.0_f32; 8]);
        assert!(memory.lease(0..9, false).is_none());
        assert!(memory.lease(8..8, true).is_some());
        let mut reading = memory.lease(0..8, false).expect("free");
        assert!(matches!(reading.view_mut(), ViewMut::F32([])));
    }

    #[test]
    fn threads_that_lease_disjoint_rows_write_them_all() {
        let memory = Memory::from_vec(vec![0.0_f32; 64_000]);
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let memory = &memory;
                scope.spawn(move || {
                    for row in (thread..64).step_by(4) {
                        let mut lease = memory.lease(row * 1_000..(row + 1) * 1_000, true).expect("disjoint");
                        let ViewMut::F32(values) = lease.view_mut() else { panic!("another type") };
                        values.fill(row as f32);
                    }
                });
            }
        });
        let values = memory.into_vec::<f32>().expect("free");
        assert!(values.iter().enumerate().all(|(i, &value)| value == (i / 1_000) as f32));
    }
}
