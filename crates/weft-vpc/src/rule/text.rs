//! The text form of a rule: its parser and its display.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use thiserror::Error;
use weft_units::UnknownName;

use super::{Action, Ends, Net, Ports, Rule, RuleError};
use crate::{ParsePrefixError, protocol};

/// The reason that a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseRuleError {
    /// An unexpected word.
    #[error("rule {rule:?}: {problem}")]
    Word {
        /// The rule as it was written.
        rule: String,
        /// The mistake, and the expected words.
        problem: RuleError,
    },
}

/// The protocols that have names.
const PROTOCOLS: [(&str, u8); 4] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("icmp", protocol::ICMP),
    ("icmpv6", protocol::ICMPV6),
];

/// The words of a rule that are not read yet.
struct Words<'a> {
    words: core::iter::Peekable<core::str::SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    /// Reads the next word if it is `word`. Returns `true` if it was.
    fn take(&mut self, word: &str) -> bool {
        self.words.next_if_eq(&word).is_some()
    }

    /// Returns the next word; `expected` describes it in the error.
    fn value(&mut self, expected: &'static str) -> Result<&'a str, RuleError> {
        self.words.next().ok_or(RuleError::Incomplete { expected })
    }

    fn number<T: FromStr>(&mut self, expected: &'static str) -> Result<T, RuleError> {
        let word = self.value(expected)?;
        word.parse().map_err(|_| RuleError::NotANumber { word: word.into(), expected })
    }
}

impl FromStr for Rule {
    type Err = ParseRuleError;
    fn from_str(text: &str) -> Result<Self, ParseRuleError> {
        let rule = parse(text).and_then(|rule| rule.check().map(|()| rule));
        rule.map_err(|problem| ParseRuleError::Word { rule: text.into(), problem })
    }
}

fn parse(text: &str) -> Result<Rule, RuleError> {
    let mut words = Words { words: text.split_whitespace().peekable() };
    let first = words.words.peek().copied().unwrap_or_default();
    let priority = match first.starts_with(|letter: char| letter.is_ascii_digit()) {
        true => words.number("a priority such as 100")?,
        false => Rule::DEFAULT_PRIORITY,
    };
    let action = words.value("allow or deny")?.parse()?;
    let direction = words.value("ingress or egress")?.parse()?;
    let mut rule = Rule { priority, ..Rule::new(action, direction) };
    const KEYWORDS: [&str; 4] = ["from", "to", "type", "name"];
    if let Some(word) = words.words.next_if(|word| !KEYWORDS.contains(word)) {
        rule.protocol = parse_protocol(word)?;
    }
    while let Some(word) = words.words.next() {
        match word {
            "from" => rule.from = parse_ends(&mut words)?,
            "to" => rule.to = parse_ends(&mut words)?,
            "type" => {
                let kind = words.number("an ICMP type, 0 to 255")?;
                let code = words.take("code").then(|| words.number("an ICMP code, 0 to 255"));
                rule.icmp = Some((kind, code.transpose()?));
            }
            "name" => words.value("a name")?.clone_into(&mut rule.name),
            _ => return Err(UnknownName::new("word", word, &KEYWORDS).into()),
        }
    }
    Ok(rule)
}

pub(super) fn parse_protocol(word: &str) -> Result<Option<u8>, UnknownName> {
    if word == "any" {
        return Ok(None);
    }
    let named = PROTOCOLS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    let number = named.or_else(|| word.parse().ok());
    let names = &["any", "tcp", "udp", "icmp", "icmpv6", "a number to 255"];
    number.map(Some).ok_or_else(|| UnknownName::new("protocol", word, names))
}

fn parse_ends(words: &mut Words<'_>) -> Result<Ends, RuleError> {
    let net = words.value("any, a prefix or @set")?.parse()?;
    let ports = words.take("port").then(|| words.value("a port")?.parse()).transpose()?;
    Ok(Ends { net, ports })
}

impl FromStr for Net {
    type Err = RuleError;
    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text == "any" {
            return Ok(Self::Any);
        }
        match text.strip_prefix('@') {
            Some("") => Err(RuleError::UnnamedSet),
            Some(name) => Ok(Self::Set(name.to_owned())),
            None => text.parse().map(Self::Prefix).map_err(|error| match error {
                ParsePrefixError::NotAPrefix(_) => RuleError::NotANet { word: text.into() },
                error => RuleError::Prefix(error),
            }),
        }
    }
}

impl FromStr for Ports {
    type Err = RuleError;
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => Self::new(first, last),
            _ => None,
        };
        ports.ok_or_else(|| RuleError::NotPorts { word: text.into() })
    }
}

impl FromStr for Action {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            _ => Err(UnknownName::new("action", text, &["allow", "deny"])),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => write!(out, "any"),
            Self::Prefix(prefix) => write!(out, "{prefix}"),
            Self::Set(name) => write!(out, "@{name}"),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(out, "{}", self.first),
            false => write!(out, "{}-{}", self.first, self.last),
        }
    }
}

