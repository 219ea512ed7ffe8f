// SPDX-License-Identifier: Apache-2.0
//! A switch that runs Trimwire's program, the far ends of its ports, and its controller.
#![forbid(unsafe_code)]

use crate::namespace::connect;
use crate::switch::{ADDRESS, DEVICE_ID};
use crate::thrift::Thrift;
use crate::vectors::Vectors;
use crate::{FrameSocket, Kind, Namespace, RunningSwitch};
use anyhow::Context;
use tokio::runtime::Runtime;
use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::{counter, register};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::entity::Entity as Kinds;
use trimwire_p4runtime::v1::p4_data::Data;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{CounterData, Update};

/// BMv2's Thrift server, in the switch's namespace.
const THRIFT: u16 = 9090;

/// Fields are dropped in order: connections and the switch before their namespaces.
#[derive(Debug)]
pub struct Wired {
    /// The connection that programs the switch.
    pub client: Client,
    thrift: Option<Thrift>,
    /// What the connection runs on.
    pub runtime: Runtime,
    /// The switch.
    pub switch: RunningSwitch,
    /// The far ends of ports 0, 1, ….
    pub sockets: Vec<FrameSocket>,
    /// Names of the program.
    pub index: Index,
    _spaces: [Namespace; 2],
}

impl Wired {
    /// Starts a switch whose ports 0, 1, … serve `rate_bps` (0: no limit), loads the program and
    /// writes the ladder's tables.
    pub fn start(kind: &Kind, vectors: &Vectors, ports: u16, rate_bps: u64) -> anyhow::Result<Self> {
        let (space, far) = (Namespace::new("s")?, Namespace::new("w")?);
        let ports: Vec<u16> = (0..ports).collect();
        let mut sockets = Vec::new();
        for port in &ports {
            let ends = (format!("p{port}"), format!("w{port}"));
            let macs = (format!("02:aa:00:00:00:{port:02x}"), format!("02:bb:00:00:00:{port:02x}"));
            connect((&space, &ends.0, &macs.0), (&far, &ends.1, &macs.1))?;
            sockets.push(FrameSocket::open(&far, &ends.1)?);
        }
        let switch = RunningSwitch::start(kind, &space, &ports, rate_bps)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The connections stay in the namespace in which they were opened.
        let mut client = space.enter(|| Ok(runtime.block_on(Client::connect(ADDRESS))?))?;
        let thrift = match kind {
            Kind::Trimwire(_) => None,
            Kind::Bmv2(_) => Some(space.enter(|| Thrift::connect(THRIFT))?),
        };
        let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/");
        let p4info = P4Info::from_text(&std::fs::read_to_string(format!("{build}trimwire.p4info.txtpb"))?)?;
        let json = std::fs::read(format!("{build}trimwire.json"))?;
        let index = Index::new(&p4info)?;
        let updates = vectors.updates(&index)?;
        runtime.block_on(async {
            client.arbitrate(DEVICE_ID, 1, Role::default()).await?;
            client.set_pipeline(p4info, json, Some(1), Action::VerifyAndCommit).await?;
            client.write(updates, Atomicity::ContinueOnError).await
        })?;
        Ok(Self { client, thrift, runtime, switch, sockets, index, _spaces: [space, far] })
    }

    /// Writes to the switch.
    pub fn write(&self, updates: Vec<Update>) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.client.write(updates, Atomicity::ContinueOnError))?)
    }

    /// Cells of a counter, all of them or one: (index, value).
    pub fn counters(&self, array: &str, cell: Option<i64>) -> anyhow::Result<Vec<(i64, CounterData)>> {
        let entity = counter(&self.index, array, cell)?;
        let entities = self.runtime.block_on(self.client.read(vec![entity.into()]))?;
        let cells = entities.into_iter().filter_map(|entity| match entity.entity {
            Some(Kinds::CounterEntry(entry)) => {
                Some((entry.index.unwrap_or_default().index, entry.data.unwrap_or_default()))
            }
            _ => None,
        });
        Ok(cells.collect())
    }

    /// A cell of a register. BMv2 does not read registers over P4Runtime.
    pub fn register(&mut self, name: &str, cell: u32) -> anyhow::Result<u64> {
        if let Some(thrift) = &mut self.thrift {
            return thrift.register(name, cell);
        }
        let entry = register(&self.index, name, Some(cell.into()))?;
        let entities = self.runtime.block_on(self.client.read(vec![entry.into()]))?;
        let value = entities.into_iter().find_map(|entity| match entity.entity {
            Some(Kinds::RegisterEntry(entry)) => match entry.data?.data {
                Some(Data::Bitstring(bytes)) => Some(bytes),
                _ => None,
            },
            _ => None,
        });
        let bytes = value.with_context(|| format!("{name}[{cell}]: no value"))?;
        Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
}
