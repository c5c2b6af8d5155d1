//! Tenants' network interfaces, behind one trait: [`Port`].
//!
//! A frame is an Ethernet frame with a 12-byte `virtio_net_hdr_v1` before it (virtio 1.2, 5.1.6), in both directions
//! and at every kind of port, so that the same bytes go from one tenant's memory to another's. A port never
//! selects a frame's destination, and it never waits.
//!
//! | kind | tenant | buffers |
//! | --- | --- | --- |
//! | [`TapPort`] | container, namespace, bare host | the port's own |
//! | [`VhostPort`] | QEMU guest, DPDK's virtio-user | the guest's: used in place, returned when acknowledged |
//!
//! The path of a frame from one tenant to another, without a network between them:
//!
//! ```no_run
//! use weft_ports::{Port, TapConfig, TapPort, VhostConfig, VhostPort};
//! use weft_units::Instant;
//! use weft_vpc::{Reading, Staging, Turn};
//!
//! # let now = Instant::EPOCH;
//! let mut from = TapPort::open(&TapConfig::named("tenant0"))?;
//! let mut to = VhostPort::open(&VhostConfig::at("/run/weft/guest.sock"))?;
//! // When a port's `fd` is readable:
//! to.service(now)?;
//! while let Some(sent) = from.take(now)? {
//!     if let Some(slot) = to.claim(sent.len, Turn::Next, Staging::InPlace, &[]) {
//!         let mut frame = vec![0; sent.len as usize];
//!         from.read(sent.token, 0, &mut frame, Reading::First)?;
//!         to.place(slot, 0, &frame)?;
//!         to.complete(slot);
//!     }
//!     from.release(sent.token);
//! }
//! // Once a turn: the guest sees the frames only now.
//! to.flush()?;
//! # Ok::<(), weft_ports::PortError>(())
//! ```
//!
//! A port is there before its tenant is, and refuses frames until then:
//!
//! ```
//! use weft_ports::{Port, VhostConfig, VhostPort};
//! use weft_units::Instant;
//! use weft_vpc::{Staging, Turn};
//!
//! # let folder = std::env::temp_dir().join(format!("weft-ports-front-page-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let mut guest = VhostPort::open(&VhostConfig::at(folder.join("guest.sock")))?;
//! guest.service(Instant::EPOCH)?;
//! assert!(!guest.is_up() && guest.take(Instant::EPOCH)?.is_none());
//! assert!(guest.claim(1500, Turn::Next, Staging::InPlace, &[]).is_none());
//! # drop(guest);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod error;
mod finish;
mod frame;
mod namespace;
mod port;
mod readiness;
mod tap;
mod vhost;

pub use error::PortError;
pub use namespace::Namespace;
pub use port::{HEAD_LEN, HEADER_LEN, Holdings, MAX_FRAME, Port, PortCounters, Sent};
pub use tap::{Limits, TapConfig, TapPort};
pub use vhost::{
    ChainError, Custody, Descriptors, FrontEndFault, MemoryFault, PackedChain, Position, Purpose,
    RingError, Role, Segment, VhostConfig, VhostPort, walk, walk_packed,
};
