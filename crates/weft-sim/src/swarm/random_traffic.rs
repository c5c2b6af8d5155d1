//! The traffic of a swarm case: channels that open, send both ways, and sometimes close early.

use weft_topo::NodeId;

use crate::time::SimTime;
use crate::traffic::{ChannelId, ChannelState, Notice, SendRequest, Side};
use crate::workload::Workload;
use crate::world::Session;

/// An action on the channel of a pair of hosts, with its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedAction {
    pub(super) at: SimTime,
    /// Index of the pair of hosts.
    pub(super) pair: usize,
    pub(super) action: Action,
}

/// An action on a channel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// Opens the pair's channel if it is not open.
    Open,
    /// Sends a message of this length, bytes, if the channel is open.
    Send { from: Side, length: u32 },
    /// Closes the channel if it is open.
    Close,
}

/// A sequence of actions, executed at their times.
#[derive(Clone, Debug, Default)]
pub(super) struct RandomTraffic {
    pairs: Vec<(NodeId, NodeId)>,
    actions: Vec<TimedAction>,
    /// Each pair's open channel, with the number of its unfinished messages.
    open: Vec<Option<(ChannelId, usize)>>,
    /// Index of the next action.
    next: usize,
}

impl RandomTraffic {
    pub(super) fn new(pairs: Vec<(NodeId, NodeId)>, mut actions: Vec<TimedAction>) -> Self {
        actions.sort_by_key(|action| action.at);
        Self { open: vec![None; pairs.len()], pairs, actions, next: 0 }
    }

    /// Begins every channel with an empty message. The world serves the timers of connections that were joined without
    /// packets only after a message was sent on them.
    pub(super) fn send_first_messages(&mut self) {
        let is_open = |timed: &&TimedAction| matches!(timed.action, Action::Open);
        let action = Action::Send { from: Side::Opener, length: 0 };
        let messages = self.actions.iter().filter(is_open);
        let messages: Vec<_> = messages.map(|timed| TimedAction { action, ..*timed }).collect();
        self.actions.extend(messages);
        // The sort is stable: actions of one time keep their order.
        self.actions.sort_by_key(|action| action.at);
    }

    /// Moves all channels to the two hosts of the first, every other one in the other direction.
    pub(super) fn keep_to_two_hosts(&mut self) {
        let Some(&(from, to)) = self.pairs.first() else { return };
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            *pair = if index % 2 == 0 { (from, to) } else { (to, from) };
        }
    }

    pub(super) fn closes(&self) -> bool {
        self.actions.iter().any(|action| matches!(action.action, Action::Close))
    }

    fn advance(&mut self, session: &mut Session<'_>) {
        while let Some(action) = self.actions.get(self.next).copied()
            && action.at <= session.now()
        {
            self.next += 1;
            self.execute(action, session);
        }
        if let Some(action) = self.actions.get(self.next) {
            session.wake(action.at, 0);
        }
    }

    fn execute(&mut self, action: TimedAction, session: &mut Session<'_>) {
        let open = &mut self.open[action.pair];
        match (action.action, open.as_mut()) {
            (Action::Open, None) => {
                let (from, to) = self.pairs[action.pair];
                *open = Some((session.open(from, to), 0));
            }
            // The channel has just closed: the notice is still to come.
            (Action::Send { .. }, Some((channel, _))) if is_closed(*channel, session) => {}
            (Action::Send { from, length }, Some((channel, unfinished))) => {
                *unfinished += 1;
                let (channel, tag) = (*channel, action.pair as u64);
                session.send(SendRequest { channel, from, length, tag, recorded: true });
            }
            (Action::Close, Some((channel, _))) => session.close(*channel),
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

impl Workload for RandomTraffic {
    fn start(&mut self, session: &mut Session<'_>) {
        self.advance(session);
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { .. } => self.advance(session),
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
        self.next == self.actions.len() && quiet
    }
}
