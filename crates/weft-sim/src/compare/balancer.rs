//! The names of balancers: each selects a path policy, switches and transport.

use weft_transport::{congestion, path};
use weft_units::unknown_name;

use crate::scenario::Variant;
use crate::switch;

/// The error for a name that is not that of a balancer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownBalancer(String);

/// Returns the balancer called `name`. A name is one of the scenario's own variants, a path policy of the hosts, a
/// switch model, a congestion control, or several joined by `+`, later ones over earlier ones. Where switches balance
/// and no policy is named, hosts keep each connection on one path.
///
/// # Errors
/// A part is none of these; the error names the nearest and lists all.
pub fn resolve(name: &str, variants: &[Variant]) -> Result<Variant, UnknownBalancer> {
    let parts = name.split('+').map(str::trim);
    let parts: Vec<Part> = parts.map(|part| find(part, variants)).collect::<Result<_, _>>()?;
    let selects_path = |part: &Part| !matches!(part, Part::Switch(_) | Part::Congestion(_));
    let by_switches = parts.iter().any(|part| matches!(part, Part::Switch(_)));
    let single = Variant::setting(name, "transport", "policy", path::Kind::Single.name());
    let nothing = Variant { overrides: toml::Table::new(), ..single.clone() };
    let start = if by_switches && !parts.iter().any(selects_path) { single } else { nothing };
    let combined = parts.iter().fold(start, |all, part| all.and(part.variant()));
    let about = match parts.as_slice() {
        [Part::Own(variant)] => variant.about.clone(),
        _ => String::new(),
    };
    Ok(Variant { about, ..combined })
}

enum Part {
    Own(Variant),
    Policy(Variant),
    Switch(Variant),
    Congestion(Variant),
}

impl Part {
    fn variant(&self) -> &Variant {
        let (Self::Own(part) | Self::Policy(part) | Self::Switch(part) | Self::Congestion(part)) =
            self;
        part
    }
}

fn find(name: &str, variants: &[Variant]) -> Result<Part, UnknownBalancer> {
    if let Some(variant) = variants.iter().find(|variant| variant.name == name) {
        return Ok(Part::Own(variant.clone()));
    }
    if path::Kind::ALL.iter().any(|kind| kind.name() == name) {
        return Ok(Part::Policy(Variant::setting(name, "transport", "policy", name)));
    }
    if switch::Kind::ALL.iter().any(|kind| kind.name() == name) {
        return Ok(Part::Switch(Variant::setting(name, "forwarding", "kind", name)));
    }
    if congestion::Kind::ALL.iter().any(|kind| kind.name() == name) {
        return Ok(Part::Congestion(Variant::setting(name, "transport", "congestion", name)));
    }
    let own = variants.iter().map(|variant| variant.name.as_str());
    let policies = path::Kind::ALL.iter().map(|kind| kind.name());
    let switches = switch::Kind::ALL.iter().map(|kind| kind.name());
    let controls = congestion::Kind::ALL.iter().map(|kind| kind.name());
    let mut known: Vec<&str> = Vec::new();
    for name in own.chain(policies).chain(switches).chain(controls) {
        // A variant may hide a policy, and a policy and a switch model may share a name.
        if !known.contains(&name) {
            known.push(name);
        }
    }
    Err(UnknownBalancer(unknown_name("balancer", name, &known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(name: &str) -> String {
        let own = Variant::setting("short", "transport", "paths", "4");
        let variant = resolve(name, &[own]).unwrap();
        assert_eq!(variant.name, name);
        toml::to_string(&variant.overrides).unwrap()
    }

    #[test]
    fn a_name_is_a_variant_a_policy_a_switch_or_a_control() {
        assert_eq!(overrides("short"), "[transport]\npaths = \"4\"\n");
        assert_eq!(overrides("oblivious"), "[transport]\npolicy = \"oblivious\"\n");
        assert_eq!(overrides("dctcp"), "[transport]\ncongestion = \"dctcp\"\n");
    }

    #[test]
    fn where_switches_balance_hosts_keep_to_one_path_unless_a_policy_is_named() {
        let alone = overrides("least-queued");
        assert!(alone.contains("[transport]\npolicy = \"single\"\n"), "{alone}");
        assert!(alone.contains("[forwarding]\nkind = \"least-queued\"\n"), "{alone}");
        let with_control = overrides("least-queued+swift");
        assert!(with_control.contains("policy = \"single\""), "{with_control}");
        assert!(with_control.contains("congestion = \"swift\""), "{with_control}");
        let both = overrides("ecmp+oblivious");
        assert!(both.contains("policy = \"oblivious\"") && both.contains("\"ecmp\""), "{both}");
    }

    #[test]
    fn the_error_for_an_unknown_name_suggests_the_nearest() {
        let error = resolve("oblivous", &[]).unwrap_err().to_string();
        let want = "no balancer \"oblivous\", did you mean \"oblivious\"? (known: single, ";
        assert!(error.starts_with(want), "{error}");
    }
}
