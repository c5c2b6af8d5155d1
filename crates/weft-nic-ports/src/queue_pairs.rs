//! The way of queue pairs to their ports: the addresses are known when one is ready to receive, and the port can be set
//! once it is ready to send.

use core::ffi::{CStr, c_int};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{LazyLock, Mutex, PoisonError};

use weft_plan::output::read_port_csv;
use weft_verbs_abi::{SetSourcePort, ibv_gid, ibv_qp, ibv_qp_attr, qp_attr_mask, qp_state};

use crate::assignments::Assignments;
use crate::driver::Driver;
use crate::ibverbs::Ibverbs;
use crate::report;

/// The variable with the path of the table.
const TABLE: &str = "WEFT_NIC_PORTS";

/// The table, and what is known of this process's queue pairs.
struct QueuePairs {
    assignments: Assignments,
    /// The ports of queue pairs that are not ready to send yet, by address in memory.
    waiting: BTreeMap<usize, u16>,
    /// The functions that set ports, by device.
    functions: BTreeMap<String, Result<SetSourcePort, String>>,
}

/// Notes a state that a queue pair has reached, and sets its port once it is ready to send.
///
/// # Safety
/// The queue pair and its context are open.
pub(crate) unsafe fn follow(below: &Ibverbs, qp: &ibv_qp, to: &ibv_qp_attr, mask: c_int) {
    static ALL: LazyLock<Option<Mutex<QueuePairs>>> = LazyLock::new(QueuePairs::read);
    let has = |bit: u32| mask.cast_unsigned() & bit != 0;
    if !has(qp_attr_mask::STATE) {
        return;
    }
    let Some(all) = &*ALL else { return };
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    let key = core::ptr::from_ref(qp).addr();
    match to.qp_state {
        qp_state::RTR if has(qp_attr_mask::AV) => {
            // SAFETY: the caller's promise.
            if let Some(port) = unsafe { all.assign(below, qp, to) } {
                all.waiting.insert(key, port);
            }
        }
        qp_state::RTS => {
            if let Some(port) = all.waiting.remove(&key) {
                // SAFETY: the caller's promise.
                unsafe { all.set_port(qp, port) };
            }
        }
        _ => {
            all.waiting.remove(&key);
        }
    }
}

impl QueuePairs {
    /// Reads the table; `None`, with a message, if there is none.
    fn read() -> Option<Mutex<Self>> {
        let Some(path) = std::env::var_os(TABLE).filter(|path| !path.is_empty()) else {
            report::once(&format!(
                "{TABLE} is not set, so that source ports are the driver's; it names a table of `weft plan ports --csv`"
            ));
            return None;
        };
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        match text.and_then(|text| read_port_csv(&text).map_err(|error| error.to_string())) {
            Ok(rows) => Some(Mutex::new(Self {
                assignments: Assignments::new(rows),
                waiting: BTreeMap::new(),
                functions: BTreeMap::new(),
            })),
            Err(error) => {
                report::once(&format!("{TABLE}={}: {error}", path.display()));
                None
            }
        }
    }

    /// Returns the planned port of a queue pair whose peer is known.
    ///
    /// # Safety
    /// As for [`follow`].
    unsafe fn assign(&mut self, below: &Ibverbs, qp: &ibv_qp, to: &ibv_qp_attr) -> Option<u16> {
        let (mut source, row) = (ibv_gid::default(), c_int::from(to.ah_attr.grh.sgid_index));
        // SAFETY: the context is open, and the result has a place.
        let failed =
            unsafe { (below.query_gid)(qp.context, to.ah_attr.port_num, row, &raw mut source) };
        let ends = [source, to.ah_attr.grh.dgid].map(|gid| Ipv6Addr::from(gid.raw));
        if failed != 0 || to.ah_attr.is_global == 0 {
            report::once("a queue pair has no GIDs, so that its port is the driver's");
            return None;
        }
        let [Some(source), Some(destination)] = ends.map(|end| end.to_ipv4_mapped()) else {
            let [source, destination] = ends;
            report::once(&format!(
                "{TABLE} has IPv4 addresses, and {source} sends to {destination}"
            ));
            return None;
        };
        self.next(source, destination)
    }

    fn next(&mut self, source: Ipv4Addr, destination: Ipv4Addr) -> Option<u16> {
        let port = self.assignments.next(source, destination);
        if port.is_none() {
            report::once(&format!("{TABLE} has no port from {source} to {destination}"));
        }
        port
    }

    /// Sets the port of a queue pair that is ready to send.
    ///
    /// # Safety
    /// As for [`follow`].
    unsafe fn set_port(&mut self, qp: &ibv_qp, port: u16) {
        // SAFETY: an open context has a device, whose name is a C string.
        let name = unsafe { CStr::from_ptr((*(*qp.context).device).name.as_ptr()) };
        let name = name.to_string_lossy().into_owned();
        let function = self.functions.entry(name.clone()).or_insert_with(|| {
            Driver::of(&name).and_then(|driver| {
                driver.set_port().map_err(|error| format!("{name} ({driver}): {error}"))
            })
        });
        match function {
            Ok(set_port) => {
                // SAFETY: the function belongs to the driver of the queue pair's device.
                match unsafe { set_port(core::ptr::from_ref(qp).cast_mut(), port) } {
                    0 => report::once(&format!("{name} sends from planned ports")),
                    error => {
                        let error = std::io::Error::from_raw_os_error(error.abs());
                        report::once(&format!("{name} cannot send from port {port}: {error}"));
                    }
                }
            }
            Err(error) => report::once(&format!("{error}; source ports are the driver's")),
        }
    }
}
