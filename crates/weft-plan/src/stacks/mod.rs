//! Programs with RDMA engines of their own, and the settings by which each takes source ports.
//!
//! Few of them take a port for each queue pair: most have one list for all peers. [`StackRow`] says which flows share
//! a setting, for [`plan_shared`](crate::ports::plan_shared), and writes the variables.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::ports::PortSource;
use crate::traffic::QueuePair;

mod mooncake;
mod mori;
mod nccl;
#[cfg(test)]
mod tests;
mod uccl;
mod weft;

weft_units::registry! {
    /// A program that takes planned source ports.
    pub enum Stack: "stack" {
        Mooncake => "mooncake", "Mooncake's transfer engine: a list of ports for all peers of a server";
        Mori => "mori", "mori: four ports for all peers of a server";
        Nccl => "nccl", "NCCL on RDMA NICs: a port for every queue pair, from a table";
        Uccl => "uccl", "UCCL-EP: consecutive ports from one for all peers of a server";
        Weft => "weft", "programs on Weft's device: a port for every queue pair, from a table";
    }
}

/// The way in which a program takes ports.
#[derive(Clone, Copy, Debug)]
pub struct StackRow {
    /// Queue pairs of each connection, unless the user sets another number.
    pub queue_pairs: usize,
    /// The UDP port to which the program's packets go.
    pub destination_port: u16,
    /// The origin of queue pairs' ports.
    pub ports: PortOrigin,
    /// Returns the variables of a server, in the order in which they are written, from its settings and the number of
    /// queue pairs of each connection.
    pub variables: fn(ports: &[u16], queue_pairs: usize) -> Vec<Variable>,
    /// The conditions under which the variables have an effect.
    pub conditions: &'static str,
}

/// The origin of queue pairs' ports.
#[derive(Clone, Copy, Debug)]
pub enum PortOrigin {
    /// The settings of the server, which its queue pairs share.
    Settings(Settings),
    /// A port table, to which this variable has the path: each queue pair has its own port.
    Table(&'static str),
}

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

/// The settings of a server.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Returns their number, for this number of queue pairs of each connection.
    pub count: fn(queue_pairs: usize) -> usize,
    /// Returns the setting and the offset of a connection's queue pair with this number.
    pub source: fn(queue_pair: usize, settings: usize) -> PortSource,
    /// Returns the number of consecutive ports of each setting, for this number of queue pairs.
    pub span: fn(queue_pairs: usize) -> u16,
}

/// RoCEv2's port (IBTA, annex A17).
const ROCE_PORT: u16 = 4791;

impl Stack {
    /// Returns the way in which the program takes ports.
    pub const fn row(self) -> &'static StackRow {
        match self {
            Self::Mooncake => &mooncake::ROW,
            Self::Mori => &mori::ROW,
            Self::Nccl => &nccl::ROW,
            Self::Uccl => &uccl::ROW,
            Self::Weft => &weft::ROW,
        }
    }
}

impl StackRow {
    /// Returns the settings of a server; `None` if each queue pair has a port of its own.
    pub const fn settings(&self) -> Option<Settings> {
        match self.ports {
            PortOrigin::Settings(settings) => Some(settings),
            PortOrigin::Table(_) => None,
        }
    }
}

impl Settings {
    /// Returns the origin of each queue pair's port, where every server has settings of its own: those of server `s`
    /// begin at `s` times their number.
    pub fn sources(&self, pairs: &[QueuePair], queue_pairs: usize) -> Vec<PortSource> {
        let count = (self.count)(queue_pairs);
        let source = |pair: &QueuePair| {
            let PortSource { setting, offset } = (self.source)(pair.number, count);
            PortSource { setting: pair.from.0.index() * count + setting, offset }
        };
        pairs.iter().map(source).collect()
    }
}

/// Returns a variable.
fn variable(name: &'static str, value: impl ToString) -> Variable {
    Variable { name, value: value.to_string() }
}

/// Returns the ports as a list with commas.
fn list(ports: &[u16]) -> String {
    let mut text = String::new();
    for port in ports {
        let comma = if text.is_empty() { "" } else { "," };
        text.push_str(&alloc::format!("{comma}{port}"));
    }
    text
}
