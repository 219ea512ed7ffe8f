// SPDX-License-Identifier: Apache-2.0
//! Promises of what is told of peers and paths, over a network that misbehaves.

use crate::network::{Faults, Network, Random};
use proptest::prelude::*;
use trimwire_agent::endpoint::{EndpointStats, Event, Reliability};
use trimwire_agent::snapshot::{PathStats, PeerStats, Snapshot};

const ADVERSARY: Faults = Faults {
    data_delay_ns: 200_000,
    control_delay_ns: 100_000,
    jitter_ns: 100_000,
    drop_data: 0.3,
    drop_control: 0.3,
    trim: 0.8,
    trim_to_at_least: 200,
    duplicate: 0.3,
    ..Faults::NONE
};
const SECOND: u64 = 1_000_000_000;
const LENGTH: usize = 20_000;

fn sum(snapshot: &Snapshot, of: impl Fn(&PeerStats) -> u64) -> u64 {
    snapshot.peers.iter().map(|peer| of(&peer.stats)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn peers_add_up_to_the_totals_and_paths_to_their_peer(faults in ADVERSARY.any_up_to(), seed: u64) {
        let mut network = Network::new(3, faults, seed, Reliability::Bounded { loss: 0.1 });
        let pairs = [(0, 1), (0, 2), (2, 0)];
        for (from, to) in pairs {
            network.expect(usize::from(to), from, 5, LENGTH);
            let gradient = Random(seed).gradient(LENGTH);
            network.send(usize::from(from), to, 5, &gradient);
        }
        let events = network.finish(300 * SECOND);
        for (rank, endpoint) in network.endpoints.iter().enumerate() {
            let snapshot = endpoint.snapshot();
            let EndpointStats { data_sent, data_bytes_sent, repairs_sent, control_sent, control_received, data_received, .. } =
                snapshot.totals;
            prop_assert_eq!(sum(&snapshot, |peer| peer.data_sent), data_sent);
            prop_assert_eq!(sum(&snapshot, |peer| peer.data_bytes_sent), data_bytes_sent);
            prop_assert_eq!(sum(&snapshot, |peer| peer.repairs_sent), repairs_sent);
            prop_assert_eq!(sum(&snapshot, |peer| peer.control_sent), control_sent);
            prop_assert_eq!(sum(&snapshot, |peer| peer.control_received), control_received);
            prop_assert_eq!(sum(&snapshot, |peer| peer.data_received), data_received);
            prop_assert_eq!(snapshot.peers.len(), 2);
            for peer in &snapshot.peers {
                let over = |of: fn(&PathStats) -> u64| peer.paths.iter().map(|path| of(&path.stats)).sum::<u64>();
                prop_assert_eq!(over(|path| path.sent), peer.stats.data_sent);
                prop_assert_eq!(over(|path| path.bytes_sent), peer.stats.data_bytes_sent);
                prop_assert_eq!(over(|path| path.lost), peer.stats.lost);
                for path in &peer.paths {
                    let PathStats { sent, arrived, trimmed, .. } = path.stats;
                    prop_assert!(arrived <= sent && trimmed <= arrived, "{:?}", path);
                }
                let (peer_rank, other) = (peer.rank, usize::from(peer.rank));
                let sent_here = pairs.contains(&(rank as u16, peer_rank));
                prop_assert_eq!(peer.stats.data_sent > 0, sent_here);
                // What one says arrived, as often as the network delivered or doubled it.
                let there = network.endpoints[other].peer_stats(rank as u16).expect("a rank");
                prop_assert!(peer.stats.trimmed <= peer.stats.arrived && peer.stats.arrived <= there.data_received);
            }
        }
        for (rank, event) in events {
            let Event::Received { from, stats, .. } = event else { continue };
            let told = network.endpoints[rank].peer_stats(from).expect("a rank");
            prop_assert_eq!((told.messages_received, told.packets_delivered), (1, u64::from(stats.packets)));
            prop_assert_eq!(told.missing, u64::from(stats.missing));
            prop_assert!(told.trimmed_received >= u64::from(stats.trimmed));
        }
    }
}

#[test]
fn a_flow_is_timed_from_its_first_packet_to_its_last_and_waits_do_not_count() {
    let mut network = Network::new(2, Faults::NONE, 1, Reliability::Full);
    let gradient = Random(1).gradient(LENGTH);
    let mut spans = Vec::new();
    for message in 0..2 {
        let start_ns = network.now_ns;
        network.expect(1, 0, message, LENGTH);
        network.send(0, 1, message, &gradient);
        network.finish(start_ns + SECOND);
        let first_ns = network.endpoints[1].take_first_data_ns(0).expect("came");
        let last_ns = network.endpoints[1].peer_stats(0).and_then(|peer| peer.last_data_ns).expect("came");
        assert!((start_ns..start_ns + SECOND).contains(&first_ns));
        spans.push(last_ns - first_ns);
        assert_eq!(network.endpoints[1].take_first_data_ns(0), None);
    }
    // 45 packets of 1.4 KB at 10 Gbit/s.
    assert!(spans.iter().all(|span| (40_000..80_000).contains(span)), "{spans:?}");
}
