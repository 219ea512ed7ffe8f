// SPDX-License-Identifier: Apache-2.0
//! Priority flow control (IEEE 802.1Qbb): a switch that runs out of room for a priority of a port
//! tells the other end of that link to hold it.
//!
//! ```text
//!  upstream ─── frames ──► ingress port: bytes by priority ─► egress queues
//!     ▲                        │ above XOFF: pause; below XON: resume
//!     └──── pause frame ◄──────┘ ahead of all frames that wait on the way back
//! ```
//!
//! What is on its way until the other end holds is taken in headroom, which is reserved. With
//! enough of it nothing is lost. Thresholds are those of Zhu et al. (SIGCOMM 2015, §4). A pause
//! holds until it is lifted, as if it were repeated before its quanta are over; pause frames are
//! not lost on gray links, and a link that changes forgets its pauses.

use super::packet::{CONTROL, CONTROL_CLASS, PRIORITIES};

/// PFC's priorities in Zhu et al., §4: their formula for β divides by all eight.
const SHARES: u64 = PRIORITIES as u64;

/// The numbers of a switch's PFC, for every port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pfc {
    /// Memory of the switch for data, bytes a port (Zhu et al., §4: 12 MB for 32 ports, 375 KB).
    pub buffer: u64,
    /// XOFF: bytes of one priority that a port takes before it pauses; none is [`Pfc::beta`]'s
    /// share of what is free.
    pub xoff: Option<u64>,
    /// β of the dynamic threshold t = β (B − reserved − used) / 8 (§4: 8).
    pub beta: u64,
    /// XON: a pause is lifted so many bytes below XOFF (§4: two MTU).
    pub xon_below: u64,
    /// Bytes reserved for what is on its way, for each port and priority; none is what the link may
    /// hold, by [`Pfc::headroom_of`].
    pub headroom: Option<u64>,
    /// From the end of a pause frame until the other end holds, ns (802.3, annex 31B: 394 quanta of
    /// 512 bits at 100 Gbit/s, 2.0 µs).
    pub response_ns: u64,
    /// Priorities that have headroom; those of control packets have none and are never paused.
    pub lossless: u8,
    /// The largest frame, bytes.
    pub frame: u64,
}

impl Pfc {
    /// For frames of so many bytes, of one priority.
    pub fn new(frame: u64) -> Self {
        Self {
            buffer: 512 << 10,
            xoff: None,
            beta: 8,
            xon_below: 2 * frame,
            headroom: None,
            response_ns: 2_020,
            lossless: 1,
            frame,
        }
    }

    /// Headroom of a link for all priorities that have some, bytes.
    pub(crate) fn reserved(&self, rate_bps: u64, delay_ns: u64) -> u64 {
        let one = self.headroom.unwrap_or_else(|| self.headroom_of(rate_bps, delay_ns));
        one.saturating_mul(self.lossless.into())
    }

    /// What may arrive after a port has asked for a pause: the frame that was too much, what leaves
    /// while the pause frame waits for one frame, travels and is obeyed, one more frame that has
    /// begun by then, and what is on the way.
    pub fn headroom_of(&self, rate_bps: u64, delay_ns: u64) -> u64 {
        let on_the_way_ns = 2 * u128::from(delay_ns) + u128::from(self.response_ns);
        let on_the_way = (u128::from(rate_bps) * on_the_way_ns).div_ceil(8_000_000_000);
        let on_the_way = u64::try_from(on_the_way).unwrap_or(u64::MAX);
        on_the_way.saturating_add(3 * self.frame + SHARES * u64::from(CONTROL))
    }
}

/// Whether a packet of this queue is counted and may be held.
pub(crate) fn is_lossless(class: u8) -> bool {
    class < CONTROL_CLASS
}

/// What one port holds of one priority.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// Of the memory that all share, bytes.
    shared: u64,
    /// Of the headroom, bytes.
    headroom: u64,
    /// The other end was told to hold.
    paused: bool,
}

