// SPDX-License-Identifier: Apache-2.0
//! Tables and frames of the measurements: the same for every switch.

use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::{ActionBuilder, TableEntryBuilder, insert, member, member_group};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::Update;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;

/// Lengths of the frames: a trimmed gradient packet's and a whole one's.
pub(super) const PACKET_BYTES: [usize; 2] = [102, 1_470];

const ROUTES: u32 = 1_000;
const GROUPS: u32 = 64;
/// Routes that there is room for beside them.
const ROOM: u32 = 2_500;
/// What a trimmable class is told by, and the queue it gets.
const DSCP: u8 = 3;
const QUEUE: u128 = 5;

/// The action data that every packet meets, as numbers: next hop to `port`, class, policy.
pub(super) const CLASS: [u128; 1] = [QUEUE];
pub(super) const THRESHOLDS: [u128; 9] = [30_000, 40_000, 60_000, 200_000, 412, 236, 35, 6, 100_000];

/// With which every packet that may be is trimmed, as behind a full queue.
const TRIMMING: [u128; 9] = [0, 0, 0, u32::MAX as u128, 412, 96, 35, 6, u32::MAX as u128];

/// Loads the program into a switch and fills all its tables that have keys over P4Runtime; routes
/// lead to ports 1 to `ports`.
pub(super) async fn install(address: &str, device_id: u64, ports: u32, trim: bool) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{address}: {error}");
    let mut client = Client::connect(address).await.map_err(|error| failed(&error))?;
    client.arbitrate(device_id, 1, Role::default()).await.map_err(|error| failed(&error))?;
    let p4info = P4Info::from_text(trimwire_p4::P4INFO).map_err(|error| failed(&error))?;
    client
        .set_pipeline(p4info, trimwire_p4::BMV2_JSON.to_vec(), None, Action::VerifyAndCommit)
        .await
        .map_err(|error| failed(&error))?;
    let index = client.index().ok_or_else(|| failed(&"the program has no P4Info"))?;
    for updates in updates(&index, ports, trim).map_err(|error| failed(&error))? {
        client.write(updates, Atomicity::ContinueOnError).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Writes so many routes to hosts that no frame is for, in one request after the other, after
/// [`install`]: inserts as many as a table has room for, and gives those other groups.
pub(super) async fn write_routes(address: &str, routes: u32) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{address}: {error}");
    let mut client = Client::connect(address).await.map_err(|error| failed(&error))?;
    client.arbitrate(1, 2, Role::default()).await.map_err(|error| failed(&error))?;
    let p4info = P4Info::from_text(trimwire_p4::P4INFO).map_err(|error| failed(&error))?;
    let index = Index::new(&p4info).map_err(|error| failed(&error))?;
    let route = |number: u32| {
        let entry = TableEntryBuilder::new(&index, "Ingress.ipv4_route");
        let entry = entry.lpm("dst_addr", u128::from(0x6440_0000 + number % ROOM), 32);
        let entry = entry.group((number + number / ROOM) % GROUPS + 1);
        if number < ROOM { entry.insert() } else { entry.modify() }
    };
    let updates = (0..routes).map(route).collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
    for updates in updates.chunks(ROOM as usize) {
        client.write(updates.to_vec(), Atomicity::ContinueOnError).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Batches in the order in which they have to be written.
fn updates(
    index: &Index,
    ports: u32,
    trim: bool,
) -> Result<Vec<Vec<Update>>, trimwire_p4runtime::entity::EntityError> {
    let (mut members, mut groups, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for id in 0..GROUPS {
        let port = u128::from(id % ports + 1);
        let action = ActionBuilder::new(index, "Ingress.forward")
            .param("port", port)
            .param("dst_mac", 0x0200_0000_0000 + u128::from(id));
        members.push(insert(member(index, "Ingress.ecmp", id + 1, action)?));
        let four = (0..4).map(|step| ((id + step) % GROUPS + 1, 1));
        groups.push(insert(member_group(index, "Ingress.ecmp", id + 1, four, 0)?));
    }
    for route in 0..ROUTES {
        let prefix = u128::from(0x0a00_0000 + (route << 8));
        let entry = TableEntryBuilder::new(index, "Ingress.ipv4_route").lpm("dst_addr", prefix, 24);
        entries.push(entry.group(route % GROUPS + 1).insert()?);
    }
    // Routes of other lengths, which no packet meets and every look-up may have to rule out.
    for (length, step) in [(32, 0), (28, 4), (20, 12), (16, 16), (8, 24)] {
        for route in 0..8 {
            let prefix = u128::from(0xac10_0000_u32.wrapping_add((route + 1) << step) >> step << step);
            let entry = TableEntryBuilder::new(index, "Ingress.ipv4_route").lpm("dst_addr", prefix, length);
            entries.push(entry.group(route % GROUPS + 1).insert()?);
        }
    }
    others(index, &mut entries)?;
    let class = TableEntryBuilder::new(index, "Ingress.classify").exact("dscp", u128::from(DSCP));
    entries.push(class.action("Ingress.set_trimmable").param("queue", QUEUE).insert()?);
    let names = [
        "mark_at",
        "shallow_at",
        "deep_at",
        "drop_at",
        "shallow_size",
        "deep_size",
        "trimmed_dscp",
        "trim_queue",
        "trim_drop_at",
    ];
    let thresholds = if trim { TRIMMING } else { THRESHOLDS };
    for port in 1..=32u128 {
        for importance in 0..2u128 {
            let mut entry = TableEntryBuilder::new(index, "Ingress.queue_policy.policy")
                .exact("egress_port", port)
                .exact("queue", QUEUE)
                .exact("importance", importance)
                .action("Ingress.queue_policy.set_thresholds");
            for (name, value) in names.into_iter().zip(thresholds) {
                entry = entry.param(name, value);
            }
            entries.push(entry.insert()?);
        }
    }
    let entries = entries.chunks(256).map(<[_]>::to_vec);
    Ok([members, groups].into_iter().chain(entries).collect())
}

/// Entries of the tables beside routes, classes and policies.
fn others(index: &Index, entries: &mut Vec<Update>) -> Result<(), trimwire_p4runtime::entity::EntityError> {
    let table = |name| TableEntryBuilder::new(index, name);
    for port in 1..=64_u128 {
        let trust =
            table("Ingress.trust").exact("ingress_port", port).ternary("dscp", u128::from(DSCP), 0x3f_u128);
        entries.push(trust.priority(2).action("Ingress.trust_dscp").insert()?);
        let trust = table("Ingress.trust").exact("ingress_port", port).priority(1);
        entries.push(trust.action("Ingress.remark_dscp").param("dscp", 0_u128).insert()?);
        let cap = table("Ingress.trim_cap.cap").exact("egress_port", port).action("Ingress.trim_cap.set_cap");
        entries.push(cap.param("rate", u128::from(u32::MAX)).param("burst", 255_u128).insert()?);
    }
    for dscp in [DSCP, 7, 11, 15] {
        let balance = table("Ingress.load_balance").exact("dscp", u128::from(dscp));
        entries.push(balance.action("Ingress.hash_five_tuple").param("half", 0_u128).insert()?);
    }
    entries.push(table("Ingress.mark_trimmable").exact("dscp", 7_u128).action("Ingress.mark_ce").insert()?);
    for port in 0..64_u128 {
        for acl in ["Ingress.trim_acl_ipv4", "Ingress.trim_acl_ipv6"] {
            let acl = table(acl).ternary("protocol", 17_u128, 0xff_u128).ternary(
                "dst_port",
                50_000 + port,
                0xffff_u128,
            );
            entries.push(acl.priority(1).action("Ingress.disable_trim").insert()?);
        }
        let prefix = 0xfd00_0001_u128 << 96 | port << 64;
        entries.push(table("Ingress.ipv6_route").lpm("dst_addr", prefix, 64).group(1).insert()?);
    }
    Ok(())
}

/// One UDP frame for each flow, to a third of the routes.
pub(super) fn frames(length: usize, flows: u32) -> Vec<Vec<u8>> {
    (0..flows).map(|flow| frame(length, flow)).collect()
}

fn frame(length: usize, number: u32) -> Vec<u8> {
    // Flows beyond 256 differ in their ports and hosts.
    let (flow, more) = ((number % 256) as u16, (number / 256) as u16);
    let mut frame = vec![0; length.max(42)];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00]);
    // ECN: ECT(0).
    let ip = [0x45, DSCP << 2 | 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 9, 9];
    frame[14..30].copy_from_slice(&ip);
    frame[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    // Every third of the routes.
    let [high, low] = (flow * 3).to_be_bytes();
    frame[30..34].copy_from_slice(&[10, high, low, 1 + (more / 128) as u8]);
    let sum: u32 = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
    frame[34..36].copy_from_slice(&(10_000 + flow + 256 * (more % 128)).to_be_bytes());
    frame[36..38].copy_from_slice(&9_217u16.to_be_bytes());
    frame[38..40].copy_from_slice(&((length - 34) as u16).to_be_bytes());
    frame
}
