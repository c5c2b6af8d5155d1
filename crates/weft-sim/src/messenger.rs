//! X-RDMA on a host: a messaging context on an RNIC, both exactly as shipped. A channel of a workload is a
//! channel of the context, and its messages are messages.

use std::collections::BTreeMap;

use weft_msg::{Block, Config, Context, Event, Payload, Rnic, SendError, Slice};
use weft_rnic::{Device, Limits};
use weft_topo::NodeId;
use weft_transport::{ConfigError, EndpointConfig, Secret};
use weft_units::{Instant, Seed};

use crate::nic;
use crate::traffic::{ChannelId, MessageId, Side};

/// One host's context, with the mapping between its ids and the workloads'.
#[derive(Debug)]
pub struct Messenger {
    /// The context.
    pub context: Context<Rnic>,
    /// Registered memory for bodies, the longest last. The contents are not read, so messages share it.
    bodies: Vec<Block>,
    ends: BTreeMap<weft_msg::ChannelId, (ChannelId, Side)>,
    ids: BTreeMap<ChannelId, weft_msg::ChannelId>,
    in_flight: BTreeMap<(weft_msg::ChannelId, u64), MessageId>,
}

/// An event of a context, with the workloads' ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessengerEvent {
    /// A message arrived at this end.
    Delivered {
        /// The channel.
        channel: ChannelId,
        /// This end.
        side: Side,
        /// Bytes of its body.
        length: u32,
    },
    /// The peer has received a message of this end.
    Acked {
        /// The channel.
        channel: ChannelId,
        /// The message.
        message: MessageId,
    },
    /// A channel ended.
    Closed {
        /// The channel.
        channel: ChannelId,
    },
}

impl Messenger {
    /// Returns a host's context without channels.
    ///
    /// # Errors
    /// A field of the transport's configuration is out of its range.
    pub fn new(
        host: NodeId,
        endpoint: EndpointConfig,
        config: &Config,
        shares_ports: bool,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let device = Device::new(Limits::default(), endpoint, seed, Secret::from_seed(seed))?;
        let device = if shares_ports { device.sharing_ports() } else { device };
        let rnic = Rnic::new(device, nic::address(host)).expect("a new device");
        let secret = u128::from(seed.child("tokens", 0).rng().next_u64()).to_be_bytes();
        let context = Context::new(config.clone(), rnic, seed, secret);
        Ok(Self {
            context: context.expect("scenarios check their parameters"),
            bodies: Vec::new(),
            ends: BTreeMap::new(),
            ids: BTreeMap::new(),
            in_flight: BTreeMap::new(),
        })
    }

    /// Connects two hosts by a channel without exchanging packets; returns `false` if one has no room for it.
    pub fn join(now: Instant, channel: ChannelId, opener: &mut Self, peer: &mut Self) -> bool {
        let Ok((here, offer)) = opener.context.offer(now) else { return false };
        let Ok((there, answer)) = peer.context.accept(now, &offer) else {
            opener.context.abort(now, here);
            return false;
        };
        opener.ends.insert(here, (channel, Side::Opener));
        opener.ids.insert(channel, here);
        peer.ends.insert(there, (channel, Side::Peer));
        peer.ids.insert(channel, there);
        opener.context.establish(now, here, &answer).is_ok()
    }

