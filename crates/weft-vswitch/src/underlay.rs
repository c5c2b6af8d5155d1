//! What goes over the network between hosts: VXLAN, and behind it a packet of the transport or a
//! tenant's frame as it is.

use std::net::SocketAddr;

use crate::redirect::Seat;
use crate::seals::{SealCounts, Seals};
use weft_agent::udp::Outbox;
use weft_transport::Arrival;
use weft_units::Instant;
use weft_vpc::gateway::pass_on;
use weft_vpc::{Frame, Leaving, Plain, Reading, Seal, Switch, Tenants, Vni};
use weft_wire::{Packet, U24, VirtioNetHeader, VxlanHeader, VxlanNext};

fn header(vni: Vni, next: VxlanNext) -> VxlanHeader {
    VxlanHeader { vni: U24::truncate(vni.get()), next }
}

/// Lays a datagram out for sending, encrypted if that is asked for: `len` bytes behind the VXLAN
/// header, which `fill` writes. `theirs` is the thread of the other host that it is for.
fn push(
    link: &mut Link<'_>,
    (to, theirs): (&SocketAddr, Option<u8>),
    path: u16,
    vxlan: VxlanHeader,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    let overhead = if link.seals.is_some() { Seal::OVERHEAD } else { 0 };
    // A tenant with jumbo frames in a network without them; the kernel would refuse it too.
    let Ok(size) = u16::try_from(VxlanHeader::LEN + overhead + len) else { return };
    let Link { outbox, seals, seat, paths } = link;
    let socket = u16::from(seat.group(theirs)) * *paths + path % *paths;
    outbox.push(to, socket, size, |out| match seals {
        Some(seals) => seals.write(to.ip(), theirs, vxlan, out, fill),
        None => {
            vxlan.emit(out);
            fill(&mut out[VxlanHeader::LEN..]);
        }
    });
}

/// The way out of a host.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) seals: &'a mut Option<Seals>,
    pub(crate) seat: Seat,
    /// Source ports to each thread of another host.
    pub(crate) paths: u16,
}

/// Datagrams that were no packets of this overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) malformed: u64,
    /// Frames that could not be sent as they are: a header that does not fit, or too long for
    /// the network.
    pub(crate) unsendable: u64,
    /// What another thread of this host had no room for.
    pub(crate) not_handed_over: u64,
    pub(crate) seals: SealCounts,
}

/// Lays a packet of the transport out for sending.
pub(crate) fn push_packet(link: &mut Link<'_>, leaving: &Leaving<'_>, tenants: &mut impl Tenants) {
    let headers = leaving.packet.len();
    let len = headers + usize::from(leaving.payload_len());
    let (departure, vxlan) = (leaving.departure, header(leaving.vni, VxlanNext::Weft));
    let to = (&departure.to, leaving.peer_thread());
    push(link, to, departure.path.0, vxlan, len, |out| {
        leaving.packet.emit(out);
        leaving.read(tenants, &mut out[headers..]);
    });
}

/// Takes a datagram in.
pub(crate) fn take_datagram(
    switch: &mut Switch,
    now: Instant,
    arrival: &Arrival,
    datagram: &[u8],
    tenants: &mut impl Tenants,
    seals: &mut Option<Seals>,
    counters: &mut Counters,
) {
    let Ok((vxlan, inside)) = VxlanHeader::parse(datagram) else {
        counters.malformed += 1;
        return;
    };
    match (seals, vxlan.next) {
        (None, VxlanNext::Sealed) => counters.malformed += 1,
        (None, _) => take_in(switch, now, arrival, &vxlan, inside, tenants, counters),
        // Before anything is kept for it: whoever can forge an address could fill the memory with keys.
        (Some(_), VxlanNext::Sealed) if !switch.is_peer(arrival.from.ip()) => {
            counters.seals.refused += 1;
        }
        (Some(seals), VxlanNext::Sealed) => {
            let (from, counts) = (arrival.from.ip(), &mut counters.seals);
            let Some((vxlan, inside)) = seals.read(from, datagram, now, counts) else { return };
            take_in(switch, now, arrival, &vxlan, &inside, tenants, counters);
            seals.recycle(inside);
        }
        (Some(_), _) => counters.seals.in_the_clear += 1,
    }
}

