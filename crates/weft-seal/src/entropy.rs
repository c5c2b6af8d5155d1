//! Random bytes from a seed that is replaced with each draw: a later reader of the memory cannot
//! compute earlier draws (fast key erasure).

use zeroize::Zeroizing;

use crate::key::expand;

/// A source of random bytes.
pub(crate) struct Entropy(Zeroizing<[u8; 32]>);

impl Entropy {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(Zeroizing::new(seed))
    }

    /// Returns 32 random bytes, which no other draw returns.
    pub(crate) fn draw(&mut self) -> [u8; 32] {
        let [mut drawn, mut next] = [[0; 32]; 2];
        expand(&self.0, &[b"weft draw"], &mut drawn);
        expand(&self.0, &[b"weft next"], &mut next);
        *self.0 = next;
        drawn
    }
}

impl core::fmt::Debug for Entropy {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("Entropy(..)")
    }
}

impl snow::types::Random for Entropy {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        for chunk in out.chunks_mut(32) {
            chunk.copy_from_slice(&self.draw()[..chunk.len()]);
        }
        Ok(())
    }
}
