//! Network namespaces that go away with their owner.
#![expect(unsafe_code, reason = "setns has no safe wrapper among the dependencies")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where iproute2 keeps its namespaces.
const FOLDER: &str = "/run/netns";
const PREFIX: &str = "trimwire-";

/// Whether namespaces can be made here; otherwise why not.
pub fn available() -> Result<(), String> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return Err("not root".to_owned());
    }
    if let Err(error) = Command::new("ip").arg("-V").output() {
        return Err(format!("`ip` (iproute2) does not run: {error}"));
    }
    static SWEEP: Once = Once::new();
    SWEEP.call_once(sweep);
    let trial = Namespace::new("trial").map_err(|error| format!("no network namespaces: {error:#}"))?;
    let veth = trial.ip("link add dev near type veth peer name far");
    veth.map_err(|error| format!("no veth interfaces: {error:#}"))
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
pub(crate) fn checked(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("{command:?}: {}: {}", output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A network namespace with loopback up and IPv6 autoconfiguration off (its chatter would be counted).
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
                // SAFETY: the descriptor is open through the call; only this thread, which ends here, changes namespace.
                if unsafe { libc::setns(handle.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
                    return Err(std::io::Error::last_os_error().into());
                }
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

/// A pair of interfaces, one in each namespace, up, with MAC addresses, an MTU of 1500 and no offloads: a frame that
/// arrives is the frame that was sent.
pub fn connect(a: (&Namespace, &str, &str), b: (&Namespace, &str, &str)) -> anyhow::Result<()> {
    let (near, far) = (a, b);
    near.0.ip(&format!(
        "link add dev {} address {} type veth peer name {} address {} netns {}",
        near.1, near.2, far.1, far.2, far.0.name
    ))?;
    for (namespace, interface, _) in [near, far] {
        namespace.ip(&format!("link set {interface} mtu 1500 gso_max_segs 1 txqueuelen 10000 up"))?;
        // Nobody sends TCP here, so that missing ethtool is no hindrance.
        let _ = namespace
            .run("ethtool", &["-K", interface, "tx", "off", "rx", "off", "gso", "off", "gro", "off"]);
    }
    Ok(())
}
