// SPDX-License-Identifier: Apache-2.0
//! A port's line: its rate, exact in the long run, and its delay.

/// Bits times nanoseconds in a second.
const BIT_NS_PER_BYTE: u64 = 8 * 1_000_000_000;

/// One direction of a link, as its sending port has it.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) rate_bps: u64,
    pub(crate) delay_ns: u64,
    /// When the frame that is on the line has left.
    pub(crate) free_at_ns: u64,
    /// Fraction of a nanosecond, in bit · ns, that the next frame pays.
    remainder: u64,
    pub(crate) up: bool,
    /// Share of the frames that vanish: a gray failure.
    pub(crate) loss: f64,
}

impl Line {
    pub(crate) fn new(rate_bps: u64, delay_ns: u64) -> Self {
        Self { rate_bps: rate_bps.max(1), delay_ns, free_at_ns: 0, remainder: 0, up: true, loss: 0.0 }
    }

    /// Puts a frame on the line, which is free; gives when it arrives at the other end.
    pub(crate) fn transmit(&mut self, now_ns: u64, bytes: u32) -> u64 {
        // An idle line owes nothing.
        let owed = if now_ns > self.free_at_ns { 0 } else { self.remainder };
        let work = u64::from(bytes) * BIT_NS_PER_BYTE + owed;
        self.free_at_ns = now_ns + work / self.rate_bps;
        self.remainder = work % self.rate_bps;
        self.free_at_ns + self.delay_ns
    }
}

/// Time that `bytes` take at a rate, ns, rounded down.
pub(crate) fn duration_ns(bytes: u64, rate_bps: u64) -> u64 {
    (u128::from(bytes) * u128::from(BIT_NS_PER_BYTE) / u128::from(rate_bps.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_back_to_back_take_exactly_their_bits() {
        // 64 bytes at 100 Gbit/s are 5.12 ns: a million of them, 5.12 ms.
        let mut line = Line::new(100_000_000_000, 1_000);
        let mut now_ns = 0;
        for _ in 0..1_000_000 {
            assert_eq!(line.transmit(now_ns, 64), line.free_at_ns + 1_000);
            now_ns = line.free_at_ns;
        }
        assert_eq!(now_ns, 5_120_000);
    }

    #[test]
    fn an_idle_line_begins_at_once() {
        let mut line = Line::new(1_000_000_000, 0);
        line.transmit(0, 1_500);
        assert_eq!(line.transmit(50_000, 1_500), 62_000);
    }
}
