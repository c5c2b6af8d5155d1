//! What a TAP port is to be.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A TAP interface, as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Its name, 1 to 15 bytes; a `%d` in it becomes the first free number.
    pub name: String,
    /// The network namespace where it is; this process's own if absent.
    pub namespace: Option<Namespace>,
    /// Whether it outlives this process, so that a tenant keeps its interface through an upgrade.
    pub persistent: bool,
    /// Whether it is set up at once, rather than by the tenant.
    pub up: bool,
    /// Bytes of an IP packet; the kernel's 1,500 if absent.
    pub mtu: Option<u32>,
    /// Its MAC address; the kernel draws one if absent.
    pub mac: Option<[u8; 6]>,
    /// Its addresses and the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// How much may be held.
    pub limits: Limits,
}

impl TapConfig {
    /// An interface of this name in this process's namespace, which goes when the port goes.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: None,
            persistent: false,
            up: true,
            mtu: None,
            mac: None,
            addresses: vec![],
            limits: Limits::default(),
        }
    }
}

/// Bounds of what a port holds in this process's memory, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames.
    pub frames: usize,
    /// Bytes of memory.
    pub bytes: usize,
}

impl Default for Limits {
    /// 4,096 frames, as in the largest usual ring, and 16 MiB.
    fn default() -> Self {
        Self { frames: 4_096, bytes: 16 << 20 }
    }
}

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// One that `ip netns` knows.
    Name(String),
    /// A file that stands for one, as `/proc/<pid>/ns/net`.
    Path(PathBuf),
}

impl Namespace {
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Name(name) => PathBuf::from("/run/netns").join(name),
            Self::Path(path) => path.clone(),
        }
    }
}

impl FromStr for Namespace {
    type Err = std::convert::Infallible;

    /// Whatever has a slash in it is a path.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text.contains('/') { Self::Path(text.into()) } else { Self::Name(text.into()) })
    }
}
