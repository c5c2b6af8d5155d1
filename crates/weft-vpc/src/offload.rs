//! The work that a tenant leaves to its network device: checksums to complete, and super-frames to cut.
//!
//! A frame that stays on the host or travels as a message of the transport stays as its tenant left it, and the
//! receiving tenant's device does the work if it is needed. The work is done here only where the receiver expects
//! frames in wire form: plain VXLAN, and ports whose tenant did not negotiate the offload.

mod check;
mod checksum;
mod segment;
mod wire;

pub use check::{Offload, OffloadError, PartialChecksum, Segmentation};
pub use checksum::{ChecksumError, complete, fill, verify};
pub use segment::{Segment, Segments};
pub use wire::on_wire;
