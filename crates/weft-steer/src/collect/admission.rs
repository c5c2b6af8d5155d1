//! The admission of datagrams: they must be from agents in the inventory, from the addresses listed for them, and in
//! sequence. The agent address in a datagram is a claim; its source address comes from the network. A host that can
//! forge source addresses can still inject data, so routers and controller belong in a separate network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::Inventory;

/// The agents of an inventory, and their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Admission {
    agents: BTreeMap<IpAddr, Agent>,
    /// The source addresses of all agents.
    sources: BTreeSet<IpAddr>,
    /// The sequence numbers, by agent and sub-agent.
    numbers: BTreeMap<(IpAddr, u32), Numbers>,
}

/// A router's agent.
#[derive(Debug)]
struct Agent {
    router: String,
    sources: Vec<IpAddr>,
}

/// The reason why a datagram is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// No router has this agent.
    UnknownAgent,
    /// The agent's router does not list this source.
    ForeignSource,
    /// The agent has more sub-agents than a router has line cards.
    TooManySubAgents,
}

/// The position of a datagram in the sequence of its sub-agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// It is newer than the last; `lost` datagrams between the two are missing.
    Next { lost: u32 },
    /// It is a repetition, or arrived long after the next.
    Late,
    /// Its sequence number is far from the last one.
    Jumped,
}

/// Maximum number of datagrams lost in a row; a larger gap counts as a jump.
const MAX_GAP: u32 = 1 << 12;
/// Number of consecutive sequence numbers after which an agent is considered restarted.
const RESTART_RUN: u8 = 3;
/// Maximum number of sub-agents of an agent: a chassis has one for each line card.
const MAX_SUB_AGENTS: usize = 64;

impl Admission {
    /// Replaces the agents by those of these routers; sequence numbers stay.
    pub(super) fn set(&mut self, inventory: &Inventory) {
        let agents = inventory.routers.iter().map(|router| {
            let sources = router.sources().map(|it| it.to_canonical()).collect();
            (router.agent, Agent { router: router.name.clone(), sources })
        });
        self.agents = agents.collect();
        self.sources = self.agents.values().flat_map(|it| it.sources.iter().copied()).collect();
        let agents = &self.agents;
        self.numbers.retain(|(agent, _), _| agents.contains_key(agent));
    }

    /// Returns `true` if some agent sends from this address.
    pub(super) fn knows(&self, source: IpAddr) -> bool {
        self.sources.contains(&source)
    }

    /// Returns the router of a datagram's agent.
    ///
    /// # Errors
    /// Returns `UnknownAgent` or `ForeignSource`.
    pub(super) fn router(&self, agent: IpAddr, source: IpAddr) -> Result<&str, Rejection> {
        let known = self.agents.get(&agent).ok_or(Rejection::UnknownAgent)?;
        if known.sources.contains(&source) {
            Ok(&known.router)
        } else {
            Err(Rejection::ForeignSource)
        }
    }

    /// Returns the position of an admitted agent's datagram in the sequence of its sub-agent.
    ///
    /// # Errors
    /// Returns `TooManySubAgents`.
    pub(super) fn position(
        &mut self,
        agent: IpAddr,
        sub_agent: u32,
        number: u32,
    ) -> Result<Position, Rejection> {
        if let Some(numbers) = self.numbers.get_mut(&(agent, sub_agent)) {
            return Ok(numbers.position(number));
        }
        if self.numbers.range((agent, 0)..=(agent, u32::MAX)).count() >= MAX_SUB_AGENTS {
            return Err(Rejection::TooManySubAgents);
        }
        self.numbers.insert((agent, sub_agent), Numbers { last: number, out_of_sequence: None });
        Ok(Position::Next { lost: 0 })
    }
}

/// The sequence numbers of a sub-agent.
#[derive(Debug)]
struct Numbers {
    last: u32,
    /// A sequence number that does not follow the last, and the length of the consecutive run that ends with it. One
    /// forged number must not make the agent's own numbers look old.
    out_of_sequence: Option<(u32, u8)>,
}

impl Numbers {
    fn position(&mut self, number: u32) -> Position {
        let ahead = number.wrapping_sub(self.last);
        if (1..=MAX_GAP).contains(&ahead) {
            *self = Self { last: number, out_of_sequence: None };
            return Position::Next { lost: ahead - 1 };
        }
        let run = match self.out_of_sequence {
            Some((before, run)) if number == before.wrapping_add(1) => run + 1,
            _ => 1,
        };
        if run >= RESTART_RUN {
            *self = Self { last: number, out_of_sequence: None };
            return Position::Next { lost: 0 };
        }
        self.out_of_sequence = Some((number, run));
        if self.last.wrapping_sub(number) < MAX_GAP { Position::Late } else { Position::Jumped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(numbers: &[u32]) -> Vec<Position> {
        let mut known = Numbers { last: 100, out_of_sequence: None };
        numbers.iter().map(|&number| known.position(number)).collect()
    }

    const IN_SEQUENCE: Position = Position::Next { lost: 0 };

    #[test]
    fn a_forged_number_does_not_make_the_agents_own_look_old() {
        assert_eq!(positions(&[5_000_000, 101, 102]), [Position::Jumped, IN_SEQUENCE, IN_SEQUENCE]);
        // A forged number within the gap is accepted; the agent's numbers are accepted again after three in a row.
        let lost = Position::Next { lost: 3899 };
        assert_eq!(
            positions(&[4000, 101, 102, 103, 104]),
            [lost, Position::Late, Position::Late, IN_SEQUENCE, IN_SEQUENCE]
        );
    }

    #[test]
    fn a_restarted_agent_is_accepted_after_three_in_a_row() {
        assert_eq!(
            positions(&[1, 2, 3, 4]),
            [Position::Late, Position::Late, IN_SEQUENCE, IN_SEQUENCE]
        );
        let far = [7_000_000, 7_000_001, 7_000_002];
        assert_eq!(positions(&far), [Position::Jumped, Position::Jumped, IN_SEQUENCE]);
        assert_eq!(
            positions(&[7_000_000, 9, 7_000_001]),
            [Position::Jumped, Position::Late, Position::Jumped]
        );
    }

    #[test]
    fn numbers_wrap() {
        let mut known = Numbers { last: u32::MAX, out_of_sequence: None };
        assert_eq!(known.position(1), Position::Next { lost: 1 });
        assert_eq!(known.position(u32::MAX), Position::Late);
    }

    #[test]
    fn invented_sub_agents_take_bounded_memory() {
        let mut admission = Admission::default();
        let agent = IpAddr::from([10, 0, 0, 1]);
        let taken = (0..10_000).filter(|&it| admission.position(agent, it, 7).is_ok()).count();
        assert_eq!((taken, admission.numbers.len()), (MAX_SUB_AGENTS, MAX_SUB_AGENTS));
        assert_eq!(admission.position(agent, 3, 8), Ok(IN_SEQUENCE), "one that was there before");
    }
}
