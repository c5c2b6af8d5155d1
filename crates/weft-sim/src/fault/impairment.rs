//! The effect of an impaired link on each packet: random loss, duplication, delay or damage.

use weft_units::{Rng, Seed};

use super::corruption;
use crate::packet::{Integrity, PacketSlot};
use crate::time::SimSpan;

/// A probability in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// Returns the nearest probability; values outside 0 to 1 are clamped.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^32")]
    pub fn new(probability: f64) -> Self {
        Self((probability.clamp(0.0, 1.0) * 4_294_967_296.0).round() as u64)
    }

    /// Returns `true` with this probability. Zero draws nothing.
    pub fn happens(self, rng: &mut Rng) -> bool {
        self.0 > 0 && u64::from(rng.next_u32()) < self.0
    }
}

/// The probabilities of a link's impairments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Probability of loss after sending.
    pub loss: Chance,
    /// Probability of a second arrival.
    pub duplication: Chance,
    /// Probability of a late arrival.
    pub reordering: Chance,
    /// Maximum delay of a late packet.
    pub reorder_by: SimSpan,
    /// Probability of flipped bits.
    pub corruption: Chance,
    /// `true` if the UDP checksum is in use.
    pub checksum: bool,
    /// Probability of an attack.
    pub attack: Chance,
}

/// One impaired link.
#[derive(Debug)]
pub struct Impairment {
    /// The probabilities of its impairments.
    pub rates: Rates,
    rng: Rng,
}

/// The effect on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `true` if it never arrives.
    pub lost: bool,
    /// The delay of its arrival.
    pub delay: SimSpan,
    /// The delay of a second arrival, if there is one.
    pub copy: Option<SimSpan>,
    /// `true` if it was changed and its receiver cannot detect that.
    pub forged: bool,
    /// `true` if it is attacked.
    pub attacked: bool,
}

impl Impairment {
    /// Returns a link without impairments, whose draws come from `seed`.
    pub fn new(seed: Seed) -> Self {
        Self { rates: Rates { checksum: true, ..Rates::default() }, rng: seed.rng() }
    }

    /// Draws the effect on one packet and damages its bytes, if it has any.
    pub fn apply(
        &mut self,
        slot: &mut PacketSlot,
        datagram: Option<&mut Vec<u8>>,
        destination: weft_topo::NodeId,
    ) -> Outcome {
        let Rates { loss, duplication, reordering, reorder_by, corruption, checksum, attack } =
            self.rates;
        let rng = &mut self.rng;
        if loss.happens(rng) {
            let (delay, copy) = (SimSpan::ZERO, None);
            return Outcome { lost: true, delay, copy, forged: false, attacked: false };
        }
        let damaged = corruption.happens(rng);
        if damaged && matches!(slot.integrity, Integrity::Trimmed(_)) {
            slot.integrity = Integrity::Malformed;
        } else if damaged {
            match datagram {
                Some(bytes) => {
                    corruption::damage_datagram(slot, bytes, destination, checksum, rng);
                }
                None => corruption::damage(slot, destination, checksum, rng),
            }
        }
        let forged = damaged && slot.integrity == Integrity::Sound;
        let copy = duplication.happens(rng).then(|| random_delay(reorder_by, rng));
        let delay =
            if reordering.happens(rng) { random_delay(reorder_by, rng) } else { SimSpan::ZERO };
        let attacked = attack.happens(rng);
        Outcome { lost: false, delay, copy, forged, attacked }
    }
}

/// Returns a random delay below `bound`.
fn random_delay(bound: SimSpan, rng: &mut Rng) -> SimSpan {
    SimSpan::from_picos(rng.below(bound.as_picos().max(1)))
}
