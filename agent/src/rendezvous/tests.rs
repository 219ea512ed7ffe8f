// SPDX-License-Identifier: Apache-2.0
//! Who has no key, and sits where rank 0 should be, or in between.

use super::channel::Channel;
use super::frame::Kind;
use super::proof::{Side, is_proven};
use super::*;
use std::net::{SocketAddr, TcpListener, TcpStream};

const SOON_NS: u64 = 30_000_000_000;

fn keyed(byte: u8) -> Security {
    Security { key: Some(SealKey::from_bytes(&[byte; 32]).expect("a key")), certificates: None }
}

fn config(port: u16, security: Security) -> Config {
    let master = Master { host: "127.0.0.1".to_owned(), port };
    Config { master, security, timeout: Duration::from_secs(30) }
}

fn offer(rank: u16) -> Offer {
    Offer::new(rank, 2, SocketAddr::from(([127, 0, 0, 1], 40_000 + rank)), 1)
}

/// A socket, and the configuration of ranks that look for rank 0 there.
fn listening() -> (TcpListener, Config) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    (listener, config(port, keyed(7)))
}

/// Takes a rank's connection, with a certificate for the occasion as rank 0 would have.
fn answer(listener: &TcpListener, clock: Clock) -> Channel {
    let (tcp, _) = listener.accept().expect("a connection");
    let tls = keyed(1).server().expect("valid").expect("a certificate");
    Channel::accept(tcp, clock, SOON_NS).and_then(|channel| channel.secure(tls)).expect("TLS")
}

#[test]
fn a_proof_sent_back_to_its_owner_proves_nothing() {
    let (listener, config) = listening();
    std::thread::scope(|scope| {
        let rank = scope.spawn(|| meet(offer(1), &config));
        let mut channel = answer(&listener, Clock::start());
        let (_, proof) = channel.receive(&[Kind::Proof]).expect("the rank's");
        channel.send(Kind::Proof, &proof).expect("sent");
        assert!(channel.receive(&[Kind::Offer]).is_err(), "nothing else is said to a stranger");
        drop(channel);
        let told = rank.join().expect("no panic").expect_err("a stranger").to_string();
        assert!(told.contains("does not know the job key"), "{told}");
    });
}

#[test]
fn who_sits_between_two_who_know_the_key_learns_nothing_and_passes_nothing_on() {
    let (listener, mut towards_middle) = listening();
    towards_middle.timeout = Duration::from_secs(1);
    let probe = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let real = config(probe.local_addr().expect("bound").port(), keyed(7));
    drop(probe);
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| meet(offer(0), &real));
        let rank = scope.spawn(|| meet(offer(1), &towards_middle));
        let clock = Clock::start();
        let mut from_rank = answer(&listener, clock);
        let (_, proof) = from_rank.receive(&[Kind::Proof]).expect("the rank's");
        let tcp = loop {
            match TcpStream::connect(("127.0.0.1", real.master.port)) {
                Ok(tcp) => break tcp,
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        let tls = keyed(1).client("127.0.0.1").expect("valid");
        let mut to_rank_0 = Channel::connect(tcp, tls, clock, SOON_NS).expect("TLS");
        let key = keyed(7).key.expect("a key");
        let bindings = [&from_rank, &to_rank_0].map(|channel| channel.binding().expect("TLS"));
        assert!(is_proven(&key, Side::Client, &bindings[0], &proof), "it holds where it was made");
        assert!(!is_proven(&key, Side::Client, &bindings[1], &proof));
        to_rank_0.send(Kind::Proof, &proof).expect("sent");
        let (_, refused) = to_rank_0.receive(&[Kind::Answer]).expect("rank 0's");
        assert!(String::from_utf8_lossy(&refused).contains("unproven"));
        drop((from_rank, to_rank_0));
        drop(listener);
        assert!(rank.join().expect("no panic").is_err(), "nobody is there any more");
        // The rank itself is believed.
        assert!(meet(offer(1), &real).is_ok() && rank_0.join().expect("no panic").is_ok());
    });
}
