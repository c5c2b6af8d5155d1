//! Pings other hosts over messages: one request at a time to each, and the time until its response.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_units::Duration;
use weft_xrdma::{CallError, ChannelId, Event, Node, Payload, SendError, Ticket};

use super::NodeOptions;
use super::protocol::{Order, Outcome, echo};

/// The shortest ping and the longest, bytes.
const MIN_PING: u32 = 4;
const MAX_PING: u32 = 1 << 20;
/// The longest wait for sockets between two checks of the connections' state.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A node with a channel to each host that it has pinged.
pub(super) struct Pinger {
    node: Result<Node, String>,
    channels: BTreeMap<SocketAddr, ChannelId>,
}

impl Pinger {
    pub(super) fn new(options: &NodeOptions) -> Self {
        let node = options.open(0).map_err(|error| format!("{error:#}"));
        Self { node, channels: BTreeMap::new() }
    }

    /// Returns one outcome for each target, in their order.
    pub(super) fn carry_out(&mut self, order: &Order) -> Vec<Outcome> {
        let node = match &mut self.node {
            Ok(node) => node,
            Err(error) => {
                let failed = || Outcome {
                    lost: order.count,
                    error: Some(error.clone()),
                    ..Outcome::default()
                };
                return order.targets.iter().map(|_| failed()).collect();
            }
        };
        let failures = connect(node, &mut self.channels, &order.targets);
        let error = |target| failures.get(target).cloned();
        let mut outcomes: Vec<Outcome> = order
            .targets
            .iter()
            .map(|target| Outcome { error: error(target), ..Outcome::default() })
            .collect();
        let mut body = vec![0; order.size.clamp(MIN_PING, MAX_PING) as usize];
        echo(&mut body, order.size.min(MAX_PING));
        for _ in 0..order.count {
            for (target, outcome) in order.targets.iter().zip(&mut outcomes) {
                let ping = |channel| ping(node, channel, &body, order);
                ping_once(&mut self.channels, target, outcome, ping);
            }
        }
        outcomes
    }
}

/// Pings a target if it has a channel, and records the result. A channel that has ended is removed: the next order
/// connects again.
fn ping_once(
    channels: &mut BTreeMap<SocketAddr, ChannelId>,
    target: &SocketAddr,
    outcome: &mut Outcome,
    ping: impl FnOnce(ChannelId) -> Result<Duration, CallError>,
) {
    match channels.get(target).map(|&channel| ping(channel)) {
        Some(Ok(round_trip)) => outcome.round_trips_ns.push(round_trip.as_nanos()),
        Some(Err(error)) => {
            outcome.lost += 1;
            // A channel whose end was polled while another target was pinged refuses the request.
            if matches!(error, CallError::Closed(_) | CallError::Send(SendError::Closed)) {
                outcome.error = Some(error.to_string());
                channels.remove(target);
            }
        }
        None => outcome.lost += 1,
    }
}

/// Opens the channels that are missing, all at once; returns the reasons of those that failed.
fn connect(
    node: &mut Node,
    channels: &mut BTreeMap<SocketAddr, ChannelId>,
    targets: &[SocketAddr],
) -> BTreeMap<SocketAddr, String> {
    let mut failures = BTreeMap::new();
    let mut waiting: Vec<(Ticket, SocketAddr)> = Vec::new();
    for &target in targets.iter().filter(|target| !channels.contains_key(target)) {
        match node.connect(target) {
            Ok(ticket) => waiting.push((ticket, target)),
            Err(error) => drop(failures.insert(target, error.to_string())),
        }
    }
    while !waiting.is_empty() {
        node.wait(Some(POLL_INTERVAL));
        while let Some(event) = node.poll_event() {
            let (ticket, outcome) = match event {
                Event::Connected { ticket, channel } => (ticket, Ok(channel)),
                Event::ConnectFailed { ticket, error } => (ticket, Err(error)),
                _ => continue,
            };
            let Some(at) = waiting.iter().position(|(known, _)| *known == ticket) else { continue };
            let (_, target) = waiting.swap_remove(at);
            match outcome {
                Ok(channel) => drop(channels.insert(target, channel)),
                Err(error) => drop(failures.insert(target, error.to_string())),
            }
        }
    }
    failures
}

fn ping(
    node: &mut Node,
    channel: ChannelId,
    body: &[u8],
    order: &Order,
) -> Result<Duration, CallError> {
    let before = node.now();
    let timeout = Duration::from_nanos(order.timeout_ns);
    let answer = node.call(channel, Payload::Copy(body), Some(timeout))?;
    let now = node.now();
    node.context().release(now, answer);
    Ok(now.since(before))
}

#[cfg(test)]
mod tests {
    use weft_xrdma::CloseReason;

    use super::*;

    #[test]
    fn a_channel_stays_until_it_ends() {
        let target: SocketAddr = "127.0.0.1:1".parse().unwrap();
        for (error, has_ended) in [
            (CallError::TimedOut, false),
            (CallError::Send(SendError::Full { waiting: 3 }), false),
            (CallError::Closed(CloseReason::ByPeer), true),
            (CallError::Send(SendError::Closed), true),
        ] {
            let mut channels = BTreeMap::from([(target, ChannelId::default())]);
            let mut outcome = Outcome::default();
            let text = error.to_string();
            ping_once(&mut channels, &target, &mut outcome, |_| Err(error));
            assert_eq!((channels.is_empty(), outcome.lost), (has_ended, 1), "{text}");
            assert_eq!(outcome.error, has_ended.then_some(text));
        }
    }
}
