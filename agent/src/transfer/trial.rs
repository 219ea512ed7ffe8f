// SPDX-License-Identifier: Apache-2.0
//! What to do when nothing gets through.
//!
//! A receiver may answer every question and get no data: the path drops long packets, a source port
//! is not believed, a filter. Lost packets would be resent as fast as answers come, for ever. So
//! after a few losses without any arrival, one packet at a time tries the path, after waits that
//! double (RFC 6298 §5.5; TCP falls back to one segment likewise).
//!
//! A packet that is trimmed has come through, and its trim has told the rate algorithm how fast is
//! too fast. It is not waited for; but what is trimmed for ever is given up as well.

/// A packet may be lost so often, by chance or to bursts of others.
const LOST: u8 = 3;

/// Whether anything gets through.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Trial {
    /// As far as is known.
    #[default]
    No,
    /// The next packet may be tried; so many were before.
    Ready(u32),
    /// One has been.
    Waiting(u32),
    /// Packets arrive, and none of those that are lost arrives whole.
    Trimmed,
}

impl Trial {
    /// More of some packet has arrived.
    pub(super) fn improved(&mut self) {
        *self = Self::No;
    }

    /// Packets have arrived trimmed.
    pub(super) fn trimmed(&mut self) {
        if self.is_on() {
            *self = Self::Trimmed;
        }
    }

    /// A packet is lost that was sent so often, and nothing was of use since then; `trimmed`:
    /// something came trimmed.
    pub(super) fn lost_in_vain(&mut self, attempts: u8, trimmed: bool) {
        if matches!(self, Self::No | Self::Trimmed) && attempts >= LOST {
            *self = if trimmed { Self::Trimmed } else { Self::Waiting(0) };
        }
    }

    /// The wait is over.
    pub(super) fn on_timeout(&mut self) {
        if let Self::Waiting(times) = *self {
            *self = Self::Ready(times.saturating_add(1));
        }
    }

    /// Whether data may be sent.
    pub(super) fn may_send(&self) -> bool {
        !matches!(self, Self::Waiting(_))
    }

    /// A packet has left.
    pub(super) fn sent(&mut self) {
        if let Self::Ready(times) = *self {
            *self = Self::Waiting(times);
        }
    }

    /// How often the wait for the next try doubles, where there is to be one.
    pub(super) fn waits(&self) -> Option<u32> {
        if let Self::Waiting(times) = *self { Some(times) } else { None }
    }

    /// Whether nothing of use gets through.
    pub(super) fn is_on(&self) -> bool {
        *self != Self::No
    }

    /// Whether what arrives is trimmed.
    pub(super) fn is_trimmed(&self) -> bool {
        *self == Self::Trimmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_three_times_is_tried_once_a_wait_until_something_arrives() {
        let mut trial = Trial::default();
        trial.lost_in_vain(2, false);
        trial.sent();
        trial.on_timeout();
        assert!(trial.may_send() && !trial.is_on());
        trial.lost_in_vain(3, false);
        for times in 0..4 {
            assert!(!trial.may_send() && trial.is_on());
            assert_eq!(trial.waits(), Some(times));
            trial.on_timeout();
            trial.lost_in_vain(9, false);
            assert!(trial.may_send());
            trial.sent();
        }
        trial.improved();
        assert!(trial.may_send() && !trial.is_on());
    }

    #[test]
    fn what_is_trimmed_is_not_waited_for_until_nothing_arrives_any_more() {
        let mut trial = Trial::default();
        trial.lost_in_vain(3, true);
        trial.sent();
        assert!(trial.may_send() && trial.is_on() && trial.is_trimmed());
        trial.lost_in_vain(4, false);
        assert!(!trial.may_send() && !trial.is_trimmed());
        trial.trimmed();
        assert!(trial.may_send() && trial.is_trimmed());
        trial.improved();
        trial.trimmed();
        assert!(!trial.is_on());
    }
}
