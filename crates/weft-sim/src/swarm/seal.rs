//! The encryption of a sealed case's hosts, and its attacker.

use weft_seal::{Mode, PresharedKey, SealConfig};
use weft_units::{Duration, Rng};
use weft_wire::Cipher;

use super::draw::pick;

/// Configuration of the hosts' encryption.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// Configuration of all hosts, once they have restarted.
    pub config: SealConfig,
    /// Configuration of hosts with odd numbers until then.
    pub odd: SealConfig,
    /// `true` if an attacker forges or changes packets.
    pub attacked: bool,
}

impl Sealing {
    /// Returns `true` if no host sends in the clear.
    pub(super) fn is_required(&self) -> bool {
        [&self.config, &self.odd].iter().all(|config| config.mode == Mode::Required)
    }
}

/// A key lifetime shorter than the span of faults. No host may use more than eight keys while no packet arrives.
const SHORT_KEY_LIFETIME: Duration = Duration::from_millis(4);

/// Draws the encryption; `changed` is `true` if flipped bits pass checksums. Changed packets can disable encryption
/// that is only preferred, so it is required if packets are changed.
pub(super) fn draw(rng: &mut Rng, changed: bool) -> Sealing {
    let attacked = rng.chance(3, 4) || changed;
    let modes = pick(
        rng,
        &[
            [Mode::Required, Mode::Required],
            [Mode::Required, Mode::Preferred],
            [Mode::Preferred, Mode::Preferred],
            [Mode::Preferred, Mode::Off],
        ],
    );
    let preshared_key = rng.chance(1, 2).then(|| {
        let key = rng.next_u32().to_le_bytes()[0];
        PresharedKey::new([key; 32])
    });
    let [config, odd] = modes.map(|mode| SealConfig {
        mode: if attacked { Mode::Required } else { mode },
        cipher: pick(rng, &[Cipher::Aes128Gcm, Cipher::Aes256Gcm]),
        preshared_key: preshared_key.clone(),
        key_lifetime: pick(rng, &[SealConfig::default().key_lifetime, SHORT_KEY_LIFETIME]),
        ..SealConfig::default()
    });
    Sealing { config, odd, attacked }
}
