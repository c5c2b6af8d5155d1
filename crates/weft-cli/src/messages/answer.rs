//! The server of messages: it answers echoes at once, and orders to ping when they are carried out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use weft_guard::Token;
use weft_units::Duration;
use weft_xrdma::{CallRole, ChannelId, Event, Message, Node, Payload};

use super::NodeOptions;
use super::lender::Lender;
use super::pinger::Pinger;
use super::protocol::{Order, OrderResult, Outcome, Request};

/// The longest response, bytes.
const MAX_RESPONSE: u32 = 64 << 20;
/// The longest sleep of the server between two checks of `stop`.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// The longest sleep while other threads carry out orders.
const OUTCOME_CHECK: Duration = Duration::from_millis(1);

/// A finished order, and the request that it answers.
struct Finished {
    channel: ChannelId,
    id: u64,
    outcomes: Vec<Outcome>,
}

/// Rights to order this host to ping others.
#[derive(Debug)]
pub(super) struct Rights {
    pub(super) token: Option<Token>,
    /// `true` if other hosts reach the address.
    pub(super) is_exposed: bool,
}

impl Rights {
    /// Checks that the order may be carried out.
    ///
    /// # Errors
    /// Returns the reason why it may not.
    fn check(&self, order: &Order) -> Result<(), String> {
        match (&self.token, &order.token) {
            (Some(token), Some(shown)) if token.is(shown) => Ok(()),
            (Some(_), _) => Err("that is not the token that it was given (--token-file)".into()),
            (None, _) if self.is_exposed => Err(
                "it has no token, and other hosts reach it: start it with --token-file, or let it listen at 127.0.0.1"
                    .into(),
            ),
            (None, _) => Ok(()),
        }
    }
}

struct Server {
    node: Node,
    rights: Rights,
    options: NodeOptions,
    lender: Lender,
    /// The queue of orders for each channel's thread, which has a node of its own. A thread starts with its channel's
    /// first order, and ends with the channel.
    pingers: BTreeMap<ChannelId, Sender<(u64, Order)>>,
    /// Number of orders that threads carry out.
    orders_pending: u32,
    finished: (Sender<Finished>, Receiver<Finished>),
}

/// Answers until `stop` is set.
pub(super) fn serve(node: Node, options: &NodeOptions, rights: Rights, stop: &AtomicBool) {
    let (pingers, options) = (BTreeMap::new(), options.clone());
    let mut server = Server {
        node,
        rights,
        options,
        lender: Lender::default(),
        pingers,
        orders_pending: 0,
        finished: channel(),
    };
    while !stop.load(Ordering::Relaxed) {
        server.node.wait(Some(if server.orders_pending > 0 { OUTCOME_CHECK } else { STOP_CHECK }));
        while let Some(event) = server.node.poll_event() {
            match event {
                Event::Channel(weft_msg::Event::Message { channel, message }) => {
                    server.on_message(channel, message);
                }
                Event::Channel(weft_msg::Event::Closed { channel, .. }) => {
                    server.pingers.remove(&channel);
                }
                _ => {}
            }
        }
        while let Ok(finished) = server.finished.1.try_recv() {
            server.orders_pending -= 1;
            let Finished { channel, id, outcomes } = finished;
            server.respond(channel, id, &Ok(outcomes));
        }
    }
}

impl Server {
    fn on_message(&mut self, channel: ChannelId, message: Message) {
        let request = Request::parse(self.node.context().body(&message));
        let CallRole::Request(id) = message.call else { return self.release(message) };
        self.release(message);
        match request {
            Ok(Request::Echo { response }) => {
                let lent = self.lender.body(&mut self.node, response.min(MAX_RESPONSE), 0);
                let body = lent.unwrap_or(Payload::Copy(&[]));
                answer(&mut self.node, channel, id, body);
            }
            Ok(Request::Order(order)) => self.order(channel, id, order),
            Err(_) => answer(&mut self.node, channel, id, Payload::Copy(&[])),
        }
    }

    fn release(&mut self, message: Message) {
        let now = self.node.now();
        self.node.context().release(now, message);
    }

    fn respond(&mut self, channel: ChannelId, id: u64, ordered: &OrderResult) {
        let json = serde_json::to_vec(ordered).expect("plain values");
        answer(&mut self.node, channel, id, Payload::Copy(&json));
    }

    fn order(&mut self, channel: ChannelId, id: u64, order: Order) {
        if let Err(why) = self.rights.check(&order) {
            return self.respond(channel, id, &Err(why));
        }
        let (options, finished) = (&self.options, &self.finished.0);
        let orders = self.pingers.entry(channel).or_insert_with(|| {
            let (sender, orders) = std::sync::mpsc::channel::<(u64, Order)>();
            let (options, finished) = (options.clone(), finished.clone());
            std::thread::spawn(move || {
                let mut pinger = Pinger::new(&options);
                for (id, order) in orders {
                    let outcomes = pinger.carry_out(&order);
                    // The receiver is gone if the server has ended.
                    let _ = finished.send(Finished { channel, id, outcomes });
                }
            });
            sender
        });
        if orders.send((id, order)).is_ok() {
            self.orders_pending += 1;
        }
    }
}

/// Sends a response; the error of a client that is gone is ignored.
fn answer(node: &mut Node, channel: ChannelId, id: u64, body: Payload<'_>) {
    let now = node.now();
    let _ = node.context().respond(now, channel, id, body);
}
