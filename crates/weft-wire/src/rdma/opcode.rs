//! Opcodes of RDMA messages, each with its service and whether a requester or a responder sends it.

use crate::layout::Number;

/// Transport service of a queue pair (IBTA volume 1, chapter 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RdmaService {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// The half of a queue pair that sends a message with an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Requester,
    Responder,
}

macro_rules! opcodes {
    ($($opcode:ident = $value:literal, $service:ident, $sender:ident, $name:literal, $meaning:literal;)+) => {
        /// The opcode of a message: that of IBTA's base transport header for a message of one
        /// packet (volume 1, chapter 9). The three high bits are the service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum RdmaOpcode { $(#[doc = $meaning] $opcode = $value),+ }

        impl RdmaOpcode {
            /// All opcodes.
            pub const ALL: &[Self] = &[$(Self::$opcode),+];

            /// Returns the opcode with this number.
            #[inline]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($value => Some(Self::$opcode),)+ _ => None }
            }

            /// Returns the opcode's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$opcode => $name),+ }
            }

            /// Returns the service that has this opcode.
            #[inline]
            pub const fn service(self) -> RdmaService {
                match self { $(Self::$opcode => RdmaService::$service),+ }
            }

            /// Returns `true` if a requester sends it, `false` if a responder does.
            #[inline]
            pub const fn is_request(self) -> bool {
                match self { $(Self::$opcode => matches!(Sender::$sender, Sender::Requester)),+ }
            }
        }

        /// All opcodes, for the reference page.
        pub(crate) const OPCODES: &[Number] =
            &[$(Number { value: $value, name: $name, meaning: $meaning }),+];
    };
}

opcodes! {
    RcSend = 0x04, Rc, Requester, "RC SEND", "payload for the next receive request";
    RcSendWithImmediate = 0x05, Rc, Requester, "RC SEND with immediate", "the same, with immediate data for the completion";
    RcWrite = 0x0a, Rc, Requester, "RC RDMA WRITE", "payload for remote memory";
    RcWriteWithImmediate = 0x0b, Rc, Requester, "RC RDMA WRITE with immediate", "the same, with immediate data for a completion";
    RcReadRequest = 0x0c, Rc, Requester, "RC RDMA READ request", "requests remote memory";
    RcReadResponse = 0x10, Rc, Responder, "RC RDMA READ response", "the requested memory";
    RcAcknowledge = 0x11, Rc, Responder, "RC acknowledge", "a request was refused, or the queue pair is ready";
    RcAtomicAcknowledge = 0x12, Rc, Responder, "RC atomic acknowledge", "the value that an atomic found";
    RcCompareSwap = 0x13, Rc, Requester, "RC CmpSwap", "stores eight bytes if the memory equals the compare data";
    RcFetchAdd = 0x14, Rc, Requester, "RC FetchAdd", "adds to eight bytes";
    RcSendWithInvalidate = 0x17, Rc, Requester, "RC SEND with invalidate", "a SEND that invalidates an R_Key";
    UcSend = 0x24, Uc, Requester, "UC SEND", "payload for the next receive request";
    UcSendWithImmediate = 0x25, Uc, Requester, "UC SEND with immediate", "the same, with immediate data for the completion";
    UcWrite = 0x2a, Uc, Requester, "UC RDMA WRITE", "payload for remote memory";
    UcWriteWithImmediate = 0x2b, Uc, Requester, "UC RDMA WRITE with immediate", "the same, with immediate data for a completion";
    UdSend = 0x64, Ud, Requester, "UD SEND", "a datagram for the next receive request";
    UdSendWithImmediate = 0x65, Ud, Requester, "UD SEND with immediate", "the same, with immediate data for the completion";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opcode_is_found_by_its_number_and_its_service_is_in_the_high_bits() {
        for &opcode in RdmaOpcode::ALL {
            assert_eq!(RdmaOpcode::from_number(opcode as u8), Some(opcode));
            let (service, prefix) = match opcode as u8 >> 5 {
                0 => (RdmaService::Rc, "RC "),
                1 => (RdmaService::Uc, "UC "),
                3 => (RdmaService::Ud, "UD "),
                other => panic!("service {other}"),
            };
            assert_eq!(opcode.service(), service);
            assert!(opcode.name().starts_with(prefix), "{opcode:?}");
        }
        assert_eq!(RdmaOpcode::from_number(0), None);
    }
}
