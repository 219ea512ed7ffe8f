// SPDX-License-Identifier: Apache-2.0
//! The bottleneck: bytes of a step in, what a rank measures of it out.

use trimwire_agent::planes::Step;

/// A sign plane's packet over the f32s that it stands for: 118 bytes of 448 coordinates.
const SIGNS: f64 = 118.0 / 1792.0;
/// What a trim leaves of a sparse packet.
const SPARSE: f64 = 200.0 / 1448.0;

/// A link that all of a job's traffic goes through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// What senders send at, bit/s.
    pub line_bps: f64,
    /// Round trip without queues, ns.
    pub propagation_ns: f64,
    /// Bytes that the queue holds.
    pub buffer: f64,
    /// Whether what does not fit is trimmed; otherwise the transport sends it again, and slows
    /// down.
    pub trims: bool,
}

impl Link {
    /// Carries `bytes`, which are `ratio` of the uncompressed gradient and leave at `pace` of the
    /// line's rate, while `available_bps` of the link are ours.
    ///
    /// Without trimming, transport uses what there is, and a step that does not fit into BDP and
    /// buffer costs a round trip more, in which a hundredth is repaired. With trimming, of what
    /// neither goes through while packets leave nor fits the buffer, the tails are missing.
    /// (Packets of fewer planes leave the faster, so at one pace a port with a tenth of the line
    /// trims nine tenths of them whatever the ratio, and no law of ratios alone could answer.)
    pub fn carry(&self, at_ns: u64, bytes: u64, ratio: f64, pace: f64, available_bps: f64) -> Step {
        let available = available_bps.max(1.0) / 8e9;
        let sent = bytes as f64;
        let through = sent / available;
        if !self.trims {
            let fits = sent <= available * self.propagation_ns + self.buffer;
            let trips = if fits { 1.0 } else { 2.0 };
            let delay = self.propagation_ns * trips + through;
            return Step {
                lost: if fits { 0.0 } else { 0.01 },
                ..Step::whole(at_ns.saturating_add(delay as u64), bytes, delay.max(1.0) as u64)
            };
        }
        let line = self.line_bps.max(1.0) / 8e9;
        let sending = sent / (line * pace.clamp(1e-6, 1.0));
        let room = available * sending + self.buffer;
        let head = if ratio >= SIGNS { SIGNS / ratio } else { SPARSE };
        let trimmed =
            if sent <= room || head >= 1.0 { 0.0 } else { ((1.0 - room / sent) / (1.0 - head)).min(1.0) };
        let arrived = 1.0 - trimmed * (1.0 - head);
        let delay = self.propagation_ns + sending.max(arrived * through);
        Step {
            trimmed,
            arrived,
            ..Step::whole(at_ns.saturating_add(delay as u64), bytes, delay.max(1.0) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBPS: f64 = 1e9;

    #[test]
    fn a_link_carries_what_it_has() {
        let link = Link { line_bps: GBPS, propagation_ns: 1e6, buffer: 1e5, trims: false };
        // 125 MB at 1 Gbit/s: a second, and two round trips, for it does not fit BDP and buffer.
        let step = link.carry(0, 125_000_000, 1.0, 1.0, GBPS);
        assert_eq!((step.delay_ns, step.trimmed), (1_002_000_000, 0.0));
        assert_eq!(link.carry(0, 200_000, 1.0, 1.0, GBPS).delay_ns, 2_600_000);
    }

    #[test]
    fn what_does_not_fit_is_trimmed_and_takes_no_longer() {
        let link = Link { line_bps: GBPS, propagation_ns: 0.0, buffer: 0.0, trims: true };
        let (whole, half) =
            (link.carry(0, 1_000_000, 0.75, 1.0, GBPS), link.carry(0, 1_000_000, 0.75, 1.0, GBPS / 2.0));
        assert_eq!((whole.trimmed, whole.arrived), (0.0, 1.0));
        assert_eq!(half.delay_ns, whole.delay_ns);
        assert!((half.arrived - 0.5).abs() < 1e-9, "{half:?}");
        // Fewer planes at the same spacing fit, and take no longer; left to leave the faster they
        // are trimmed as before.
        let spaced = link.carry(0, 500_000, 0.375, 0.5, GBPS / 2.0);
        assert_eq!((spaced.trimmed, spaced.delay_ns), (0.0, whole.delay_ns));
        assert!((link.carry(0, 500_000, 0.375, 1.0, GBPS / 2.0).arrived - 0.5).abs() < 1e-9);
        // Nothing but heads arrives, and they wait.
        let least = link.carry(0, 1_000_000, 0.75, 1.0, GBPS / 100.0);
        assert!(least.trimmed == 1.0 && least.delay_ns > whole.delay_ns, "{least:?}");
    }
}
