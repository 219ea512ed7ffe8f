// SPDX-License-Identifier: Apache-2.0
//! Tensors of whatever library, without a copy: the structures of DLPack 0.x
//! (github.com/dmlc/dlpack, include/dlpack/dlpack.h).

use half::{bf16, f16};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use trimwire_agent::collective::{ElementType, Memory};

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct RawTensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    element: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: RawTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// kDLCPU and kDLCUDAHost, which is memory of the host, too.
const HOST: [i32; 2] = [1, 3];
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;

const FRESH: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";

/// A tensor that its library keeps alive and in its place as long as this exists.
pub(crate) struct Tensor {
    managed: NonNull<Managed>,
    name: &'static str,
    elements: usize,
}

// SAFETY: what is shared are an address and a way to free it, which DLPack requires to work on any
// thread; values are read and written by the rules of `Memory`.
unsafe impl Send for Tensor {}
// SAFETY: as above; nothing changes through a shared reference.
unsafe impl Sync for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the structure is ours since its capsule was renamed, and is given back once.
        unsafe {
            if let Some(deleter) = self.managed.as_ref().deleter {
                deleter(self.managed.as_ptr());
            }
        }
    }
}

impl Tensor {
    /// Of an array or tensor that has `__dlpack__`: in the host's memory and contiguous. `name` is
    /// the argument's, for errors.
    pub(crate) fn import(object: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Self> {
        let py = object.py();
        let wrong = |error: PyErr| {
            let text = format!("{name}: not an array or tensor in the host's memory: {}", error.value(py));
            PyTypeError::new_err(text)
        };
        let capsule = object.call_method0("__dlpack__").map_err(wrong)?;
        // SAFETY: a live object; the name is looked at before the pointer is taken, and renaming
        // makes the structure ours.
        let managed = unsafe {
            let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), FRESH.as_ptr());
            let Some(managed) = NonNull::new(pointer.cast::<Managed>()) else {
                return Err(wrong(PyErr::fetch(py)));
            };
            if ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) != 0 {
                return Err(PyErr::fetch(py));
            }
            managed
        };
        let mut this = Self { managed, name, elements: 0 };
        this.elements = this.count()?;
        Ok(this)
    }

    fn raw(&self) -> &RawTensor {
        // SAFETY: valid until the deleter is called.
        unsafe { &self.managed.as_ref().tensor }
    }

    /// Elements, of a tensor that is contiguous and in the host's memory.
    fn count(&self) -> PyResult<usize> {
        let (raw, name) = (self.raw(), self.name);
        if !HOST.contains(&raw.device.kind) {
            let text = format!("{name}: in the memory of a device, not in the host's: .cpu() copies it");
            return Err(PyValueError::new_err(text));
        }
        let dimensions = usize::try_from(raw.dimensions).unwrap_or(0);
        let axis = |array: *mut i64, at: usize| {
            // SAFETY: `dimensions` long, as DLPack says.
            (!array.is_null()).then(|| unsafe { *array.add(at) })
        };
        let mut elements = 1_i64;
        for at in (0..dimensions).rev() {
            let extent = axis(raw.shape, at).unwrap_or(0);
            let stride = axis(raw.strides, at).unwrap_or(elements);
            if extent > 1 && stride != elements {
                return Err(PyValueError::new_err(format!(
                    "{name}: not contiguous: .contiguous() copies it"
                )));
            }
            elements = elements.saturating_mul(extent);
        }
        usize::try_from(elements).map_err(|_| PyValueError::new_err(format!("{name}: of negative size")))
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.elements
    }

    fn bytes(&self) -> usize {
        let element = &self.raw().element;
        self.elements * (usize::from(element.bits) * usize::from(element.lanes.max(1))).div_ceil(8)
    }

    fn address(&self) -> *mut u8 {
        let raw = self.raw();
        // Of an empty tensor it may be anything.
        raw.data.cast::<u8>().wrapping_add(raw.byte_offset as usize)
    }

    /// Its number format, if it is one that can be summed.
    fn element(&self) -> PyResult<ElementType> {
        let element = &self.raw().element;
        match (element.code, element.bits, element.lanes) {
            (FLOAT, 32, 1) => Ok(ElementType::F32),
            (FLOAT, 16, 1) => Ok(ElementType::F16),
            (BFLOAT, 16, 1) => Ok(ElementType::Bf16),
            (code, bits, _) => {
                let kind = match code {
                    0 => "int",
                    1 => "uint",
                    2 => "float",
                    4 => "bfloat",
                    6 => "bool",
                    _ => "a type of ",
                };
                let text = format!("{}: {kind}{bits}; float32, float16 and bfloat16 are possible", self.name);
                Err(PyTypeError::new_err(text))
            }
        }
    }

    /// Where its bytes are, and how many.
    pub(crate) fn raw_bytes(&self) -> PyResult<(NonNull<u8>, usize)> {
        Ok((self.aligned::<u8>()?, self.bytes()))
    }

    fn aligned<T>(&self) -> PyResult<NonNull<T>> {
        if self.elements == 0 {
            return Ok(NonNull::dangling());
        }
        let address = self.address().cast::<T>();
        let aligned = NonNull::new(address).filter(|address| address.is_aligned());
        aligned.ok_or_else(|| PyValueError::new_err(format!("{}: not aligned to its elements", self.name)))
    }

    /// As memory of a collective that sums.
    pub(crate) fn into_numbers(self) -> PyResult<Memory> {
        let (element, length) = (self.element()?, self.elements);
        let address = match element {
            ElementType::F32 => self.aligned::<f32>()?.cast(),
            ElementType::F16 | ElementType::Bf16 => self.aligned::<u16>()?.cast(),
        };
        // SAFETY: the library's tensor of that many elements, kept by `self`; that nobody uses it
        // meanwhile is the callers' contract, as with every asynchronous collective.
        Ok(unsafe { Memory::from_raw(address, length, element, Box::new(self)) })
    }

    /// As memory of a collective that moves every bit: words of four bytes.
    pub(crate) fn into_words(self) -> PyResult<Memory> {
        let bytes = self.bytes();
        if !bytes.is_multiple_of(4) {
            let text = format!("{}: {bytes} bytes; exact collectives move multiples of 4", self.name);
            return Err(PyValueError::new_err(text));
        }
        let address = self.aligned::<f32>()?.cast();
        // SAFETY: as above; every four bytes are some f32.
        Ok(unsafe { Memory::from_raw(address, bytes / 4, ElementType::F32, Box::new(self)) })
    }

    /// As memory of a collective that moves values, or every bit of them.
    pub(crate) fn into_memory(self, exact: bool) -> PyResult<Memory> {
        if exact { self.into_words() } else { self.into_numbers() }
    }

    /// Its values, to read.
    pub(crate) fn values(&self) -> PyResult<Values<'_>> {
        let length = self.elements;
        // SAFETY: initialised elements of that type, aligned, kept by `self`.
        Ok(unsafe {
            match self.element()? {
                ElementType::F32 => {
                    Values::F32(std::slice::from_raw_parts(self.aligned::<f32>()?.as_ptr(), length))
                }
                ElementType::F16 => {
                    Values::F16(std::slice::from_raw_parts(self.aligned::<f16>()?.as_ptr(), length))
                }
                ElementType::Bf16 => {
                    Values::Bf16(std::slice::from_raw_parts(self.aligned::<bf16>()?.as_ptr(), length))
                }
            }
        })
    }

    /// Its values, to write: f32s that the caller has just made, and nobody else knows.
    pub(crate) fn values_mut(&mut self) -> PyResult<&mut [f32]> {
        match self.element()? {
            // SAFETY: as above, and nobody else has it.
            ElementType::F32 => {
                Ok(unsafe { std::slice::from_raw_parts_mut(self.aligned::<f32>()?.as_ptr(), self.elements) })
            }
            other => Err(PyTypeError::new_err(format!("{}: {other} instead of f32", self.name))),
        }
    }
}

/// A tensor's values.
#[derive(Clone, Copy)]
pub(crate) enum Values<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}
