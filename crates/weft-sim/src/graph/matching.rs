//! The assignment of messages to receives, as MPI 4.1 (section 3.5) defines it: a message goes to the receive that was
//! posted first among those that accept it, and a receive takes the first message that it accepts.

use std::collections::{BTreeMap, VecDeque};

use super::ANY;

/// The receives and messages of one rank that have no partner yet.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    /// The number of the next receive or message.
    next: u64,
    /// Receives that name sender and tag.
    exact: BTreeMap<(u32, u32), VecDeque<(u64, u32)>>,
    /// Receives that accept any sender or any tag, oldest first, with the node.
    any: Vec<((u32, u32), u64, u32)>,
    /// Messages that no receive has taken, by sender and tag.
    messages: BTreeMap<(u32, u32), VecDeque<u64>>,
}

const fn accepts(wanted: (u32, u32), message: (u32, u32)) -> bool {
    (wanted.0 == ANY || wanted.0 == message.0) && (wanted.1 == ANY || wanted.1 == message.1)
}

impl Matching {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Posts a receive of `node`; returns `true` if a message that arrived earlier completes it.
    pub fn post(&mut self, node: u32, from: u32, tag: u32) -> bool {
        let wanted = (from, tag);
        if from == ANY || tag == ANY {
            let accepted = self.messages.iter().filter(|(message, _)| accepts(wanted, **message));
            let oldest = accepted.min_by_key(|(_, numbers)| numbers.front());
            if let Some(message) = oldest.map(|(message, _)| *message) {
                return self.take(message);
            }
            let number = self.number();
            self.any.push((wanted, number, node));
            return false;
        }
        if self.take(wanted) {
            return true;
        }
        let number = self.number();
        self.exact.entry(wanted).or_default().push_back((number, node));
        false
    }

    /// Removes the oldest message of a sender and tag.
    fn take(&mut self, message: (u32, u32)) -> bool {
        let Some(numbers) = self.messages.get_mut(&message) else { return false };
        numbers.pop_front();
        if numbers.is_empty() {
            self.messages.remove(&message);
        }
        true
    }

    /// Handles a message; returns the node of the receive that it completes.
    pub fn arrive(&mut self, from: u32, tag: u32) -> Option<u32> {
        let message = (from, tag);
        let exact = self.exact.get(&message).and_then(|posted| posted.front().copied());
        let any = self.any.iter().position(|(wanted, ..)| accepts(*wanted, message));
        match (exact, any) {
            (Some((number, node)), any) if any.is_none_or(|at| number < self.any[at].1) => {
                let posted = self.exact.get_mut(&message)?;
                posted.pop_front();
                if posted.is_empty() {
                    self.exact.remove(&message);
                }
                Some(node)
            }
            (_, Some(at)) => Some(self.any.remove(at).2),
            _ => {
                let number = self.number();
                self.messages.entry(message).or_default().push_back(number);
                None
            }
        }
    }

    /// Returns a receive that waits for a message.
    pub fn waiting(&self) -> Option<u32> {
        let exact = self.exact.values().flatten().map(|&(number, node)| (number, node));
        let any = self.any.iter().map(|&(_, number, node)| (number, node));
        exact.chain(any).min().map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_oldest_receive_that_accepts_them() {
        let mut rank = Matching::default();
        assert!(!rank.post(1, ANY, 5));
        assert!(!rank.post(2, 0, 5));
        assert_eq!(rank.arrive(0, 6), None);
        assert_eq!(rank.waiting(), Some(1));
        assert_eq!(rank.arrive(0, 5), Some(1), "the one that accepts any sender is older");
        assert_eq!(rank.arrive(0, 5), Some(2));
        assert_eq!(rank.waiting(), None);
        assert!(rank.post(3, 0, ANY), "the message with tag 6 came first");
        assert!(!rank.post(4, 0, 6));
    }

    #[test]
    fn an_exact_receive_that_is_older_comes_first() {
        let mut rank = Matching::default();
        assert!(!rank.post(1, 7, 0));
        assert!(!rank.post(2, ANY, ANY));
        assert_eq!(rank.arrive(7, 0), Some(1));
        assert_eq!(rank.arrive(7, 0), Some(2));
        assert_eq!((rank.arrive(3, 1), rank.arrive(2, 1)), (None, None));
        assert!(rank.post(5, ANY, 1));
        assert!(rank.post(6, 2, 1), "of two messages the first went to the receive from any");
    }
}
