// SPDX-License-Identifier: Apache-2.0
//! Files of records: whatever happens to them.

use super::*;
use crate::wire::trim_map::{FULL, MAX_PACKETS};
use proptest::prelude::*;
use std::io::{self, Cursor, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use trimwire_encoder::{Codec, Decoding, Layout, Tensor};

const HEADER: Header = Header { job: 3, rank: 2, world: 4, seed: 0x0123_4567_89ab_cdef };

fn held() -> impl Strategy<Value = Held> {
    prop_oneof![
        6 => Just(Held::Whole),
        2 => Just(Held::Part(56)),
        1 => Just(Held::Missing),
        1 => any::<u16>().prop_map(Held::Part),
    ]
}

fn message() -> impl Strategy<Value = Record> {
    let shape = (
        prop::sample::select(Codec::ALL.to_vec()),
        1_u8..13,
        1_usize..10_000,
        0_u8..40,
        prop::collection::vec((0_usize..1_000_000, 0_u8..8), 1..4),
    );
    let shape = shape.prop_map(|(codec, planes, coordinates_per_packet, row_log2, tensors)| {
        let tensors = tensors.into_iter();
        let tensors = tensors.map(|(coordinates, layer_class)| Tensor { coordinates, layer_class }).collect();
        Shape { codec, planes, coordinates_per_packet, row_log2, tensors }
    });
    let times = (any::<u64>(), any::<u64>(), prop::option::of(0..u64::MAX), prop::option::of(0..u64::MAX));
    let counts = any::<(u32, u32, u32)>();
    (0_u16..1_024, any::<u32>(), shape, any::<bool>(), times, counts, prop::collection::vec(held(), 0..300))
        .prop_map(|(from, message, shape, delivered, times, counts, held)| {
            Record::Message(MessageRecord {
                from,
                message,
                shape,
                delivered,
                started_ns: times.0,
                duration_ns: times.1,
                first_ns: times.2,
                last_ns: times.3,
                duplicates: counts.0,
                probes: counts.1,
                asked: counts.2,
                held,
            })
        })
}

fn operation() -> impl Strategy<Value = Record> {
    let decoding = prop::sample::select(vec![Decoding::Unbiased, Decoding::Mmse, Decoding::Paper]);
    let numbers = any::<(u32, u64, u8, u64, u64, u64)>();
    let ending = (prop::option::of(any::<[u8; 32]>()), prop::option::of(".{0,40}"));
    (numbers, ".{0,20}", decoding, any::<(bool, bool)>(), ending).prop_map(
        |(numbers, name, decoding, (exact, consistent), (digest, failure))| {
            Record::Operation(OperationRecord {
                number: numbers.0,
                name,
                coordinates: numbers.1,
                planes: numbers.2,
                decoding,
                exact,
                consistent,
                started_ns: numbers.3,
                duration_ns: numbers.4,
                repaired: numbers.5,
                digest,
                failure,
            })
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    let map = (0_u16..1_024, any::<u32>(), prop::collection::vec(0_u8..=FULL, 0..200));
    prop_oneof![
        4 => message(),
        1 => map.prop_map(|(to, message, planes)| Record::Map(MapRecord { to, message, planes })),
        2 => operation(),
        1 => any::<u64>().prop_map(Record::Gap),
    ]
}

fn file_of(records: &[Record]) -> Vec<u8> {
    let mut bytes = file::first_member(&HEADER);
    records.iter().for_each(|record| bytes.extend(file::member(record)));
    bytes
}

/// What can be read, and why no more can.
fn read(bytes: &[u8]) -> (Vec<Record>, Option<ReadError>) {
    let mut records = Vec::new();
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    assert_eq!(*reader.header(), HEADER);
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, None),
            Err(error) => {
                assert!(matches!(reader.next_record(), Ok(None)), "after an error it is over");
                return (records, Some(error));
            }
        }
    }
}

