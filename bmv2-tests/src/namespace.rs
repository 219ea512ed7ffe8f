// SPDX-License-Identifier: Apache-2.0
//! Network namespaces that go away with their owner.
#![expect(unsafe_code, reason = "SIOCETHTOOL has no safe wrapper among the dependencies")]

use crate::process::poll;
use crate::skip;
use anyhow::Context;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::Uid;
use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where iproute2 keeps its namespaces.
const FOLDER: &str = "/run/netns";
const PREFIX: &str = "trimwire-";

/// Whether namespaces can be made here; otherwise why not. Tried once.
pub fn available() -> Result<(), String> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    TRIED.get_or_init(try_out).clone()
}

fn try_out() -> Result<(), String> {
    if !Uid::effective().is_root() {
        return Err("not root".to_owned());
    }
    if let Err(error) = Command::new("ip").arg("-V").output() {
        return Err(format!("`ip` (iproute2) does not run: {error}"));
    }
    sweep();
    let trial = Namespace::new("trial").map_err(|error| format!("no network namespaces: {error:#}"))?;
    let veth = trial.ip("link add dev near type veth peer name far");
    veth.map_err(|error| format!("no veth interfaces: {error:#}"))
}

/// As [`available`]; where there are none says so on stderr. Fails where TRIMWIRE_REQUIRE_NETNS is
/// set.
pub fn or_skip(test: &str) -> bool {
    let available = available();
    if let Err(why) = &available {
        skip(test, why);
        assert!(std::env::var_os("TRIMWIRE_REQUIRE_NETNS").is_none(), "TRIMWIRE_REQUIRE_NETNS is set");
    }
    available.is_ok()
}

/// Moves the calling thread into a network namespace of its own, which goes away with it; threads
/// that it starts are there, too. As [`or_skip`] otherwise.
pub fn isolate(test: &str) -> bool {
    if !or_skip(test) {
        return false;
    }
    unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
    // Neighbour discovery's frames would be counted.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    true
}

/// `ip` with words, where the calling thread is.
pub fn ip(words: &str) {
    checked(Command::new("ip").args(words.split_whitespace())).expect("ip");
}

/// Waits for an interface's carrier and queue, which the kernel brings up in the background: before
/// that, it discards frames silently.
pub fn ready(interface: &str) {
    poll(&format!("{interface} is up"), Duration::from_secs(10), || {
        let shown = checked(Command::new("ip").args(["link", "show", interface]))?;
        Ok(shown.contains("state UP").then_some(()))
    })
    .expect("an interface");
}

/// Pairs `sN` (the switch's side) and `hN` (the far end) for ports 0 to `ports - 1`, up, where the
/// calling thread is.
pub fn veth_pairs(ports: u16) {
    for port in 0..ports {
        ip(&format!("link add s{port} type veth peer name h{port}"));
        ip(&format!("link set s{port} up"));
        ip(&format!("link set h{port} up"));
    }
    for port in 0..ports {
        ready(&format!("s{port}"));
        ready(&format!("h{port}"));
    }
}

/// Removes the namespaces of test runs that were killed.
fn sweep() {
    for entry in std::fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok())
            && !Path::new(&format!("/proc/{pid}")).exists()
        {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// Runs a command to its end; its complaints are the error.
fn checked(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("{command:?}: {}: {}", output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A network namespace with loopback up and IPv6 autoconfiguration off (its chatter would be
/// counted).
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one; its name tells the process and a number.
    pub fn new(role: &str) -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{role}", std::process::id());
        checked(Command::new("ip").args(["netns", "add", &name]))?;
        // From here on Drop removes it.
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        namespace.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true"])?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    /// A command that will run inside.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a command inside to its end.
    pub fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        checked(self.command(program).args(args))
    }

    /// `ip` with words inside.
    pub fn ip(&self, words: &str) -> anyhow::Result<()> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name]).args(words.split_whitespace());
        checked(&mut command).map(drop)
    }

    /// Runs a closure on a thread that has entered the namespace. Sockets that it opens stay there.
    pub fn enter<T: Send>(&self, run: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let handle = File::open(self.path())?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                setns(handle, CloneFlags::CLONE_NEWNET)?;
                run()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// A pair of interfaces, one in each namespace, up, with MAC addresses, an MTU of 1500 and no
/// offloads: a frame that arrives is the frame that was sent.
pub fn connect(a: (&Namespace, &str, &str), b: (&Namespace, &str, &str)) -> anyhow::Result<()> {
    let (near, far) = (a, b);
    near.0.ip(&format!(
        "link add dev {} address {} type veth peer name {} address {} netns {}",
        near.1, near.2, far.1, far.2, far.0.name
    ))?;
    for (namespace, interface, _) in [near, far] {
        namespace.ip(&format!("link set {interface} mtu 1500 gso_max_segs 1 txqueuelen 10000 up"))?;
        namespace.enter(|| {
            offloads_off(interface).with_context(|| format!("turning {interface}'s offloads off"))
        })?;
    }
    Ok(())
}

/// linux/ethtool.h: `struct ethtool_value`, and the commands that set checksums and segments on and
/// off.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}
const ETHTOOL_SRXCSUM: u32 = 0x15;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// What `ethtool -K INTERFACE tx off rx off gso off gro off` does, which not every machine has.
pub fn offloads_off(interface: &str) -> anyhow::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    for command in [ETHTOOL_STXCSUM, ETHTOOL_SRXCSUM, ETHTOOL_SGSO, ETHTOOL_SGRO] {
        let mut value = EthtoolValue { command, data: 0 };
        // SAFETY: ifreq is plain data for which all zeroes are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays the name's end.
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request points to a value of the shape that these commands take; both outlive
        // the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    Ok(())
}
