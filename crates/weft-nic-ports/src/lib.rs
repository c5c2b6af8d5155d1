//! `libweft_nic_ports.so.1`: unmodified programs on RDMA NICs send from the source ports that `weft plan ports` planned.
//!
//! The library exports one function, `ibv_modify_qp`, and depends on the system's `libibverbs.so.1`, in which a program
//! finds all others. When a queue pair is connected, the table names its port and the NIC's own driver library sets it.
//! A program loads it by `LD_PRELOAD`, NCCL from 2.30 on also by `NCCL_IBVERBS_LIB`. `WEFT_NIC_PORTS` names the table.
//!
//! ```sh
//! weft plan ports cluster.toml --csv ports.csv
//! WEFT_NIC_PORTS=ports.csv NCCL_IBVERBS_LIB=libweft_nic_ports.so.1 torchrun …
//! ```
//!
//! Nothing here fails a program's call: a port that cannot be set is reported once on standard error, and the queue pair
//! sends from its driver's port.
//!
//! [`Assignments`] has the rule by which queue pairs get ports:
//!
//! ```
//! use weft_nic_ports::Assignments;
//! use weft_plan::output::read_port_csv;
//!
//! let table = "source,destination,source_port\n10.0.0.1,10.0.0.2,50000\n10.0.0.1,10.0.0.2,50001\n";
//! let mut ports = Assignments::new(read_port_csv(table)?);
//! let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
//! // The queue pairs of two hosts get their ports in turn.
//! let first_three: Vec<_> = (0..3).map(|_| ports.next(here, there)).collect();
//! assert_eq!(first_three, [Some(50_000), Some(50_001), Some(50_000)]);
//! assert_eq!(ports.next(there, here), None);
//! # Ok::<(), weft_plan::output::PortTableError>(())
//! ```

use core::ffi::c_int;

use weft_verbs_abi::{ibv_qp, ibv_qp_attr};

mod assignments;
mod driver;
mod ibverbs;
mod queue_pairs;
mod report;

pub use assignments::Assignments;

/// Modifies a queue pair as the function below does, then sets its planned port if it has become ready to send
/// (`ibv_modify_qp(3)`).
///
/// # Safety
/// As for the function below: the pointers are those of a queue pair and of attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let Some(below) = ibverbs::below() else { return libc::ENOSYS };
    // SAFETY: the caller's arguments.
    let result = unsafe { (below.modify_qp)(qp, attributes, mask) };
    if result == 0 {
        // SAFETY: the call has accepted both, so they are a queue pair and its attributes.
        unsafe { queue_pairs::follow(below, &*qp, &*attributes, mask) };
    }
    result
}
