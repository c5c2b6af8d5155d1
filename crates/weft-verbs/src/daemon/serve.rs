//! The daemon's loop: turns while there is work, a check of the poller every few turns, sleep otherwise.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, epoll, poll};
use weft_udp::SocketSet as _;
use weft_units::{Duration, Instant};

use super::quotas::ROOT;
use super::{
    Client, ClientId, Daemon, DaemonEvent, EventKind, LINGER, ServeError, Subject, kernel, refused,
};
use crate::attach::{Answer, Page, Refusal, Socket, encode};
use crate::engine::{blocking, random, timespec};

/// The keys of the poller's events.
pub(super) const LISTENER: u64 = 0;
pub(super) const ARRIVALS: u64 = 1;
pub(super) const STOP: u64 = 2;
/// The key of a client's socket is this plus twice the client's number; its signal has the next key.
pub(super) const CLIENTS: u64 = 4;

/// Number of turns between checks of the poller.
const POLL_EVERY: u32 = 8;

/// The idle time before the daemon sleeps: waking takes longer than most answers do.
const AWAKE: Duration = Duration::from_micros(50);

/// The interval at which the caller learns that the daemon takes turns. No sleep is longer.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The interval at which full sockets are retried.
const UNTIL_ROOM: Duration = Duration::from_micros(200);

/// Maximum number of events taken from the poller at a time.
const EVENTS: usize = 64;

impl Daemon {
    /// Serves until stopped, then ends every attached process. The calling thread supervises the one that serves, which
    /// calls `on_alive` once a second. It must not block.
    ///
    /// # Errors
    /// The kernel refuses to poll, or has no more threads.
    pub fn run(self, on_alive: impl FnMut() + Send + 'static) -> Result<(), ServeError> {
        let seed = random().map_err(refused)?;
        blocking::supervise(move || self.serve(on_alive), u64::from_le_bytes(seed))
            .map_err(ServeError::Device)?
    }

    fn serve(mut self, mut on_alive: impl FnMut()) -> Result<(), ServeError> {
        let (mut turns, mut last_work, mut is_idle) = (0_u32, Instant::EPOCH, false);
        let mut next_alive = Instant::EPOCH;
        self.report_restored();
        loop {
            // A packet for an address that was not used yet may have ended the sleep.
            let worked = self.turn(is_idle);
            let now = self.host.now();
            self.host.show(now);
            if now >= next_alive {
                next_alive = now + ALIVE_INTERVAL;
                on_alive();
                let events = self.events.take(now);
                self.report(&events);
            }
            turns = turns.wrapping_add(1);
            if worked {
                last_work = now;
            }
            is_idle = now.since(last_work) >= AWAKE;
            if is_idle {
                self.sleep(next_alive);
            } else if !worked {
                // A process with work for the daemon may be waiting for this processor.
                std::thread::yield_now();
            }
            if (is_idle || turns.is_multiple_of(POLL_EVERY)) && !self.handle_poller_events()? {
                break;
            }
        }
        let events = self.events.take_all(self.host.now());
        self.report(&events);
        // Clients see their sockets close now; their memory stays until nothing uses it.
        let clients = core::mem::take(&mut self.clients);
        self.host.end(LINGER);
        let _ = blocking::run(move || drop(clients));
        Ok(())
    }

    /// Reports the devices of the last daemon.
    fn report_restored(&self) {
        let devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        if let Some(kept) = self.kept.as_ref().filter(|_| devices > 0) {
            let file = kept.path().to_owned();
            self.report(&[DaemonEvent::DevicesRestored { devices, file }]);
        }
    }

    /// Sleeps until a packet, a client's event, a timeout or `latest`.
    fn sleep(&mut self, latest: Instant) {
        let read = || self.active.read().filter_map(|id| self.clients.get(&id)?.tenant.as_ref());
        read().for_each(|tenant| tenant.page.ask_for_signal(Page::DAEMON_SLEEPS));
        // Records appended before the flag was set come without a signal.
        if !read().any(|tenant| tenant.work.has_any(&tenant.page)) && !self.retry_delivery() {
            let now = self.host.now();
            let retry = (self.host.driver.sockets.waiting() > 0).then(|| now + UNTIL_ROOM);
            let dues = [self.host.next_due(), self.host.next_show(), retry, self.active.next_due()];
            let span = dues.into_iter().flatten().fold(latest, Instant::min).since(now);
            // An interrupted or failed wait counts as a short one.
            let _ = poll(&mut [PollFd::new(&self.poller, PollFlags::IN)], Some(&timespec(span)));
        }
        let read = self.active.read().filter_map(|id| self.clients.get(&id)?.tenant.as_ref());
        read.for_each(|tenant| tenant.page.needs_no_signal(Page::DAEMON_SLEEPS));
    }

