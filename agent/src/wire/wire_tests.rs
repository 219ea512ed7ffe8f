// SPDX-License-Identifier: Apache-2.0
use super::trim_map::{Detail, FULL};
use super::*;
use proptest::prelude::*;
use trimwire_encoder::wire::{PREFIX_LEN, Prefix, StreamId};

const IDENTITY: Identity = Identity { from: 0x0a0b_0c0d, to: 7 };

fn writer() -> Writer {
    Writer { stream: StreamId::new(5, 300).expect("fits"), identity: IDENTITY, room: CONTROL_LEN_MAX }
}

fn report() -> impl Strategy<Value = Report> {
    let echo = (0..ECHO_PACKETS, any::<bool>(), any::<u32>());
    (prop::option::of(echo), any::<[u32; 3]>(), 0..=SENDERS_MAX).prop_map(
        |(echo, [received, trimmed, marked], senders)| Report {
            echo: echo.map(|(packet, trimmed, hold_ns)| Echo { packet, trimmed, hold_ns }),
            received,
            trimmed,
            marked,
            senders: NonZeroU16::new(senders),
        },
    )
}

fn progress() -> impl Strategy<Value = Progress<'static>> {
    let wanted = prop_oneof![Just(Wanted::EveryPlane), any::<u32>().prop_map(Wanted::AllBut)];
    (report(), any::<[u32; 2]>(), wanted, any::<[bool; 2]>(), 0..1_u32 << 24).prop_map(
        |(report, [sequence, missing], wanted, [expected, bound_holds], low)| Progress {
            sequence,
            report,
            missing,
            wanted,
            expected,
            bound_holds,
            low,
            map: None,
        },
    )
}

fn read(bytes: &[u8]) -> (Prefix, Control<'_>) {
    let prefix = Prefix::parse(bytes).expect("own prefix");
    let (identity, control) = Control::parse(prefix.kind, &bytes[PREFIX_LEN..]).expect("own body");
    assert_eq!(identity, IDENTITY);
    (prefix, control)
}

