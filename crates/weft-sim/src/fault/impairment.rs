//! What an impaired link does to each packet: loses, doubles, delays or damages it, by chance.

use weft_units::{Rng, Seed};

use super::corruption;
use crate::packet::{Integrity, Parcel};
use crate::time::SimSpan;

/// A probability in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// The nearest chance; values outside 0 to 1 are brought inside.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^32")]
    pub fn new(probability: f64) -> Self {
        Self((probability.clamp(0.0, 1.0) * 4_294_967_296.0).round() as u64)
    }

    /// Whether it happens this time. A chance of zero draws nothing.
    pub fn happens(self, rng: &mut Rng) -> bool {
        self.0 > 0 && u64::from(rng.next_u32()) < self.0
    }
}

/// The ways in which a link fails its packets, each with its chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Lost after it was sent.
    pub loss: Chance,
    /// Arrives twice.
    pub duplication: Chance,
    /// Arrives later than its neighbours.
    pub reordering: Chance,
    /// How much later at most.
    pub reorder_by: SimSpan,
    /// Some of its bits arrive flipped.
    pub corruption: Chance,
    /// Whether the UDP checksum is in use against that.
    pub checksum: bool,
    /// Somebody strikes.
    pub attack: Chance,
}

/// One impaired link.
#[derive(Debug)]
pub struct Impairment {
    /// What it does.
    pub rates: Rates,
    rng: Rng,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// It never arrives.
    pub lost: bool,
    /// It arrives this much later.
    pub delay: SimSpan,
    /// It arrives once more, this much later than the link alone would make it.
    pub copy: Option<SimSpan>,
    /// It is not what was sent, and its receiver cannot tell.
    pub forged: bool,
    /// Somebody strikes.
    pub struck: bool,
}

impl Impairment {
    /// A link that does nothing yet; its draws come from `seed`.
    pub fn new(seed: Seed) -> Self {
        Self { rates: Rates { checksum: true, ..Rates::default() }, rng: seed.rng() }
    }

    /// Decides one packet's fate and does its damage, to its bytes where it has any.
    pub fn apply(
        &mut self,
        parcel: &mut Parcel,
        datagram: Option<&mut Vec<u8>>,
        destination: weft_topo::NodeId,
    ) -> Outcome {
        let Rates { loss, duplication, reordering, reorder_by, corruption, checksum, attack } =
            self.rates;
        let rng = &mut self.rng;
        if loss.happens(rng) {
            let (delay, copy) = (SimSpan::ZERO, None);
            return Outcome { lost: true, delay, copy, forged: false, struck: false };
        }
        let damaged = corruption.happens(rng);
        if damaged {
            match datagram {
                Some(bytes) => {
                    corruption::damage_datagram(parcel, bytes, destination, checksum, rng);
                }
                None => corruption::damage(parcel, destination, checksum, rng),
            }
        }
        let forged = damaged && parcel.integrity == Integrity::Sound;
        let copy = duplication.happens(rng).then(|| late(reorder_by, rng));
        let delay = if reordering.happens(rng) { late(reorder_by, rng) } else { SimSpan::ZERO };
        let struck = attack.happens(rng);
        Outcome { lost: false, delay, copy, forged, struck }
    }
}

fn late(by: SimSpan, rng: &mut Rng) -> SimSpan {
    SimSpan::from_picos(rng.below(by.as_picos().max(1)))
}
