//! The workloads of a soak. Each checks what it receives, and keeps an account of its operations.
//!
//! | workload | operation | on |
//! | --- | --- | --- |
//! | `tenants T A-B` | a record of up to 32 KiB there and back on one TCP connection | the overlay |
//! | `connections T A-B` | a TCP connection, one record, its end | the overlay |
//! | `pingpong A-B` | `ibv_rc_pingpong -c`, as Debian ships it | the devices of the daemons |
//! | `channel A-B` | a call of X-RDMA with up to 64 KiB | the same |
//! | `reduce N` | an all-reduce of three ranks, whose sums are checked | devices in the ranks; ports of the controller |
//! | `jobs` | a job announced to the controllers, and withdrawn | the controllers |
//! | `fleet` | a port added to a host and removed, each until the host has it | etcd, the overlay |
//! | `devices` | a device made and deleted | the devices of the daemons |

mod control;
mod pingpong;
mod programs;
mod tenants;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use crate::account::Account;
use crate::journal::Journal;
use crate::shared::Shared;
use crate::supervisor::Supervisor;

/// The workloads that run.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    pub(crate) accounts: Vec<Account>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// The servers end after their clients.
    stop_servers: Arc<AtomicBool>,
    servers: Vec<JoinHandle<()>>,
}

impl Workloads {
    /// Starts all workloads.
    ///
    /// # Errors
    /// Returns an error if a program or a socket cannot be opened.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        supervisor: &Supervisor,
        journal: &Arc<Journal>,
    ) -> Result<Self> {
        let mut workloads = Self::default();
        tenants::start(shared, journal, &mut workloads)?;
        pingpong::start(shared, journal, &mut workloads);
        control::start(shared, journal, &mut workloads);
        programs::start(shared, supervisor, journal, &mut workloads)?;
        Ok(workloads)
    }

    /// Adds an account, and a thread that carries out its operation again and again with a pause between.
    fn repeat(
        &mut self,
        account: Account,
        pause: Duration,
        mut operation: impl FnMut(u64) -> Result<(), String> + Send + 'static,
    ) {
        self.accounts.push(account.clone());
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::spawn(move || {
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                account.run(|| operation(number));
                thread::sleep(pause);
            }
        }));
    }

    /// Ends the workloads on threads, after their operations.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that has panicked has printed why, and its account does not balance.
            let _ = thread.join();
        }
        self.stop_servers.store(true, Ordering::Relaxed);
        for server in self.servers.drain(..) {
            let _ = server.join();
        }
    }
}

impl Drop for Workloads {
    fn drop(&mut self) {
        self.stop();
    }
}