    /// Submits a message to the context; returns `false` if it must wait.
    pub fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        message: MessageId,
        length: u32,
    ) -> bool {
        let Some(&id) = self.ids.get(&channel) else { return true };
        let Some(body) = self.body(length) else { return false };
        match self.context.send(now, id, Payload::Lent(body)) {
            Ok(number) => {
                self.in_flight.insert((id, number), message);
                true
            }
            // The channel has ended; its workload gets a notice.
            Err(SendError::Closed) => true,
            Err(_) => false,
        }
    }

    /// Returns registered memory of this length.
    fn body(&mut self, length: u32) -> Option<Slice> {
        let long_enough = |block: &Block| block.slice().len >= length;
        if !self.bodies.last().is_some_and(long_enough) {
            self.bodies.push(self.context.allocate(length.max(1)).ok()?);
        }
        self.bodies.last().map(|block| Slice { len: length, ..block.slice() })
    }

    /// Closes a channel: submitted messages are still sent.
    pub fn close(&mut self, now: Instant, channel: ChannelId) {
        if let Some(&id) = self.ids.get(&channel) {
            self.context.close(now, id);
        }
    }

    /// Returns the next event. Messages are received and released at once.
    pub fn poll_event(&mut self, now: Instant) -> Option<MessengerEvent> {
        while let Some(event) = self.context.poll_event() {
            let translated = match event {
                Event::Message { channel, message } => {
                    let length = message.len();
                    self.context.release(now, message);
                    let end = self.ends.get(&channel);
                    end.map(|&(channel, side)| MessengerEvent::Delivered { channel, side, length })
                }
                Event::Delivered { channel, number } => {
                    let message = self.in_flight.remove(&(channel, number));
                    let end = self.ends.get(&channel);
                    end.zip(message)
                        .map(|(&(channel, _), message)| MessengerEvent::Acked { channel, message })
                }
                Event::Closed { channel, .. } => {
                    self.in_flight.retain(|(of, _), _| *of != channel);
                    let end = self.ends.remove(&channel);
                    end.map(|(channel, _)| {
                        self.ids.remove(&channel);
                        MessengerEvent::Closed { channel }
                    })
                }
                _ => None,
            };
            if translated.is_some() {
                return translated;
            }
        }
        None
    }

    /// Returns the time at which the host must be polled at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let device = self.context.verbs().poll_timeout();
        self.context.poll_timeout().into_iter().chain(device).min()
    }

    /// Returns the channels that it has an end of.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.ids.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use crate::report::Report;
    use crate::scenario::Scenario;

    fn run(rest: &str, seed: u64) -> Result<Report, String> {
        let text = format!(
            "topology = {{ kind = \"leaf-spine\", leaves = 2, spines = 4, hosts_per_leaf = 4 }}\n\
             run = {{ limit = \"3s\" }}\n{rest}"
        );
        let scenario = Scenario::parse(&text, Path::new("")).map_err(|error| error.to_string())?;
        crate::run(&scenario, Seed(seed)).map_err(|error| error.to_string())
    }

    const MIXED: &str = r#"
        messages = { depth = 8, ack_every = 2, keepalive = "5ms" }
        [[workload]]
        kind = "poisson"
        sizes = "ali-storage"
        load = 0.4
        duration = "300us"
    "#;

    #[test]
    fn messages_of_all_sizes_arrive_once_and_complete_despite_faults_of_links() {
        let healthy = run(MIXED, 3).unwrap();
        let flows = &healthy.workloads[0].flows;
        assert!(healthy.finished && flows.started > 100, "{flows:?}");
        assert_eq!(flows.started, flows.finished);
        for kind in ["loss", "duplication", "reordering"] {
            let by = if kind == "reordering" { "by = \"5us\"\n" } else { "" };
            let fault = format!(
                "{MIXED}\n[[fault]]\nkind = \"{kind}\"\nlinks = \"uplinks\"\n{by}probability = 0.02"
            );
            let report = run(&fault, 3).unwrap();
            assert!(report.finished, "{kind}: {:?}", report.workloads[0].flows);
            assert_eq!(report.workloads[0].flows.finished, flows.finished, "{kind}");
            assert_eq!(report.to_json(), run(&fault, 3).unwrap().to_json(), "{kind}");
        }
    }

    #[test]
    fn a_restarted_host_ends_only_its_own_channels() {
        let restart = format!("{MIXED}\n[[fault]]\nkind = \"restart\"\nhost = 0\nat = \"200us\"");
        let report = run(&restart, 3).unwrap();
        let flows = &report.workloads[0].flows;
        assert!(report.finished && flows.finished < flows.started, "{flows:?}");
        assert!(flows.finished > flows.started / 2, "{flows:?}");
    }

    /// Runs an incast of seven hosts. Returns the bytes of the deepest queue before the receiver, and the duration in us.
    fn incast(limit: &str, load: &str, seed: u64) -> (u64, f64) {
        let text = format!(
            "messages = {{ depth = 4, ack_every = 1, {limit} }}\n\
             [[workload]]\nkind = \"incast\"\nreceiver = 7\n{load}"
        );
        let report = run(&text, seed).unwrap();
        assert!(report.finished);
        let flows = &report.workloads[0].flows;
        assert_eq!(flows.started, flows.finished);
        (report.queues["leaf-down"].max_bytes, report.simulated_us)
    }

    /// Checks that the default limit keeps the queue before the receiver short and its link busy, in the median of seven
    /// seeds: the deepest queue of one run is an extreme, from a quarter to all of that without a limit.
    fn default_limit_suits(load: &str) {
        let median = |limit: &str| {
            let (mut queues, mut times): (Vec<_>, Vec<_>) =
                (1..=7).map(|seed| incast(limit, load, seed)).unzip();
            queues.sort_unstable();
            times.sort_by(f64::total_cmp);
            (queues[3], times[3])
        };
        let (unlimited, fastest) = median("outstanding = \"1GiB\", outstanding_min = \"1GiB\"");
        let (queue, took) = median("");
        assert!(queue * 3 < unlimited, "{queue} of {unlimited} bytes");
        assert!(took < fastest * 1.25, "{took} us, {fastest} without a limit");
    }

    #[test]
    fn by_default_an_incast_of_long_messages_keeps_the_queue_short_and_the_link_busy() {
        default_limit_suits("connections = 16\nsize = \"128KiB\"\nmessages = 4");
    }

    #[test]
    fn by_default_an_incast_of_short_messages_keeps_the_queue_short_and_the_link_busy() {
        default_limit_suits("connections = 200\nsize = \"4KiB\"\nmessages = 4");
    }

    #[test]
    fn a_limit_that_is_set_is_kept() {
        let load = "connections = 16\nsize = \"128KiB\"\nmessages = 2";
        let fixed = |bytes| {
            let limit = format!("outstanding = {bytes}, outstanding_min = {bytes}");
            incast(&limit, load, 1).0
        };
        let (wide, narrow) = (fixed(1 << 30), fixed(1));
        assert!(wide > 10 * narrow, "{wide} and {narrow} bytes");
    }

    #[test]
    fn an_invalid_setting_is_refused_by_name() {
        for (section, want) in [
            ("[messages]\ndepht = 4", "depht"),
            ("[messages]\ndepth = 2", "depth is 2, expected 3 to 4096"),
            ("[messages]\n[host]\nhandshake = true", "messages have neither a handshake"),
            ("[messages]\n[pcie]", "not simulated together with a bus"),
        ] {
            let error = run(section, 1).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
