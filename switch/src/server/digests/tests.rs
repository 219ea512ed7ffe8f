// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

const DIGEST: u32 = 7;

/// With a size of 0 for any number.
fn config(max_timeout_ns: u64, size: usize, ack_timeout_ns: u64) -> Config {
    let max_list_size = if size == 0 { usize::MAX } else { size };
    Config { max_timeout_ns, max_list_size, most_cached: 1 << 16, ack_timeout_ns }
}

fn on(config: Config) -> Digests {
    let mut digests = Digests::default();
    digests.configure(BTreeMap::from([(DIGEST, config)]));
    digests
}

fn say(digests: &mut Digests, now_ns: u64, message: u8) {
    digests.handle_digest(now_ns, DIGEST, data(message));
}

fn data(message: u8) -> Fields {
    [vec![message]].into()
}

fn lists(digests: &mut Digests) -> Vec<Vec<Fields>> {
    std::iter::from_fn(|| digests.poll_list()).map(|list| list.messages).collect()
}

#[test]
fn a_list_is_sent_when_it_is_full_or_its_first_message_has_waited() {
    let mut digests = on(config(100, 2, 0));
    say(&mut digests, 10, 1);
    assert!(lists(&mut digests).is_empty());
    say(&mut digests, 20, 2);
    assert_eq!(lists(&mut digests), [[data(1), data(2)]]);
    say(&mut digests, 30, 3);
    digests.handle_timeout(129);
    assert!(lists(&mut digests).is_empty());
    digests.handle_timeout(130);
    assert_eq!(lists(&mut digests), [[data(3)]]);
}

#[test]
fn a_duplicate_is_not_sent_before_the_acknowledgement_or_its_time_out() {
    let mut digests = on(config(0, 0, 1000));
    say(&mut digests, 0, 1);
    say(&mut digests, 1, 1);
    let sent = digests.poll_list().unwrap();
    assert_eq!(digests.poll_list(), None);
    assert!(digests.handle_ack(DIGEST, sent.list_id) && !digests.handle_ack(DIGEST, sent.list_id));
    say(&mut digests, 2, 1);
    assert_eq!(lists(&mut digests), [[data(1)]], "acknowledged");
    say(&mut digests, 1001, 1);
    assert!(lists(&mut digests).is_empty());
    say(&mut digests, 1002, 1);
    assert_eq!(lists(&mut digests), [[data(1)]], "timed out");
}

#[test]
fn what_is_off_says_nothing_and_what_goes_off_forgets() {
    let mut digests = on(config(100, 0, 1000));
    say(&mut digests, 0, 1);
    digests.configure(BTreeMap::new());
    digests.handle_timeout(1000);
    say(&mut digests, 1000, 2);
    assert!(lists(&mut digests).is_empty() && !digests.is_on(DIGEST));
}

/// The specification's pseudo-code, as simply as it can be written.
#[derive(Default)]
struct Model {
    buffer: Vec<u8>,
    first_ns: u64,
    cache: Vec<(u64, u64, u8)>,
    sent: Vec<Vec<u8>>,
}

impl Model {
    fn send(&mut self, now_ns: u64) {
        let list = self.sent.len() as u64 + 1;
        self.cache.extend(self.buffer.iter().map(|message| (list, now_ns, *message)));
        self.sent.push(std::mem::take(&mut self.buffer));
    }

    fn digest(&mut self, config: Config, now_ns: u64, message: u8) {
        self.cache.retain(|(_, sent_ns, _)| now_ns - sent_ns < config.ack_timeout_ns);
        if self.cache.iter().any(|(.., cached)| *cached == message) || self.buffer.contains(&message) {
            return;
        }
        if self.buffer.is_empty() {
            self.first_ns = now_ns;
        }
        self.buffer.push(message);
        let full = self.buffer.len() >= config.max_list_size;
        if full || config.max_timeout_ns == 0 {
            self.send(now_ns);
        }
    }

    fn timeout(&mut self, config: Config, now_ns: u64) {
        if !self.buffer.is_empty() && now_ns - self.first_ns >= config.max_timeout_ns {
            self.send(now_ns);
        }
    }
}

proptest! {
    #[test]
    fn lists_are_those_of_the_specifications_pseudo_code(
        timeout in 0_u64..40, size in 0_usize..5, ack in 0_u64..60,
        steps in prop::collection::vec((0_u64..20, 0_u8..4, 0_u8..6), 0..200),
    ) {
        let config = config(timeout, size, ack);
        let (mut digests, mut model) = (on(config), Model::default());
        let mut sent = Vec::new();
        let mut now_ns = 0;
        for (wait, what, message) in steps {
            now_ns += wait;
            digests.handle_timeout(now_ns);
            model.timeout(config, now_ns);
            if what == 0 {
                let list = u64::from(message);
                digests.handle_ack(DIGEST, list);
                model.cache.retain(|(cached, ..)| *cached != list);
            } else {
                say(&mut digests, now_ns, message);
                model.digest(config, now_ns, message);
            }
            sent.extend(lists(&mut digests));
        }
        let expected: Vec<Vec<Fields>> =
            model.sent.iter().map(|list| list.iter().copied().map(data).collect()).collect();
        prop_assert_eq!(sent, expected);
    }
}
