//! Jobs whose ports a controller plans again when cables have failed.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use weft_topo::{Failures, Routes};
use weft_units::{BitRate, Instant};

use super::{SimFlow, Simulation};
use crate::controller::{Controller, ControllerConfig, Job, JobFlow};
use crate::fabric::{End, Fabric, LinkId};
use crate::flow::Flow;
use crate::simulate::{SetupError, tables};

/// Returns the name of a job in the order of its number.
fn name(job: u32) -> String {
    format!("job-{job:06}")
}

impl Simulation {
    /// Announces the planned jobs to a controller of the network as built, then shows it the tables with the failed
    /// cables, and takes the ports that it plans.
    pub(super) fn replan(&mut self) -> Result<(), SetupError> {
        let mut controller = Controller::new(ControllerConfig::default(), self.whole_fabric()?);
        controller.set_lease(Some(1), Instant::EPOCH);
        let restored = controller.restore_jobs(self.announced());
        restored.expect("the jobs have names and flows in order");
        controller.handle_timeout(Instant::EPOCH);
        for router in &self.switches.fabric.installed().routers {
            controller.handle_tables(router.clone(), Instant::EPOCH)?;
        }
        controller.handle_timeout(Instant::EPOCH);
        let fabric = &self.switches.fabric;
        self.flows.retain(|flow| !self.jobs.running[flow.job as usize].is_planned);
        let planned = (0..).zip(&self.jobs.running).filter(|(_, job)| job.is_planned);
        for (number, _) in planned {
            let flows = &controller.jobs()[&name(number)].flows;
            self.flows.extend(flows.iter().filter_map(|it| {
                let Flow::V4(tuple) = it.flow else { return None };
                let links = fabric.links_of_host(fabric.host(it.flow.src())?);
                Some(SimFlow { tuple, first: links[it.cable as usize], job: number })
            }));
        }
        Ok(())
    }

    /// Returns the fabric as built, without failures.
    fn whole_fabric(&self) -> Result<Fabric, SetupError> {
        let whole = Routes::compute(&self.topology, &Failures::none())?;
        let (hashes, addresses) = (&self.network.hashes, &self.addresses);
        let none = Failures::none();
        Ok(Fabric::new(tables::installed(&self.topology, &none, &whole, hashes, addresses))?)
    }

    /// Returns the planned jobs as a controller stores them. Each flow has an equal share of its sender's cable.
    fn announced(&self) -> BTreeMap<String, Job> {
        let fabric = &self.switches.fabric;
        let mut senders: BTreeMap<(u32, LinkId), u64> = BTreeMap::new();
        self.flows.iter().for_each(|it| *senders.entry((it.job, it.first)).or_default() += 1);
        let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
        for it in self.flows.iter().filter(|it| self.jobs.running[it.job as usize].is_planned) {
            let share = fabric.rate(it.first).as_bps() / senders[&(it.job, it.first)];
            let rate = BitRate::bps(share.max(1)).expect("at least one");
            let End::Host(host) = fabric.from(it.first) else { continue };
            let place = fabric.links_of_host(host).iter().position(|&link| link == it.first);
            let cable =
                place.and_then(|place| u32::try_from(place).ok()).expect("a host's own link");
            let flow = JobFlow { flow: Flow::V4(it.tuple), cable, rate };
            jobs.entry(name(it.job)).or_insert_with(Job::empty).flows.push(flow);
        }
        jobs.values_mut().for_each(|job| job.flows.sort_unstable_by_key(|it| it.flow));
        jobs
    }
}
