//! The source ports of this process's device: functions that Weft's `libibverbs.so.1` has beside those of verbs.
#![expect(unsafe_code, reason = "functions of a C library")]

use core::ffi::{c_char, c_int};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use libloading::Library;

use super::SenderPort;

/// The functions, and the loaded library that contains them.
#[derive(Debug)]
pub(crate) struct PlannedDevice {
    receive_port: extern "C" fn() -> u16,
    plan_ports: unsafe extern "C" fn(*const c_char, usize) -> c_int,
    _library: Library,
}

impl PlannedDevice {
    /// Returns the functions; `None` on RDMA hardware, whose library does not have them.
    pub(crate) fn find() -> Option<Self> {
        // SAFETY: the library is loaded already, and was initialized.
        let library = unsafe { Library::new("libibverbs.so.1") }.ok()?;
        // SAFETY: the signatures are those in `weft-verbs/src/exports/planned.rs`.
        unsafe {
            let receive_port = *library.get(b"weft_receive_port\0").ok()?;
            let plan_ports = *library.get(b"weft_plan_ports\0").ok()?;
            Some(Self { receive_port, plan_ports, _library: library })
        }
    }

    /// Returns the UDP port at which the device receives; 0 for a device in a daemon, which others use too.
    pub(crate) fn receive_port(&self) -> u16 {
        (self.receive_port)()
    }

    /// Makes packets from `source` leave from these ports from now on. The process's other jobs keep their ports: packets
    /// to a host that is a destination of several jobs leave from the ports of all of them.
    ///
    /// # Errors
    /// Returns the device's error: `EADDRINUSE` if another program has one of the ports.
    pub(crate) fn plan(&self, job: &str, source: Ipv4Addr, ports: &[SenderPort]) -> io::Result<()> {
        let mut jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match ports {
            [] => jobs.remove(job),
            ports => jobs.insert(job.to_owned(), (source, ports.to_vec())),
        };
        let table = table(&jobs);
        // SAFETY: the pointer and the length are those of the table.
        match unsafe { (self.plan_ports)(table.as_ptr().cast(), table.len()) } {
            0 => Ok(()),
            error => {
                match before {
                    Some(before) => jobs.insert(job.to_owned(), before),
                    None => jobs.remove(job),
                };
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }
}

/// The ports of each job of this process, with the address of its sender.
type Jobs = BTreeMap<String, (Ipv4Addr, Vec<SenderPort>)>;

/// A process has one device, and may have several groups.
static JOBS: Mutex<Jobs> = Mutex::new(Jobs::new());

/// Returns the port table of all jobs.
fn table(jobs: &Jobs) -> String {
    let mut table = String::from("source,destination,source_port\n");
    for (source, ports) in jobs.values() {
        for SenderPort { destination, port } in ports {
            let written = writeln!(table, "{source},{destination},{port}");
            written.expect("writing to a string cannot fail");
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_ports_of_every_job_of_the_process() {
        let port = |port| SenderPort { destination: [10, 0, 0, 2].into(), port };
        let source = [10, 0, 0, 1].into();
        let jobs = [("a", vec![port(50_001)]), ("b", vec![port(50_002)])];
        let jobs = jobs.map(|(job, ports)| (job.to_owned(), (source, ports)));
        let rows = "10.0.0.1,10.0.0.2,50001\n10.0.0.1,10.0.0.2,50002\n";
        assert_eq!(table(&jobs.into()), format!("source,destination,source_port\n{rows}"));
    }
}
