//! What switches write on packets for each other.

use super::{conga, conweave};
use crate::packet::ParcelId;

/// What one switch wrote for the next. In a fabric it would be in an encapsulation header, whose bytes
/// are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Label {
    /// Nothing.
    #[default]
    Blank,
    /// CONGA's metrics.
    Conga(conga::Tag),
    /// ConWeave's header.
    ConWeave(conweave::Tag),
}

/// The labels of packets in flight. They are kept apart from the parcels, so that those are no larger
/// where nobody writes labels.
///
/// Whoever had a parcel's place before may have left its label there; so the first switch of every
/// packet writes one.
#[derive(Debug, Default)]
pub struct Labels(Vec<Label>);

impl Labels {
    /// What is written on a packet.
    pub fn get(&self, packet: ParcelId) -> Label {
        self.0.get(packet.index()).copied().unwrap_or_default()
    }

    /// Writes on a packet.
    pub fn set(&mut self, packet: ParcelId, label: Label) {
        if self.0.len() <= packet.index() {
            self.0.resize(packet.index() + 1, Label::Blank);
        }
        self.0[packet.index()] = label;
    }

    /// Writes on a copy what is on the original.
    pub fn copy(&mut self, original: ParcelId, copy: ParcelId) {
        if !self.0.is_empty() {
            self.set(copy, self.get(original));
        }
    }
}
