//! How the hosts of a sealed case encrypt, and whether somebody attacks them.

use weft_seal::{Mode, PresharedKey, SealConfig};
use weft_units::{Duration, Rng};
use weft_wire::Cipher;

use super::case::{Case, pick};
use crate::fault::Kind as FaultKind;

/// How hosts encrypt.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// All hosts, once they have restarted.
    pub config: SealConfig,
    /// Hosts with odd numbers until then.
    pub odd: SealConfig,
    /// Whether somebody between them makes up packets, or changes them.
    pub attacked: bool,
}

impl Sealing {
    /// Whether no host speaks in the clear.
    pub(super) fn is_required(&self) -> bool {
        [&self.config, &self.odd].iter().all(|config| config.mode == Mode::Required)
    }
}

impl Case {
    /// Whether somebody makes up packets or changes them.
    pub(super) fn is_attacked(&self) -> bool {
        self.sealing.as_ref().is_some_and(|sealing| sealing.attacked)
    }

    /// Whether there may be moments in which nothing of a host arrives.
    pub(super) fn silences(&self) -> bool {
        let silent = [FaultKind::LinkDown, FaultKind::Flap, FaultKind::SwitchDown, FaultKind::Loss];
        silent.iter().any(|&kind| self.has(kind))
    }

    /// Whether no host speaks in the clear.
    pub(super) fn requires_encryption(&self) -> bool {
        self.sealing.as_ref().is_some_and(Sealing::is_required)
    }
}

/// Shorter than a storm. Nobody may use more than eight keys while nothing arrives.
const SHORT: Duration = Duration::from_millis(4);

/// Draws it; `changed` says that flipped bits get past checksums. Who only prefers encryption can be talked out of it on
/// the way, so wherever packets are changed it is required.
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
        key_lifetime: pick(rng, &[SealConfig::default().key_lifetime, SHORT]),
        ..SealConfig::default()
    });
    Sealing { config, odd, attacked }
}
