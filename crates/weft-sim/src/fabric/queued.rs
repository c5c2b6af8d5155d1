//! The path of a packet through ports that hold queues: see [`port`](crate::port).

use weft_topo::{LinkId, NodeId};
use weft_transport::TrimmedAt;
use weft_transport::congestion::HopTelemetry;
use weft_units::{BitRate, prefetch_all};

use super::{Fabric, FabricConfig, Loss};
use crate::event::{Event, Events, PortEvent};
use crate::link::{Condition, Link, LinkClass};
use crate::pace::Pace;
use crate::packet::{Class, Ecn, Hop, Integrity};
use crate::port::buffer::Accounts;
use crate::port::pfc::{self, Pause, PauseFrame, PauseRequests};
use crate::port::{Kind, MarkAt, Port, Trimmed, Waiting};
use crate::queue::{self, Admission, QueueDiscipline, TrimConfig};
use crate::time::{SimSpan, SimTime};

/// Every port, and the switches' accounts and pauses.
#[derive(Debug)]
pub(super) struct Ports {
    /// The ports by the link they send on.
    list: Vec<Port>,
    accounts: Accounts,
    pause_requests: PauseRequests,
    mark_at: MarkAt,
    /// The pause frames that ports received since the log was last emptied, if a watcher wants them.
    pause_log: Option<Vec<PauseFrame>>,
    /// The cutting of packets, if the switches trim.
    trim: Option<TrimConfig>,
}

impl Ports {
    /// Returns idle ports; `None` if ports hold no queues.
    pub(super) fn new(config: &FabricConfig, topology: &weft_topo::Topology) -> Option<Self> {
        let FabricConfig { port, buffer, pfc, sending, queue, .. } = config;
        let trim = (queue.kind == queue::Kind::Trim).then(|| queue.trim.clone());
        let build = |node| {
            let mut built = Port::new(node, topology.is_host(node));
            let share = trim.as_ref().filter(|_| !built.of_host).map(|trim| trim.share_percent);
            built.trimmed = share.map(|share| Box::new(Trimmed::new(share)));
            built
        };
        let lossy = || Accounts::new(topology, buffer.size.0, buffer.alpha, port.reserved.0, None);
        (port.kind == Kind::Priority).then(|| Self {
            list: topology.link_ids().map(|link| topology.link(link).from).map(build).collect(),
            accounts: pfc.accounts(topology, port, buffer.size, *sending).unwrap_or_else(lossy),
            pause_requests: PauseRequests::new(pfc, topology),
            mark_at: port.mark_at,
            pause_log: None,
            trim: trim.clone(),
        })
    }
}

impl Fabric {
    /// Returns `true` if ports hold queues.
    #[inline]
    pub fn holds_queues(&self) -> bool {
        self.ports.is_some()
    }

    /// Returns `true` if switches pause their neighbours.
    pub fn is_lossless(&self) -> bool {
        self.ports.as_ref().is_some_and(|ports| ports.accounts.are_lossless())
    }

    /// Returns the pause that the other end of its link requested of a port; none if ports hold no queues.
    pub fn pause(&self, link: LinkId) -> Pause {
        self.ports.as_ref().map_or_else(Pause::default, |ports| ports.list[link.index()].pause)
    }

    /// Records the pause frames that ports receive, or ends the recording.
    pub(crate) fn log_pauses(&mut self, records: bool) {
        if let Some(ports) = &mut self.ports {
            ports.pause_log = records.then(Vec::new);
        }
    }

    /// Returns the pause frames since the last call; none if they are not recorded.
    pub(crate) fn take_pauses(&mut self) -> Vec<PauseFrame> {
        let log = self.ports.as_mut().and_then(|ports| ports.pause_log.as_mut());
        log.map(std::mem::take).unwrap_or_default()
    }

    /// Returns every port, by the link it sends on; empty if ports hold no queues.
    #[inline]
    pub(super) fn ports_of(ports: Option<&Ports>) -> &[Port] {
        ports.map_or(&[], |ports| &ports.list)
    }

