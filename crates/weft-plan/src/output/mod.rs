//! Plans in the formats of the programs that use them: NCCL's graph XML, Open MPI's rank and host files, and
//! the port table.

mod graph_xml;
mod planned;
mod port_table;
mod rank_file;

pub use graph_xml::graph_xml;
pub use planned::{PlannedPort, PortTableError, read_port_csv, read_port_rows};
pub use port_table::{PortRow, port_csv, port_rows};
pub use rank_file::{host_file, rank_file};

#[cfg(test)]
mod tests;
