//! The stage with root privileges: network namespaces, kernel ECMP routers, four spines.

use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};
use weft_lab::{Direction, Flow, Impairment, Lab, LabSpec};
use weft_perf::{Client, ClientConfig, Server, ServerConfig};
use weft_udp::WaitMode;

use super::PATHS;
use super::flow::FlowConfig;
use super::stage::{Condition, Route, Stage, until_on_route};

const UDP: u8 = 17;
const TCP: u8 = 6;

/// A lab, which is removed on drop.
#[derive(Debug)]
pub(crate) struct Namespaces {
    lab: Lab,
}

impl Namespaces {
    /// Builds the lab.
    ///
    /// # Errors
    /// Returns the error of [`Lab::up`].
    pub(crate) fn up(name: &str) -> Result<Self> {
        let spec = LabSpec { spines: PATHS, ..LabSpec::named(name) };
        Ok(Self { lab: Lab::up(&spec)? })
    }

    fn path_of(&self, protocol: u8, source_port: u16, destination_port: u16) -> Result<usize> {
        let flow = Flow { source: 0, destination: 1, protocol, source_port, destination_port };
        let spine = self.lab.paths()?.spine_of(&flow);
        spine.context("two hosts behind two leaves have a spine between them")
    }

    fn address(&self, host: usize, port: u16) -> SocketAddr {
        (self.lab.fabric().address(host), port).into()
    }
}

impl Stage for Namespaces {
    fn about(&self) -> String {
        format!("two hosts, two leaves and {PATHS} spines: network namespaces and kernel ECMP")
    }

    fn reset(&mut self) -> Result<()> {
        (0..PATHS).try_for_each(|path| self.set(path, Condition::Healthy))
    }

    fn set(&mut self, path: usize, condition: Condition) -> Result<()> {
        let loss = match condition {
            Condition::Lossy => "1%".parse()?,
            Condition::Healthy | Condition::Dead => weft_lab::Probability::NONE,
        };
        let black_hole = condition == Condition::Dead;
        let impairment = Impairment { loss, black_hole, ..Impairment::default() };
        Ok(self.lab.impair(&format!("l0-s{path}"), Direction::Both, &impairment)?)
    }

    fn open(&mut self, flow: &FlowConfig, route: Route) -> Result<(Client, Server)> {
        let config = ServerConfig {
            encryption: weft_udp::SealConfig::default(),
            local: self.address(1, 0),
            transport: flow.transport.clone(),
            wait: WaitMode::default(),
        };
        let server = self.lab.enter("h1", || Server::open(&config))??;
        let destination = server.local();
        let config = ClientConfig {
            encryption: weft_udp::SealConfig::default(),
            local: self.address(0, 0),
            server: destination,
            transport: flow.transport.clone(),
            plan: flow.plan,
            connections: 1,
            duration: flow.duration(),
            wait: WaitMode::default(),
        };
        let open = || Ok(self.lab.enter("h0", || Client::open(config.clone()))??);
        let paths_of = |client: &mut Client| {
            let ports = client.agent().sockets().outbox.source_ports()?.into_iter();
            ports.map(|port| self.path_of(UDP, port, destination.port())).collect()
        };
        Ok((until_on_route(route, open, paths_of)?, server))
    }

    fn carries_tcp(&self) -> bool {
        true
    }

    fn open_tcp(&mut self, path: usize) -> Result<(TcpStream, TcpStream)> {
        let listener = self.lab.enter("h1", || TcpListener::bind(self.address(1, 0)))??;
        let destination = listener.local_addr()?;
        // The port decides the path, so it is chosen before the connection is made.
        let bind = || -> Result<Socket> {
            let socket = self
                .lab
                .enter("h0", || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)))??;
            socket.bind(&self.address(0, 0).into())?;
            Ok(socket)
        };
        let path_of = |socket: &mut Socket| {
            let local = socket.local_addr()?.as_socket().context("an IPv4 socket")?;
            Ok(vec![self.path_of(TCP, local.port(), destination.port())?])
        };
        let socket = until_on_route(Route::Only(path), bind, path_of)?;
        socket.connect(&destination.into()).context("cannot connect across the lab")?;
        let (receiver, _) = listener.accept()?;
        Ok((socket.into(), receiver))
    }
}