    /// Prefetches the state of a port that holds queues.
    #[inline]
    pub(super) fn prefetch_port(&self, link: LinkId) {
        if let Some(ports) = &self.ports {
            prefetch_all(&ports.list[link.index()]);
        }
    }

    /// Returns the bytes that a port holds, with the unsent rest of the packet on the wire.
    pub(super) fn held_bytes(&self, link: LinkId, now: SimTime) -> Option<u64> {
        let port = &self.ports.as_ref()?.list[link.index()];
        Some(port.queued_bytes() + self.class(link).pace.bytes(port.free_at.since(now)))
    }

    /// Returns the unsent rest of the packet on the wire, if the port holds queues, bytes.
    pub(super) fn unsent_bytes(&self, link: LinkId, now: SimTime) -> Option<u64> {
        let port = &self.ports.as_ref()?.list[link.index()];
        Some(self.class(link).pace.bytes(port.free_at.since(now)))
    }

    #[inline]
    fn ports(&mut self) -> &mut Ports {
        self.ports.as_mut().expect("only ports that hold queues have events")
    }

    #[inline]
    fn port(&mut self, link: LinkId) -> &mut Port {
        &mut self.ports().list[link.index()]
    }

    /// Handles an event of a port.
    pub fn port_event(
        &mut self,
        now: SimTime,
        link: LinkId,
        event: PortEvent,
        events: &mut Events,
    ) {
        match event {
            PortEvent::Wake if self.port(link).wake_at == now => {
                self.port(link).wake_at = SimTime::FAR_FUTURE;
                self.service_port(now, link, events);
            }
            PortEvent::Pause(span) if self.links[link.index()].condition != Condition::Down => {
                self.port(link).pause.set(now, span);
                if let Some(log) = &mut self.ports().pause_log {
                    log.push(PauseFrame { at: now, link, span });
                }
                self.service_port(now, link, events);
            }
            PortEvent::Refresh if self.ports().pause_requests.refresh_at(link) == now => {
                self.refresh_pause(now, link, events);
            }
            // The event is obsolete: the port has changed since.
            PortEvent::Wake | PortEvent::Pause(_) | PortEvent::Refresh => {}
        }
    }

