//! A lab that is up: entering its hosts, breaking and mending its links, taking it down.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use weft_units::unknown_name;

use crate::fabric::{Fabric, Node};
use crate::state::{self, State};
use crate::tool::IP;
use crate::{
    Direction, Impairment, LabError, LabSpec, LinkState, Paths, Routing, build, frr, impair,
    namespace, requirements, routes,
};

const PREFIX: &str = "weft-";

/// A fabric of namespaces. Dropping it takes it down, unless it was opened or [kept](Self::keep).
#[derive(Debug)]
pub struct Lab {
    state: State,
    fabric: Fabric,
    owned: bool,
}

impl Lab {
    /// Builds the lab. What a crashed process left behind is removed first.
    ///
    /// # Errors
    /// `NeedsRoot` or `MissingTool` with what to do; `InvalidSpec`; `Exists` when a lab of that
    /// name is up; else what the kernel or a tool refused, with everything half-built removed.
    pub fn up(spec: &LabSpec) -> Result<Self, LabError> {
        let fabric = Fabric::new(spec)?;
        requirements::check()?;
        if spec.routing == Routing::Frr {
            frr::check()?;
        }
        Self::remove_abandoned();
        if Self::list().contains(&spec.name) {
            return Err(LabError::Exists { name: spec.name.clone() });
        }
        let links = vec![LinkState::default(); fabric.links.len()];
        let state = State { spec: spec.clone(), links, owner: Some(std::process::id()) };
        state.save()?;
        // From here on, dropping the lab removes whatever has been built of it.
        let lab = Self { state, fabric, owned: true };
        build::build(spec, &lab.fabric)?;
        Ok(lab)
    }

    /// The lab called `name`, which some other command built. Dropping it leaves it up.
    ///
    /// # Errors
    /// `Unknown` with the labs there are; `Io` or `State` when its state cannot be read.
    pub fn open(name: &str) -> Result<Self, LabError> {
        let Some(state) = State::load(name)? else {
            let names = Self::list();
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(LabError::Unknown(if known.is_empty() {
                format!("no lab {name:?}: no lab is up (`weft lab up` builds one)")
            } else {
                unknown_name("lab", name, &known)
            }));
        };
        let fabric = Fabric::new(&state.spec)?;
        Ok(Self { state, fabric, owned: false })
    }

