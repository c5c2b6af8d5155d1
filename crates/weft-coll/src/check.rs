//! The validation of calls.

use crate::{Call, CallError};

impl Call {
    /// Checks the call for a group of `ranks` ranks and a buffer of `bytes` bytes.
    ///
    /// # Errors
    /// Returns the first parameter that does not fit.
    pub fn check(&self, ranks: usize, bytes: usize) -> Result<(), CallError> {
        let Self { collective, data_type, op, root, elements } = *self;
        if collective.has_root() && root >= ranks {
            return Err(CallError::Root { root, ranks });
        }
        if collective.reduces() && !op.fits(data_type) {
            return Err(CallError::Reduction { op, data_type });
        }
        let size = data_type.size();
        if elements.checked_mul(size) != Some(bytes) {
            return Err(CallError::Length { got: bytes, elements, size });
        }
        let parts = collective.parts(ranks);
        if !elements.is_multiple_of(parts) {
            return Err(CallError::Uneven { elements, parts, collective });
        }
        Ok(())
    }
}
