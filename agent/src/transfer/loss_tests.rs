// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::wire::trim_map::{Detail, write_part};

const RTT: u64 = 20_000;
const LATE: Option<Late> = Some(Late { asked_ns: 60_000, delay_ns: 100_000 });

fn estimate() -> PathEstimate {
    let mut estimate = PathEstimate::default();
    estimate.data.sample(RTT);
    estimate
}

fn learn(flight: &mut Flight, now_ns: u64, states: &[u8]) -> News {
    let mut bytes = Vec::new();
    write_part(|p| states[p as usize], states.len() as u32, 0, Detail::Planes, 1_000, &mut bytes);
    let part = MapPart::parse(&bytes).expect("own map");
    flight.learn(now_ns, &part, &estimate(), &mut Paths::new(4, 1, 1), |_| ())
}

fn lost(flight: &mut Flight, now_ns: u64, packets: u32) -> Vec<u32> {
    let lost = flight.lost(now_ns, &(0..packets), &estimate(), LATE, &mut Paths::new(4, 1, 1));
    lost.iter().map(|lost| lost.repair.index).collect()
}

#[test]
fn a_later_packet_of_the_same_path_shows_a_loss_at_once_and_one_of_another_path_after_a_window() {
    let mut flight = Flight::new(4, FULL, false);
    for (index, path) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        flight.sent(u64::from(index) * 3_000, index, path, 100);
    }
    assert_eq!(learn(&mut flight, RTT + 6_000, &[0, 0, FULL, 0]), News { improved: true, ..News::default() });
    assert_eq!(lost(&mut flight, RTT + 6_000, 4), [0], "packet 1 may be late, on its own path");
    learn(&mut flight, RTT + 9_000, &[0, 0, FULL, FULL]);
    assert_eq!(lost(&mut flight, RTT + 9_000, 4), [1]);
    assert_eq!(flight.in_flight().bytes, 0);
}

#[test]
fn a_trimmed_packet_overtakes_and_shows_nothing() {
    let mut flight = Flight::new(2, FULL, false);
    flight.sent(0, 0, 0, 100);
    flight.sent(50_000, 1, 0, 100);
    assert_eq!(learn(&mut flight, 60_000, &[0, 3]), News { improved: true, ..News::default() });
    assert!(lost(&mut flight, 60_000, 2).is_empty());
    assert_eq!(lost(&mut flight, 100_000, 2), [0], "but time does");
}

#[test]
fn a_report_tells_by_how_much_packets_that_were_late_had_been_overtaken() {
    let mut flight = Flight::new(4, FULL, false);
    for (index, path) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        flight.sent(u64::from(index) * 3_000, index, path, 100);
    }
    assert_eq!(learn(&mut flight, RTT, &[0, 0, FULL, 0]).overtaken, Overtaken::default());
    let late = learn(&mut flight, RTT, &[0, FULL, FULL, FULL]).overtaken;
    assert_eq!(late, Overtaken { within_ns: 0, across_ns: 3_000 }, "1 after 2; 1 and 3 came together");
    let late = learn(&mut flight, RTT, &[FULL; 4]).overtaken;
    assert_eq!(late, Overtaken { within_ns: 6_000, across_ns: 9_000 });
    flight.sent(90_000, 3, 0, 100);
    assert_eq!(learn(&mut flight, 90_000 + RTT, &[FULL; 4]).overtaken, Overtaken::default());
}

#[test]
fn what_was_sent_after_the_question_is_not_late() {
    let mut flight = Flight::new(2, FULL, false);
    flight.sent(0, 0, 0, 100);
    flight.sent(60_001, 1, 1, 100);
    assert_eq!(lost(&mut flight, 1_000_000, 2), [0]);
}

#[test]
fn a_repair_counts_from_its_own_time_of_sending() {
    let mut flight = Flight::new(2, FULL, false);
    flight.sent(0, 0, 0, 100);
    flight.sent(1_000, 1, 0, 100);
    learn(&mut flight, RTT, &[0, FULL]);
    assert!(lost(&mut flight, RTT, 2).is_empty(), "within the window of its path");
    flight.sent(RTT, 0, 1, 100);
    assert!(lost(&mut flight, RTT + 1_000, 2).is_empty());
    assert_eq!(flight.in_flight().bytes, 100);
}

#[test]
fn a_tail_that_is_trimmed_again_is_not_waited_for() {
    let mut flight = Flight::new(1, FULL, false);
    flight.set_wanted(Wanted::EveryPlane);
    flight.sent(0, 0, 0, 100);
    learn(&mut flight, RTT, &[1]);
    assert_eq!(flight.in_flight().bytes, 0, "the rest was trimmed");
    flight.sent(RTT, 0, 1, 90);
    learn(&mut flight, 2 * RTT, &[1]);
    assert_eq!(flight.in_flight().bytes, 90, "nothing has come of the tail");
    learn(&mut flight, 2 * RTT, &[3]);
    assert_eq!(flight.in_flight().bytes, 0, "what has come of it is all that will");
}

#[test]
fn a_message_may_do_without_as_many_as_its_receiver_says() {
    let mut flight = Flight::new(3, FULL, false);
    flight.set_wanted(Wanted::AllBut(1));
    (0..3).for_each(|index| flight.sent(0, index, 0, 100));
    assert!(flight.leave_out(0) && !flight.leave_out(1));
    assert_eq!(flight.take_left_out(), [Repair { index: 0, from_plane: 0 }]);
    flight.set_wanted(Wanted::EveryPlane);
    assert!(!flight.leave_out(0));
}

#[test]
fn the_tail_of_a_trimmed_packet_is_asked_for_where_every_plane_is_wanted() {
    let mut flight = Flight::new(2, FULL, false);
    flight.set_wanted(Wanted::EveryPlane);
    flight.sent(0, 0, 0, 100);
    flight.sent(1_000, 1, 0, 100);
    learn(&mut flight, RTT, &[4, FULL]);
    let lost = flight.lost(RTT, &(0..2), &estimate(), LATE, &mut Paths::new(4, 1, 1));
    assert_eq!(lost, [Lost { repair: Repair { index: 0, from_plane: 4 }, sent_ns: 0, attempts: 1 }]);
    assert!(!flight.satisfied(0) && flight.satisfied(1));
}

#[test]
fn what_is_lost_three_times_is_tried_once_a_wait_until_something_arrives() {
    let mut asking = Asking::default();
    asking.lost_in_vain(2, false);
    asking.sent(1, false);
    asking.on_timeout(1);
    assert!(asking.may_send() && asking.in_vain().is_none());
    asking.lost_in_vain(3, false);
    for times in 0..4 {
        assert!(!asking.may_send() && asking.trial == Trial::Waiting(times));
        asking.on_timeout(1);
        asking.lost_in_vain(9, false);
        assert!(asking.may_send());
        asking.sent(1, false);
    }
    asking.improved(2);
    assert!(asking.may_send() && asking.in_vain().is_none());
}

#[test]
fn what_is_trimmed_is_not_waited_for_until_nothing_arrives_any_more() {
    let mut asking = Asking::default();
    asking.lost_in_vain(3, true);
    asking.sent(1, false);
    assert!(asking.may_send() && asking.in_vain() == Some(true));
    asking.lost_in_vain(4, false);
    assert!(!asking.may_send() && asking.in_vain() == Some(false));
    asking.arrived(2, true);
    assert!(asking.may_send() && asking.in_vain() == Some(true));
    asking.improved(3);
    asking.arrived(4, true);
    assert!(asking.in_vain().is_none());
}
