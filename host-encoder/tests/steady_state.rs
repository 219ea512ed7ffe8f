// SPDX-License-Identifier: Apache-2.0
//! Encoding and decoding do not allocate once their buffers have grown.

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;
use trimwire_encoder::{Codec, Decoder, Decoding, Encoder, Envelope, Job, Layout, Message, StreamId, Tensor};

/// The system's allocator, counting what the calling thread asks for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + memory.size() as u64));
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn a_second_message_of_the_same_size_allocates_nothing() {
    let gradient: Vec<f32> =
        (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 - 8e6).collect();
    let job = Job::new(1);
    let envelope = Envelope { stream: StreamId::new(0, 0).unwrap(), message: 1 };
    for codec in Codec::ALL {
        let layout =
            Layout::new(gradient.len(), codec.coordinates_per_packet(1500, codec.planes(), false)).unwrap();
        let encoder = Encoder::new(layout.clone(), job).with_codec(codec);
        let mut message = Message::default();
        let mut decoder = Decoder::new(layout.clone(), job, envelope, Decoding::Unbiased).with_codec(codec);
        let mut sum = vec![0.0; gradient.len()];
        let mut transfer = || {
            encoder.encode(&gradient, envelope, codec.planes(), &mut message).unwrap();
            decoder.reset(envelope);
            for index in 0..message.packets() {
                let packet = message.packet(index);
                decoder.receive(&packet[..packet.len() / (1 + index % 3)]).unwrap();
            }
            decoder.add_into(&mut sum).unwrap();
        };
        assert!(allocations(&mut transfer) > 0, "the counter counts");
        assert_eq!(allocations(&mut transfer), 0, "{codec}");
    }
}

/// A receiver's memory follows what arrived, not the longest row: thousands of small tensors must
/// not cost a full row each.
#[test]
fn short_rows_take_no_more_memory_than_they_need() {
    let tensors: Vec<Tensor> = std::iter::once(32_768)
        .chain(std::iter::repeat_n(64, 500))
        .map(|coordinates| Tensor { coordinates, layer_class: 0 })
        .collect();
    let layout = Layout::of_tensors(&tensors, 448).unwrap();
    let envelope = Envelope { stream: StreamId::new(0, 0).unwrap(), message: 1 };
    let mut message = Message::default();
    let gradient = vec![1.0f32; layout.coordinates()];
    Encoder::new(layout.clone(), Job::new(1)).encode(&gradient, envelope, 10, &mut message).unwrap();
    let mut decoder = Decoder::new(layout.clone(), Job::new(1), envelope, Decoding::Unbiased);
    let before = BYTES.get();
    for index in 0..message.packets() {
        decoder.receive(message.packet(index)).unwrap();
    }
    let bytes = BYTES.get() - before;
    let words = 4 * layout.padded_coordinates() as u64;
    assert!((words..2 * words).contains(&bytes), "{bytes} bytes for words of {words}");
}
