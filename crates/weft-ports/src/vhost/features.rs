//! The features that the device offers (virtio 1.2, 5.1.3 and 6; QEMU's docs/interop/vhost-user.rst).

use vhost::vhost_user::{VhostUserProtocolFeatures as Protocol, VhostUserVirtioFeatures};
use virtio_bindings::virtio_config::{VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1};
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_ANNOUNCE, VIRTIO_NET_F_GUEST_CSUM,
    VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6, VIRTIO_NET_F_HOST_ECN,
    VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO, VIRTIO_NET_F_MQ,
    VIRTIO_NET_F_MRG_RXBUF,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::receive::Terms;
use crate::finish::Ability;

/// The bits of the features that the device offers: the ring's formats, and the offloads that either side may leave to
/// the other, if negotiated; and announcements by the guest after a live migration.
#[rustfmt::skip]
const OFFERED: &[u32] = &[
    VIRTIO_F_VERSION_1, VIRTIO_F_RING_PACKED, VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC, VIRTIO_NET_F_MRG_RXBUF,
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_USO,
    VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_ECN,
    VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6,
    VIRTIO_NET_F_GUEST_ANNOUNCE,
];

/// Returns the mask of the features offered by a device of `pairs` pairs of queues at most, with the bit that announces
/// protocol features and the one that begins the log of a live migration.
pub(super) fn offered(pairs: usize) -> u64 {
    let vhost = VhostUserVirtioFeatures::PROTOCOL_FEATURES | VhostUserVirtioFeatures::LOG_ALL;
    let vhost = vhost.bits();
    let all = OFFERED.iter().fold(vhost, |all, bit| all | 1 << bit);
    if pairs > 1 { all | 1 << VIRTIO_NET_F_MQ } else { all }
}

/// Returns the mask of the offered protocol features of vhost-user.
pub(super) fn offered_protocol() -> u64 {
    let all = Protocol::MQ
        | Protocol::REPLY_ACK
        | Protocol::MTU
        | Protocol::CONFIGURE_MEM_SLOTS
        | Protocol::RESET_DEVICE
        | Protocol::LOG_SHMFD
        | Protocol::RARP;
    all.bits()
}

/// Returns the options for received frames under these features.
pub(super) fn terms(features: u64) -> Terms {
    let has = |bit: u32| features & 1 << bit != 0;
    Terms {
        ability: Ability {
            checksum: has(VIRTIO_NET_F_GUEST_CSUM),
            tcp_v4: has(VIRTIO_NET_F_GUEST_TSO4),
            tcp_v6: has(VIRTIO_NET_F_GUEST_TSO6),
            ecn: has(VIRTIO_NET_F_GUEST_ECN),
            udp_v4: has(VIRTIO_NET_F_GUEST_USO4),
            udp_v6: has(VIRTIO_NET_F_GUEST_USO6),
        },
        mergeable: has(VIRTIO_NET_F_MRG_RXBUF),
    }
}
