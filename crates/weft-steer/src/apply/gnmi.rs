//! gNMI's method: a static route for one address beside those of the routing protocol, in the router's configuration. Once it
//! is deleted, packets use the protocol's prefix.

use weft_route::Prefix;
use weft_route::installed::{Group, Member, Route, Target};

use super::{Change, Refusal};
use crate::gnmi::{self, Edit, GnmiSettings, Tables};

/// Returns the changes of a server's configuration, given the router's tables. Returns none if no route is to be removed.
///
/// # Errors
/// Returns the reason why the change is refused.
pub(super) fn edits(
    settings: &GnmiSettings,
    tables: &Tables,
    change: &Change,
) -> Result<Vec<Edit>, Refusal> {
    let to = Prefix::host(change.destination);
    let routes = &tables.router.routes;
    let Some(members) = &change.members else {
        let ours = routes.iter().any(|route| route.to == to && route.steered);
        return Ok(if ours { vec![gnmi::delete(settings, to)] } else { vec![] });
    };
    let is_others = |route: &Route| route.to == to && !route.steered;
    if routes.iter().any(is_others) || tables.foreign.contains(&to) {
        return Err(Refusal::HostRoute(to));
    }
    if members.is_empty() {
        return Err(Refusal::NoNextHop(to));
    }
    let covers = |route: &&Route| !route.steered && route.to.contains(change.destination);
    let route = routes.iter().filter(covers).max_by_key(|route| route.to.len());
    let candidates = match route.map(|route| &route.via) {
        Some(Target::Group(name)) => members_of(&tables.router.groups, name),
        _ => return Err(Refusal::NoRoute(change.destination)),
    };
    let next_hop = |wanted: &Member| {
        let no_route = || Refusal::NoRouteBy {
            to,
            port: wanted.port.clone(),
            there: candidates.iter().map(|it| it.port.clone()).collect(),
        };
        candidates.iter().find(|it| it.port == wanted.port).ok_or_else(no_route)
    };
    let next_hops: Vec<&Member> = members.iter().map(next_hop).collect::<Result<_, _>>()?;
    Ok(vec![gnmi::replace(settings, to, &next_hops)])
}

fn members_of<'a>(groups: &'a [Group], name: &str) -> &'a [Member] {
    groups.iter().find(|group| group.name == name).map_or(&[], |group| &group.members)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use weft_route::installed::Router;

    use super::*;

    /// Returns a leaf with a prefix by two ports, a host route of its own, and one of the controller's.
    fn tables() -> Tables {
        let router: Router = toml::from_str(
            r#"
            name = "l0"
            hash = { switch = { algorithm = "crc32", seed = 1 } }
            port = [{ name = "e0", ifindex = 1, speed = "1Gbps" }, { name = "e4", ifindex = 2, speed = "1Gbps" }]
            group = [
                { name = "both", kind = "hash-threshold", members = [{ port = "e0", via = "172.16.0.1" }, { port = "e4", via = "172.16.1.1" }] },
                { name = "one", kind = "single", members = [{ port = "e0", via = "172.16.0.1" }] },
            ]
            route = [
                { to = "0.0.0.0/0", via = { group = "one" } },
                { to = "10.2.0.0/24", via = { group = "both" } },
                { to = "10.2.0.9/32", via = { group = "one" } },
                { to = "10.2.0.3/32", via = { group = "one" }, steered = true },
            ]"#,
        )
        .unwrap();
        Tables { router, foreign: vec!["10.2.0.7/32".parse().unwrap()] }
    }

    fn planned(change: &Change) -> Result<Vec<String>, String> {
        let settings = GnmiSettings::plain("l0:9339");
        let edits = edits(&settings, &tables(), change).map_err(|refusal| refusal.to_string())?;
        Ok(edits.iter().map(ToString::to_string).collect())
    }

    fn address(last: u8) -> IpAddr {
        [10, 2, 0, last].into()
    }

    #[test]
    fn a_move_has_the_neighbours_of_the_prefix_and_is_undone_by_deletion() {
        let [command] = &planned(&Change::by(address(2), ["e4"])).unwrap()[..] else { panic!() };
        assert!(command.starts_with("replace /network-instances/"), "{command}");
        assert!(command.contains("static[prefix=10.2.0.2/32]"), "{command}");
        assert!(command.contains(r#""next-hop":"172.16.1.1""#) && !command.contains("172.16.0.1"));
        // A route that was moved before is moved by the prefix's next hops.
        let [command] = &planned(&Change::by(address(3), ["e0", "e4"])).unwrap()[..] else {
            panic!()
        };
        assert!(command.contains("172.16.0.1") && command.contains("172.16.1.1"), "{command}");
        let [command] = &planned(&Change::back(address(3))).unwrap()[..] else { panic!() };
        assert!(
            command.starts_with("delete ") && command.ends_with("[prefix=10.2.0.3/32]"),
            "{command}"
        );
        assert_eq!(planned(&Change::back(address(2))), Ok(vec![]));
        // The operator's route is not ours to remove.
        assert_eq!(planned(&Change::back(address(9))), Ok(vec![]));
    }

    #[test]
    fn a_move_that_the_tables_do_not_permit_is_refused() {
        for (change, words) in [
            (Change::by(address(2), ["e8"]), "no route to 10.2.0.2/32 by e8, only by e0, e4"),
            (Change::by(address(9), ["e4"]), "10.2.0.9/32 has a route of its own"),
            (Change::by(address(7), ["e4"]), "10.2.0.7/32 has a route of its own"),
            (Change::by(address(2), []), "10.2.0.2/32 would have no next hop"),
            (Change::by([1, 1, 1, 1], ["e4"]), "by e4, only by e0"),
            (Change::by([0xfd00, 0, 0, 0, 0, 0, 0, 1], ["e4"]), "no route to fd00::1"),
        ] {
            let refusal = planned(&change).unwrap_err();
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