/// Writes the rule's text form, which parses to the same rule.
impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}", self.priority, self.action, self.direction)?;
        match self.protocol {
            None => write!(out, " any")?,
            Some(number) => match PROTOCOLS.iter().find(|(_, known)| *known == number) {
                Some((name, _)) => write!(out, " {name}")?,
                None => write!(out, " {number}")?,
            },
        }
        for (word, ends) in [("from", &self.from), ("to", &self.to)] {
            if *ends != Ends::default() {
                write!(out, " {word} {}", ends.net)?;
            }
            if let Some(ports) = ends.ports {
                write!(out, " port {ports}")?;
            }
        }
        if let Some((kind, code)) = self.icmp {
            write!(out, " type {kind}")?;
            code.map_or(Ok(()), |code| write!(out, " code {code}"))?;
        }
        if !self.name.is_empty() {
            write!(out, " name {}", self.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weft_units::{Rng, Seed};

    use super::*;
    use crate::{Direction, Prefix};

    fn refused(text: &str) -> String {
        text.parse::<Rule>().unwrap_err().to_string()
    }

    #[test]
    fn a_rule_reads_as_it_is_written() {
        let rule: Rule =
            "100 allow ingress tcp from 10.0.0.0/8 to any port 80-90 name web".parse().unwrap();
        let expected = Rule {
            name: "web".into(),
            priority: 100,
            protocol: Some(6),
            from: Ends { net: Net::Prefix("10.0.0.0/8".parse().unwrap()), ports: None },
            to: Ends { net: Net::Any, ports: Ports::new(80, 90) },
            ..Rule::new(Action::Allow, Direction::Ingress)
        };
        assert_eq!(rule, expected);
        for text in [
            "1000 deny egress any",
            "7 allow egress 47 from @gre to 192.0.2.1",
            "1000 allow ingress icmpv6 from 2001:db8::/32 type 1 code 4 name unreachable",
            "100 allow ingress tcp from 10.0.0.0/8 to any port 80-90 name web",
            "100 deny egress udp from any port 53 to @web port 1-65535",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        let short: Rule = "deny egress from 10.0.0.0/8".parse().unwrap();
        assert_eq!(short.to_string(), "1000 deny egress any from 10.0.0.0/8");
    }

    #[test]
    fn an_error_names_the_rule_and_the_mistake() {
        assert_eq!(
            refused("alow ingress"),
            r#"rule "alow ingress": no action "alow", did you mean "allow"? (known: allow, deny)"#
        );
        for (text, problem) in [
            ("", "it ends where allow or deny is expected"),
            ("allow", "it ends where ingress or egress is expected"),
            ("x allow ingress", "no action"),
            ("1x allow ingress", "is not a priority"),
            ("allow ingress tcp from", "it ends where any, a prefix or @set is expected"),
            ("allow ingress tcp from 10.1.0.0/8", "bits past its length; the prefix is 10.0.0.0/8"),
            ("allow ingress tcp from 10.0.0.0/33", "is not any, a prefix"),
            ("allow ingress tcp from @", "@ without a name"),
            ("allow ingress tcp to any port 90-80", "is not a port such as 80"),
            ("allow ingress tcp to any port 65536", "is not a port such as 80"),
            ("allow ingress tpc", "no protocol \"tpc\""),
            ("allow ingress 256", "no protocol"),
            ("allow ingress to any port 80", "ports need protocol tcp or udp"),
            ("allow ingress tcp type 8", "type needs protocol icmp"),
            ("allow ingress icmp type 256", "is not an ICMP type"),
            ("allow ingress tcp from 10.0.0.0/8 to ::1", "two versions of IP"),
            ("allow ingress icmp from ::1", "icmpv6 of IPv6"),
            ("allow ingress tcp form any", "no word \"form\" (known: from, to, type, name)"),
        ] {
            assert!(refused(text).contains(problem), "{}", refused(text));
        }
    }

    fn net(rng: &mut Rng) -> Net {
        match rng.below(3) {
            0 => Net::Any,
            1 => Net::Set("web".into()),
            _ => {
                let address = rng.next_u32().into();
                let len = u8::try_from(rng.below(33)).unwrap();
                Net::Prefix(Prefix::new(core::net::IpAddr::V4(address), len).unwrap())
            }
        }
    }

    fn ends(with_ports: bool, rng: &mut Rng) -> Ends {
        let mut port = || u16::try_from(rng.below(1 << 16)).unwrap();
        let (a, b) = (port(), port());
        let ports = (with_ports && a % 2 == 0).then(|| Ports::new(a.min(b), a.max(b)).unwrap());
        Ends { net: net(rng), ports }
    }

    #[test]
    fn every_rule_reads_back() {
        for index in 0..10_000 {
            let mut rng = Seed(1).child("rule", index).rng();
            let protocol = [None, Some(1), Some(6), Some(17), Some(47)][rng.index(5)];
            let with_ports = matches!(protocol, Some(6 | 17));
            let code = rng.chance(1, 2).then_some(3);
            let icmp = (protocol == Some(1) && rng.chance(1, 2)).then_some((3, code));
            let rule = Rule {
                name: ["", "web"][rng.index(2)].into(),
                priority: rng.next_u32(),
                action: [Action::Allow, Action::Deny][rng.index(2)],
                direction: [Direction::Ingress, Direction::Egress][rng.index(2)],
                protocol,
                from: ends(with_ports, &mut rng),
                to: ends(with_ports, &mut rng),
                icmp,
            };
            assert_eq!(rule.to_string().parse(), Ok(rule), "{index}");
        }
    }

    /// Checks that words of rules in any order, and other texts, parse or are refused without a panic.
    #[test]
    fn any_text_is_a_rule_or_an_error() {
        let words = [
            "allow",
            "deny",
            "ingress",
            "egress",
            "any",
            "tcp",
            "icmp",
            "from",
            "to",
            "port",
            "80",
            "90-",
            "-",
            "@",
            "@web",
            "10.0.0.0/8",
            "::/0",
            "type",
            "code",
            "name",
            "4294967296",
            "é",
        ];
        for index in 0..50_000 {
            let mut rng = Seed(2).child("rule", index).rng();
            let count = rng.index(10);
            let text: Vec<_> = (0..count).map(|_| words[rng.index(words.len())]).collect();
            if let Ok(rule) = text.join(" ").parse::<Rule>() {
                assert_eq!(rule.to_string().parse(), Ok(rule));
            }
        }
    }
}
