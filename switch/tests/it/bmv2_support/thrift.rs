// SPDX-License-Identifier: Apache-2.0
//! The two calls of BMv2's Thrift interface that its P4Runtime lacks: members of parser value sets,
//! and queues deep enough for a burst.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const VERSION_CALL: u32 = 0x8001_0001;
const REPLY: u8 = 2;
const I32: u8 = 8;
const STRING: u8 = 11;
const STOP: u8 = 0;
/// How often, and how long apart, a server that starts is looked for: ten seconds.
const PATIENCE: u32 = 500;
const PAUSE: Duration = Duration::from_millis(20);

fn string(message: &mut Vec<u8>, bytes: &[u8]) {
    message.extend((bytes.len() as u32).to_be_bytes());
    message.extend(bytes);
}

/// BMv2 opens this port after the one of P4Runtime, on a busy machine some time after.
fn connect(port: u16) -> TcpStream {
    for _ in 0..PATIENCE {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            return stream;
        }
        std::thread::sleep(PAUSE);
    }
    TcpStream::connect(("127.0.0.1", port)).expect("BMv2's Thrift server")
}

/// A call in the binary protocol of a multiplexed service; `false` where it answers with an
/// exception.
fn call(port: u16, name: &str, arguments: &[u8]) -> bool {
    let mut message = VERSION_CALL.to_be_bytes().to_vec();
    string(&mut message, name.as_bytes());
    message.extend(1u32.to_be_bytes());
    message.extend(arguments);
    message.push(STOP);
    let mut stream = connect(port);
    stream.write_all(&message).unwrap();
    // Version and type, name, sequence number, and the first field of the result: 0 for a value,
    // more for an exception.
    let mut head = [0; 8];
    stream.read_exact(&mut head).unwrap();
    let name = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let mut rest = vec![0; name + 5];
    stream.read_exact(&mut rest).unwrap();
    let succeeded = rest[name + 4] == STOP || {
        let mut field = [0; 2];
        stream.read_exact(&mut field).unwrap();
        field == [0, 0]
    };
    head[3] == REPLY && succeeded
}

/// `set`'s member, padded to whole bytes.
pub(super) fn add_value_set_member(port: u16, set: &str, member: &[u8]) {
    let mut arguments = vec![I32, 0, 1, 0, 0, 0, 0, STRING, 0, 2];
    string(&mut arguments, set.as_bytes());
    arguments.extend([STRING, 0, 3]);
    string(&mut arguments, member);
    assert!(call(port, "standard:bm_parse_vset_add", &arguments), "BMv2 refuses a member of value set {set}");
}

/// All egress queues hold that many packets; by default 64, and BMv2 drops the rest silently.
pub(super) fn set_queue_depths(port: u16, packets: u32) {
    let mut arguments = vec![I32, 0, 1];
    arguments.extend(packets.to_be_bytes());
    let done = call(port, "simple_switch:set_all_egress_queue_depths", &arguments);
    assert!(done, "BMv2 refuses to deepen its queues");
}
