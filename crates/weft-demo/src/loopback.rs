//! The stage without root privileges: loopback sockets with the emulator of weft-perf between them.

use std::net::TcpStream;

use anyhow::{Result, bail};
use weft_perf::emulator::{Emulator, EmulatorConfig, PathModel};
use weft_perf::{Client, ClientConfig, Server, ServerConfig};
use weft_udp::WaitMode;
use weft_units::{BitRate, Duration, Seed};

use super::PATHS;
use super::flow::FlowConfig;
use super::stage::{Condition, Route, Stage, until_on_route};

/// Rate of each path: less than the relay's thread can forward on a small machine.
const PATH_RATE: BitRate = BitRate::bps(100_000_000).expect("not zero");
const ONE_WAY_DELAY: Duration = Duration::from_micros(50);
const LOSS_PER_MILLION: u32 = 10_000;

/// One emulated fabric for each flow, all with the same paths in the same condition.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    emulators: Vec<Emulator>,
    conditions: [Option<Condition>; PATHS],
}

impl Loopback {
    fn apply(&self, emulator: &Emulator) {
        for (path, condition) in emulator.paths().iter().zip(self.conditions) {
            let condition = condition.unwrap_or(Condition::Healthy);
            path.set_up(condition != Condition::Dead);
            path.set_loss_per_million(if condition == Condition::Lossy {
                LOSS_PER_MILLION
            } else {
                0
            });
        }
    }
}

impl Stage for Loopback {
    fn about(&self) -> String {
        format!("loopback sockets and {PATHS} emulated paths of {PATH_RATE} each")
    }

    fn reset(&mut self) -> Result<()> {
        self.emulators.clear();
        self.conditions = [None; PATHS];
        Ok(())
    }

    fn set(&mut self, path: usize, condition: Condition) -> Result<()> {
        self.conditions[path] = Some(condition);
        self.emulators.iter().for_each(|emulator| self.apply(emulator));
        Ok(())
    }

    fn open(&mut self, flow: &FlowConfig, route: Route) -> Result<(Client, Server)> {
        let loopback = ([127, 0, 0, 1], 0).into();
        let server = Server::open(&ServerConfig {
            encryption: weft_udp::SealConfig::default(),
            local: loopback,
            transport: flow.transport.clone(),
            wait: WaitMode::default(),
        })?;
        let config = ClientConfig {
            encryption: weft_udp::SealConfig::default(),
            local: loopback,
            server: server.local(),
            transport: flow.transport.clone(),
            plan: flow.plan,
            connections: 1,
            duration: flow.duration(),
            wait: WaitMode::default(),
        };
        let open = || -> Result<(Client, Emulator)> {
            let mut client = Client::open(config.clone())?;
            let emulator = Emulator::start(&EmulatorConfig {
                client: client.agent().local(),
                server: server.local(),
                paths: vec![PathModel::new(PATH_RATE, ONE_WAY_DELAY); PATHS],
                seed: Seed(1),
            })?;
            client.set_server(emulator.listen_address());
            Ok((client, emulator))
        };
        let paths_of = |(client, emulator): &mut (Client, Emulator)| {
            let ports = client.agent().sockets().outbox.source_ports()?;
            Ok(ports.into_iter().map(|port| emulator.path_of(port)).collect())
        };
        let (client, emulator) = until_on_route(route, open, paths_of)?;
        self.apply(&emulator);
        self.emulators.push(emulator);
        Ok((client, server))
    }

    fn carries_tcp(&self) -> bool {
        false
    }

    fn open_tcp(&mut self, _path: usize) -> Result<(TcpStream, TcpStream)> {
        bail!("the emulator relays UDP only")
    }
}
