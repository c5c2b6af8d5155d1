//! The thread that follows a controller's plan while the group runs: it asks for this rank's ports, which renews the
//! job's lease, and passes new ones to the device. Rank 0's thread also withdraws the job at the end, and announces it
//! again to a controller that has lost it.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Announcement, Controller, PlannedDevice, SenderPorts};
use crate::error::socket;
use crate::{CommError, ControllerError};

/// The interval between requests.
const INTERVAL: Duration = Duration::from_millis(500);

/// The status of a request about a job that the controller does not have.
const UNKNOWN_JOB: u16 = 404;

/// A rank's part of a planned job.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) controller: Controller,
    pub(crate) device: PlannedDevice,
    /// The address from which this rank sends.
    pub(crate) source: Ipv4Addr,
    /// The job; only rank 0 has it.
    pub(crate) announcement: Option<Announcement>,
    /// The plan that the device has; 0 for none.
    pub(crate) plan: u64,
}

/// A running thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns `Socket` if the kernel has no thread left.
    pub(crate) fn start(mut task: Task) -> Result<Self, CommError> {
        let (stop, stopped) = channel();
        let builder = thread::Builder::new().name("weft-coll-ports".into());
        let thread = builder.spawn(move || task.run(&stopped)).map_err(socket("a thread"))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Task {
    fn run(&mut self, stopped: &Receiver<()>) {
        let mut fault = None;
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let now = self.update().err().map(|error| error.to_string());
            // One line for each fault: it may last.
            if let Some(why) = now.as_ref().filter(|why| fault.as_ref() != Some(*why)) {
                let at = &self.controller.at;
                tracing::warn!(
                    at,
                    why,
                    "the route controller's plan is not updated; the ports stay"
                );
            }
            fault = now;
        }
        // Without ports the job has no part in the table any more, which cannot fail.
        let _ = self.device.plan(&self.controller.job, self.source, &[]);
        if self.announcement.is_some()
            && let Err(error) = self.controller.withdraw()
        {
            let at = &self.controller.at;
            tracing::warn!(at, %error, "the job is not withdrawn; its lease expires");
        }
    }

    /// Asks for this rank's ports once, and passes them to the device if they are new.
    ///
    /// # Errors
    /// Returns the controller's error, or the device's.
    pub(crate) fn update(&mut self) -> Result<(), CommError> {
        let at = self.controller.at.clone();
        let answer = match (self.controller.ports(self.source, self.plan), &self.announcement) {
            (Err(ControllerError::Refused { status: UNKNOWN_JOB, .. }), Some(announcement)) => {
                let announced = self.controller.announce(announcement);
                announced.and_then(|()| self.controller.ports(self.source, self.plan))
            }
            (answer, _) => answer,
        };
        let SenderPorts { plan, ports } = answer.map_err(|error| error.of(&at))?;
        if let Some(ports) = ports {
            self.device
                .plan(&self.controller.job, self.source, &ports)
                .map_err(socket("planned source ports"))?;
            tracing::info!(at, plan, ports = ports.len(), "packets leave from planned ports");
            self.plan = plan;
        }
        Ok(())
    }
}