    /// Names of the labs on this machine, in order: those with a state and those of which only
    /// namespaces are left.
    pub fn list() -> Vec<String> {
        let of_namespace = |namespace: String| {
            Some(namespace.strip_prefix(PREFIX)?.rsplit_once('.')?.0.to_owned())
        };
        let namespaces = namespace::list(PREFIX).into_iter().filter_map(of_namespace);
        namespaces.chain(state::names()).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Removes the lab called `name` and every process in it, whatever state it is in; tells
    /// whether there was one.
    ///
    /// # Errors
    /// `NeedsRoot` or `MissingTool`; `Command` when a namespace will not go.
    pub fn down(name: &str) -> Result<bool, LabError> {
        let namespaces = namespace::list(&format!("{PREFIX}{name}."));
        let known = !namespaces.is_empty() || state::names().iter().any(|known| known == name);
        if known {
            requirements::check()?;
        }
        namespace::kill_processes(&namespaces);
        let batch: String =
            namespaces.iter().map(|namespace| format!("netns del {namespace}\n")).collect();
        if !batch.is_empty() {
            IP.run(&["-force", "-batch", "-"], &batch)?;
        }
        state::remove(name);
        Ok(known)
    }

    /// Removes every lab on this machine and returns their names.
    ///
    /// # Errors
    /// As [`Self::down`], from the first that will not go.
    pub fn down_all() -> Result<Vec<String>, LabError> {
        let names = Self::list();
        for name in &names {
            Self::down(name)?;
        }
        Ok(names)
    }

    fn remove_abandoned() {
        for name in state::names() {
            if State::load(&name).is_ok_and(|state| state.is_some_and(|s| s.is_abandoned())) {
                // One that will not go does not keep another lab from coming up.
                let _ = Self::down(&name);
            }
        }
    }

    /// Leaves the lab up when this value is dropped and when the process ends.
    ///
    /// # Errors
    /// `Io` when the state cannot be written.
    pub fn keep(&mut self) -> Result<(), LabError> {
        self.state.owner = None;
        self.state.save()?;
        self.owned = false;
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.spec.name
    }

    /// Its size and constants.
    pub const fn spec(&self) -> &LabSpec {
        &self.state.spec
    }

    /// Its nodes, links, addresses and seeds.
    pub const fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The condition of each link, by index of [`Fabric::links`].
    pub fn links(&self) -> &[LinkState] {
        &self.state.links
    }

    /// Runs `action` in a node's namespace on a thread of its own; see [`crate::enter`].
    ///
    /// # Errors
    /// `Unknown` without such a node; `Io` when its namespace cannot be entered.
    pub fn enter<T: Send>(
        &self,
        node: &str,
        action: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        namespace::enter(&self.node(node)?.namespace, action)
    }

    /// Starts a program on a node. It is killed when the lab goes down.
    ///
    /// # Errors
    /// `Unknown` without such a node; `Io` when the program cannot be started.
    pub fn spawn(&self, node: &str, command: &mut Command) -> Result<Child, LabError> {
        namespace::spawn(&self.node(node)?.namespace, command)
    }

    /// Replaces what is wrong with a link, while traffic runs.
    ///
    /// # Errors
    /// `Unknown` without such a link, or when the direction names a node that is not on it; else
    /// what the kernel or a tool refused.
    pub fn impair(
        &mut self,
        link: &str,
        direction: Direction,
        impairment: &Impairment,
    ) -> Result<(), LabError> {
        let index = self.fabric.link(link)?;
        let cable = &self.fabric.links[index];
        let old = self.state.links[index];
        let mut new = old;
        match direction {
            Direction::Both => (new.forward, new.backward) = (*impairment, *impairment),
            Direction::From(node) if node == self.fabric.nodes[cable.near.node].name => {
                new.forward = *impairment;
            }
            Direction::From(node) if node == self.fabric.nodes[cable.far.node].name => {
                new.backward = *impairment;
            }
            Direction::From(node) => {
                let message = format!("node {node:?} is not an end of link {}", cable.name);
                return Err(LabError::Unknown(message));
            }
        }
        impair::apply(&self.fabric, cable, &old, &new, &self.state.spec)?;
        self.state.links[index] = new;
        self.state.save()
    }

    /// Makes a link swallow everything in both directions, or stop doing so. Both ports stay up,
    /// so no router notices. The rest of its impairments stay.
    ///
    /// # Errors
    /// As [`Self::impair`].
    pub fn set_black_hole(&mut self, link: &str, black_hole: bool) -> Result<(), LabError> {
        let index = self.fabric.link(link)?;
        let old = self.state.links[index];
        let mut new = old;
        (new.forward.black_hole, new.backward.black_hole) = (black_hole, black_hole);
        let cable = &self.fabric.links[index];
        impair::apply(&self.fabric, cable, &old, &new, &self.state.spec)?;
        self.state.links[index] = new;
        self.state.save()
    }

    /// Shuts the near port of a link. Both ends lose their carrier and stop using the link at
    /// once; a distant leaf goes on sending over that spine until [`Self::converge`].
    ///
    /// # Errors
    /// `Unknown` without such a link; `Command` when the kernel refuses.
    pub fn set_down(&mut self, link: &str) -> Result<(), LabError> {
        self.set_carrier(link, true)
    }

    /// Opens the near port of a link again, and gives distant leaves their routes over it back.
    ///
    /// # Errors
    /// As [`Self::set_down`].
    pub fn set_up(&mut self, link: &str) -> Result<(), LabError> {
        self.set_carrier(link, false)?;
        let index = self.fabric.link(link)?;
        if self.state.links[index].withdrawn { self.converge() } else { Ok(()) }
    }

    /// Shuts and opens a link `times` times. Returns when it is open again.
    ///
    /// # Errors
    /// As [`Self::set_down`].
    pub fn flap(
        &mut self,
        link: &str,
        down: Duration,
        up: Duration,
        times: u32,
    ) -> Result<(), LabError> {
        for _ in 0..times {
            self.set_down(link)?;
            thread::sleep(down);
            self.set_up(link)?;
            thread::sleep(up);
        }
        Ok(())
    }

    /// Recomputes every leaf's routes around the links that are down, as a routing protocol would; where
    /// FRR does, waits until it has.
    ///
    /// # Errors
    /// `Command` when the kernel refuses a route, or when FRR does not find all within 40 s.
    pub fn converge(&mut self) -> Result<(), LabError> {
        if self.state.spec.routing == Routing::Frr {
            frr::await_routes(&self.fabric, |link| !self.state.links[link].down)?;
        }
        let leaves = match self.state.spec.routing {
            Routing::Static => self.fabric.leaves(),
            Routing::Frr => 0,
        };
        for leaf in 0..leaves {
            let namespace = &self.fabric.leaf(leaf).namespace;
            for family in self.fabric.families() {
                let usable = |link: usize| !self.state.links[link].down;
                let batch = routes::leaf(&self.fabric, leaf, family, usable);
                namespace::enter(namespace, || IP.run(&[family.flag(), "-batch", "-"], &batch))??;
            }
        }
        for link in &mut self.state.links {
            link.withdrawn = link.down;
        }
        self.state.save()
    }

    /// The ways of flows, given the links that are down.
    ///
    /// # Errors
    /// `Unpredictable` on a kernel without settable hash seeds; `RoutesOfItsOwn` where FRR runs.
    pub fn paths(&self) -> Result<Paths, LabError> {
        if !build::hash_seed_supported() {
            return Err(LabError::Unpredictable);
        }
        if self.state.spec.routing == Routing::Frr {
            // The order of next hops is FRR's, and only the kernel's tables tell it.
            return Err(LabError::RoutesOfItsOwn);
        }
        Ok(self.fabric.paths_with(&self.state.links))
    }

    fn set_carrier(&mut self, link: &str, down: bool) -> Result<(), LabError> {
        let index = self.fabric.link(link)?;
        let port = &self.fabric.links[index].near;
        let node = &self.fabric.nodes[port.node];
        let set = ["link", "set", &port.device, if down { "down" } else { "up" }];
        namespace::enter(&node.namespace, || IP.run(&set, ""))??;
        if !down && index < self.fabric.hosts() {
            // A host's only port took the default routes with it.
            for family in self.fabric.families() {
                let batch = routes::initial(&self.fabric, port.node, family);
                namespace::enter(&node.namespace, || {
                    IP.run(&[family.flag(), "-batch", "-"], &batch)
                })??;
            }
        }
        self.state.links[index].down = down;
        self.state.save()
    }

    fn node(&self, name: &str) -> Result<&Node, LabError> {
        self.fabric.node(name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.owned {
            // Nobody is left to tell; the next lab, or `weft lab down --all`, tries again.
            let _ = Self::down(&self.state.spec.name);
        }
    }
}