proptest! {
    #[test]
    fn records_come_back_as_they_were_written(records in prop::collection::vec(record(), 0..8)) {
        let (got, error) = read(&file_of(&records));
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(got, records);
    }

    #[test]
    fn a_file_that_ends_anywhere_gives_the_records_before(
        records in prop::collection::vec(record(), 1..6), at in any::<prop::sample::Index>(),
    ) {
        let bytes = file_of(&records);
        let end = at.index(bytes.len());
        let (got, error) = read(&bytes[..end]);
        let header = file::first_member(&HEADER).len();
        let mut whole = header;
        let fits = |record: &&Record| {
            whole += file::member(record).len();
            whole <= end
        };
        let before: Vec<Record> = records.iter().take_while(fits).cloned().collect();
        prop_assert_eq!(&got, &before);
        let at_an_end = end == header + before.iter().map(|record| file::member(record).len()).sum::<usize>();
        match error {
            None => prop_assert!(at_an_end),
            Some(ReadError::Truncated { records, .. }) => prop_assert!(!at_an_end && records == before.len() as u64),
            Some(_) => prop_assert!(end < header),
        }
    }

    #[test]
    fn a_damaged_byte_is_found_or_changes_nothing_and_what_lies_before_it_is_read(
        records in prop::collection::vec(record(), 1..6), at in any::<prop::sample::Index>(), mask in 1_u8..=255,
    ) {
        let mut bytes = file_of(&records);
        let at = at.index(bytes.len());
        bytes[at] ^= mask;
        let (got, error) = read(&bytes);
        // Gzip's header has bytes that mean nothing here: a time, a system.
        prop_assert!(error.is_some() || got.len() == records.len());
        prop_assert_eq!(&records[..got.len()], &got[..]);
    }

    /// The checksum keeps accidents out, not who wants to do harm.
    #[test]
    fn lines_with_a_right_checksum_and_anything_in_them_do_not_panic(
        record in record(), at in any::<prop::sample::Index>(), byte: u8, end in any::<prop::sample::Index>(),
    ) {
        let mut line = serde_json::to_vec(&record).expect("JSON");
        let at = at.index(line.len());
        line[at] = byte;
        let end = end.index(line.len() + 1);
        for bytes in [&line[..], &line[..end]] {
            if let Ok(Record::Message(message)) = Record::parse(bytes) {
                prop_assert!(message.held.len() <= MAX_PACKETS as usize);
                let _ = message.planes();
            }
        }
    }
}