    /// Handles the poller's events; returns `false` when the daemon is to stop.
    fn handle_poller_events(&mut self) -> Result<bool, ServeError> {
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [nothing; EVENTS];
        let found = match epoll::wait(&self.poller, &mut events, Some(&timespec(Duration::ZERO))) {
            Ok(found) => found,
            Err(rustix::io::Errno::INTR) => 0,
            Err(errno) => return Err(kernel(errno)),
        };
        for event in &events[..found] {
            let flags = event.flags;
            match event.data.u64() {
                LISTENER => self.accept_client(),
                ARRIVALS => {}
                STOP => return Ok(false),
                key => self.on_client_event(key - CLIENTS, flags),
            }
        }
        Ok(true)
    }

    fn on_client_event(&mut self, key: u64, flags: epoll::EventFlags) {
        let (id, is_signal) = (ClientId(key / 2), key % 2 == 1);
        let over = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        if !is_signal {
            if !over && let Some(due) = self.waits_until(id) {
                return self.pause(id, due);
            }
            self.active.wake(id, self.host.now());
            // The client's last messages are handled before its end: the poller reports it again until then.
            if !self.handle_message(id) {
                self.end_client(id, None);
            }
        } else if over {
            self.end_client(id, None);
        } else {
            self.take_signals(id);
            self.active.wake(id, self.host.now());
        }
    }

    /// Returns the time from which a client's device may send, if its limit of messages makes it wait.
    fn waits_until(&self, id: ClientId) -> Option<Instant> {
        let tenant = self.clients.get(&id)?.tenant.as_ref()?;
        tenant.messages_per_second?;
        self.devices.waits_until(&tenant.device, self.host.now())
    }

    /// Checks that another client of this user may connect. No user but root has more than half of the places.
    fn check_room_for(&self, user: u32) -> Result<(), Refusal> {
        let (all, limit_of_all) = (self.clients.len(), self.max_clients);
        let own = self.clients.values().filter(|client| client.user == user).count();
        let limit = if user == ROOT { limit_of_all } else { limit_of_all.div_ceil(2) };
        let full = if own >= limit {
            format!(
                "user {user} has {own} connections to the daemon, and one user may have {limit}"
            )
        } else if all >= limit_of_all {
            format!("the daemon has {all} connections, which is its limit")
        } else {
            return Ok(());
        };
        let fix = "end some processes, or raise the daemon's limit of open files (ulimit -n)";
        Err(Refusal::new(libc::EUSERS, format!("{full}: {fix}")))
    }

    /// Accepts a new client.
    fn accept_client(&mut self) {
        // A client that cannot be accepted finds its connection closed.
        let Ok(socket) = self.listener.accept() else { return };
        let Ok(peer) = socket.peer() else { return };
        // Zero for a program outside this process namespace, as in another container.
        self.admit(socket, peer.uid(), peer.pid().cast_unsigned());
    }

    /// Makes a connection of this user a client, or answers it with the reason of the refusal.
    pub(super) fn admit(&mut self, socket: Socket, user: u32, process: u32) {
        let id = ClientId(self.next_client);
        self.next_client += 1;
        let socket = Arc::new(socket);
        if let Err(refusal) = self.check_room_for(user) {
            let subject = Subject { device: String::new(), process, user };
            self.events.add(EventKind::ClientRefused, "connections", subject);
            encode::<Result<Answer, Refusal>>(&Err(refusal), &mut self.message);
            // A new connection has room for a message.
            let _ = socket.send(&self.message, &[], true);
            return self.close(user, socket);
        }
        if self.watch(socket.as_fd(), id, false).is_err() {
            return self.close(user, socket);
        }
        let client = Client { socket, user, process, tenant: None };
        self.clients.insert(id, client);
    }
}
