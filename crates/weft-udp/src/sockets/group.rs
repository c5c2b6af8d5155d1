//! Sockets of several threads that receive on one port (`SO_REUSEPORT`): a program that the kernel
//! runs selects the socket of each datagram (classic BPF; socket(7), `SO_ATTACH_REUSEPORT_CBPF`).

use std::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::Socket;

use super::{
    Inbox, Instruction, Senders, SocketConfig, SocketError, Sockets, address_of, bind, open_bound,
    open_unbound, prepare_sender, refused, syscall,
};

impl Sockets {
    /// Opens sockets for each of `threads` threads, at least one, that all receive at `config`'s
    /// address. A path has the same source port in all of them, so that its packets take the same
    /// route.
    ///
    /// # Errors
    /// See [`SocketError`]; `Bind` also if another program has the port.
    pub fn open_group(
        config: &SocketConfig,
        threads: u8,
        steering: &[Instruction],
    ) -> Result<Vec<Self>, SocketError> {
        // The first socket binds the port exclusively before it is shared, so that a second program
        // with groups is refused, as one without groups would be.
        let first = open_bound(config.local)?;
        let local = address_of(&first)?;
        let mut receivers = vec![first];
        if threads > 1 {
            receivers[0].set_reuse_port(true).map_err(refused("share a port between threads"))?;
        }
        for _ in 1..threads {
            receivers.push(join(local)?);
        }
        if threads > 1 {
            syscall::attach_steering(receivers[0].as_fd(), steering)
                .map_err(refused("have datagrams steered to threads"))?;
        }
        let mut config = SocketConfig { local, ..config.clone() };
        if threads > 1 {
            config.keep_kernel("several threads receive on one port");
        }
        let mut senders = vec![Senders::open(&config)?];
        for _ in 1..threads {
            senders.push(senders[0].join(&config)?);
        }
        let both = senders.into_iter().zip(receivers);
        both.map(|(own, receiver)| Self::joining(own, Inbox::on(receiver, &config)?)).collect()
    }
}

impl Senders {
    /// Opens sockets of another thread that send from the same ports. Arrivals there may reach any
    /// of the threads.
    fn join(&self, config: &SocketConfig) -> Result<Self, SocketError> {
        let join = |socket: &Socket| {
            socket.set_reuse_port(true).map_err(refused("share a port between threads"))?;
            let joined = join(address_of(socket)?)?;
            prepare_sender(&joined, config)?;
            Ok(joined)
        };
        Self::with(config, self.outbox.sockets.iter().map(join).collect::<Result<_, _>>()?)
    }
}

fn join(address: SocketAddr) -> Result<Socket, SocketError> {
    let socket = open_unbound(address)?;
    socket.set_reuse_port(true).map_err(refused("share a port between threads"))?;
    bind(&socket, address)?;
    Ok(socket)
}
