//! The labels that a program gives the packets of a queue pair: a DSCP, and a source port.

use core::ffi::c_int;
use core::num::NonZeroU16;

use weft_rnic::{Attributes, Marking};

use super::{Object, QueuePair};
use crate::engine::Settings;
use crate::errno::{EINVAL, Errno, Outcome, number};
use weft_verbs_abi::*;

/// Returns the labels that an address vector asks for. Its service level only exists on the links of an Ethernet with
/// VLANs, where the kernel derives the priority from the DSCP.
///
/// A flow label alone pins nothing: UCX, for one, gives the same label to all its queue pairs, which would leave each of
/// its programs one path of all. A program whose labels are chosen ones says so in its environment.
///
/// # Errors
/// `EINVAL`: the environment has an invalid setting.
pub(super) fn marking_of(route: &ibv_global_route) -> Outcome<Marking> {
    let pins = Settings::from_environment()?.pin_flow_label.unwrap_or(false);
    let source_port = source_port_of(route.flow_label).filter(|_| pins);
    Ok(Marking { traffic_class: route.traffic_class, source_port })
}

/// Returns the UDP source port that Linux's RoCE drivers derive from a flow label (`rdma_flow_label_to_udp_sport` of
/// `ib_verbs.h`); `None` for zero, with which a device chooses.
fn source_port_of(flow_label: u32) -> Option<NonZeroU16> {
    let folded = (flow_label & 0x3fff) ^ (flow_label >> 14 & 0x3f);
    let port = u16::try_from(folded | 0xc000).expect("14 bits and two above them");
    NonZeroU16::new(port).filter(|_| flow_label & 0xf_ffff != 0)
}

impl QueuePair {
    /// Changes attributes of the device's queue pair. If the source port is not free, standard error names it, since the
    /// program gets only an error number.
    pub(super) fn modify(&self, changes: &Attributes) -> Outcome<()> {
        let modified = self.opened.engine.modify_qp(self.number, changes);
        if let (Err(Errno(libc::EADDRINUSE)), Some(port)) =
            (modified, changes.marking.and_then(|marking| marking.source_port))
        {
            eprintln!(
                "weft: another program has UDP port {port}, the source port of queue pair {} (`ss -uanp`): reserve the \
                 ports with net.ipv4.ip_local_reserved_ports",
                self.number.0
            );
        }
        modified
    }
}

/// Sets the UDP source port of all packets of a queue pair in state RTS, as the function of NVIDIA's library does for its
/// NICs.
///
/// # Safety
/// `qp` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_modify_qp_udp_sport(qp: *mut ibv_qp, port: u16) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let pair = unsafe { QueuePair::of(qp.cast()) };
        let source_port = Some(NonZeroU16::new(port).ok_or(EINVAL)?);
        let marking = pair.opened.engine.query_qp(pair.number)?.1.marking.unwrap_or_default();
        let marking = Some(Marking { source_port, ..marking });
        pair.modify(&Attributes { marking, ..Attributes::default() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_labels_become_the_ports_of_linux() {
        let port = |label| source_port_of(label).map(NonZeroU16::get);
        assert_eq!(port(0), None);
        assert_eq!(port(1 << 20), None, "a label has 20 bits");
        assert_eq!(port(1), Some(0xc001));
        assert_eq!(port(0x3fff), Some(0xffff));
        // The upper six bits fold onto the lowest six.
        assert_eq!(port(0x4000), Some(0xc001));
        assert_eq!(port(0xf_ffff), Some(0xc000 | 0x3fff ^ 0x3f));
    }
}
