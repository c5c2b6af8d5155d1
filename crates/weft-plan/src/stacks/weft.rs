//! Weft's own device reads the port table, whatever program opens it.

use alloc::vec::Vec;

use super::{PortOrigin, StackRow};

pub(super) const ROW: StackRow = StackRow {
    queue_pairs: 4,
    // The first port on which the device receives, where no other process of the host has it.
    destination_port: 0x5000,
    ports: PortOrigin::Table("WEFT_PORTS"),
    variables: |_, _| Vec::new(),
    conditions: "programs under `weft run`, and the table at this path on every server",
};