    /// Handles a packet's arrival at a switch: puts it into a port's queue, or drops it.
    pub(super) fn forward_to_queue(&mut self, now: SimTime, hop: Hop, events: &mut Events) {
        if !self.link_stayed_up(hop) {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        match self.next_link(now, hop) {
            Some(link) => self.enter_queue(now, link, hop, events),
            None => self.lose(hop.packet(), Loss::NoRoute),
        }
    }

    /// Puts a packet that is at a switch into one of its ports' queues, or drops it.
    pub(super) fn enter_queue(
        &mut self,
        now: SimTime,
        link: LinkId,
        hop: Hop,
        events: &mut Events,
    ) {
        if self.links[link.index()].condition == Condition::Down {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        let Some(admitted) = self.admit(link, hop) else {
            self.tallies[link.index()].refused += 1;
            return self.lose(hop.packet(), Loss::QueueFull);
        };
        self.join(now, link, admitted.past_switch(), SimSpan::ZERO, events);
        self.request_pause(now, hop, events);
    }

    /// Returns the packet as it joins a queue, marked or cut if the queue does so on arrival; `None` if there is no room.
    fn admit(&mut self, link: LinkId, hop: Hop) -> Option<Hop> {
        let switch = (hop.node().0 - self.hosts) as usize;
        let ports = self.ports.as_mut().expect("the caller knows");
        let lossless = ports.accounts.are_lossless();
        let class = &self.classes[usize::from(self.links[link.index()].class)];
        let waiting = ports.list[link.index()].waiting(hop.class());
        let admission = class.discipline.as_ref().map_or(Admission::Accept, |queue| {
            let size = class.pace.serialisation(hop.size());
            queue.admit(class.pace.span(waiting), size, &mut self.draws[switch])
        });
        match hop.class() {
            Class::Control => return (admission != Admission::Refuse).then_some(hop),
            Class::Trimmed => return self.has_room_for_trimmed(link, hop).then_some(hop),
            Class::Data => {}
        }
        let account = if lossless { hop.link() } else { link };
        let is_longer = |trim: &TrimConfig| hop.size() > trim.size;
        let refused = match admission {
            Admission::Refuse => !lossless,
            // Shorter packets stay whole.
            Admission::Trim => !lossless && ports.trim.as_ref().is_some_and(is_longer),
            Admission::Accept | Admission::Mark => false,
        };
        if refused || !ports.accounts.charge(switch, account, hop.size()) {
            return self.trim(link, hop);
        }
        let marks = admission == Admission::Mark && ports.mark_at == MarkAt::Enqueue;
        Some(if marks { self.mark(link, hop) } else { hop })
    }

    /// Returns the packet cut to its headers; `None` if the switch does not trim, there is no room for them, or the packet
    /// is no longer than that.
    #[cold]
    fn trim(&mut self, link: LinkId, hop: Hop) -> Option<Hop> {
        let size = self.ports().trim.as_ref()?.size;
        let cut = hop.trimmed(size);
        if hop.size() <= size || !self.has_room_for_trimmed(link, cut) {
            return None;
        }
        let is_last = self.links[link.index()].to < self.hosts;
        let mut slot = self.packets.get(hop.packet());
        slot.payload_len = 0;
        if slot.integrity == Integrity::Sound {
            let at = if is_last { TrimmedAt::LastHop } else { TrimmedAt::Fabric };
            slot.integrity = Integrity::Trimmed(at);
        }
        self.packets.set(hop.packet(), &slot);
        self.counters.trimmed += 1;
        Some(cut)
    }

    /// Returns `true` if the queue of cut packets has room for one more.
    fn has_room_for_trimmed(&mut self, link: LinkId, cut: Hop) -> bool {
        let pace = self.class(link).pace;
        let ports = self.ports();
        let Some(trim) = &ports.trim else { return false };
        let limit = Pace::new(BitRate::gbps(100).expect("not zero")).span(trim.limit.0);
        let waiting = ports.list[link.index()].waiting(Class::Trimmed);
        pace.span(waiting + u64::from(cut.size())) <= limit
    }

    /// Returns the packet marked, and counts the mark unless it was marked already.
    #[inline]
    pub(super) fn mark(&mut self, link: LinkId, hop: Hop) -> Hop {
        if hop.ecn() == Ecn::Capable {
            self.tallies[link.index()].marked += 1;
            self.counters.marked += 1;
        }
        hop.marked()
    }

    /// Puts a host's packet into a port that holds queues. `jitter` is added to its delay, but lets no packet overtake
    /// another.
    pub fn inject_into_queue(
        &mut self,
        now: SimTime,
        link: LinkId,
        jitter: SimSpan,
        hop: Hop,
        events: &mut Events,
    ) {
        self.counters.injected += 1;
        if self.links[link.index()].condition == Condition::Down {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        self.join(now, link, hop, jitter, events);
    }

    /// Transmits a packet at once if its port is free, and otherwise puts it into the port's queue.
    #[inline]
    fn join(&mut self, now: SimTime, link: LinkId, hop: Hop, jitter: SimSpan, events: &mut Events) {
        let waiting = Waiting { hop, jitter };
        let port = self.port(link);
        if port.is_free(now, hop.class()) {
            return self.transmit(now, link, waiting, events);
        }
        let (deeper, will_wake) = (port.push(waiting), port.wake_at <= port.free_at);
        if deeper {
            self.record_depth(now, link);
        }
        if !will_wake {
            return self.service_port(now, link, events);
        }
        let size = self.class(link).pace.serialisation(hop.size());
        self.links[link.index()].busy_until += size;
    }

    /// Updates the link's longest queue so far.
    fn record_depth(&mut self, now: SimTime, link: LinkId) {
        let port = self.port(link);
        let (waiting, sending) = (port.queued_bytes(), port.free_at.since(now));
        let backlog = self.class(link).pace.span(waiting) + sending;
        let state = &mut self.links[link.index()];
        state.max_backlog = state.max_backlog.max(backlog);
    }

    /// Transmits from a port if it can send, and otherwise schedules its wake-up.
    #[inline]
    fn service_port(&mut self, now: SimTime, link: LinkId, events: &mut Events) {
        let port = self.port(link);
        if port.free_at <= now {
            if let Some(span) = port.frame.take() {
                return self.send_pause_frame(now, link, span, events);
            }
            if let Some(waiting) = port.pop(now) {
                return self.transmit(now, link, waiting, events);
            }
        }
        self.wake_when_due(now, link, events);
    }

    /// Puts a packet on the idle wire.
    fn transmit(&mut self, now: SimTime, link: LinkId, waiting: Waiting, events: &mut Events) {
        let Waiting { mut hop, jitter } = waiting;
        let Ports { list, accounts, mark_at, .. } = self.ports.as_mut().expect("it has queues");
        let (port, state) = (&mut list[link.index()], &mut self.links[link.index()]);
        let class = &self.classes[usize::from(state.class)];
        let departure = now + class.pace.serialisation(hop.size());
        port.free_at = departure;
        port.last_arrival = port.last_arrival.max(departure + class.propagation + jitter);
        let arrival = port.last_arrival;
        self.hops += 1;
        state.bytes += u64::from(hop.size());
        wake(port, state, class.pace, now, link, events);
        let (input, in_buffer) = (hop.link(), hop.class() == Class::Data && !port.of_host);
        let (lossless, mut marks) = (accounts.are_lossless(), false);
        if in_buffer {
            let switch = (port.node.0 - self.hosts) as usize;
            accounts.release(switch, if lossless { input } else { link }, hop.size());
            if let Some(telemetry) = &mut self.telemetry {
                let (queue, at) = (port.waiting(Class::Data), now.engine_clock());
                let hop_telemetry =
                    HopTelemetry { link: link.0, queue, sent: state.bytes, at, rate: class.rate };
                telemetry.stamp(hop.packet(), hop_telemetry);
            }
            if *mark_at == MarkAt::Dequeue
                && let Some(queue) = &class.discipline
            {
                let behind = class.pace.span(port.waiting(Class::Data));
                let admission = queue.admit(behind, SimSpan::ZERO, &mut self.draws[switch]);
                // A queue that would cut packets is above every depth that marks.
                marks = matches!(admission, Admission::Mark | Admission::Trim);
            }
        }
        let (to, epoch, condition) = (NodeId(state.to), state.epoch, state.condition);
        if marks {
            hop = self.mark(link, hop);
        }
        let hop = hop.on(link, to, epoch);
        match condition {
            Condition::Impaired => self.send_impaired(arrival, hop, events),
            _ => events.schedule_arrival(arrival, hop),
        }
        if in_buffer && lossless {
            self.end_pause(now, input, events);
        }
    }

    /// Schedules the wake-up of the port of `link`.
    fn wake_when_due(&mut self, now: SimTime, link: LinkId, events: &mut Events) {
        let Ports { list, .. } = self.ports.as_mut().expect("it has queues");
        let (port, state) = (&mut list[link.index()], &mut self.links[link.index()]);
        let pace = self.classes[usize::from(state.class)].pace;
        wake(port, state, pace, now, link, events);
    }

    /// Removes a packet that leaves by `link` from its account.
    fn release(&mut self, link: LinkId, hop: Hop) {
        let hosts = self.hosts;
        let Ports { list, accounts, .. } = self.ports();
        let switch = (list[link.index()].node.0 - hosts) as usize;
        let account = if accounts.are_lossless() { hop.link() } else { link };
        accounts.release(switch, account, hop.size());
    }

    /// Drops all packets that wait for a link that went down.
    #[cold]
    pub(super) fn flush(&mut self, link: LinkId) {
        if self.ports.is_none() {
            return;
        }
        let of_switch = !self.port(link).of_host;
        while let Some(Waiting { hop, .. }) = self.port(link).pop_any() {
            if of_switch && hop.class() == Class::Data {
                self.release(link, hop);
            }
            self.lose(hop.packet(), Loss::LinkDown);
        }
    }

    // The rest sends and refreshes pauses.

    /// Requests a pause from the other end of a packet's link if the link exceeds its threshold.
    fn request_pause(&mut self, now: SimTime, hop: Hop, events: &mut Events) {
        let (switch, from) = ((hop.node().0 - self.hosts) as usize, hop.link());
        let Ports { accounts, pause_requests, .. } = self.ports();
        if accounts.are_lossless()
            && !pause_requests.is_requested(from)
            && accounts.is_over(switch, from)
        {
            self.pause_neighbour(now, from, events);
        }
    }

    /// Requests or refreshes the pause of the port that sends on `from`.
    fn pause_neighbour(&mut self, now: SimTime, from: LinkId, events: &mut Events) {
        let pace = self.class(from).pace;
        let (span, refresh_at) = self.ports().pause_requests.request(now, from, pace);
        let node = NodeId(self.links[from.index()].to);
        events.schedule(refresh_at, Event::Port { node, link: from, event: PortEvent::Refresh });
        self.notify_neighbour(now, from, span, events);
    }

    /// Refreshes a pause after half its span if it is still needed.
    fn refresh_pause(&mut self, now: SimTime, from: LinkId, events: &mut Events) {
        let switch = (self.links[from.index()].to - self.hosts) as usize;
        if self.ports().accounts.is_over(switch, from) {
            self.pause_neighbour(now, from, events);
        } else {
            self.end_pause(now, from, events);
        }
    }

    /// Ends a pause that is no longer needed.
    fn end_pause(&mut self, now: SimTime, from: LinkId, events: &mut Events) {
        let switch = (self.links[from.index()].to - self.hosts) as usize;
        let Ports { accounts, pause_requests, .. } = self.ports();
        if pause_requests.is_requested(from) && !accounts.is_over(switch, from) {
            pause_requests.stop(from);
            self.notify_neighbour(now, from, SimSpan::ZERO, events);
        }
    }

    /// Sends a pause frame to the other end of the link `from`.
    fn notify_neighbour(&mut self, now: SimTime, from: LinkId, span: SimSpan, events: &mut Events) {
        let back = from.reverse();
        self.port(back).frame = Some(span);
        self.service_port(now, back, events);
    }

    /// Puts a pause frame on the idle wire.
    fn send_pause_frame(&mut self, now: SimTime, link: LinkId, span: SimSpan, events: &mut Events) {
        let LinkClass { pace, propagation, .. } = *self.class(link);
        let departure = now + pace.serialisation(pfc::FRAME);
        self.port(link).free_at = departure;
        let state = &mut self.links[link.index()];
        state.bytes += u64::from(pfc::FRAME);
        let (node, to_pause) = (NodeId(state.to), link.reverse());
        let event = PortEvent::Pause(span);
        events.schedule(departure + propagation, Event::Port { node, link: to_pause, event });
        self.wake_when_due(now, link, events);
    }
}

/// Schedules the wake-up of a port for when it can send a waiting packet, or has room for a host's next one.
#[inline]
fn wake(
    port: &mut Port,
    state: &mut Link,
    pace: Pace,
    now: SimTime,
    link: LinkId,
    events: &mut Events,
) {
    let next = port.next_departure();
    state.busy_until = match next {
        Some(next) => next + pace.span(port.queued_bytes()),
        None => port.free_at,
    };
    let sent = (port.of_host && port.free_at > now).then_some(port.free_at);
    if let Some(at) = sent.or(next).filter(|&at| at < port.wake_at) {
        port.wake_at = at;
        let (node, event) = (port.node, PortEvent::Wake);
        events.schedule(at, Event::Port { node, link, event });
    }
}
