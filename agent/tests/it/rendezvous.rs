// SPDX-License-Identifier: Apache-2.0
//! Ranks that meet over loopback: what they agree on, what they are told when they do not, and what
//! strangers can do about it.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use trimwire_agent::rendezvous::{Config, Master, Offer, RendezvousError, Roster, meet};
use trimwire_bmv2_tests::ports;
use trimwire_encoder::SealKey;

const LONG: Duration = Duration::from_secs(60);
type Met = Result<Roster, RendezvousError>;

/// Where a meeting can be: a free port of an address.
fn place(host: &str, key: Option<SealKey>, timeout: Duration) -> Config {
    let port = ports::free(host);
    Config { master: Master { host: host.to_owned(), port }, key, timeout }
}

fn address(config: &Config) -> SocketAddr {
    SocketAddr::new(config.master.host.parse().expect("literal"), config.master.port)
}

fn offer(rank: u16, world: u16, config: &Config) -> Offer {
    let at = SocketAddr::new(address(config).ip(), 40_000 + rank);
    Offer::new(rank, world, at, 100 + u32::from(rank))
}

/// All at once, each on its thread; what each is told, in the order of the offers.
fn together(offers: Vec<Offer>, config: &Config) -> Vec<Met> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            offers.into_iter().map(|offer| scope.spawn(move || meet(offer, config))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn all(world: u16, config: &Config) -> Vec<Offer> {
    (0..world).map(|rank| offer(rank, world, config)).collect()
}

fn keyed(byte: u8) -> SealKey {
    SealKey::from_bytes(&[byte; 32]).expect("a key")
}

/// Something by which two keys can be compared.
fn print(agreement: &Roster) -> Option<Vec<u8>> {
    agreement.seal.as_ref().map(|key| key.derive(&[], b"test").to_vec())
}

fn assert_all_agree(met: Vec<Met>) -> Roster {
    let met: Vec<Roster> = met.into_iter().map(|met| met.expect("meets")).collect();
    for other in &met {
        assert_eq!((other.job, other.seed, other.mtu), (met[0].job, met[0].seed, met[0].mtu));
        assert_eq!(other.members, met[0].members);
        assert_eq!(print(other), print(&met[0]));
    }
    met.into_iter().next().expect("some")
}

/// That everyone is told the same, and what.
fn refusal(met: &[Met]) -> String {
    let texts: Vec<String> = met
        .iter()
        .map(|met| match met {
            Err(error @ RendezvousError::Refused(_)) => error.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
    texts.into_iter().next().expect("some")
}

fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

#[test]
fn ranks_started_in_any_order_agree_over_ipv4_and_ipv6_with_and_without_a_key() {
    for host in ["127.0.0.1", "::1"] {
        if host == "::1" && !has_ipv6() {
            let _ = writeln!(std::io::stderr(), "SKIPPED: no IPv6 on loopback");
            continue;
        }
        for key in [None, Some(keyed(7))] {
            let config = place(host, key, LONG);
            let (late, early) = (offer(0, 5, &config), all(5, &config).split_off(1));
            let met = std::thread::scope(|scope| {
                let others = scope.spawn(|| together(early, &config));
                // The others find nobody for a while.
                std::thread::sleep(Duration::from_millis(150));
                let own = meet(late, &config);
                let mut met = others.join().expect("no panic");
                met.insert(0, own);
                met
            });
            let agreed = assert_all_agree(met);
            assert_eq!(agreed.job, 0);
            assert_eq!(agreed.seal.is_some(), config.key.is_some());
            for (rank, member) in (0..).zip(&agreed.members) {
                assert_eq!(member.address, offer(rank, 5, &config).address);
                assert_eq!(member.incarnation, 100 + u32::from(rank));
            }
        }
    }
}

#[test]
fn no_two_runs_have_the_same_seed_or_packets_key() {
    let config = place("127.0.0.1", Some(keyed(7)), LONG);
    let [first, second] = [(); 2].map(|()| assert_all_agree(together(all(2, &config), &config)));
    assert_ne!(first.seed, second.seed);
    assert_ne!(print(&first), print(&second));
}

#[test]
fn what_ranks_give_is_kept_and_what_they_do_not_is_rank_0s() {
    let config = place("127.0.0.1", None, LONG);
    let mut offers = all(3, &config);
    (offers[0].seed, offers[0].job) = (Some(u64::MAX), Some(9));
    (offers[1].seed, offers[2].job) = (Some(u64::MAX), Some(9));
    (offers[0].mtu, offers[2].mtu) = (Some(9_000), Some(1_400));
    let agreed = assert_all_agree(together(offers, &config));
    assert_eq!((agreed.seed, agreed.job, agreed.mtu), (u64::MAX, 9, Some(1_400)));
}

#[test]
fn everyone_hears_who_did_not_come() {
    let config = place("127.0.0.1", Some(keyed(7)), Duration::from_secs(2));
    let here = [0, 2, 4].map(|rank| offer(rank, 6, &config)).to_vec();
    let told = refusal(&together(here, &config));
    assert_eq!(told, "the ranks did not meet: ranks 1, 3 and 5 of 6 did not come within 2 s");
}

#[test]
fn everyone_hears_who_differs_and_in_what() {
    let config = place("127.0.0.1", None, LONG);
    let mut offers = all(4, &config);
    (offers[0].job, offers[2].job) = (Some(1), Some(9));
    assert_eq!(refusal(&together(offers, &config)), "the ranks did not meet: rank 2 has job 9, rank 0 has 1");
    let mut offers = all(4, &config);
    offers[3].world = 5;
    assert_eq!(
        refusal(&together(offers, &config)),
        "the ranks did not meet: rank 3 was started as one of 5 ranks, rank 0 as one of 4"
    );
}

#[test]
fn another_job_on_the_port_is_refused_and_the_first_one_meets() {
    let config = place("127.0.0.1", None, LONG);
    let [own, second, third] = [0, 1, 2].map(|rank| offer(rank, 3, &config));
    let other = Offer { address: SocketAddr::from(([127, 0, 0, 1], 9_000)), ..own.clone() };
    let (told, met) = std::thread::scope(|scope| {
        let first = scope.spawn(|| meet(own, &config));
        trimwire_bmv2_tests::process::poll("rank 0 to listen", LONG, || {
            Ok(TcpStream::connect(address(&config)).ok())
        })
        .expect("it listens");
        let told = meet(other, &config).expect_err("the first one stays").to_string();
        let mut met = together(vec![second, third], &config);
        met.insert(0, first.join().expect("no panic"));
        (told, met)
    });
    assert_all_agree(met);
    assert!(told.contains("rank 0 came twice: from 127.0.0.1:") && told.contains("MASTER_PORT"), "{told}");
}

#[test]
fn nobody_waits_for_longer_than_they_said_where_rank_0_never_listens() {
    let config = place("127.0.0.1", Some(keyed(7)), Duration::from_secs(1));
    let told = meet(offer(1, 2, &config), &config).expect_err("nobody is there").to_string();
    let expected = format!("rank 0 did not answer at {} within 1 s: ", config.master);
    assert!(told.starts_with(&expected) && told.contains("refused"), "{told}");
}

#[test]
fn rank_0_says_that_somebody_else_listens_on_its_port() {
    let config = place("127.0.0.1", None, Duration::from_secs(1));
    let silent = TcpListener::bind(address(&config)).expect("free");
    let told = meet(offer(0, 2, &config), &config).expect_err("the port is taken").to_string();
    assert!(told.starts_with(&format!("rank 0 cannot listen on TCP {}: ", config.master)), "{told}");
    assert!(told.contains("MASTER_PORT chooses another"), "{told}");
    drop(silent);
}

#[test]
fn who_does_not_know_the_key_is_told_so_and_takes_nobodys_place() {
    let config = place("127.0.0.1", Some(keyed(7)), LONG);
    let with = |key| Config { key, ..config.clone() };
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| meet(offer(0, 2, &config), &config));
        let told = meet(offer(1, 2, &config), &with(Some(keyed(8)))).expect_err("another key");
        let told = told.to_string();
        assert!(
            told.contains("who came from 127.0.0.1:") && told.contains("does not have rank 0's job key"),
            "{told}"
        );
        let told = meet(offer(1, 2, &config), &with(None)).expect_err("no key");
        assert!(told.to_string().contains("does not have rank 0's job key"), "{told}");
        let right = meet(offer(1, 2, &config), &config);
        assert_all_agree(vec![right, rank_0.join().expect("no panic")]);
    });
}

