// SPDX-License-Identifier: Apache-2.0
//! Who has no key, and sits where rank 0 should be, or in between.

use super::message::Word;
use super::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};

fn config(port: u16) -> Config {
    let master = Master { host: "127.0.0.1".to_owned(), port };
    let key = Some(SealKey::from_bytes(&[7; 32]).expect("a key"));
    Config { master, key, timeout: Duration::from_secs(30) }
}

fn offer(rank: u16) -> Offer {
    Offer::new(rank, 2, SocketAddr::from(([127, 0, 0, 1], 40_000 + rank)), 1)
}

/// A socket, and the configuration of ranks that look for rank 0 there.
fn listening() -> (TcpListener, Config) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    (listener, config(port))
}

/// Without the key: says its own hello to a rank, and gives its offer with the proof.
fn greet(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a hello");
    let mut stream = stream;
    writeln!(stream, "{}", Word::Hello([9; 32]).json()).expect("said");
    line.clear();
    reader.read_line(&mut line).expect("an offer");
    line
}

#[test]
fn a_proof_sent_back_to_its_owner_proves_nothing() {
    let (listener, config) = listening();
    std::thread::scope(|scope| {
        let rank = scope.spawn(|| meet(offer(1), &config));
        let (mut stream, _) = listener.accept().expect("a connection");
        let line = greet(&stream);
        stream.write_all(line.as_bytes()).expect("said");
        let told = rank.join().expect("no panic").expect_err("a stranger").to_string();
        assert!(told.contains("does not know the job key"), "{told}");
    });
}

#[test]
fn an_offer_to_somebody_else_is_not_an_offer_to_rank_0() {
    let (listener, towards_middle) = listening();
    let probe = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let real = config(probe.local_addr().expect("bound").port());
    drop(probe);
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| meet(offer(0), &real));
        let rank = scope.spawn(|| meet(offer(1), &towards_middle));
        // Both speak to the one in the middle, who gives each a nonce of its own and passes on what they prove.
        let (from_rank, _) = listener.accept().expect("a connection");
        let line = greet(&from_rank);
        let mut to_rank_0 = loop {
            match TcpStream::connect(("127.0.0.1", real.master.port)) {
                Ok(tcp) => break tcp,
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        writeln!(to_rank_0, "{}", Word::Hello([8; 32]).json()).expect("said");
        let mut reader = BufReader::new(to_rank_0.try_clone().expect("a descriptor"));
        let mut answer = String::new();
        reader.read_line(&mut answer).expect("a hello");
        to_rank_0.write_all(line.as_bytes()).expect("said");
        answer.clear();
        reader.read_line(&mut answer).expect("an answer");
        assert!(answer.contains("unproven"), "{answer}");
        // Nor is an agreement that the one in the middle makes up believed.
        let (job, seed, fresh, members) = (0, 1, [0; 32], Vec::new());
        let made_up = Word::Agreed(Agreed { job, seed, mtu: None, channels: 1, fresh, members });
        writeln!(&from_rank, "{}", made_up.json()).expect("said");
        let told = rank.join().expect("no panic").expect_err("a stranger").to_string();
        assert!(told.contains("does not know the job key"), "{told}");
        // The rank itself is believed.
        assert!(meet(offer(1), &real).is_ok() && rank_0.join().expect("no panic").is_ok());
    });
}
