use super::*;
#[test]
fn debug_case() {
    let seed = std::env::var("SEED").unwrap().parse().unwrap();
    let case = Case::draw(Seed(seed));
    let topology = case.topology.build().unwrap();
    let mut plan = Plan::new(&topology, Seed(seed).child("faults", 0));
    for fault in &case.faults { fault.schedule(&mut plan).unwrap(); }
    let actions = plan.into_actions();
    let mut world = World::new(topology, case.world.clone(), Seed(seed)).unwrap();
    world.network.observer = Some(Box::new(Checks::all()));
    world.set_plan(actions);
    world.add_workload(Box::new(case.chatter.clone()));
    world.start();
    world.run_to(case.heal_at);
    world.heal();
    for step in 1..40u64 {
        let done = world.run(case.heal_at + SimSpan::from_picos(step * 500_000_000_000));
        let s: Vec<_> = world.network.hosts.iter().map(|h| { let s=h.endpoint.stats(); (s.data_sent, s.data_received, s.timeout_retransmits, s.fast_retransmits, s.probes_sent, s.spurious_retransmits, s.paths_down, s.acks_sent, s.acks_received, weft_transport::DropReason::ALL.iter().filter(|r| s.dropped_for(**r)>0).map(|r| (r.name(), s.dropped_for(*r))).collect::<Vec<_>>()) }).collect();
        eprintln!("{step} {done} {} {:?} {:?}", world.network.now, world.network.fabric.counters, s);
        eprintln!("{}", unfinished(&world));
        if done { break; }
    }
}
