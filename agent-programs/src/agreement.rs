// SPDX-License-Identifier: Apache-2.0
//! Ranks of a measurement tell each other what they were told to do, before they do it: two that
//! were told different things would wait for each other, or decode noise.

use crate::publish::Publisher;
use crate::{Failure, bad_input, failed};
use anyhow::anyhow;
use trimwire_agent::collective::{
    Algorithm, Collective, Communicator, CommunicatorConfig, Memory, OperationError, Options, Outcome,
};
use trimwire_agent::driver::{Driver, Link};
use trimwire_agent::endpoint::{MTU_LEAST, MTU_MOST};

/// Words that each rank tells; the last one is the MTU of its interfaces, 0 where it has none.
const WORDS: usize = 48;
const TERMS: usize = WORDS - 1;
/// What a rank says that does as others do: a server.
const ANYTHING: u32 = u32::MAX;

/// What a rank was told: an option's name and its value, 64 bits each.
pub(crate) type Terms = Vec<(&'static str, u64)>;

fn words(terms: &Terms) -> Vec<u32> {
    let mut words: Vec<u32> =
        terms.iter().flat_map(|&(_, value)| [(value >> 32) as u32, value as u32]).collect();
    words.resize(WORDS, 0);
    words
}

/// Where stand the seed and the rows' size, which servers take over, and what they compare.
pub(crate) const SEED: usize = 0;
pub(crate) const ROW_LOG2: usize = 1;
pub(crate) const OPERATION: usize = 2;
pub(crate) const SERVERS: usize = 3;

/// Servers in a number.
pub(crate) fn of_servers(servers: &[u16]) -> u64 {
    servers.iter().fold(0, |set, &server| set ^ 1_u64.rotate_left(server.into()))
}

/// What all said.
pub(crate) struct Told {
    /// Values by rank; `None` of a rank that does as others do.
    pub(crate) terms: Vec<Option<Vec<u64>>>,
    /// The smallest of the ranks' MTUs: packets are made to fit it.
    pub(crate) mtu: Option<u16>,
}

/// The exchange, which is operation 0 of a job.
pub(crate) struct Exchange {
    communicator: Communicator,
}

impl Exchange {
    /// Begins; `None`: this rank does as others do.
    pub(crate) fn start<L: Link>(terms: Option<&Terms>, driver: &mut Driver<L>) -> Result<Self, Failure> {
        let (rank, world) = (driver.endpoint().config().rank, driver.endpoint().config().world);
        let mut own = terms.map_or_else(|| vec![ANYTHING; WORDS], words);
        own[TERMS] = driver.endpoint().config().mtu.map_or(0, u32::from);
        let own: Vec<f32> = own.into_iter().map(f32::from_bits).collect();
        let (input, output) =
            (Memory::from_vec(own), Memory::from_vec(vec![0.0_f32; usize::from(world) * WORDS]));
        // With every number at its default: numbers are what is to be agreed on. Of words so few a
        // packet holds all, at any MTU.
        let mut communicator = Communicator::new(CommunicatorConfig::new(rank, world));
        let options = Options { exact: true, algorithm: Algorithm::Direct, ..Options::default() };
        let now_ns = driver.now_ns();
        let gather = Collective::AllGather { input, output };
        communicator.start(now_ns, 0, gather, options, driver.endpoint()).map_err(failed)?;
        Ok(Self { communicator })
    }

    /// To be driven until its outcome.
    pub(crate) fn communicator(&mut self) -> &mut Communicator {
        &mut self.communicator
    }

    /// What everybody said.
    pub(crate) fn told(outcome: Outcome) -> Result<Told, OperationError> {
        outcome.result?;
        let told = outcome.output.and_then(|memory| memory.into_vec::<f32>().ok()).unwrap_or_default();
        let words: Vec<u32> = told.into_iter().map(f32::to_bits).collect();
        let each = words.as_chunks::<WORDS>().0;
        let terms = each.iter().map(|words| {
            let terms = &words[..TERMS];
            let values = terms.as_chunks::<2>().0;
            let values = values.iter().map(|&[high, low]| u64::from(high) << 32 | u64::from(low));
            (terms != [ANYTHING; TERMS]).then(|| values.collect())
        });
        let mtus = each.iter().filter_map(|words| u16::try_from(words[TERMS]).ok());
        let mtu = mtus.filter(|&mtu| mtu > 0).map(|mtu| mtu.clamp(MTU_LEAST, MTU_MOST)).min();
        Ok(Told { terms: terms.collect(), mtu })
    }
}

/// Exchanges terms; ranks whose terms differ all fail, and say in what. Gives the smallest of their
/// MTUs.
pub(crate) fn agree<L: Link>(
    terms: &Terms,
    driver: &mut Driver<L>,
    publisher: &mut Publisher,
) -> Result<Option<u16>, Failure> {
    let rank = driver.endpoint().config().rank;
    let mut exchange = Exchange::start(Some(terms), driver)?;
    let outcome = publisher.run(driver, u64::MAX, exchange.communicator())?;
    let outcome = outcome.ok_or_else(|| failed(anyhow!("the ranks' agreement did not end")))?;
    let told = Exchange::told(outcome).map_err(failed)?;
    let differs = told.terms.iter().enumerate().find_map(|(other, values)| {
        let values = values.as_ref()?;
        let (&(name, own), &theirs) = terms.iter().zip(values).find(|((_, own), theirs)| own != *theirs)?;
        Some(format!("{name} is {own} at rank {rank} and {theirs} at rank {other}"))
    });
    let Some(differs) = differs else { return Ok(told.mtu) };
    // The others are to hear it before this rank is gone.
    driver.linger(300_000_000, 5_000_000_000).map_err(failed)?;
    Err(bad_input(anyhow!("the ranks were told different things: {differs}")))
}
