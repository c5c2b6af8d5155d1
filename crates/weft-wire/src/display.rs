//! The text form of packets in traces and errors: one line for each packet, as in tcpdump.
//!
//! Numbers are decimal except capabilities and connection ids, which are hexadecimal. Fields with their
//! default (no flags, zero reason, empty bitmap) are omitted.

use core::fmt::{self, Display, Formatter};

use crate::{
    AckHeader, AckType, Bitmap, DataHeader, MessageHeader, Packet, SetupHeader, SetupKind,
    SetupParameters,
};

impl Display for Packet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(header, None) => header.fmt(f),
            Self::Data(header, Some(message)) => write!(f, "{header}, {message}"),
            Self::Ack(header) => header.fmt(f),
            Self::Setup(header) => header.fmt(f),
        }
    }
}

impl Display for DataHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { psn, destination_cid, timestamp, .. } = self;
        let (version, cc, path) = (self.version.get(), self.cc_type.get(), self.path_id.get());
        write!(f, "data v{version} > {destination_cid:08x} psn {psn} path {path} cc {cc}")?;
        write!(f, " t1 {timestamp}")?;
        let flags = [
            (self.special, "se"),
            (self.ack_now, "ack"),
            (self.from_acceptor, "dir"),
            (self.ece, "ece"),
            (self.retransmitted, "ret"),
        ];
        for (_, name) in flags.iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}

impl Display for MessageHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { opcode, tag, id, offset, length } = self;
        write!(f, "message {id} op {opcode} offset {offset} of {length}")?;
        if *tag > 0 { write!(f, " tag {tag}") } else { Ok(()) }
    }
}

impl Display for AckHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (version, cc, path) = (self.version.get(), self.cc_type.get(), self.path_id.get());
        write!(f, "ack v{version} > {:08x} below {}", self.destination_cid, self.psn_base)?;
        if !self.bitmap.words().is_empty() {
            write!(f, " and {}", Placed { bitmap: &self.bitmap, first: self.first_of_bitmap() })?;
        }
        let (hops, num_ack, num_ece) =
            (self.hop_count.get(), self.num_ack.get(), self.num_ece.get());
        write!(f, ", echo {} path {path} hops {hops} cc {cc}", self.psn)?;
        write!(f, ", acked {num_ack} marked {num_ece}")?;
        write!(f, ", t1 {} t2 {}", self.timestamp_echo, self.timestamp_nic_rx)?;
        write!(f, " t3 {}", self.timestamp)?;
        if self.special {
            f.write_str(" se")?;
        }
        match self.ack_type {
            AckType::Plain => Ok(()),
            AckType::Duplicate => f.write_str(" duplicate"),
            AckType::Nack => f.write_str(" nack"),
            AckType::Trimmed => f.write_str(" trimmed"),
            AckType::TrimmedLastHop => f.write_str(" trimmed-last-hop"),
            AckType::Credit => f.write_str(" credit"),
            AckType::CreditRequest => f.write_str(" credit-request"),
            AckType::Other(number) => write!(f, " type {}", number.get()),
        }
    }
}

impl Display for SetupHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { kind, thread_id, reason, local_cid, destination_cid, .. } = self;
        let (version, cc) = (self.version.get(), self.cc_type.get());
        write!(f, "{} v{version} {local_cid:08x} > {destination_cid:08x}", kind.name())?;
        write!(f, " thread {thread_id} cc {cc}")?;
        if *reason != 0 {
            write!(f, " reason {reason}")?;
        }
        match &self.terms {
            Some(terms) => write!(f, ", {terms}"),
            None => Ok(()),
        }
    }
}

impl Display for SetupParameters {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { capabilities, first_psn, mtu, window, paths, .. } = self;
        write!(f, "capabilities {capabilities:#x} first {first_psn} mtu {mtu} window {window}")?;
        let (high, low) = super::setup::split(self.service);
        write!(f, " paths {paths} port {} service {low}", self.receive_port)?;
        if high > 0 {
            write!(f, " from {high}")?;
        }
        write!(f, " min version {}", self.min_version)?;
        // Anyone who reads a token can use it to prove an address, so a log shows only that there is one.
        if self.token == 0 { Ok(()) } else { f.write_str(" token") }
    }
}

