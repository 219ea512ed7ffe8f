// SPDX-License-Identifier: Apache-2.0
//! Captures: what another reader finds in the files.

use super::{Capture, CaptureError, PcapWriter, SNAP_LENGTH};
use proptest::prelude::*;
use std::process::Command;

/// Times and frames of a pcap file, by the format's description.
fn read(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4), word(16), word(20)), (0xa1b2_3c4d, 4 << 16 | 2, SNAP_LENGTH, 1));
    let (mut at, mut frames) = (24, Vec::new());
    while at < file.len() {
        let (kept, length) = (word(at + 8) as usize, word(at + 12) as usize);
        assert_eq!(kept, length.min(SNAP_LENGTH as usize));
        frames.push((
            u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)),
            file[at + 16..at + 16 + kept].to_vec(),
        ));
        at += 16 + kept;
    }
    frames
}

proptest! {
    #[test]
    fn frames_and_times_come_back(
        frames in proptest::collection::vec((0_u64..4_000_000_000_000_000_000, proptest::collection::vec(any::<u8>(), 0..200)), 0..20),
    ) {
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(&mut file).unwrap();
        for (at, frame) in &frames {
            writer.write(*at, frame).unwrap();
        }
        prop_assert_eq!(read(&file), frames);
    }
}

#[test]
fn files_are_named_as_bmv2_names_them_and_whole_without_being_closed() {
    let folder = std::env::temp_dir().join(format!("trimwire-pcap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut capture = Capture::create(&folder, "veth1").unwrap();
    let frame = [[2; 12].as_slice(), &[0x88, 0xb5], &[7; 50]].concat();
    capture.received(1_700_000_000_123_456_789, &frame);
    capture.sent(1_700_000_001_000_000_001, &frame[..20]);
    // The capture is still open: a killed switch leaves as much.
    let file = |direction: &str| folder.join(format!("veth1_{direction}.pcap"));
    assert_eq!(read(&std::fs::read(file("in")).unwrap()), [(1_700_000_000_123_456_789, frame.clone())]);
    assert_eq!(
        read(&std::fs::read(file("out")).unwrap()),
        [(1_700_000_001_000_000_001, frame[..20].to_vec())]
    );
    match Command::new("tcpdump").args(["-tt", "--nano", "-n", "-r"]).arg(file("in")).output() {
        Err(_) => eprintln!("SKIPPED: there is no tcpdump to read a capture with"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.starts_with("1700000000.123456789 "), "{text}");
        }
    }
    drop(capture);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_that_is_none_is_named() {
    let error = Capture::create("/nosuch".as_ref(), "veth1").unwrap_err();
    assert!(matches!(error, CaptureError::NoFolder(_)));
    assert!(error.to_string().contains("/nosuch") && error.to_string().contains("--pcap"));
}
