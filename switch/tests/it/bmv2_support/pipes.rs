// SPDX-License-Identifier: Apache-2.0
//! Capture files that are pipes: whoever reads one waits for its frames until they are given.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};

/// Bytes of a capture file's own header.
const FILE_HEADER: usize = 24;

/// A capture file whose frames are still to be given.
pub(super) struct Pipe(Sender<()>);

impl Pipe {
    /// Makes the pipe; its reader gets the file's header at once.
    pub(super) fn new(path: &str, file: Vec<u8>) -> Self {
        let made = Command::new("mkfifo").arg(path).status().expect("mkfifo (coreutils)");
        assert!(made.success(), "mkfifo {path}: {made}");
        let (open, opened) = channel();
        let path = path.to_owned();
        // Opening waits for the reader. One that ends early is noticed by whoever started it.
        std::thread::spawn(move || {
            let mut pipe = OpenOptions::new().write(true).open(path)?;
            let (header, frames) = file.split_at(FILE_HEADER);
            pipe.write_all(header)?;
            if opened.recv().is_ok() { pipe.write_all(frames) } else { Ok(()) }
        });
        Self(open)
    }

    /// Gives the frames, and then the file's end.
    pub(super) fn open(self) {
        // Nobody is there where the pipe could not be written: its reader has ended, and was
        // noticed.
        let _ = self.0.send(());
    }
}

/// A libpcap capture file: frames and the milliseconds at which they come.
pub(super) fn capture(frames: &[(usize, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    let words =
        |file: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    words(&mut file, &[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 1]);
    for &(number, frame) in frames {
        let (number, length) = (number as u32, frame.len() as u32);
        words(&mut file, &[number / 1000, number % 1000 * 1000, length, length]);
        file.extend(frame);
    }
    file
}

pub(super) fn captured(file: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = file.get(24..).unwrap_or(&[]);
    while let Some((header, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((frame, after)) = after.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}