/// What becomes of a packet that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    Taken,
    /// Taken, and the other end has to be told to hold.
    Pause,
    /// There was no headroom: with enough of it this does not happen.
    Dropped,
}

/// The ingress side of one switch: who holds how much of its memory.
#[derive(Debug)]
pub(crate) struct Ingress {
    pfc: Pfc,
    ports: Vec<[Held; PRIORITIES]>,
    /// By port: headroom of each priority.
    headrooms: Vec<u64>,
    /// Memory without headroom, and how much of it is used.
    pool: u64,
    used: u64,
}

impl Ingress {
    /// Of a switch with these links: rate and delay.
    pub(crate) fn new(pfc: Pfc, links: impl Iterator<Item = (u64, u64)>) -> Self {
        let (mut headrooms, mut reserved) = (Vec::new(), 0_u64);
        for (rate_bps, delay_ns) in links {
            headrooms.push(pfc.headroom.unwrap_or_else(|| pfc.headroom_of(rate_bps, delay_ns)));
            reserved = reserved.saturating_add(pfc.reserved(rate_bps, delay_ns));
        }
        let pool = pfc.buffer.saturating_mul(headrooms.len() as u64).saturating_sub(reserved);
        let ports = vec![[Held::default(); PRIORITIES]; headrooms.len()];
        Self { pfc, ports, headrooms, pool, used: 0 }
    }

    /// XOFF as it is now.
    fn threshold(&self) -> u64 {
        let free = self.pool.saturating_sub(self.used);
        self.pfc.xoff.unwrap_or_else(|| self.pfc.beta.saturating_mul(free) / SHARES)
    }

    /// A packet comes in at a port.
    pub(crate) fn admit(&mut self, port: u16, class: u8, bytes: u32) -> Admitted {
        let (threshold, bytes, port) = (self.threshold(), u64::from(bytes), usize::from(port));
        let held = &mut self.ports[port][usize::from(class)];
        // A fixed XOFF is a promise to every port; a share of what is free cannot exceed it.
        let fits = self.pfc.xoff.is_some() || self.used + bytes <= self.pool;
        if !held.paused && fits && held.shared + held.headroom + bytes <= threshold {
            held.shared += bytes;
            self.used += bytes;
            return Admitted::Taken;
        }
        if held.headroom + bytes > self.headrooms[port] {
            return Admitted::Dropped;
        }
        held.headroom += bytes;
        if std::mem::replace(&mut held.paused, true) { Admitted::Taken } else { Admitted::Pause }
    }

    /// A packet that came in at a port has left; whether the other end may go on.
    pub(crate) fn release(&mut self, port: u16, class: u8, bytes: u32) -> bool {
        let held = &mut self.ports[usize::from(port)][usize::from(class)];
        // Headroom first: all of it is there again before a pause is lifted.
        let of_headroom = u64::from(bytes).min(held.headroom);
        let of_shared = (u64::from(bytes) - of_headroom).min(held.shared);
        held.headroom -= of_headroom;
        held.shared -= of_shared;
        self.used -= of_shared;
        let held = *held;
        let below = held.headroom == 0 && held.shared <= self.threshold().saturating_sub(self.pfc.xon_below);
        let lifted = held.paused && below;
        self.ports[usize::from(port)][usize::from(class)].paused &= !lifted;
        lifted
    }

    /// A port's link changes: whoever is there has forgotten its pauses.
    pub(crate) fn forget(&mut self, port: usize) {
        self.ports[port].iter_mut().for_each(|held| held.paused = false);
    }
}

/// Which priorities the end of a link has to hold, and for how long it has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hold {
    /// A bit a priority.
    mask: u8,
    since_ns: [u64; PRIORITIES],
    /// Time of holds that are over, summed over priorities.
    pub(crate) total_ns: u64,
}

impl Hold {
    /// A pause frame says so.
    pub(crate) fn set(&mut self, now_ns: u64, class: u8, on: bool) {
        let (bit, since) = (1 << (class & 7), &mut self.since_ns[usize::from(class & 7)]);
        match (self.mask & bit != 0, on) {
            (false, true) => *since = now_ns,
            (true, false) => self.total_ns += now_ns.saturating_sub(*since),
            _ => {}
        }
        self.mask = if on { self.mask | bit } else { self.mask & !bit };
    }

