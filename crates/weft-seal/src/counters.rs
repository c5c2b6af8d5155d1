//! The counters of encryption.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// Numbers of packets sealed, opened and refused. They only grow.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct SealCounters { $($(#[doc = $doc])+ pub $name: u64),+ }

        impl SealCounters {
            /// Returns every counter with its name.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Returns the number of packets refused, without those under unknown keys, which may only be late.
            pub const fn not_opened(&self) -> u64 {
                self.malformed + self.not_authentic + self.replayed + self.in_clear
            }

            /// Adds the counts of another endpoint.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counters! {
    /// Number of packets encrypted.
    sealed;
    /// Number of packets opened.
    opened;
    /// Number of connections whose key exchange succeeded.
    exchanges;
    /// Number of connections that are not encrypted because the peer does not support it.
    clear;
    /// Number of packets with an invalid header.
    malformed;
    /// Number of packets under unknown keys.
    unknown_key;
    /// Number of packets that are not authentic: altered, forged, or under another key.
    not_authentic;
    /// Number of packets received before, or more than 65,536 packets late.
    replayed;
    /// Number of packets in the clear on an encrypted connection, or on any where encryption is required.
    in_clear;
    /// Number of key exchanges that failed: another pre-shared key, an identity that is not accepted, or a
    /// forgery.
    refused_exchanges;
    /// Number of requests dropped because the limit on exchanges of unauthenticated peers was reached. Their
    /// senders retransmit.
    postponed_exchanges;
    /// Number of requests and accepts without a key exchange where encryption is required.
    refused_clear;
}
