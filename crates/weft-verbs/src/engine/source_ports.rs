//! Source ports that programs choose for single queue pairs, each with a socket of one address.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use weft_rnic::Context;
use weft_udp::sockets::{Senders, SocketConfig, SocketError};

/// The first port that a program may choose: those of RoCE v2 are 0xC000 to 0xFFFF (Linux's
/// `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`). Lower ones may be a service's, which no tenant of a daemon may occupy.
pub(crate) const FIRST_CHOSEN_PORT: u16 = 0xc000;

/// Maximum number of ports that one context may choose.
const MAX_OF_CONTEXT: usize = 256;

/// Maximum number of ports of one address: each is a descriptor of the process, and a daemon's tenants must not use them up.
const MAX_OF_ADDRESS: usize = 1024;

/// The chosen ports of an address.
#[derive(Debug, Default)]
pub(crate) struct SourcePorts {
    ports: BTreeMap<NonZeroU16, Source>,
    /// Sockets whose ports no context uses any more. The next ports get their places.
    unused: Vec<u16>,
}

/// The socket of a port.
#[derive(Debug)]
struct Source {
    socket: u16,
    /// `true` if the socket is only for this port; otherwise it is that of a path or of a plan.
    is_own: bool,
    /// The contexts that chose the port.
    contexts: BTreeSet<Context>,
}

impl SourcePorts {
    /// Returns the socket of a port.
    #[inline]
    pub(crate) fn socket(&self, port: NonZeroU16) -> Option<u16> {
        self.ports.get(&port).map(|source| source.socket)
    }

    /// Returns `true` if a context has chosen this port, or may choose one more.
    pub(crate) fn may_claim(&self, context: Context, port: NonZeroU16) -> bool {
        let chosen = |source: &&Source| source.contexts.contains(&context);
        let known = self.ports.get(&port);
        known.is_some_and(|source| chosen(&source))
            || (known.is_some() || self.ports.len() < MAX_OF_ADDRESS)
                && self.ports.values().filter(chosen).count() < MAX_OF_CONTEXT
    }

    /// Opens a port for a context, unless another has it already.
    ///
    /// # Errors
    /// Another process has the port.
    pub(crate) fn claim(
        &mut self,
        context: Context,
        port: NonZeroU16,
        senders: &mut Senders,
        config: &SocketConfig,
    ) -> Result<(), SocketError> {
        if let Some(source) = self.ports.get_mut(&port) {
            source.contexts.insert(context);
            return Ok(());
        }
        let next = senders.outbox.next_index();
        let socket = senders.open_source(config, port.get(), self.unused.last().copied())?;
        let is_own = socket == next || self.unused.contains(&socket);
        self.unused.retain(|&other| other != socket);
        self.ports.insert(port, Source { socket, is_own, contexts: BTreeSet::from([context]) });
        Ok(())
    }

    /// Releases the ports that only a closed context used.
    pub(crate) fn forget(&mut self, context: Context) {
        let Self { ports, unused } = self;
        ports.retain(|_, source| {
            source.contexts.remove(&context);
            if source.contexts.is_empty() && source.is_own {
                unused.push(source.socket);
            }
            !source.contexts.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u16) -> NonZeroU16 {
        NonZeroU16::new(number).unwrap()
    }

    /// Returns free ports that a program may choose.
    fn free_ports<const N: usize>() -> [NonZeroU16; N] {
        let mut free = (FIRST_CHOSEN_PORT..).filter_map(|number| {
            let bound = std::net::UdpSocket::bind(("127.0.0.1", number)).is_ok();
            bound.then(|| port(number))
        });
        std::array::from_fn(|_| free.next().unwrap())
    }

    #[test]
    fn contexts_share_a_port_and_the_last_one_releases_it() {
        let config = SocketConfig::new(([127, 0, 0, 1], 0).into(), 2);
        let mut senders = Senders::open(&config).unwrap();
        let mut chosen = SourcePorts::default();
        let [a, b] = [Context(1), Context(2)];
        let [first, second] = free_ports();
        chosen.claim(a, first, &mut senders, &config).unwrap();
        chosen.claim(b, first, &mut senders, &config).unwrap();
        assert_eq!(chosen.socket(first), Some(2), "after the paths");
        assert_eq!(senders.outbox.source_ports().unwrap()[2], first.get());
        chosen.forget(a);
        assert_eq!(chosen.socket(first), Some(2));
        chosen.forget(b);
        assert_eq!(chosen.socket(first), None);
        chosen.claim(a, second, &mut senders, &config).unwrap();
        assert_eq!(chosen.socket(second), Some(2), "the place of the first port");
        assert_eq!(senders.outbox.source_ports().unwrap()[2..], [second.get()]);
    }

    #[test]
    fn a_port_of_a_path_stays_that_path() {
        let config = SocketConfig::new(([127, 0, 0, 1], 0).into(), 2);
        let mut senders = Senders::open(&config).unwrap();
        let mut chosen = SourcePorts::default();
        let of_path = port(senders.outbox.source_ports().unwrap()[1]);
        let [other] = free_ports();
        chosen.claim(Context(1), of_path, &mut senders, &config).unwrap();
        assert_eq!(chosen.socket(of_path), Some(1));
        chosen.forget(Context(1));
        chosen.claim(Context(1), other, &mut senders, &config).unwrap();
        assert_eq!(senders.outbox.source_ports().unwrap()[1], of_path.get());
    }

    #[test]
    fn contexts_do_not_take_all_ports() {
        let mut chosen = SourcePorts::default();
        let take = |chosen: &mut SourcePorts, context, number| {
            assert!(chosen.may_claim(context, port(number)), "{number}");
            let contexts = BTreeSet::from([context]);
            let source = Source { socket: number, is_own: true, contexts };
            chosen.ports.insert(port(number), source);
        };
        let mut numbers = FIRST_CHOSEN_PORT..;
        for number in numbers.by_ref().take(MAX_OF_CONTEXT) {
            take(&mut chosen, Context(1), number);
        }
        assert!(!chosen.may_claim(Context(1), port(65_535)));
        assert!(chosen.may_claim(Context(1), port(FIRST_CHOSEN_PORT)), "one that it has");
        for (number, context) in numbers.take(MAX_OF_ADDRESS - MAX_OF_CONTEXT).zip(2..) {
            take(&mut chosen, Context(context), number);
        }
        assert!(!chosen.may_claim(Context(2), port(65_535)));
        assert!(chosen.may_claim(Context(2), port(FIRST_CHOSEN_PORT)), "another's socket");
    }
}