fn addresses() -> impl Strategy<Value = Vec<IpAddr>> {
    let v4 = prop::collection::vec(any::<[u8; 4]>().prop_map(IpAddr::from), 0..=ADDRESSES_MAX);
    let v6 = prop::collection::vec(any::<[u8; 16]>().prop_map(IpAddr::from), 0..=ADDRESSES_MAX);
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        progress in progress(), message: u32, words: [u32; 4], shape: u16, packets in 1..=MAX_PACKETS, planes in 1..=FULL, flags: [bool; 2],
        reason in 1_u8..=6, culprit: u16, length in Path::LEN as u16..9_200, ports in prop::collection::vec(any::<u16>(), 1..=PORTS_MAX), addresses in addresses(),
    ) {
        let bytes = writer().progress(message, false, &progress, None).0;
        prop_assert_eq!(read(&bytes).1, Control::Ack(progress));
        prop_assert_eq!((read(&bytes).0.stream, read(&bytes).0.message), (writer().stream, message));
        let bytes = writer().progress(message, true, &progress, None).0;
        prop_assert_eq!(read(&bytes).1, Control::Status(progress));

        let [sequence, grace_ns, map_offset, missing] = words;
        let [want_map, finish] = flags;
        let probe = Probe { sequence, packets, shape, planes, want_map, finish, grace_ns, map_offset };
        let bytes = writer().probe(message, &probe);
        prop_assert_eq!(read(&bytes).1, Control::Probe(probe));

        let stop = Stop { sequence, report: progress.report, missing, agreed: grace_ns, map: None };
        let bytes = writer().stop(message, &stop, None).0;
        prop_assert_eq!(read(&bytes).1, Control::Stop(stop));

        let abort = Abort { reason: Reason::try_from(reason).expect("valid"), culprit };
        let bytes = writer().abort(message, abort);
        prop_assert_eq!(read(&bytes).1, Control::Abort(abort));

        let path = Path { sequence, length, mtu: shape, answer: want_map, unheard: finish };
        let bytes = writer().path(&path);
        prop_assert_eq!(bytes.len(), if want_map { Path::LEN } else { usize::from(length) });
        prop_assert_eq!(read(&bytes).1, Control::Path(path));
        if !want_map {
            prop_assert!(Control::parse(Kind::Path, &bytes[PREFIX_LEN..bytes.len() - 1]).is_err(), "it ends early");
        }

        let bytes = writer().hello(finish, &ports, &addresses);
        prop_assert!(bytes.len() <= CONTROL_LEN_MAX);
        let Control::Hello(hello) = read(&bytes).1 else { panic!("no HELLO") };
        prop_assert_eq!((hello.answer, hello.ports().collect::<Vec<_>>(), hello.addresses().collect::<Vec<_>>()), (finish, ports, addresses));
    }

    #[test]
    fn maps_travel_behind_ack_status_stop_final_and_forward(progress in progress(), room in 200_usize..2_000, states in prop::collection::vec(0..=FULL, 1..5_000)) {
        let planes = |packet: u32| states[packet as usize];
        let source = MapSource { planes: &planes, packets: states.len() as u32, offset: 0, detail: Detail::Planes };
        let stop = Stop { sequence: 1, report: Report::default(), missing: 0, agreed: 0, map: None };
        let writer = || Writer { room, ..writer() };
        for (bytes, end) in [
            writer().progress(7, false, &progress, Some(&source)),
            writer().progress(7, true, &progress, Some(&source)),
            writer().stop(7, &stop, Some(&source)),
            writer().agreed(7, 1, &source),
            writer().forward(7, states.len() as u32, &source),
        ] {
            prop_assert!(bytes.len() <= CONTROL_LEN_MAX.min(room));
            let part = match read(&bytes).1 {
                Control::Ack(Progress { map: Some(part), .. })
                | Control::Status(Progress { map: Some(part), .. })
                | Control::Stop(Stop { map: Some(part), .. })
                | Control::Final(Final { map: part, .. })
                | Control::Forward(Forward { map: part, .. }) => part,
                other => panic!("{other:?} has no map"),
            };
            prop_assert_eq!(part.end(), end);
            let read: Vec<u8> = part.runs().flat_map(|r| std::iter::repeat_n(r.planes, r.count as usize)).collect();
            prop_assert_eq!(&read[..], &states[..end as usize]);
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_packet_that_is_written_back(kind in prop_oneof![2_u8..=9, Just(12)], body in prop::collection::vec(any::<u8>(), 0..90)) {
        let kind = Kind::try_from(kind).expect("valid kind");
        match Control::parse(kind, &body) {
            Ok((identity, control)) => {
                let writer = Writer { identity, ..writer() };
                let bytes = match control {
                    Control::Ack(progress) | Control::Status(progress) if progress.map.is_none() => {
                        // Where every plane is wanted nothing may be missing.
                        writer.progress(0, kind == Kind::Status, &progress, None).0
                    }
                    Control::Probe(probe) => writer.probe(0, &probe),
                    Control::Abort(abort) => writer.abort(0, abort),
                    Control::Path(path) => writer.path(&path),
                    Control::Hello(hello) => {
                        let addresses: Vec<_> = hello.addresses().collect();
                        writer.hello(hello.answer, &hello.ports().collect::<Vec<_>>(), &addresses)
                    },
                    _ => return Ok(()),
                };
                let again = Control::parse(kind, &bytes[PREFIX_LEN..]);
                prop_assert_eq!(again, Ok((identity, control)));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn every_prefix_of_a_control_packet_is_refused_or_says_less(progress in progress(), at in 0_usize..140) {
        let planes = |packet: u32| if packet.is_multiple_of(7) { 0 } else { FULL };
        let source = MapSource { planes: &planes, packets: 300, offset: 0, detail: Detail::Coarse };
        let (bytes, _) = writer().progress(7, true, &progress, Some(&source));
        let prefix = &bytes[PREFIX_LEN..][..at.min(bytes.len() - PREFIX_LEN)];
        match Control::parse(Kind::Status, prefix) {
            Ok((_, Control::Status(read))) => prop_assert!(read.map.is_none() || prefix.len() == bytes.len() - PREFIX_LEN),
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
        shape: 0x1234,
        planes: FULL,
        want_map: false,
        finish: true,
        grace_ns: 20_000,
        map_offset: 0,
    };
    assert_eq!(
        writer().probe(0x0102_0304, &probe),
        [
            0x53, 0x10, 0x15, 0x2c, 1, 2, 3, 4, 10, 11, 12, 13, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 3, 0xe8, 10, 2,
            0x12, 0x34, 0, 0, 0x4e, 0x20, 0, 0, 0, 0
        ]
    );
}

#[test]
fn golden_bytes_of_an_ack() {
    let echo = Some(Echo { packet: 0xa_bcde, trimmed: true, hold_ns: 258 });
    let progress = Progress {
        sequence: 1,
        report: Report { echo, received: 11, trimmed: 4, marked: 3, senders: NonZeroU16::new(0x155) },
        missing: 6,
        wanted: Wanted::AllBut(2),
        expected: true,
        bound_holds: false,
        low: 0x1_0203,
        map: None,
    };
    assert_eq!(
        writer().progress(9, false, &progress, None).0,
        [
            0x52, 0x10, 0x15, 0x2c, 0, 0, 0, 9, 10, 11, 12, 13, 0, 0, 0, 7, 0, 0, 0, 1, 0xd5, 0x5a, 0xbc,
            0xde, 0, 0, 1, 2, 0, 0, 0, 11, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 2, 1, 1, 2, 3
        ]
    );
}

#[test]
fn a_report_that_tells_no_number_of_senders_is_one_of_before_there_was_a_number() {
    let bytes = |echo, senders| {
        let report = Report { echo, senders: NonZeroU16::new(senders), ..Report::default() };
        let stop = Stop { sequence: 0, report, missing: 0, agreed: 0, map: None };
        writer().stop(9, &stop, None).0[PREFIX_LEN + IDENTITY_LEN + 4..][..4].to_vec()
    };
    let echo = Some(Echo { packet: 0xa_bcde, trimmed: true, hold_ns: 258 });
    assert_eq!(bytes(echo, 0), [0xc0, 0x0a, 0xbc, 0xde]);
    assert_eq!(bytes(None, 0), [0; 4]);
    // The bit that says whether there is an echo does not depend on it, and more than fit are as
    // many as fit.
    assert_eq!(bytes(None, u16::MAX), [0x3f, 0xf0, 0, 0]);
    assert_eq!(bytes(echo, u16::MAX), [0xff, 0xfa, 0xbc, 0xde]);
}

#[test]
fn errors_name_the_kind_and_what_is_valid() {
    let text = |kind, body: &[u8]| Control::parse(kind, body).expect_err("invalid").to_string();
    assert_eq!(text(Kind::Probe, &[0; 27]), "Probe body has 27 bytes, at least 28 are needed");
    assert_eq!(
        text(Kind::Probe, &[0; 28]),
        "Probe speaks of a message of 0 packets; valid are 1 to 16777216"
    );
    assert_eq!(text(Kind::Abort, &[0; 12]), "unknown reason 0 to abort; valid are 1 to 7");
    assert_eq!(text(Kind::Hello, &[0; 12]), "HELLO of 0 ports with room for 0; valid are 1 to 256");
    let hello = [0, 0, 0, 1, 0, 0, 0, 2, 0, 2, 0, 1, 0xc0, 0, 10, 0, 0, 1, 10];
    assert_eq!(text(Kind::Hello, &hello), "HELLO of 2 addresses with 5 bytes of them; valid are 0 to 8");
    assert_eq!(
        text(Kind::Data, &[]),
        "Data is not a control packet; those are ACK, PROBE, STATUS, STOP, FINAL, FORWARD, ABORT, HELLO, PATH and VOTE"
    );
}
