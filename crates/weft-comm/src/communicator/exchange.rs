//! Collectives by which ranks exchange data of their own, before the first call of their owner.

use weft_coll::{Call, Collective, DataType, Op};

use super::{Communicator, Held};
use crate::CommError;

impl<B: AsMut<[u8]>> Communicator<B> {
    /// Returns the bytes of all ranks, one after the other. Each rank has as many.
    ///
    /// # Errors
    /// Returns `Group` if the group failed, or `TimedOut` if ranks do not join in time.
    pub(super) fn all_gather(&mut self, own: &[u8]) -> Result<Vec<u8>, CommError> {
        let mut all = vec![0; own.len() * self.ranks()];
        all[self.rank() * own.len()..][..own.len()].copy_from_slice(own);
        self.exchange(Collective::AllGather, all)
    }

    /// Returns the bytes of rank 0; those of other ranks have the same length.
    ///
    /// # Errors
    /// Returns the errors of [`all_gather`](Self::all_gather).
    pub(super) fn broadcast(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, CommError> {
        self.exchange(Collective::Broadcast, bytes)
    }

    fn exchange(&mut self, collective: Collective, bytes: Vec<u8>) -> Result<Vec<u8>, CommError> {
        let elements = bytes.len();
        let call = Call { collective, data_type: DataType::U8, op: Op::Max, root: 0, elements };
        let number = self.group.submit(call, Held::Own(bytes))?;
        self.advance();
        match self.wait_held(None, Some(self.options.join_timeout)) {
            Some(event) => {
                event.result?;
                match event.buffer {
                    Held::Own(bytes) => Ok(bytes),
                    Held::Caller(_) => unreachable!("no call of the owner is in progress"),
                }
            }
            None => Err(self.timed_out(number, self.options.join_timeout)),
        }
    }
}