impl SetupKind {
    /// Returns the kind's name in text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Challenge => "challenge",
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Close => "close",
            Self::Reset => "reset",
        }
    }
}

/// A bitmap that is displayed as ranges of sequence numbers: `7-9 12`.
struct Placed<'a> {
    bitmap: &'a Bitmap,
    /// Sequence number of the bitmap's first bit.
    first: u32,
}

impl Display for Placed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut indices = self.bitmap.iter().peekable();
        let mut separator = "";
        while let Some(start) = indices.next() {
            let mut end = start;
            while let Some(next) = indices.next_if_eq(&(end + 1)) {
                end = next;
            }
            let psn = |index| self.first.wrapping_add(index);
            write!(f, "{separator}{}", psn(start))?;
            if end > start {
                write!(f, "-{}", psn(end))?;
            }
            separator = " ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{U3, U4, U5, U11};

    #[test]
    fn a_data_packet_fits_a_line() {
        let header = DataHeader {
            version: U4::truncate(1),
            cc_type: U4::truncate(2),
            ack_now: true,
            retransmitted: true,
            path_id: U3::truncate(3),
            psn: 17,
            destination_cid: 0xabcd,
            timestamp: 123_456,
            ..DataHeader::default()
        };
        let frame = "data v1 > 0000abcd psn 17 path 3 cc 2 t1 123456 ack ret";
        assert_eq!(Packet::data(header, None).to_string(), frame);
        let message = MessageHeader { opcode: 4, tag: 0, id: 9, offset: 1024, length: 4096 };
        assert_eq!(
            Packet::data(header, Some(message)).to_string(),
            format!("{frame}, message 9 op 4 offset 1024 of 4096")
        );
    }

    #[test]
    fn an_ack_lists_placed_packets_as_ranges_that_may_wrap() {
        let mut bitmap = Bitmap::default();
        [1, 2, 3, 5, 40].into_iter().for_each(|index| bitmap.set(index));
        let header = AckHeader {
            version: U4::truncate(1),
            psn: 2,
            destination_cid: 1,
            psn_base: u32::MAX - 2,
            num_ack: U11::truncate(6),
            ack_type: AckType::Duplicate,
            bitmap,
            ..AckHeader::default()
        };
        assert_eq!(
            Packet::Ack(header).to_string(),
            "ack v1 > 00000001 below 4294967293 and 4294967294-0 2 37, echo 2 path 0 hops 0 cc 0, \
             acked 6 marked 0, t1 0 t2 0 t3 0 duplicate"
        );
        let later = AckHeader { psn_base: 0, block: U5::truncate(1), ..header };
        assert!(later.to_string().contains("below 0 and 257-259 261 296,"), "{later}");
    }

    #[test]
    fn a_token_is_mentioned_and_never_shown() {
        let terms = SetupParameters { token: 0x1234_5678, mtu: 1400, ..SetupParameters::default() };
        let header = SetupHeader {
            kind: SetupKind::Challenge,
            version: U4::truncate(1),
            cc_type: U4::default(),
            thread_id: 2,
            reason: 0,
            local_cid: 1,
            destination_cid: 2,
            terms: Some(terms),
        };
        assert_eq!(
            Packet::Setup(header).to_string(),
            "challenge v1 00000001 > 00000002 thread 2 cc 0, capabilities 0x0 first 0 mtu 1400 \
             window 0 paths 0 port 0 service 0 min version 0 token"
        );
        let close = SetupHeader { kind: SetupKind::Close, reason: 3, terms: None, ..header };
        assert_eq!(close.to_string(), "close v1 00000001 > 00000002 thread 2 cc 0 reason 3");
    }
}
