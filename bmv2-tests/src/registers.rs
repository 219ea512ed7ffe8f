// SPDX-License-Identifier: Apache-2.0
//! A cell of a register: from our switch over P4Runtime, from BMv2, which does not read registers there, over Thrift.
#![forbid(unsafe_code)]

use crate::Kind;
use anyhow::{Context, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use tokio::runtime::Runtime;
use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::entity::register;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::entity::Entity as Kinds;
use trimwire_p4runtime::v1::p4_data::Data;

/// BMv2's Thrift server, in the switch's namespace.
const THRIFT: &str = "127.0.0.1:9090";
const CALL: u32 = 0x8001_0001;
const REPLY: u32 = 0x8001_0002;
const I32: u8 = 8;
const I64: u8 = 10;
const STRING: u8 = 11;
const STOP: u8 = 0;

/// Reads cells of one switch; has to be made in the switch's namespace.
#[derive(Debug)]
pub struct Registers {
    thrift: Option<TcpStream>,
}

impl Registers {
    /// Connects where that is needed.
    pub fn connect(kind: &Kind) -> anyhow::Result<Self> {
        let thrift = match kind {
            Kind::Trimwire(_) => None,
            Kind::Bmv2(_) => Some(TcpStream::connect(THRIFT).context("BMv2's Thrift server")?),
        };
        Ok(Self { thrift })
    }

    /// Cell `cell` of `name`.
    pub fn read(
        &mut self,
        (runtime, client, index): (&Runtime, &Client, &Index),
        name: &str,
        cell: u32,
    ) -> anyhow::Result<u64> {
        if let Some(stream) = &mut self.thrift {
            return thrift_read(stream, name, cell);
        }
        let entry = register(index, name, Some(cell.into()))?;
        let entities = runtime.block_on(client.read(vec![entry.into()]))?;
        let value = entities.into_iter().find_map(|entity| match entity.entity {
            Some(Kinds::RegisterEntry(entry)) => entry.data?.data,
            _ => None,
        });
        let Some(Data::Bitstring(bytes)) = value else { bail!("{name}[{cell}]: no value") };
        Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
}

/// `bm_register_read(cx_id = 0, name, cell)` in the binary protocol of a multiplexed service.
fn thrift_read(stream: &mut TcpStream, name: &str, cell: u32) -> anyhow::Result<u64> {
    let method = b"standard:bm_register_read";
    let mut message = CALL.to_be_bytes().to_vec();
    message.extend((method.len() as u32).to_be_bytes());
    message.extend(method);
    message.extend([0, 0, 0, 1]);
    message.extend([I32, 0, 1, 0, 0, 0, 0]);
    message.extend([STRING, 0, 2]);
    message.extend((name.len() as u32).to_be_bytes());
    message.extend(name.as_bytes());
    message.extend([I32, 0, 3]);
    message.extend(cell.to_be_bytes());
    message.push(STOP);
    stream.write_all(&message)?;
    let mut word = [0; 4];
    stream.read_exact(&mut word)?;
    ensure!(u32::from_be_bytes(word) == REPLY, "BMv2 refuses to read {name}[{cell}]");
    stream.read_exact(&mut word)?;
    let mut rest = vec![0; u32::from_be_bytes(word) as usize + 4];
    stream.read_exact(&mut rest)?;
    let mut field = [0; 3];
    stream.read_exact(&mut field)?;
    ensure!(field == [I64, 0, 0], "BMv2 has no {name}[{cell}]");
    let mut value = [0; 9];
    stream.read_exact(&mut value)?;
    let [value @ .., _stop] = value;
    Ok(u64::from_be_bytes(value))
}
