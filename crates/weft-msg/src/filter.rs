//! Fault injection (X-RDMA, section VI.C): rules that drop, delay or corrupt messages as they leave or arrive,
//! above the protocol, to test an application's reaction in production.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weft_units::{Duration, Rng};
use weft_wire::CallRole;

/// The direction of the messages that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Outgoing messages.
    Out,
    /// Incoming messages.
    In,
}

/// The fault that a rule injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The message is dropped; the sender still receives `Delivered` for lent memory.
    Drop,
    /// The message is sent, or delivered, later.
    Delay(Duration),
    /// One bit of the body is flipped.
    Corrupt,
}

/// A rule. Examples of its text form: `out drop 1/100`, `in delay 5ms`, `out corrupt 1/2 requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The direction.
    pub direction: Direction,
    /// The fault.
    pub fault: Fault,
    /// The probability: `chance.0` of `chance.1` messages.
    pub chance: (u32, u32),
    /// The kind of messages; `None` for all.
    pub only: Option<CallKind>,
}

/// A kind of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Requests.
    Requests,
    /// Responses.
    Responses,
}

/// The error for a text that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no filter rule; one is: (in|out) (drop|corrupt|delay TIME) [N/M] [requests|responses]"
)]
pub struct RuleError(String);

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse(text).ok_or_else(|| RuleError(text.into()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Out => "out",
            Direction::In => "in",
        };
        match self.fault {
            Fault::Drop => write!(f, "{direction} drop")?,
            Fault::Delay(delay) => write!(f, "{direction} delay {delay}")?,
            Fault::Corrupt => write!(f, "{direction} corrupt")?,
        }
        if self.chance != (1, 1) {
            write!(f, " {}/{}", self.chance.0, self.chance.1)?;
        }
        match self.only {
            None => Ok(()),
            Some(CallKind::Requests) => write!(f, " requests"),
            Some(CallKind::Responses) => write!(f, " responses"),
        }
    }
}

/// The text of a filter without rules.
const NO_RULES: &str = "none";

/// Parses rules that are separated by semicolons; `none` is a filter without rules.
///
/// # Errors
/// A part of the text is not a rule.
pub(crate) fn parse_rules(text: &str) -> Result<Vec<Rule>, RuleError> {
    if text.trim() == NO_RULES {
        return Ok(Vec::new());
    }
    text.split(';').map(str::parse).collect()
}

/// Returns the text that [`parse_rules`] parses.
pub(crate) fn rules_text(rules: &[Rule]) -> String {
    if rules.is_empty() {
        return NO_RULES.into();
    }
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    rules.join("; ")
}

fn parse(text: &str) -> Option<Rule> {
    let mut words = text.split_whitespace().peekable();
    let direction = match words.next()? {
        "out" => Direction::Out,
        "in" => Direction::In,
        _ => return None,
    };
    let fault = match words.next()? {
        "drop" => Fault::Drop,
        "corrupt" => Fault::Corrupt,
        "delay" => Fault::Delay(words.next()?.parse().ok()?),
        _ => return None,
    };
    let mut rule = Rule { direction, fault, chance: (1, 1), only: None };
    if let Some((numerator, denominator)) = words.peek().and_then(|word| word.split_once('/')) {
        let denominator = denominator.parse().ok().filter(|&denominator| denominator > 0)?;
        rule.chance = (numerator.parse().ok()?, denominator);
        words.next();
    }
    rule.only = match words.next() {
        None => None,
        Some("requests") => Some(CallKind::Requests),
        Some("responses") => Some(CallKind::Responses),
        Some(_) => return None,
    };
    words.next().is_none().then_some(rule)
}

/// The rules of a context, and the number of faults injected.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) rules: Vec<Rule>,
    pub(crate) faults_injected: u64,
}

impl Filter {
    /// Returns the fault for a message; the first matching rule decides.
    #[inline]
    pub(crate) fn verdict(
        &mut self,
        direction: Direction,
        call: CallRole,
        rng: &mut Rng,
    ) -> Option<Fault> {
        if self.rules.is_empty() { None } else { self.first_match(direction, call, rng) }
    }

    fn first_match(
        &mut self,
        direction: Direction,
        call: CallRole,
        rng: &mut Rng,
    ) -> Option<Fault> {
        let applies = |rule: &&Rule| {
            let wanted = match rule.only {
                None => true,
                Some(CallKind::Requests) => matches!(call, CallRole::Request(_)),
                Some(CallKind::Responses) => matches!(call, CallRole::Response(_)),
            };
            let (numerator, denominator) = rule.chance;
            rule.direction == direction
                && wanted
                && rng.chance(numerator.into(), denominator.into())
        };
        let fault = self.rules.iter().find(applies).map(|rule| rule.fault);
        self.faults_injected += u64::from(fault.is_some());
        fault
    }
}

/// Flips one random bit.
pub(crate) fn corrupt(body: &mut [u8], rng: &mut Rng) {
    if !body.is_empty() {
        let bit = rng.below(body.len() as u64 * 8);
        let at = usize::try_from(bit / 8).expect("an index");
        body[at] ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn rules_are_parsed_and_invalid_text_is_refused() {
        let rule =
            Rule { direction: Direction::Out, fault: Fault::Drop, chance: (1, 100), only: None };
        assert_eq!("out drop 1/100".parse(), Ok(rule));
        let delay = Fault::Delay(Duration::from_millis(5));
        let slow = Rule {
            direction: Direction::In,
            fault: delay,
            chance: (1, 1),
            only: Some(CallKind::Responses),
        };
        assert_eq!("in delay 5ms responses".parse(), Ok(slow));
        for wrong in
            ["", "drop", "out", "out drop 1/0", "out drop 1/2 both", "in delay", "out drop x y z"]
        {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_text_of_rules_is_parsed_back() {
        for text in [
            "none",
            "out drop 1/100",
            "in delay 5ms responses; out corrupt; in corrupt 2/3 requests",
        ] {
            assert_eq!(rules_text(&parse_rules(text).unwrap()), text);
        }
        let error = parse_rules("out drop; out dorp").unwrap_err().to_string();
        assert!(error.starts_with("\" out dorp\" is no filter rule; one is:"), "{error}");
        assert!(parse_rules("").is_err());
    }

    #[test]
    fn a_rule_applies_with_its_chance_and_only_to_its_messages() {
        let mut filter = Filter::default();
        filter.rules.push("out corrupt 1/4 requests".parse().unwrap());
        let mut rng = Seed(1).child("filter", 0).rng();
        let mut count = |direction, call| {
            (0..4000).filter(|_| filter.verdict(direction, call, &mut rng).is_some()).count()
        };
        assert!((900..1100).contains(&count(Direction::Out, CallRole::Request(1))));
        assert_eq!(count(Direction::Out, CallRole::Response(1)), 0);
        assert_eq!(count(Direction::In, CallRole::Request(1)), 0);
    }
}
