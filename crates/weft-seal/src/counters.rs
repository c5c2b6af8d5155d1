//! What is counted.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// What was sealed and opened, and what was not. All of them only grow.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct SealCounters { $($(#[doc = $doc])+ pub $name: u64),+ }

        impl SealCounters {
            /// Returns every counter with its name.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Returns the packets that were not opened: those under keys that are not known may only be late.
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
    /// Packets encrypted.
    sealed;
    /// Packets opened.
    opened;
    /// Connections whose keys were agreed.
    exchanges;
    /// Connections that are not encrypted, because the peer cannot.
    clear;
    /// Packets whose headers are none.
    malformed;
    /// Packets under keys that are not known.
    unknown_key;
    /// Packets that are not authentic: changed, made up, or under another key.
    not_authentic;
    /// Packets received before, or more than 65,536 packets late.
    replayed;
    /// Packets in the clear on a connection that is encrypted, and where encryption is required on any.
    in_clear;
    /// Key exchanges that failed: another pre-shared key, another identity than one of those that are accepted, or a
    /// forgery.
    refused_exchanges;
    /// Requests that were dropped because others had more keys computed than strangers may. They come again.
    postponed_exchanges;
    /// Requests and accepts without a key exchange where encryption is required.
    refused_clear;
}
