//! The settings of a TAP port.

use std::net::IpAddr;

use crate::Namespace;

/// The settings of a TAP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Its name, 1 to 15 bytes; the kernel replaces `%d` with the first free number.
    pub name: String,
    /// Its network namespace; this process's own if `None`.
    pub namespace: Option<Namespace>,
    /// `true` if it outlives this process, so that a tenant keeps its interface through an upgrade.
    pub persistent: bool,
    /// `true` if the port sets it up at once; otherwise the tenant does.
    pub up: bool,
    /// MTU, bytes of an IP packet; the kernel's 1,500 if `None`.
    pub mtu: Option<u32>,
    /// Its MAC address; chosen by the kernel if `None`.
    pub mac: Option<[u8; 6]>,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The bounds of its memory.
    pub limits: Limits,
}

impl TapConfig {
    /// Returns the settings of an interface in this process's namespace that is removed with the
    /// port.
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

/// Bounds of the memory that a port holds in this process, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of frames.
    pub frames: usize,
    /// Maximum bytes of memory.
    pub bytes: usize,
}

impl Default for Limits {
    /// Returns 4,096 frames, as in the largest usual ring, and 16 MiB.
    fn default() -> Self {
        Self { frames: 4_096, bytes: 16 << 20 }
    }
}
