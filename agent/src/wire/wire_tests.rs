use super::cut_map::FULL;
use super::*;
use proptest::prelude::*;

const BODY: usize = trimwire_encoder::wire::PREFIX_LEN;

fn writer() -> Writer {
    Writer { stream: StreamId::new(5, 300).expect("fits") }
}

fn report() -> impl Strategy<Value = Report> {
    let echo = (0..MAX_PACKETS, any::<bool>(), any::<u32>());
    (prop::option::of(echo), any::<u32>(), any::<u32>()).prop_map(|(echo, received, cut)| Report {
        echo: echo.map(|(packet, cut, hold_ns)| Echo { packet, cut, hold_ns }),
        received,
        cut,
    })
}

fn read(bytes: &[u8]) -> (Prefix, Control<'_>) {
    let prefix = Prefix::parse(bytes).expect("own prefix");
    (prefix, Control::parse(prefix.kind, &bytes[BODY..]).expect("own body"))
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        report in report(), message: u32, words: [u32; 4], packets in 1..=MAX_PACKETS, planes in 1..=FULL, flags: [bool; 2],
    ) {
        let bytes = writer().ack(message, &report);
        prop_assert_eq!(read(&bytes).1, Control::Ack(report));
        prop_assert_eq!((read(&bytes).0.stream, read(&bytes).0.message), (writer().stream, message));

        let [sequence, grace_ns, map_offset, missing] = words;
        let [want_map, finish] = flags;
        let probe = Probe { sequence, packets, planes, want_map, finish, grace_ns, map_offset };
        let bytes = writer().probe(message, &probe);
        prop_assert_eq!(read(&bytes).1, Control::Probe(probe));

        let status = Status { sequence, report, missing, expected: want_map, bound_holds: finish, map: None };
        let bytes = writer().status(message, &status, None).0;
        prop_assert_eq!(read(&bytes).1, Control::Status(status));

        let stop = Stop { sequence, report, missing, agreed: grace_ns, map: None };
        let bytes = writer().stop(message, &stop, None).0;
        prop_assert_eq!(read(&bytes).1, Control::Stop(stop));
    }

    #[test]
    fn maps_travel_behind_status_stop_and_final(states in prop::collection::vec(0..=FULL, 1..5_000)) {
        let planes = |packet: u32| states[packet as usize];
        let source = MapSource { planes: &planes, packets: states.len() as u32, offset: 0, detail: Detail::Planes };
        let status = Status {
            sequence: 1, report: Report::default(), missing: 0, expected: true, bound_holds: false, map: None,
        };
        let stop = Stop { sequence: 1, report: Report::default(), missing: 0, agreed: 0, map: None };
        for (bytes, end) in [
            writer().status(7, &status, Some(&source)),
            writer().stop(7, &stop, Some(&source)),
            writer().agreed(7, 1, &source),
        ] {
            prop_assert!(bytes.len() <= CONTROL_LEN_MAX);
            let part = match read(&bytes).1 {
                Control::Status(Status { map: Some(part), .. })
                | Control::Stop(Stop { map: Some(part), .. })
                | Control::Final(Final { map: part, .. }) => part,
                other => panic!("{other:?} has no map"),
            };
            prop_assert_eq!(part.end(), end);
            let read: Vec<u8> = part.runs().flat_map(|r| std::iter::repeat_n(r.planes, r.count as usize)).collect();
            prop_assert_eq!(&read[..], &states[..end as usize]);
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_packet_that_is_written_back(kind in 2_u8..=6, body in prop::collection::vec(any::<u8>(), 0..90)) {
        let kind = Kind::try_from(kind).expect("valid kind");
        match Control::parse(kind, &body) {
            Ok(Control::Ack(report)) => {
                let bytes = writer().ack(0, &report);
                prop_assert_eq!(read(&bytes).1, Control::Ack(report));
            }
            Ok(Control::Probe(probe)) => {
                let bytes = writer().probe(0, &probe);
                prop_assert_eq!(read(&bytes).1, Control::Probe(probe));
            }
            Ok(_) => {}
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn every_cut_of_a_control_packet_is_refused_or_says_less(at in 0_usize..100) {
        let planes = |packet: u32| if packet.is_multiple_of(7) { 0 } else { FULL };
        let source = MapSource { planes: &planes, packets: 300, offset: 0, detail: Detail::Coarse };
        let status = Status {
            sequence: 1, report: Report::default(), missing: 43, expected: true, bound_holds: false, map: None,
        };
        let (bytes, _) = writer().status(7, &status, Some(&source));
        let cut = &bytes[BODY..][..at.min(bytes.len() - BODY)];
        match Control::parse(Kind::Status, cut) {
            Ok(Control::Status(read)) => prop_assert!(read.map.is_none() || cut.len() == bytes.len() - BODY),
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
    }
}

#[test]
fn golden_bytes_of_a_probe() {
    let probe = Probe {
        sequence: 2,
        packets: 1_000,
        planes: FULL,
        want_map: false,
        finish: true,
        grace_ns: 20_000,
        map_offset: 0,
    };
    assert_eq!(
        writer().probe(0x0102_0304, &probe),
        [
            0x33, 0x10, 0x15, 0x2c, 1, 2, 3, 4, 0, 0, 0, 2, 0, 0, 3, 0xe8, 10, 2, 0, 0, 0, 0, 0x4e, 0x20, 0,
            0, 0, 0
        ]
    );
}

#[test]
fn golden_bytes_of_an_ack() {
    let report =
        Report { echo: Some(Echo { packet: 0xa_bcde, cut: true, hold_ns: 258 }), received: 11, cut: 4 };
    assert_eq!(
        writer().ack(9, &report),
        [0x32, 0x10, 0x15, 0x2c, 0, 0, 0, 9, 0xc0, 0x0a, 0xbc, 0xde, 0, 0, 1, 2, 0, 0, 0, 11, 0, 0, 0, 4]
    );
}

#[test]
fn errors_name_the_kind_and_what_is_valid() {
    let text = |kind, body: &[u8]| Control::parse(kind, body).expect_err("invalid").to_string();
    assert_eq!(text(Kind::Probe, &[0; 19]), "Probe body has 19 bytes, at least 20 are needed");
    assert_eq!(text(Kind::Probe, &[0; 20]), "Probe speaks of a message of 0 packets; valid are 1 to 1048576");
    assert_eq!(
        text(Kind::Data, &[]),
        "Data is not a control packet; those are ACK, PROBE, STATUS, STOP and FINAL"
    );
}
