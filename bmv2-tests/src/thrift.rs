// SPDX-License-Identifier: Apache-2.0
//! Calls of BMv2's Thrift interface that its P4Runtime lacks: registers, members of parser value
//! sets, and queues deep enough for a burst.
#![forbid(unsafe_code)]

use crate::process::poll;
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// TBinaryProtocol, strict.
const CALL: u32 = 0x8001_0001;
const REPLY: u32 = 0x8001_0002;
const I32: u8 = 8;
const I64: u8 = 10;
const STRING: u8 = 11;
const STOP: u8 = 0;
const PATIENCE: Duration = Duration::from_secs(10);

/// An argument of a call.
enum Argument<'a> {
    Number(u32),
    Bytes(&'a [u8]),
}

/// A connection to the server on localhost of the namespace in which it was opened.
#[derive(Debug)]
pub struct Thrift {
    stream: TcpStream,
}

impl Thrift {
    /// BMv2 opens this port after the one of P4Runtime, on a busy machine some time after.
    pub fn connect(port: u16) -> anyhow::Result<Self> {
        let look = || Ok(Some(TcpStream::connect(("127.0.0.1", port))?));
        Ok(Self { stream: poll("BMv2's Thrift server", PATIENCE, look)? })
    }

    /// A cell of a register.
    pub fn register(&mut self, name: &str, cell: u32) -> anyhow::Result<u64> {
        let arguments = [Argument::Number(0), Argument::Bytes(name.as_bytes()), Argument::Number(cell)];
        ensure!(self.call("standard:bm_register_read", &arguments)? == I64, "no {name}[{cell}]");
        let value = u64::from_be_bytes(self.take()?);
        let [STOP] = self.take()? else { anyhow::bail!("{name}[{cell}]: more than a value") };
        Ok(value)
    }

    /// Adds a member to a value set, padded to whole bytes.
    pub fn add_value_set_member(&mut self, set: &str, member: &[u8]) -> anyhow::Result<()> {
        let arguments = [Argument::Number(0), Argument::Bytes(set.as_bytes()), Argument::Bytes(member)];
        let result = self.call("standard:bm_parse_vset_add", &arguments)?;
        ensure!(result == STOP, "BMv2 refuses a member of value set {set}");
        Ok(())
    }

    /// All egress queues hold that many packets. By default it is 64, and BMv2 drops the rest
    /// silently.
    pub fn set_queue_depths(&mut self, packets: u32) -> anyhow::Result<()> {
        let method = "simple_switch:set_all_egress_queue_depths";
        ensure!(self.call(method, &[Argument::Number(packets)])? == I32, "BMv2 refuses to deepen its queues");
        let [0, 0, 0, 0, STOP] = self.take()? else { anyhow::bail!("BMv2 did not deepen its queues") };
        Ok(())
    }

    /// A call of a multiplexed service; the type of the result's field 0, or `STOP` for no result.
    fn call(&mut self, method: &str, arguments: &[Argument]) -> anyhow::Result<u8> {
        let mut message = CALL.to_be_bytes().to_vec();
        let text = |message: &mut Vec<u8>, bytes: &[u8]| {
            message.extend((bytes.len() as u32).to_be_bytes());
            message.extend(bytes);
        };
        text(&mut message, method.as_bytes());
        message.extend([0, 0, 0, 1]);
        for (id, argument) in (1_u16..).zip(arguments) {
            message.push(if matches!(argument, Argument::Number(_)) { I32 } else { STRING });
            message.extend(id.to_be_bytes());
            match argument {
                Argument::Number(number) => message.extend(number.to_be_bytes()),
                Argument::Bytes(bytes) => text(&mut message, bytes),
            }
        }
        message.push(STOP);
        self.stream.write_all(&message)?;
        let kind = u32::from_be_bytes(self.take()?);
        let length = u32::from_be_bytes(self.take()?);
        // The method's name and a sequence number.
        let mut rest = vec![0; length as usize + 4];
        self.stream.read_exact(&mut rest)?;
        ensure!(kind == REPLY, "BMv2 answers {method} with an exception");
        let [field] = self.take()?;
        if field != STOP {
            let id: [u8; 2] = self.take()?;
            ensure!(id == [0, 0], "BMv2 refuses {method}");
        }
        Ok(field)
    }

    fn take<const LENGTH: usize>(&mut self) -> anyhow::Result<[u8; LENGTH]> {
        let mut bytes = [0; LENGTH];
        self.stream.read_exact(&mut bytes).context("BMv2's Thrift server")?;
        Ok(bytes)
    }
}