/// Takes what follows a VXLAN header in.
fn take_in(
    switch: &mut Switch,
    now: Instant,
    arrival: &Arrival,
    vxlan: &VxlanHeader,
    inside: &[u8],
    tenants: &mut impl Tenants,
    counters: &mut Counters,
) {
    let vni = Vni::new(vxlan.vni.get()).expect("24 bits");
    match vxlan.next {
        VxlanNext::Frame => switch.handle_plain(now, arrival.from, vni, inside, tenants),
        // By reference: a packet moved right after it was parsed waits for its own stores.
        VxlanNext::Weft => match &Packet::parse(inside) {
            Ok((packet, payload)) if !packet.announces_rdma() => {
                switch.handle_packet(now, arrival, vni, packet, payload, tenants);
            }
            _ => counters.malformed += 1,
        },
        VxlanNext::Sealed => counters.malformed += 1,
    }
}

/// Sends frames as plain VXLAN: with their checksums filled in, and in pieces that fit the network.
#[derive(Debug, Default)]
pub(crate) struct PlainSender {
    frame: Vec<u8>,
    piece: Vec<u8>,
}

impl PlainSender {
    /// Sends a frame, and releases it.
    pub(crate) fn send(
        &mut self,
        plain: &Plain,
        link: &mut Link<'_>,
        tenants: &mut impl Tenants,
        counters: &mut Counters,
    ) {
        self.frame.resize(plain.len as usize, 0);
        tenants.read(plain.port, plain.token, 0, &mut self.frame, Reading::First);
        tenants.release(plain.port, plain.token);
        if let (Some(next), Some(ethernet)) =
            (plain.next, self.frame.get_mut(VirtioNetHeader::LEN..))
        {
            pass_on(ethernet, next);
        }
        if self.lay_out(plain, link).is_none() {
            counters.unsendable += 1;
        }
    }

    /// `None` for a frame whose virtio-net header does not fit it.
    fn lay_out(&mut self, plain: &Plain, link: &mut Link<'_>) -> Option<()> {
        weft_vpc::offload::on_wire(&mut self.frame, &mut self.piece, |frame, ethernet| {
            push_plain(plain, path_of(frame, link.paths), ethernet, link);
        })
    }
}

fn push_plain(plain: &Plain, path: u16, ethernet: &[u8], link: &mut Link<'_>) {
    let vxlan = header(plain.vni, VxlanNext::Frame);
    for to in &plain.to {
        push(link, (to, None), path, vxlan, ethernet.len(), |out| out.copy_from_slice(ethernet));
    }
}

/// The path of a plain frame: one for each flow, so that the tenant's packets keep their order
/// (RFC 7348, section 5).
fn path_of(frame: &Frame, paths: u16) -> u16 {
    u16::try_from(frame.flow_hash() % u32::from(paths)).expect("less than the paths")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::SocketAddr;
    use std::os::unix::fs::PermissionsExt;

    use weft_transport::{Secret, TransportConfig};
    use weft_units::Seed;
    use weft_vpc::SwitchConfig;
    use weft_wire::{Cipher, SealHeader};

    use super::*;
    use crate::config::SealOptions;
    use crate::tenants::Ports;

    /// Seals under a secret that everybody knows.
    fn seals() -> Seals {
        let file = std::env::temp_dir().join(format!("weft-seals-{}", std::process::id()));
        fs::write(&file, "07".repeat(32)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let options = SealOptions { secret: file.clone(), number: 2, cipher: "aes-128-gcm".into() };
        let seals =
            Seals::open(&options, [192, 0, 2, 1].into(), Seat { thread: 0, threads: 1 }).unwrap();
        fs::remove_file(&file).unwrap();
        seals
    }

    #[test]
    fn no_keys_are_kept_for_hosts_that_are_no_peers() {
        let config = SwitchConfig::new(TransportConfig::bifrost());
        let mut switch = Switch::new(config, Seed(1), Secret::new([7; 16])).unwrap();
        let peer: SocketAddr = "192.0.2.2:4789".parse().unwrap();
        switch.set_peers(Vni::new(7).unwrap(), vec![peer]);
        let (mut seals, mut counters) = (Some(seals()), Counters::default());
        let mut datagram = [0; 64];
        header(Vni::new(7).unwrap(), VxlanNext::Sealed).emit(&mut datagram);
        let forged =
            SealHeader { next: VxlanNext::Frame, cipher: Cipher::Aes128Gcm, spi: 2 << 24, iv: 1 };
        forged.emit(&mut datagram[VxlanHeader::LEN..]);
        for host in 0..=255 {
            let arrival = Arrival {
                from: SocketAddr::new([192, 0, 2, host].into(), 49_152),
                received_at: Instant::EPOCH,
                congestion_experienced: false,
                hops: 0,
            };
            let (seals, counters, now) = (&mut seals, &mut counters, Instant::EPOCH);
            let mut tenants = Ports::default();
            take_datagram(&mut switch, now, &arrival, &datagram, &mut tenants, seals, counters);
        }
        assert_eq!((seals.unwrap().len(), counters.seals.refused), (1, 256));
    }
}
