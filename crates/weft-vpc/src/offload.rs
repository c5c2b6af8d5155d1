//! What a tenant leaves to its network device: checksums to be completed, and super-frames to be cut.
//!
//! A frame that stays on the host or travels as a message of the transport keeps what its tenant left
//! undone, and the receiving tenant's device does it, or need not. Only where a frame leaves for
//! somebody who expects frames as they travel on a wire is the work done here: plain VXLAN, and ports
//! whose tenant did not negotiate the offload.

mod check;
mod checksum;
mod segment;
mod wire;

pub use check::{Offload, OffloadError, PartialChecksum, Segmentation};
pub use checksum::{ChecksumError, complete, fill, verify};
pub use segment::{Segment, Segments};
pub use wire::on_wire;