    /// Whether a priority has to wait.
    pub(crate) fn holds(&self, class: u8) -> bool {
        self.mask >> (class & 7) & 1 == 1
    }

    /// Whether any does.
    pub(crate) fn holds_any(&self) -> bool {
        self.mask != 0
    }

    /// Nothing is held any longer.
    pub(crate) fn clear(&mut self, now_ns: u64) {
        (0..CONTROL_CLASS).for_each(|class| self.set(now_ns, class, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 100_000_000_000;

    fn ingress(xoff: Option<u64>, headroom: u64, ports: usize) -> Ingress {
        let pfc = Pfc { buffer: 20_000, xoff, headroom: Some(headroom), xon_below: 2_000, ..Pfc::new(1_000) };
        Ingress::new(pfc, std::iter::repeat_n((RATE, 0), ports))
    }

    #[test]
    fn a_port_pauses_once_at_xoff_drops_beyond_its_headroom_and_resumes_at_xon() {
        let mut ingress = ingress(Some(5_000), 3_000, 2);
        let came: Vec<Admitted> = (0..9).map(|_| ingress.admit(0, 0, 1_000)).collect();
        // Five below XOFF, three in headroom, the first of which asks; the ninth is lost.
        let (taken, pause) = (Admitted::Taken, Admitted::Pause);
        assert_eq!(came[..5], [taken; 5]);
        assert_eq!(came[5..], [pause, taken, taken, Admitted::Dropped]);
        let left: Vec<bool> = (0..8).map(|_| ingress.release(0, 0, 1_000)).collect();
        // Three of headroom and two more are two MTU below XOFF.
        assert_eq!(left, [false, false, false, false, true, false, false, false]);
        assert_eq!(ingress.used, 0);
    }

    #[test]
    fn a_pause_is_of_one_port_and_one_priority() {
        let mut ingress = ingress(Some(1_000), 3_000, 2);
        assert_eq!(ingress.admit(0, 3, 1_000), Admitted::Taken);
        assert_eq!(ingress.admit(0, 3, 1_000), Admitted::Pause);
        assert_eq!(ingress.admit(0, 2, 1_000), Admitted::Taken);
        assert_eq!(ingress.admit(1, 3, 1_000), Admitted::Taken);
    }

    #[test]
    fn the_dynamic_threshold_is_betas_share_of_what_is_free() {
        // B = 2 · 20,000, 2 · 2,000 reserved: 36,000. With β = 8 a port alone takes half of it: t =
        // 36,000 − t.
        let mut ingress = ingress(None, 2_000, 2);
        let taken = (0..1_000).take_while(|_| ingress.admit(0, 0, 100) == Admitted::Taken).count();
        assert_eq!(taken, 180);
        // The other one finds a third of it all: t = 18,000 − t.
        let taken = (0..1_000).take_while(|_| ingress.admit(1, 0, 100) == Admitted::Taken).count();
        assert_eq!(taken, 90);
    }

    #[test]
    fn the_headroom_of_a_link_is_what_it_and_its_ends_may_hold() {
        // 2 · 1 µs and 2.02 µs at 100 Gbit/s are 50,250 bytes; three frames; eight pause frames.
        let pfc = Pfc::new(1_500);
        assert_eq!(pfc.headroom_of(RATE, 1_000), 50_250 + 4_500 + 512);
        // 394 quanta of 512 bits.
        assert!(pfc.response_ns.abs_diff(394 * 512 / 100) < 5);
    }

    #[test]
    fn time_is_counted_while_a_priority_is_held() {
        let mut hold = Hold::default();
        hold.set(100, 2, true);
        hold.set(150, 2, true);
        assert!(hold.holds(2) && !hold.holds(1) && hold.holds_any());
        hold.set(300, 2, false);
        hold.set(400, 2, false);
        assert_eq!((hold.total_ns, hold.holds_any()), (200, false));
    }
}