#[test]
fn files_that_are_no_transcripts_are_refused_by_what_they_are() {
    let error = |bytes: &[u8]| Reader::new(bytes).expect_err("refused").to_string();
    assert!(error(b"").contains("empty"));
    assert!(error(b"#!/bin/sh\necho this is something else\n").contains("no transcript"));
    assert!(error(b"trimwireT\x01").contains("version 1; valid is 2"));
    let opening =
        |line: &str| error(&file::member(&serde_json::from_str::<serde_json::Value>(line).expect("JSON")));
    assert!(opening(r#"{"trimwire":"transcript","version":3}"#).contains("version 3; valid is 2"));
    assert!(opening(r#"{"trimwire":"fabric","version":2}"#).contains("no transcript"));
    let rank = r#"{"trimwire":"transcript","version":2,"job":0,"rank":2,"world":2,"seed":0}"#;
    assert!(opening(rank).contains("none of its ranks"));
    let mut damaged = file_of(&[]);
    damaged[20] ^= 1;
    assert!(error(&damaged).contains("header is damaged"), "{}", error(&damaged));
}

#[test]
fn records_that_say_what_cannot_be_are_refused_by_what_it_is() {
    let error = |from: &str, to: &str| {
        let line = serde_json::to_string(&whole(0, 3)).expect("JSON");
        assert!(line.contains(from), "{line}");
        Record::parse(line.replace(from, to).as_bytes()).expect_err("refused")
    };
    assert!(error("\"from\":1", "\"from\":1024").contains("a rank above 1,023"));
    assert!(error("[[1344,0]]", "[[8589934593,0]]").contains("more coordinates than"));
    assert!(error("\"rht\"", "\"zip\"").contains("unknown codec"));
    assert!(error("[-1,-1,-1]", "[-1,-2,-1]").contains("out of range"));
    assert!(error("\"message\":{", "\"letter\":{").contains("unknown variant `letter`"));
    let long = vec![b' '; MAX_BODY + 1];
    let mut bytes = file_of(&[]);
    let at = bytes.len() as u64;
    bytes.extend(file::member(&String::from_utf8(long).expect("spaces")));
    let (_, error) = read(&bytes);
    assert!(
        matches!(error, Some(ReadError::Damaged { at: found, records: 0, .. }) if found == at),
        "{error:?}"
    );
}

/// What docs/reference/transcript.md says under "Size".
#[test]
fn a_packet_takes_a_fraction_of_a_bit_where_packets_are_alike() {
    let bits = |trimmed: &dyn Fn(u64) -> Held, packets: usize| {
        let Record::Message(mut message) = whole(7, packets) else { unreachable!("a message") };
        let empty = file::member(&Record::Message(MessageRecord { held: Vec::new(), ..message.clone() }));
        let mut random = 1_u64;
        message.held.iter_mut().for_each(|held| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *held = trimmed((random >> 33) % 100);
        });
        let bytes = file::member(&Record::Message(message)).len();
        (empty.len(), 8.0 * (bytes - empty.len()) as f64 / packets as f64)
    };
    let mixed = |percent: u64| match percent {
        0 => Held::Missing,
        1..=25 => Held::Part(56),
        26..=50 => Held::Part(448),
        _ => Held::Whole,
    };
    for packets in [600, 10_000] {
        let (message, alike) = bits(&|_| Held::Whole, packets);
        let (_, tenth) = bits(&|percent| if percent < 10 { Held::Part(56) } else { Held::Whole }, packets);
        let (_, half) = bits(&mixed, packets);
        println!("{packets} packets: {message} bytes, then {alike:.3}, {tenth:.2}, {half:.2} bits a packet");
        assert!(message < 300 && alike < 0.5 && tenth < 2.0 && half < 5.0, "{alike} {tenth} {half}");
    }
}

fn whole(message: u32, packets: usize) -> Record {
    let layout = Layout::new(packets * 448, 448).expect("a layout");
    Record::Message(MessageRecord {
        from: 1,
        message,
        shape: Shape::new(&layout, Codec::Rht, 10),
        delivered: true,
        started_ns: 0,
        duration_ns: 0,
        first_ns: None,
        last_ns: None,
        duplicates: 0,
        probes: 0,
        asked: 0,
        held: vec![Held::Whole; packets],
    })
}

#[test]
fn planes_follow_from_held_bytes_and_the_layout() {
    let Record::Message(mut message) = whole(0, 4) else { unreachable!("a message") };
    let packets = message.shape.layout().expect("a layout").packets();
    message.held = vec![Held::Whole; packets];
    // 448 coordinates at most: a plane of one bit takes 56 bytes at most.
    message.held[1] = Held::Part(60);
    message.held[2] = Held::Missing;
    let planes = message.planes().expect("a layout");
    assert_eq!(planes.len(), packets);
    assert!(planes[0].is_some_and(|reach| (reach.planes, reach.more) == (10, 0)));
    assert!(planes[1].is_some_and(|reach| reach.planes == 1 && reach.more > 0));
    assert!(planes[2].is_none());
}

/// A file in memory, whose writes wait for somebody to let them.
struct Slow {
    gate: Receiver<()>,
    file: Arc<Mutex<Vec<u8>>>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Once nobody holds the gate any more everything passes.
        let _ = self.gate.recv();
        self.file.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_slower_than_the_network_loses_records_and_the_file_says_how_many() {
    let (open, gate): (Sender<()>, _) = channel();
    let file = Arc::new(Mutex::new(Vec::new()));
    let slow = Slow { gate, file: Arc::clone(&file) };
    let mut writer = Writer::start(slow, "slow", &HEADER).expect("a thread");
    // Nothing is written meanwhile, and no call waits for it: this would not end if one did.
    for number in 0..5_000 {
        writer.push(whole(number, 2));
    }
    drop(open);
    // Once there is room again, the next record follows what says how many are missing.
    let mut tries = 0;
    while writer.queued() > 0 && tries < 10_000 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        tries += 1;
    }
    writer.push(whole(9_999, 2));
    let written = writer.finish();
    assert!(written.error.is_none() && written.lost > 0, "{written:?}");
    assert_eq!(written.records + written.lost, 5_001);
    let (records, error) = read(&file.lock().expect("no panic"));
    assert!(error.is_none(), "{error:?}");
    let gaps: u64 = records.iter().map(|r| if let Record::Gap(lost) = r { *lost } else { 0 }).sum();
    assert_eq!(gaps, written.lost);
    assert_eq!(records.last(), Some(&whole(9_999, 2)));
}

/// A disk with so many bytes left.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_transcript_and_nothing_else() {
    for room in [0, 10, 100, 1_000] {
        let mut writer = Writer::start(Full(room), "full", &HEADER).expect("a thread");
        for number in 0..100 {
            writer.push(whole(number, 100));
        }
        let written = writer.finish();
        assert!(written.error.as_deref().is_some_and(|error| error.contains("storage")), "{written:?}");
        assert_eq!(written.records + written.lost, 100, "{written:?}");
    }
}

#[test]
fn a_transcript_of_another_job_or_rank_is_refused_by_what_differs() {
    let replay = || Replay::open(Cursor::new(file_of(&[]))).expect("a transcript");
    let error = |here: Header| replay().check(&here).expect_err("another").to_string();
    replay().check(&HEADER).expect("the same");
    assert!(error(Header { job: 4, ..HEADER }).contains("job 3, this run of job 4"));
    assert!(error(Header { rank: 1, ..HEADER }).contains("rank 2, this run of rank 1"));
    assert!(error(Header { world: 8, ..HEADER }).contains("world size 4, this run of world size 8"));
    assert!(error(Header { seed: 5, ..HEADER }).contains("seed"));
}
