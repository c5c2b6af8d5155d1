//! Encryption to each peer, where the configuration asks for it.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weft_agent::Clock;
use weft_units::{Duration, Instant};
use weft_vpc::{Seal, SealConfig, SealSecret};
use weft_wire::{Cipher, SealHeader, VxlanHeader, VxlanNext};

use crate::config::{ConfigError, SealOptions};
use crate::redirect::Seat;

/// How long after a rotation the new secret is sent with at the latest: what an operator needs to give it
/// to the other hosts.
const OVERLAP: Duration = Duration::from_secs(60);

/// This host's seals, made when a peer is first spoken to.
#[derive(Debug)]
pub(crate) struct Seals {
    cipher: Cipher,
    number: u8,
    secret: SealSecret,
    /// The secret before, which peers may still send with.
    before: Option<(u8, SealSecret, Instant)>,
    local: IpAddr,
    seat: Seat,
    /// One for each thread of another host.
    seals: BTreeMap<(IpAddr, u8), Seal>,
    opened: Vec<u8>,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SealCounts {
    /// Packets that were not opened: forged, replayed, or under a secret that is not known.
    pub(crate) refused: u64,
    /// Packets that came as they are from a host that should have encrypted them.
    pub(crate) in_the_clear: u64,
}

impl Seals {
    pub(crate) fn open(
        options: &SealOptions,
        local: IpAddr,
        seat: Seat,
    ) -> Result<Self, ConfigError> {
        let secret = read_secret(&options.secret)?;
        let (cipher, number) = (options.cipher()?, options.number);
        let (seals, opened) = (BTreeMap::new(), Vec::new());
        Ok(Self { cipher, number, secret, before: None, local, seat, seals, opened })
    }

    /// The seal of a peer's thread: its keys are those of the two hosts alone, of the direction, and of the two
    /// threads.
    fn of(&mut self, peer: IpAddr, theirs: u8) -> &mut Seal {
        let Self { cipher, number, secret, before, local, seat, seals, .. } = self;
        seals.entry((peer, theirs)).or_insert_with(|| {
            let config = SealConfig {
                cipher: *cipher,
                local: *local,
                remote: peer,
                sender: seat.sender(theirs),
                overlap: OVERLAP,
            };
            match before {
                Some((number_before, secret_before, rotated)) => {
                    let first_iv = Clock.wall();
                    let mut seal =
                        Seal::new(config, *number_before, secret_before.clone(), first_iv);
                    seal.rotate(*number, secret.clone(), *rotated);
                    seal.handle_timeout(Clock.now(), Clock.wall());
                    seal
                }
                None => Seal::new(config, *number, secret.clone(), Clock.wall()),
            }
        })
    }

    /// Writes a datagram to `out`, which is [`Seal::OVERHEAD`] longer than it would be in the clear:
    /// `fill` writes what follows the VXLAN header. Who does not know the peer's thread speaks to that of its
    /// own number.
    pub(crate) fn write(
        &mut self,
        peer: IpAddr,
        theirs: Option<u8>,
        vxlan: VxlanHeader,
        out: &mut [u8],
        fill: impl FnOnce(&mut [u8]),
    ) {
        let len = out.len() - VxlanHeader::LEN - Seal::OVERHEAD;
        fill(&mut out[Seal::HEADERS_LEN..][..len]);
        let theirs = theirs.unwrap_or(self.seat.thread);
        if self.of(peer, theirs).seal(vxlan, out, len).is_err() {
            // The key is used up, and nothing leaves in the clear: what arrives is no VXLAN.
            out.fill(0);
        }
    }

    /// Opens a datagram; what its VXLAN header would say in the clear, and what follows it.
    pub(crate) fn read(
        &mut self,
        peer: IpAddr,
        datagram: &[u8],
        now: Instant,
        counts: &mut SealCounts,
    ) -> Option<(VxlanHeader, Vec<u8>)> {
        let sealed = datagram.get(VxlanHeader::LEN..).map(SealHeader::parse);
        let from = sealed.and_then(|parsed| self.seat.opens(parsed.ok()?.0.spi));
        let Some(theirs) = from else {
            counts.refused += 1;
            return None;
        };
        let mut buffer = std::mem::take(&mut self.opened);
        buffer.clear();
        buffer.extend_from_slice(datagram);
        let opened = self.of(peer, theirs).open(&mut buffer, now);
        let Ok((vxlan, len)) = opened.map(|(vxlan, inside)| (vxlan, inside.len())) else {
            counts.refused += 1;
            self.opened = buffer;
            return None;
        };
        debug_assert!(vxlan.next != VxlanNext::Sealed, "a seal is opened once");
        buffer.copy_within(Seal::HEADERS_LEN..Seal::HEADERS_LEN + len, 0);
        buffer.truncate(len);
        Some((vxlan, buffer))
    }

    /// Gives the buffer of an opened datagram back.
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        self.opened = buffer;
    }

    /// Peers that keys are kept for.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.seals.len()
    }

    /// Another secret follows.
    pub(crate) fn rotate(&mut self, number: u8, secret: SealSecret, now: Instant) {
        for seal in self.seals.values_mut() {
            seal.rotate(number, secret.clone(), now);
        }
        let before = (self.number, std::mem::replace(&mut self.secret, secret), now);
        (self.number, self.before) = (number, Some(before));
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for seal in self.seals.values_mut() {
            if seal.poll_timeout().is_some_and(|due| due <= now) {
                seal.handle_timeout(now, Clock.wall());
            }
        }
    }
}

/// The secret in a file that only its owner reads.
pub(crate) fn read_secret(file: &Path) -> Result<SealSecret, ConfigError> {
    let unreadable = |cause| ConfigError::Unreadable { file: PathBuf::from(file), cause };
    let mode = fs::metadata(file).map_err(unreadable)?.mode();
    let refuse = |expected: String| ConfigError::Value {
        key: "host.seal.secret".into(),
        got: file.display().to_string(),
        expected,
    };
    if mode & 0o077 != 0 {
        return Err(refuse("a file that only its owner reads (chmod 600)".into()));
    }
    let text = fs::read_to_string(file).map_err(unreadable)?;
    text.trim().parse().map_err(|error: weft_vpc::ParseSecretError| refuse(error.to_string()))
}