#[test]
fn a_key_that_rank_0_does_not_have_is_told_to_who_has_it_and_to_rank_0() {
    let config = place("127.0.0.1", None, Duration::from_secs(2));
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| meet(offer(0, 2, &config), &config));
        let told = meet(offer(1, 2, &config), &Config { key: Some(keyed(8)), ..config.clone() });
        let told = told.expect_err("no key there").to_string();
        assert!(told.contains("has a job key, and rank 0 has none"), "{told}");
        let told = rank_0.join().expect("no panic").expect_err("alone").to_string();
        assert!(
            told.contains("rank 1 of 2 did not come within 2 s (sent away: 127.0.0.1 has a job key"),
            "{told}"
        );
    });
}

/// A hello as the module's documentation lays it out.
fn hello() -> String {
    format!("{{\"hello\":{:?}}}\n", [1; 32])
}

/// An offer of a job without a key.
fn line(offer: &Offer) -> String {
    format!("{{\"offer\":{}}}\n", serde_json::to_string(offer).expect("JSON"))
}

fn connect(config: &Config) -> TcpStream {
    loop {
        match TcpStream::connect(address(config)) {
            Ok(stream) => return stream,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[test]
fn silence_garbage_halves_and_hundreds_of_connections_do_not_keep_ranks_from_meeting() {
    for key in [None, Some(keyed(7))] {
        let config = place("127.0.0.1", key, LONG);
        let line = line(&offer(1, 4, &config));
        std::thread::scope(|scope| {
            let rank_0 = scope.spawn(|| meet(offer(0, 4, &config), &config));
            let mut strangers: Vec<TcpStream> = Vec::new();
            for number in 0..200 {
                let mut stream = connect(&config);
                let said = match number % 8 {
                    0 => "GET / HTTP/1.1\r\n\r\n".to_owned(),
                    1 => hello() + &line[..line.len() / 2],
                    2 => hello() + &"x".repeat(1 << 20),
                    3 => hello() + "{\"offer\":{}}\n",
                    4 => line.clone(),
                    5 => hello() + "null\n",
                    // Silent.
                    _ => String::new(),
                };
                // Who was sent away meanwhile cannot be told.
                let _ = stream.write_all(said.as_bytes());
                strangers.push(stream);
            }
            let mut met = together(all(4, &config).split_off(1), &config);
            met.push(rank_0.join().expect("no panic"));
            assert_all_agree(met);
        });
    }
}

#[test]
fn a_rank_that_dies_while_it_waits_may_come_again() {
    let config = place("127.0.0.1", None, LONG);
    let line = line(&offer(1, 3, &config));
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| meet(offer(0, 3, &config), &config));
        for _ in 0..40 {
            let mut stream = connect(&config);
            stream.write_all(hello().as_bytes()).expect("written");
            let mut answer = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            reader.read_line(&mut answer).expect("a hello");
            // Whether this one was heard before it went makes no difference.
            stream.write_all(line.as_bytes()).expect("written");
        }
        let mut met = together(all(3, &config).split_off(1), &config);
        met.push(rank_0.join().expect("no panic"));
        assert_all_agree(met);
    });
}

#[test]
fn a_stranger_who_answers_for_rank_0_is_not_believed() {
    let hello = hello();
    let answers = [
        "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        hello.clone() + "null\n",
        hello.clone() + &"x".repeat(1 << 20),
        hello.clone() + "{\"agreed\":{\"members\":0}}\n",
        hello.clone() + &hello,
    ];
    for answer in answers {
        let config = place("127.0.0.1", None, LONG);
        let listener = TcpListener::bind(address(&config)).expect("free");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a connection");
                // The other side may have had enough already.
                let _ = stream.write_all(answer.as_bytes());
                // Until the other side has had enough.
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let told = meet(offer(1, 2, &config), &config).expect_err("a stranger");
            assert!(matches!(told, RendezvousError::Stranger { .. }), "{told}");
        });
    }
}

#[test]
fn hundreds_of_ranks_on_one_host_meet() {
    let config = place("127.0.0.1", Some(keyed(7)), LONG);
    let agreed = assert_all_agree(together(all(200, &config), &config));
    assert_eq!(agreed.members.len(), 200);
}
