// SPDX-License-Identifier: Apache-2.0
//! The UCI optical-digits data that the demo trains on (see `data/README.md` for source and
//! licence).

use anyhow::{Context, Result, ensure};
use std::io::Read;

/// Pixels of an image.
pub const PIXELS: usize = 64;
/// Classes: the ten digits.
pub const CLASSES: usize = 10;

/// Images and their labels.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Images {
    /// `labels.len() × PIXELS` intensities in 0..=1, row by row.
    pub pixels: Vec<f32>,
    /// Digits, 0..=9.
    pub labels: Vec<u8>,
}

impl Images {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Copies the images at `indices` into one batch.
    pub fn select(&self, indices: &[usize]) -> Images {
        let mut batch = Images::default();
        for &index in indices {
            batch.pixels.extend_from_slice(&self.pixels[index * PIXELS..][..PIXELS]);
            batch.labels.push(self.labels[index]);
        }
        batch
    }
}

/// The data, split in two: every fourth image is held out for the test (449 images), 1,348 are for
/// training.
#[derive(Debug, Clone)]
pub struct Digits {
    /// What the workers learn from.
    pub train: Images,
    /// What accuracy is measured on.
    pub test: Images,
}

impl Digits {
    /// Reads the data set that is built into the program.
    pub fn load() -> Result<Digits> {
        let packed = include_bytes!("../../data/digits.csv.gz");
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed.as_slice())
            .read_to_string(&mut text)
            .context("the built-in digits data cannot be unpacked")?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Digits> {
        let mut digits = Digits { train: Images::default(), test: Images::default() };
        for (number, line) in text.lines().enumerate() {
            let values = line
                .split(',')
                .map(str::parse)
                .collect::<Result<Vec<u8>, _>>()
                .with_context(|| format!("digits.csv:{}: not a row of small integers", number + 1))?;
            let [pixels @ .., label] = values.as_slice() else { continue };
            ensure!(
                pixels.len() == PIXELS && pixels.iter().all(|&p| p <= 16) && usize::from(*label) < CLASSES,
                "digits.csv:{}: expected {PIXELS} pixels from 0 to 16 and a digit",
                number + 1
            );
            let part = if number % 4 == 3 { &mut digits.test } else { &mut digits.train };
            part.pixels.extend(pixels.iter().map(|&p| f32::from(p) / 16.0));
            part.labels.push(*label);
        }
        ensure!(!digits.train.is_empty() && !digits.test.is_empty(), "the digits data has no rows");
        Ok(digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_data_is_the_whole_set() {
        let digits = Digits::load().unwrap();
        assert_eq!((digits.train.len(), digits.test.len()), (1348, 449));
        // Class counts as the data set's description gives them, summed over both parts.
        let mut counts = [0; CLASSES];
        for &label in digits.train.labels.iter().chain(&digits.test.labels) {
            counts[usize::from(label)] += 1;
        }
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }

    #[test]
    fn a_bad_row_is_named() {
        let error = Digits::parse("1,2,3").unwrap_err().to_string();
        assert!(error.contains("digits.csv:1"), "{error}");
    }
}
