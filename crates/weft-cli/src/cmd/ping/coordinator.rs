//! Sends orders to ping to all hosts at once, and collects their responses.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_guard::Token;
use weft_units::Duration;
use weft_xrdma::{CallRole, ChannelId, Event, Node, Payload, Ticket};

use super::hosts::Hosts;
use crate::messages::{Order, OrderResult, Outcome};

/// The results of a host's pings in one round.
pub(super) struct Round {
    /// The index of the host that pinged.
    pub(super) from: usize,
    /// The outcome for each other host in turn, or the reason why the host did not ping.
    pub(super) outcomes: Result<Vec<Outcome>, String>,
}

/// The connection to a host, as far as it is set up.
#[derive(Debug)]
enum Reach {
    Unknown,
    Connecting(Ticket),
    Open(ChannelId),
    /// The channel, and the number of the order that the host has not answered yet.
    Ordered(ChannelId, u64),
}

pub(super) struct Coordinator {
    node: Node,
    hosts: Vec<SocketAddr>,
    reach: Vec<Reach>,
    size: u32,
    timeout: Duration,
    token: Option<Token>,
}

/// Extra time for hosts beyond the duration of their pings, to set up their channels.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for sockets at a time.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Coordinator {
    pub(super) fn new(
        node: Node,
        hosts: &Hosts,
        size: u32,
        timeout: Duration,
        token: Option<Token>,
    ) -> Self {
        let hosts: Vec<_> = hosts.0.iter().map(|host| host.at).collect();
        let reach = hosts.iter().map(|_| Reach::Unknown).collect();
        Self { node, hosts, reach, size, timeout, token }
    }

    /// Has every host ping every other `count` times, and returns the results by host.
    pub(super) fn round(&mut self, count: u32) -> Vec<Round> {
        let mut done: BTreeMap<usize, Result<Vec<Outcome>, String>> = BTreeMap::new();
        for host in 0..self.hosts.len() {
            let begun = match self.reach[host] {
                Reach::Unknown => self.connect(host),
                Reach::Open(channel) => self.order(host, channel, count),
                Reach::Connecting(_) | Reach::Ordered(..) => Ok(()),
            };
            begun.map_or_else(|error| drop(done.insert(host, Err(error))), |()| ());
        }
        let others = self.hosts.len() as u64 - 1;
        let timeout = SETUP_TIMEOUT + self.timeout * (others * u64::from(count));
        let until = self.node.now() + timeout;
        while done.len() < self.hosts.len() {
            self.node.wait(Some(POLL_INTERVAL));
            while let Some(event) = self.node.poll_event() {
                if let Some((host, outcome)) = self.take(event, count) {
                    done.insert(host, outcome);
                }
            }
            if self.node.now() >= until {
                for host in (0..self.hosts.len())
                    .filter(|host| !done.contains_key(host))
                    .collect::<Vec<_>>()
                {
                    self.reach[host] = Reach::Unknown;
                    done.insert(host, Err(format!("no answer to its order in {timeout}")));
                }
            }
        }
        done.into_iter().map(|(from, outcomes)| Round { from, outcomes }).collect()
    }

    fn connect(&mut self, host: usize) -> Result<(), String> {
        let ticket = self.node.connect(self.hosts[host]).map_err(|error| error.to_string())?;
        self.reach[host] = Reach::Connecting(ticket);
        Ok(())
    }

    fn order(&mut self, host: usize, channel: ChannelId, count: u32) -> Result<(), String> {
        let others = self.hosts.iter().enumerate().filter(|(other, _)| *other != host);
        let targets = others.map(|(_, &at)| at).collect();
        let (size, timeout_ns) = (self.size, self.timeout.as_nanos());
        let token = self.token.as_ref().map(|token| token.reveal().to_owned());
        let order = Order { targets, count, size, timeout_ns, token };
        let now = self.node.now();
        let sent = self.node.context().request(now, channel, Payload::Copy(&order.emit()));
        let id = sent.map_err(|error| error.to_string())?;
        self.reach[host] = Reach::Ordered(channel, id);
        Ok(())
    }

    /// Handles an event; returns the host that has finished its round, if the event was that.
    fn take(&mut self, event: Event, count: u32) -> Option<(usize, Result<Vec<Outcome>, String>)> {
        let find = |reach: &[Reach], wanted: &dyn Fn(&Reach) -> bool| reach.iter().position(wanted);
        match event {
            Event::Connected { ticket, channel } => {
                let wanted =
                    |reach: &Reach| matches!(reach, Reach::Connecting(known) if *known == ticket);
                let host = find(&self.reach, &wanted)?;
                self.reach[host] = Reach::Open(channel);
                self.order(host, channel, count).err().map(|error| (host, Err(error)))
            }
            Event::ConnectFailed { ticket, error } => {
                let wanted =
                    |reach: &Reach| matches!(reach, Reach::Connecting(known) if *known == ticket);
                let host = find(&self.reach, &wanted)?;
                self.reach[host] = Reach::Unknown;
                Some((host, Err(error.to_string())))
            }
            Event::Channel(weft_msg::Event::Message { channel, message }) => {
                let ordered: Result<OrderResult, _> =
                    serde_json::from_slice(self.node.context().body(&message));
                let (now, call) = (self.node.now(), message.call);
                self.node.context().release(now, message);
                let wanted = |reach: &Reach| matches!(reach, Reach::Ordered(of, id) if *of == channel && call == CallRole::Response(*id));
                let host = find(&self.reach, &wanted)?;
                self.reach[host] = Reach::Open(channel);
                let others = self.hosts.len() - 1;
                let malformed = || Err("it does not understand orders to ping".into());
                let outcomes = match ordered {
                    Ok(OrderResult::Ok(outcomes)) if outcomes.len() != others => malformed(),
                    Ok(ordered) => ordered,
                    Err(_) => malformed(),
                };
                Some((host, outcomes))
            }
            Event::Channel(weft_msg::Event::Closed { channel, reason }) => {
                let wanted = |reach: &Reach| matches!(reach, Reach::Ordered(of, _) | Reach::Open(of) if *of == channel);
                let host = find(&self.reach, &wanted)?;
                let is_ordered = matches!(self.reach[host], Reach::Ordered(..));
                self.reach[host] = Reach::Unknown;
                is_ordered.then(|| (host, Err(reason.to_string())))
            }
            _ => None,
        }
    }
}
