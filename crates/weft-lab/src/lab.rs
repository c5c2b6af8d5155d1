//! A lab that is up: code and programs in its nodes, impairments and failures of its links, its removal.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use weft_units::unknown_name;

use crate::carrier::await_carrier;
use crate::fabric::{Fabric, Node, NodeKind};
use crate::state::{self, State};
use crate::tool::IP;
use crate::{
    Direction, Impairment, LabError, LabSpec, LinkState, Paths, Routing, build, frr, impair,
    namespace, requirements, routes,
};

/// The prefix of the names of all labs' namespaces.
const PREFIX: &str = "weft-";

/// A fabric of namespaces. Dropping it removes it, unless it was opened or [kept](Self::detach).
#[derive(Debug)]
pub struct Lab {
    state: State,
    fabric: Fabric,
    owned: bool,
}

impl Lab {
    /// Builds a lab. The remains of crashed processes are removed first.
    ///
    /// # Errors
    /// Returns `NeedsRoot` or `MissingTool` with the remedy, `InvalidSpec`, `Exists` if a lab of that name is up, or
    /// the error of the kernel or a tool; then everything built so far is removed.
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
        // From here on, dropping the lab removes everything built so far.
        let lab = Self { state, fabric, owned: true };
        build::build(spec, &lab.fabric)?;
        Ok(lab)
    }

    /// Opens the lab called `name`, which another command built. Dropping it leaves it up.
    ///
    /// # Errors
    /// Returns `Unknown` with the known labs, `Io` or `State` if its state cannot be read.
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

    /// Returns the names of the labs on this machine, in order: those with a state, and those of which only namespaces
    /// remain.
    pub fn list() -> Vec<String> {
        let of_namespace = |namespace: String| {
            Some(namespace.strip_prefix(PREFIX)?.rsplit_once('.')?.0.to_owned())
        };
        let namespaces = namespace::list(PREFIX).into_iter().filter_map(of_namespace);
        namespaces.chain(state::names()).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Removes the lab called `name` and every process in it, whatever its state is. Returns `true` if there was one.
    ///
    /// # Errors
    /// Returns `NeedsRoot`, `MissingTool`, or `Command` if a namespace cannot be removed.
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
    /// Returns an error of [`Self::down`] for the first lab that cannot be removed.
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
                // A lab that cannot be removed must not prevent another from coming up.
                let _ = Self::down(&name);
            }
        }
    }

    /// Leaves the lab up when this value is dropped and when the process ends.
    ///
    /// # Errors
    /// Returns `Io` if the state cannot be written.
    pub fn detach(&mut self) -> Result<(), LabError> {
        self.state.owner = None;
        self.state.save()?;
        self.owned = false;
        Ok(())
    }

    /// Returns the lab's name.
    pub fn name(&self) -> &str {
        &self.state.spec.name
    }

    /// Returns the specification from which the lab was built.
    pub const fn spec(&self) -> &LabSpec {
        &self.state.spec
    }

    /// Returns the lab's nodes, links, addresses and seeds.
    pub const fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Returns the state of each link, by index of [`Fabric::links`].
    pub fn links(&self) -> &[LinkState] {
        &self.state.links
    }

    /// Runs `action` in a node's namespace on a new thread; see [`crate::enter`].
    ///
    /// # Errors
    /// Returns `Unknown` without such a node, `Io` if its namespace cannot be entered.
    pub fn enter<T: Send>(
        &self,
        node: &str,
        action: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        namespace::enter(&self.node(node)?.namespace, action)
    }

    /// Starts a program on a node. It is killed when the lab is removed.
    ///
    /// # Errors
    /// Returns `Unknown` without such a node, `Io` if the program cannot be started.
    pub fn spawn(&self, node: &str, command: &mut Command) -> Result<Child, LabError> {
        namespace::spawn(&self.node(node)?.namespace, command)
    }

    /// Replaces the impairment of a link in one direction or both, also while traffic runs.
    ///
    /// # Errors
    /// Returns `Unknown` without such a link, or if the direction names a node that is not on it; else the error of the
    /// kernel or a tool.
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

    /// Starts or ends a black hole on a link, which drops all packets in both directions. Both ports stay up, so no
    /// router detects it. The other impairments stay.
    ///
    /// # Errors
    /// Returns an error of [`Self::impair`].
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

    /// Shuts the near port of a link down, and waits until both ends have lost carrier and do not use the link. A distant
    /// leaf continues to send over that spine until [`Self::converge`].
    ///
    /// # Errors
    /// Returns `Unknown` without such a link, `Command` if the kernel refuses.
    pub fn set_down(&mut self, link: &str) -> Result<(), LabError> {
        self.set_carrier(link, true)?;
        self.await_carrier(link, false)
    }

    /// Opens the near port of a link again, waits until both ends have carrier, and restores the routes of distant leaves
    /// over it.
    ///
    /// # Errors
    /// Returns an error of [`Self::set_down`].
    pub fn set_up(&mut self, link: &str) -> Result<(), LabError> {
        self.set_carrier(link, false)?;
        self.await_carrier(link, true)?;
        self.restore_routes(link)
    }

    /// Shuts a link down for the time `down` and opens it for the time `up`, `times` times. Returns after the last
    /// `up`, once both ends have carrier.
    ///
    /// # Errors
    /// Returns an error of [`Self::set_down`].
    pub fn flap(
        &mut self,
        link: &str,
        down: Duration,
        up: Duration,
        times: u32,
    ) -> Result<(), LabError> {
        for _ in 0..times {
            self.set_carrier(link, true)?;
            thread::sleep(down);
            self.set_carrier(link, false)?;
            self.restore_routes(link)?;
            thread::sleep(up);
        }
        if times > 0 { self.await_carrier(link, true) } else { Ok(()) }
    }

    /// Recomputes every leaf's routes around the links that are down, as a routing protocol would. In a lab with FRR,
    /// it waits until FRR has installed these routes.
    ///
    /// # Errors
    /// Returns `Command` if the kernel refuses a route, or if FRR has not installed all routes after 40 s; `Io` if a
    /// namespace cannot be entered or the state cannot be written.
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

    /// Returns the paths of flows in the current state of the links.
    ///
    /// # Errors
    /// Returns `Unpredictable` on a kernel without settable hash seeds, `DynamicRoutes` in a lab with FRR.
    pub fn paths(&self) -> Result<Paths, LabError> {
        if !build::hash_seed_supported() {
            return Err(LabError::Unpredictable);
        }
        if self.state.spec.routing == Routing::Frr {
            // FRR decides the order of next hops, which only the kernel's tables show.
            return Err(LabError::DynamicRoutes);
        }
        Ok(self.fabric.paths_with(&self.state.links))
    }

    /// Returns the folder of the files and sockets of a router's FRR. It exists only in a lab with FRR.
    pub fn frr_folder(&self, router: &str) -> PathBuf {
        frr::folder(self.name(), router)
    }

    /// Sends commands to a router's FRR, as `vtysh -c` does, and returns its output.
    ///
    /// # Errors
    /// Returns `Unknown` without such a router or in a lab without FRR, `MissingTool`, or `Command` with FRR's message.
    pub fn vtysh(&self, router: &str, commands: &[&str]) -> Result<String, LabError> {
        let node = self.fabric().node(router)?;
        if self.spec().routing != Routing::Frr || node.kind == NodeKind::Host {
            let why =
                format!("{router} runs no FRR: `weft lab up --routing frr` builds a lab that does");
            return Err(LabError::Unknown(why));
        }
        let folder = frr::folder(self.name(), &node.name).to_string_lossy().into_owned();
        let mut arguments = vec!["--vty_socket", &folder];
        arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
        frr::VTYSH.run(&arguments, "")
    }

    fn set_carrier(&mut self, link: &str, down: bool) -> Result<(), LabError> {
        let index = self.fabric.link(link)?;
        let port = &self.fabric.links[index].near;
        let node = &self.fabric.nodes[port.node];
        let set = ["link", "set", &port.device, if down { "down" } else { "up" }];
        namespace::enter(&node.namespace, || IP.run(&set, ""))??;
        if !down && index < self.fabric.hosts() {
            // The default routes of a host were removed with its only port.
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

    /// Restores the routes that [`Self::converge`] withdrew from a link.
    fn restore_routes(&mut self, link: &str) -> Result<(), LabError> {
        let index = self.fabric.link(link)?;
        if self.state.links[index].withdrawn { self.converge() } else { Ok(()) }
    }

    /// Waits until both ends of a link have carrier, or have none if `carrier` is `false`.
    fn await_carrier(&self, link: &str, carrier: bool) -> Result<(), LabError> {
        let link = &self.fabric.links[self.fabric.link(link)?];
        [&link.near, &link.far].into_iter().try_for_each(|port| {
            await_carrier(&self.fabric.nodes[port.node], &port.device, carrier)
        })
    }

    fn node(&self, name: &str) -> Result<&Node, LabError> {
        self.fabric.node(name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.owned {
            // A destructor cannot report an error; the next lab, or `weft lab down --all`, tries again.
            let _ = Self::down(&self.state.spec.name);
        }
    }
}
