//! The traffic of a swarm case: channels that open, send both ways, and sometimes close early.

use weft_topo::NodeId;

use crate::time::SimTime;
use crate::traffic::{ChannelId, ChannelState, Notice, SendRequest, Side};
use crate::workload::Workload;
use crate::world::Session;

/// An action on a channel, with its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deed {
    pub(super) at: SimTime,
    /// Index of the pair of hosts.
    pub(super) pair: usize,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Opens the pair's channel if it is not open.
    Open,
    Send {
        from: Side,
        length: u32,
    },
    Close,
}

/// A script of actions.
#[derive(Clone, Debug, Default)]
pub(super) struct Chatter {
    pairs: Vec<(NodeId, NodeId)>,
    deeds: Vec<Deed>,
    /// Each pair's open channel, with the number of its unfinished messages.
    open: Vec<Option<(ChannelId, usize)>>,
    next: usize,
}

impl Chatter {
    pub(super) fn new(pairs: Vec<(NodeId, NodeId)>, mut deeds: Vec<Deed>) -> Self {
        deeds.sort_by_key(|deed| deed.at);
        Self { open: vec![None; pairs.len()], pairs, deeds, next: 0 }
    }

    /// Begins every channel with an empty message. The world serves the timers of connections that were joined without
    /// packets only after a message was sent on them.
    pub(super) fn greet(&mut self) {
        let opened = |deed: &Deed| matches!(deed.what, What::Open);
        let hello = What::Send { from: Side::Opener, length: 0 };
        let hellos = self.deeds.iter().filter(|deed| opened(deed));
        let hellos: Vec<_> = hellos.map(|deed| Deed { what: hello, ..*deed }).collect();
        self.deeds.extend(hellos);
        // The sort is stable: actions of one time keep their order.
        self.deeds.sort_by_key(|deed| deed.at);
    }

    /// Moves all channels to the two hosts of the first, every other one in the other direction.
    pub(super) fn keep_to_two_hosts(&mut self) {
        let Some(&(from, to)) = self.pairs.first() else { return };
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            *pair = if index % 2 == 0 { (from, to) } else { (to, from) };
        }
    }

    pub(super) fn closes(&self) -> bool {
        self.deeds.iter().any(|deed| matches!(deed.what, What::Close))
    }

    fn act(&mut self, session: &mut Session<'_>) {
        while let Some(deed) = self.deeds.get(self.next).copied()
            && deed.at <= session.now()
        {
            self.next += 1;
            self.carry_out(deed, session);
        }
        if let Some(deed) = self.deeds.get(self.next) {
            session.wake(deed.at, 0);
        }
    }

    fn carry_out(&mut self, deed: Deed, session: &mut Session<'_>) {
        let open = &mut self.open[deed.pair];
        match (deed.what, open.as_mut()) {
            (What::Open, None) => {
                let (from, to) = self.pairs[deed.pair];
                *open = Some((session.open(from, to), 0));
            }
            // The channel has just closed: the notice is still to come.
            (What::Send { .. }, Some((channel, _))) if is_closed(*channel, session) => {}
            (What::Send { from, length }, Some((channel, unfinished))) => {
                *unfinished += 1;
                let (channel, tag) = (*channel, deed.pair as u64);
                session.send(SendRequest { channel, from, length, tag, recorded: true });
            }
            (What::Close, Some((channel, _))) => session.close(*channel),
            // The channel has closed, or there is none to open.
            _ => {}
        }
    }

    fn pair_of(&mut self, channel: ChannelId) -> Option<&mut Option<(ChannelId, usize)>> {
        self.open.iter_mut().find(|open| open.is_some_and(|(id, _)| id == channel))
    }
}

fn is_closed(channel: ChannelId, session: &Session<'_>) -> bool {
    let channel = super::network(session).traffic.channel(channel);
    channel.is_none_or(|channel| channel.state == ChannelState::Closed)
}

impl Workload for Chatter {
    fn start(&mut self, session: &mut Session<'_>) {
        self.act(session);
    }

    fn notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { .. } => self.act(session),
            Notice::Acknowledged { request } => {
                if let Some(Some((_, unfinished))) = self.pair_of(request.channel) {
                    *unfinished -= 1;
                }
            }
            Notice::Closed { channel, .. } => {
                if let Some(open) = self.pair_of(*channel) {
                    *open = None;
                }
            }
            Notice::Delivered { .. } => {}
        }
    }

    fn is_done(&self) -> bool {
        let quiet = self.open.iter().flatten().all(|(_, unfinished)| *unfinished == 0);
        self.next == self.deeds.len() && quiet
    }
}
