//! Checks of work requests against the capabilities of a queue pair. Where the program's process is not the device's, both
//! check: the program's to report errors immediately, the device's because it does not trust programs.

use super::{QueuePairRequest, Service, State};
use crate::{Bind, Data, Operation, ReceiveRequest, SendRequest, VerbsError};

fn at_most(field: &'static str, got: usize, limit: u32) -> Result<(), VerbsError> {
    if got <= limit as usize {
        Ok(())
    } else {
        Err(VerbsError::OverLimit { field, got: got as u64, limit: limit.into() })
    }
}

impl QueuePairRequest {
    /// Checks that a queue pair in this state accepts send requests.
    ///
    /// # Errors
    /// [`VerbsError::WrongState`] before [`State::ReadyToSend`].
    pub const fn sends_in(state: State) -> Result<(), VerbsError> {
        match state {
            State::Reset | State::Init | State::ReadyToReceive => {
                Err(VerbsError::WrongState(state))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the queue pair can execute a send request.
    ///
    /// # Errors
    /// Its service does not have the operation, or the request is larger than the queue's limits.
    pub fn check_send(&self, request: &SendRequest<'_>) -> Result<(), VerbsError> {
        let operation = &request.operation;
        let is_datagram = self.service == Service::UnreliableDatagram;
        if !operation.sends_message() && is_datagram {
            return Err(VerbsError::Invalid("datagram queue pairs bind and invalidate nothing"));
        }
        if operation.sends_message() && operation.opcode(self.service).is_none() {
            return Err(VerbsError::Invalid("the queue pair's service has no such operation"));
        }
        if operation.sends_message() && request.datagram.is_some() != is_datagram {
            return Err(VerbsError::Invalid("a datagram has a destination, and nothing else has"));
        }
        let inline = matches!(request.data, Data::Inline(bytes) if !bytes.is_empty());
        if inline && !operation.sends_payload() {
            return Err(VerbsError::Invalid("the operation carries no inline data"));
        }
        if let Operation::BindWindow { bind, .. } = operation
            && !is_in_address_space(bind)
        {
            return Err(VerbsError::Invalid("the window ends past the address space"));
        }
        match request.data {
            Data::Gather(sges) => at_most("num_sge", sges.len(), self.max_send_sge),
            Data::Inline(bytes) => at_most("inline", bytes.len(), self.max_inline),
        }
    }

    /// Checks that the queue pair accepts a receive request in this state.
    ///
    /// # Errors
    /// The queue pair is in state [`State::Reset`] or receives from a shared queue, or the request has too many
    /// scatter/gather entries.
    pub fn check_receive(
        &self,
        state: State,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), VerbsError> {
        if state == State::Reset {
            return Err(VerbsError::WrongState(state));
        }
        if self.srq.is_some() {
            return Err(VerbsError::Invalid("the queue pair receives from a shared queue"));
        }
        at_most("num_sge", request.sges.len(), self.max_receive_sge)
    }
}

/// Returns `true` if the range of a bind does not end past the address space.
const fn is_in_address_space(bind: &Bind) -> bool {
    bind.address.checked_add(bind.length).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompletionQueue, ProtectionDomain, Sge};

    fn pair(service: Service) -> QueuePairRequest {
        QueuePairRequest {
            domain: ProtectionDomain(0),
            service,
            send_cq: CompletionQueue(0),
            receive_cq: CompletionQueue(0),
            srq: None,
            max_send: 1,
            max_receive: 1,
            max_send_sge: 1,
            max_receive_sge: 1,
            max_inline: 2,
            signal_all: false,
        }
    }

    #[test]
    fn sizes_are_those_of_the_queue() {
        let sges = [Sge { address: 0, length: 0, lkey: 0 }; 2];
        let pair = pair(Service::ReliableConnected);
        let send = |data| pair.check_send(&SendRequest::new(0, Operation::Send, data));
        assert!(matches!(send(Data::Inline(&[0; 3])), Err(VerbsError::OverLimit { .. })));
        assert!(matches!(send(Data::Gather(&sges)), Err(VerbsError::OverLimit { .. })));
        assert_eq!((send(Data::Inline(&[0; 2])), send(Data::Gather(&sges[..1]))), (Ok(()), Ok(())));
        let receive = |sges| pair.check_receive(State::Init, &ReceiveRequest { wr_id: 0, sges });
        assert!(matches!(receive(&sges), Err(VerbsError::OverLimit { .. })));
        assert_eq!(receive(&sges[..1]), Ok(()));
    }

    #[test]
    fn a_service_accepts_only_its_operations() {
        let invalidate = SendRequest::new(0, Operation::LocalInvalidate(1), Data::Gather(&[]));
        assert_eq!(pair(Service::ReliableConnected).check_send(&invalidate), Ok(()));
        assert!(pair(Service::UnreliableDatagram).check_send(&invalidate).is_err());
        let nowhere = SendRequest::new(0, Operation::Send, Data::Gather(&[]));
        assert!(pair(Service::UnreliableDatagram).check_send(&nowhere).is_err());
    }
}
