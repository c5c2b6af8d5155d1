//! Labels that switches write on packets for other switches.

use super::{conga, conweave};
use crate::packet::PacketRef;

/// The label that one switch wrote for the next. In a real fabric it would be in an encapsulation header, whose bytes
/// are not counted here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Label {
    /// No label.
    #[default]
    Blank,
    /// CONGA's metrics.
    Conga(conga::Tag),
    /// ConWeave's header.
    ConWeave(conweave::Tag),
}

/// The labels of packets in flight. They are stored apart from the packet slots, so that slots stay small if no model
/// writes labels.
///
/// The previous packet in a slot may have left its label there; so the first switch of every packet writes one.
#[derive(Debug, Default)]
pub struct Labels(Vec<Label>);

impl Labels {
    /// Returns a packet's label.
    pub fn get(&self, packet: PacketRef) -> Label {
        self.0.get(packet.index()).copied().unwrap_or_default()
    }

    /// Sets a packet's label.
    pub fn set(&mut self, packet: PacketRef, label: Label) {
        if self.0.len() <= packet.index() {
            self.0.resize(packet.index() + 1, Label::Blank);
        }
        self.0[packet.index()] = label;
    }

    /// Copies the original's label to its copy.
    pub fn copy(&mut self, original: PacketRef, copy: PacketRef) {
        if !self.0.is_empty() {
            self.set(copy, self.get(original));
        }
    }
}
