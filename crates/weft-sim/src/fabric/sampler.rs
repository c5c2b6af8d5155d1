//! Samples of forwarded packets, as in sFlow (RFC 3176, section 3.1): one packet in `rate`, with a random distance
//! between samples.

use weft_topo::LinkId;
use weft_topo::hash::FiveTuple;
use weft_units::{Rng, Seed};

use super::Fabric;
use crate::packet::{Hop, PacketPool};
use crate::switch::five_tuple;

/// One sampled packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSample {
    /// The link on which it arrived.
    pub input: LinkId,
    /// The link on which it was sent.
    pub output: LinkId,
    /// Its flow.
    pub flow: FiveTuple,
    /// Bytes on the wire.
    pub size: u16,
}

/// The sampler of all switches.
#[derive(Debug)]
pub(super) struct Sampler {
    rate: u32,
    /// Number of packets until the next sample.
    skip: u64,
    rng: Rng,
    samples: Vec<PacketSample>,
}

impl Sampler {
    fn new(rate: u32, seed: Seed) -> Self {
        let mut sampler = Self { rate, skip: 0, rng: seed.rng(), samples: Vec::new() };
        sampler.skip = sampler.draw();
        sampler
    }

    /// Returns a random distance whose mean is the rate.
    fn draw(&mut self) -> u64 {
        self.rng.below(2 * u64::from(self.rate) - 1)
    }

    /// Counts a packet that a switch forwards, and samples it if it is due.
    #[inline]
    pub(super) fn on_forward(&mut self, hop: Hop, output: LinkId, packets: &PacketPool) {
        if let Some(skip) = self.skip.checked_sub(1) {
            self.skip = skip;
            return;
        }
        let (input, flow, size) = (hop.link(), five_tuple(hop, packets), hop.size());
        self.samples.push(PacketSample { input, output, flow, size });
        self.skip = self.draw();
    }
}

impl Fabric {
    /// Samples one packet in `rate` from now on. Switches are then served packet by packet ([`Self::only_forwards`]),
    /// which changes only the simulator's speed.
    pub fn sample(&mut self, rate: u32) {
        self.sampler = Some(Sampler::new(rate.max(1), self.seed.child("packet samples", 0)));
    }

    /// Returns the samples since the last call, in the order in which switches were served.
    pub fn take_samples(&mut self) -> Vec<PacketSample> {
        self.sampler
            .as_mut()
            .map(|sampler| std::mem::take(&mut sampler.samples))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_in_rate_is_sampled() {
        let mut sampler = Sampler::new(16, Seed(1));
        let drawn: u64 = (0..200_000).map(|_| sampler.draw() + 1).sum();
        assert!((3_180_000..3_220_000).contains(&drawn), "{drawn}");
        assert_eq!((0..9).map(|_| Sampler::new(1, Seed(1)).draw()).sum::<u64>(), 0);
    }
}
