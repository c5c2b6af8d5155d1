//! Prefetching of the memory of the nodes that are served next.

use weft_transport::PrefetchStage;
use weft_units::{prefetch, prefetch_all};

use super::Network;
use crate::packet::{Class, PacketRef};

/// Number of other nodes that are served before the one whose arrivals are collected.
const COLLECTED: usize = 5;
/// Number of nodes whose arrivals are stored: above [`COLLECTED`].
const RING: usize = 8;

/// The packets that arrive at the hosts that are served next.
#[derive(Debug, Default)]
pub(super) struct Lookahead {
    /// The arrivals at each host, by its place among the waiting nodes, modulo [`RING`].
    arrivals: [Vec<(PacketRef, Class)>; RING],
}

impl Network {
    /// Prefetches the state of the next nodes: first their events, hosts and links, then the arriving packets, then
    /// the engines' state for those.
    #[inline(never)]
    pub(super) fn prefetch(&mut self) {
        let Self { events, hosts, fabric, lookahead: Lookahead { arrivals }, .. } = self;
        if let Some((_, node)) = events.upcoming(9) {
            events.prefetch_list(node);
        }
        if let Some((_, node)) = events.upcoming(7) {
            events.prefetch(node);
            match hosts.get(node.index()) {
                Some(host) => prefetch_all(host),
                None => fabric.prefetch(node),
            }
        }
        if let Some((place, node)) = events.upcoming(COLLECTED)
            && let Some(host) = hosts.get(node.index())
        {
            host.endpoint.prefetch_tables();
            prefetch(host.ports.as_slice());
            let arrivals = &mut arrivals[place % RING];
            events.arrivals(node).for_each(|hop| {
                fabric.packets.prefetch(hop.packet());
                arrivals.push((hop.packet(), hop.class()));
            });
        }
        if let Some((place, _)) = events.upcoming(4) {
            for &(packet, class) in &arrivals[place % RING] {
                fabric.packets.prefetch_headers(packet, class);
            }
        }
        if let Some((_, node)) = events.upcoming(3)
            && let Some(host) = hosts.get(node.index())
        {
            host.ports.iter().for_each(|port| prefetch(fabric.link(port.link)));
        }
        for (others, step) in [
            (3, PrefetchStage::Connections),
            (2, PrefetchStage::Senders),
            (1, PrefetchStage::Packets),
        ] {
            if let Some((place, node)) = events.upcoming(others)
                && let Some(host) = hosts.get(node.index())
            {
                let arrivals = &mut arrivals[place % RING];
                let packets = arrivals.iter().map(|&(packet, _)| fabric.packets.get(packet).packet);
                host.endpoint.prefetch(packets, step);
                if step == PrefetchStage::Packets {
                    arrivals.clear();
                }
            }
        }
    }
}
